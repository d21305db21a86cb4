"""A kernel in this process, played by a script: `check(script, prompt, …)` tells a story through one door."""

import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

from deskmate_server.editor.no_editor import NoEditor
from deskmate_session.config.layers import load
from deskmate_session.core.state import SessionState
from deskmate_session.kernel import Kernel, KernelOptions
from deskmate_session.log.store import EventLog
from deskmate_session.model import commands as c, queries as q
from deskmate_session.model.events import Event
from deskmate_session.model.messages import TextInput, TurnResult
from deskmate_session.model.updates import Delta, Updated


class CountingIds:
    """Ids that count: `msg_1`, `msg_2`, … so that whole values can be compared."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def new(self, prefix: str) -> str:
        self._counts[prefix] = self._counts.get(prefix, 0) + 1
        return f"{prefix}_{self._counts[prefix]}"


class StillClock:
    """A clock that stands at 1,000 ms."""

    def now(self) -> int:
        return 1_000


class Seen:
    """A sink that keeps what it is shown."""

    def __init__(self) -> None:
        self.items: list[Updated | Delta] = []

    def push(self, item: Updated | Delta) -> None:
        self.items.append(item)


@contextlib.asynccontextmanager
async def kernel(
    tmp: Path,
    script: str,
    *,
    files: dict[str, str] | None = None,
    permission: dict[str, Any] | None = None,
    ids: Any = None,
) -> AsyncGenerator[Kernel]:
    """Open a kernel on `tmp/work` whose model plays `script`."""
    folder = tmp / "work"
    folder.mkdir(exist_ok=True)
    for name, text in (files or {}).items():
        (folder / name).write_text(text)
    path = tmp / "script.txt"
    path.write_text(script)
    provider = {"kind": "scripted", "base_url": str(path)}
    given = permission if permission is not None else {"edit": "allow", "bash": "allow"}
    settings = load(
        {"model": "mock/test", "providers": {"mock": provider}, "permission": given}, {"HOME": str(tmp)}
    )
    opened = await Kernel.open(
        KernelOptions(
            folder=str(folder),
            host=NoEditor(),
            settings=settings.settings,
            environment={"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(tmp)},
            state_home=tmp / "state",
            ids=ids or CountingIds(),
            clock=StillClock(),
        )
    )
    try:
        yield opened
    finally:
        await opened.close()


async def create(opened: Kernel, session_id: str = "ses_0001") -> str:
    """A session with a given id."""
    await opened.submit(c.CreateSession(id=session_id))
    return session_id


async def prompt(opened: Kernel, session_id: str, words: str, **fields: Any) -> TurnResult:
    """Run a prompt to the end of its turn."""
    turn = await opened.prompt(c.Prompt(session_id=session_id, parts=(TextInput(text=words),), **fields))
    return await turn.result


async def logged(opened: Kernel, session_id: str) -> list[Any]:
    """A session's events as they go over the wire."""
    page = await opened.query(q.ListEvents(session_id=session_id))
    assert isinstance(page, q.EventPage)
    return [event.dump() for event in page.events]


async def read_log(state_dir: Path, session_id: str) -> list[Event]:
    """A session's events from disk, by another reader."""
    log = await EventLog.open(state_dir, StillClock(), CountingIds())
    try:
        return await log.read(session=session_id)
    finally:
        await log.close()


def folded(events: list[Event]) -> SessionState:
    """The state that these events make."""
    state = SessionState()
    for event in events:
        state.apply(event)
    return state
