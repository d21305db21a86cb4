"""`deskmate sessions verify`: the proof that a log is what was written."""

import os

from deskmate_server.cli.opening import opened, settings
from deskmate_server.cli.output import Output, complain, harmless
from deskmate_session.kernel import state_home, verify_all
from deskmate_session.model import queries as q
from deskmate_session.model.commands import Verified

SHOWN = 50
"""Problems that are told of one log."""


async def run(out: Output, session_id: str | None) -> int:
    """Check this folder's log, or one session; the exit code."""
    async with opened(settings()) as kernel:
        if session_id is not None:
            await kernel.query(q.GetSession(session_id=session_id))
        verified = await kernel.query(q.Verify(session_id=session_id))
        assert isinstance(verified, Verified)
        return _tell(out, session_id or str(kernel.folder), verified)


def run_all(out: Output) -> int:
    """Check the log of every folder, without opening any for work; the exit code."""
    code, found = 0, verify_all(state_home(os.environ))
    for name, verified in found:
        if isinstance(verified, str):
            complain(f"{name}: {verified}")
            code = 1
        else:
            code |= _tell(out, name, verified)
    if not found:
        out.line("there is no log yet")
    return code


def _tell(out: Output, name: str, verified: Verified) -> int:
    if verified.ok:
        out.line(f"{harmless(name)}: {verified.events:,} events, all as they were written", "green")
        return 0
    out.line(f"{harmless(name)}: {verified.events:,} events, {len(verified.problems):,} problems", "red")
    for problem in verified.problems[:SHOWN]:
        out.line(f"  #{problem.seq} {problem.kind}: {harmless(problem.detail)}")
    if len(verified.problems) > SHOWN:
        out.line(f"  and {len(verified.problems) - SHOWN:,} more")
    return 1
