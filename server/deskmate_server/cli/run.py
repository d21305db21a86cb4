"""`deskmate run`: one turn in this folder, without an editor."""

import argparse
import asyncio
import contextlib
import shlex
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError

from deskmate_server.cli.interrupts import INTERRUPTED, interruptible
from deskmate_server.cli.live import Live
from deskmate_server.cli.opening import failed, opened, settings
from deskmate_server.cli.output import Output, complain, one_line, stderr, stdout
from deskmate_session.errors import DeskmateError, Rejected
from deskmate_session.kernel import Kernel, Supervisor
from deskmate_session.model import commands as c, queries as q
from deskmate_session.model.messages import Ask, Queue, TextInput, TurnResult
from deskmate_session.model.permissions import Action, Rule
from deskmate_session.model.updates import AskUpdate, Delta, QueueUpdate, Updated

Permissions = dict[str, Action | dict[str, Action]]


def run(args: argparse.Namespace) -> int:
    """Run the turn; 0 when it ended by itself."""
    if args.ephemeral and (args.go_on or args.session):
        complain("--ephemeral keeps nothing, so there is no session to go on with")
        return 2
    text: str | None = args.prompt
    if text is None and not (args.go_on or args.session):
        complain("there is no prompt", "only --continue and --session can do without: they resume")
        return 2
    if text == "-":
        text = sys.stdin.buffer.read().decode("utf-8", "replace").rstrip("\n")
    try:
        prompt = None if text is None else TextInput(text=text)
    except ValidationError as error:
        blank = text is not None and not text.strip()
        complain("the prompt is empty" if blank else f"the prompt can't be used: {error.errors()[0]['msg']}")
        return 2
    with contextlib.ExitStack() as stack:
        home: Path | None = None
        if args.ephemeral:
            made = tempfile.TemporaryDirectory(prefix="deskmate-run-", ignore_cleanup_errors=True)
            home = Path(stack.enter_context(made))
        try:
            return interruptible(_run(args, prompt, home))
        except DeskmateError as error:
            return failed(error)


async def _run(args: argparse.Namespace, prompt: TextInput | None, home: Path | None) -> int:
    pairs: list[tuple[str, str]] = args.allow
    using = settings()
    using = using.model_copy(update={"permission": without_asks(using.permission, pairs)})
    rules = tuple(Rule(name, pattern, "allow") for name, pattern in pairs)
    supervisor = Supervisor()
    async with opened(using, home, rules) as kernel:
        session_id = await _session(kernel, args)
        view = _View(as_json=args.json)
        if prompt is None:
            turn = await kernel.resume(c.Resume(session_id=session_id), view)
        else:
            command = c.Prompt(session_id=session_id, parts=(prompt,), agent=args.agent, model=args.model)
            turn = await kernel.prompt(command, view)
            view.goes_on = _Again(kernel, supervisor, command, turn.accepted.message_id)
        message_id, interrupted = turn.accepted.message_id, False
        try:
            result = await asyncio.shield(turn.result)
        except asyncio.CancelledError:
            if await kernel.unqueue(session_id, message_id):
                complain("the prompt was taken back, before its turn began")
                return INTERRUPTED
            interrupted = True
            await kernel.submit(c.Interrupt(session_id=session_id))
            result = await turn.result
        view.end(result)
        if not interrupted:
            await kernel.drained(session_id)  # other prompts that came meanwhile are this process's to run
        await supervisor.close()
    if interrupted:
        return INTERRUPTED
    return 0 if result.finish == "stop" else 1


class _Again:
    """The prompt once more: after a crash what waits is held, but who waits at a terminal wants it to run."""

    def __init__(self, kernel: Kernel, supervisor: Supervisor, command: c.Prompt, message_id: str) -> None:
        self._kernel = kernel
        self._supervisor = supervisor
        self._command = command.model_copy(update={"message_id": message_id})

    def held(self, queue: Queue) -> None:
        """The queue is held; is it ours?"""
        if any(waiting.message_id == self._command.message_id for waiting in queue.prompts):
            self._supervisor.spawn(self._kernel.prompt(self._command), name="the prompt once more")


async def _session(kernel: Kernel, args: argparse.Namespace) -> str:
    """A new session, or the one to go on with."""
    session_id: str | None = args.session
    if args.go_on:
        page = await kernel.query(q.ListSessions(limit=1))
        if not isinstance(page, c.SessionPage) or not page.sessions:
            raise Rejected(
                "sessionNotFound", "there is no session in this folder yet", "leave out --continue"
            )
        session_id = page.sessions[0].id
    if session_id is None:
        created = await kernel.submit(c.CreateSession(agent=args.agent, model=args.model, mode=args.mode))
        return str(created.dump()["id"])
    if args.mode is not None:
        await kernel.submit(c.UpdateSession(session_id=session_id, mode=args.mode))
    return session_id


class _View:
    """A `Sink`: shows the turn, and says of each rejected ask which flag would have allowed it."""

    def __init__(self, *, as_json: bool) -> None:
        self._out, self._err = stdout(), stderr()
        self._json = as_json
        self._live = Live(self._out, self._err)
        self.goes_on: _Again | None = None

    def push(self, item: Updated | Delta) -> None:
        """Show one update."""
        if isinstance(item, AskUpdate):
            self._tell(item.ask)
        if isinstance(item, QueueUpdate) and item.queue.held and self.goes_on is not None:
            self.goes_on.held(item.queue)
        if self._json:
            self._out.json(item.dump())
        else:
            self._live.show(item.dump())

    def _tell(self, ask: Ask) -> None:
        self._live.end_text()
        self._err.line(f"rejected, since nobody can be asked: {one_line(ask.title)}", "yellow")
        for flag in flags_for(ask):
            self._err.line(f"  to allow it: {flag}")

    def end(self, result: TurnResult) -> None:
        """Tell how the turn ended."""
        if self._json:
            self._out.json({"kind": "result", **result.dump()})
        self._live.end_text()
        if result.finish != "stop":
            _tell_end(self._err, result)


def _tell_end(err: Output, result: TurnResult) -> None:
    why = f": {result.error.kind}: {one_line(result.error.message)}" if result.error else ""
    err.line(f"deskmate: the turn ended with {result.finish!r}{why}", "red")
    if result.error and result.error.hint:
        err.line(f"  {one_line(result.error.hint)}")


def flags_for(ask: Ask) -> list[str]:
    """The flags that would have allowed an ask, the narrowest first."""
    name = ask.permission or "*"
    if name == "bash":
        # An allow rule matches plain commands only: a chain, a pipe or a redirect needs the whole name.
        patterns = [always.pattern for always in ask.always or ()]
        return [*(f"--allow {shlex.quote(f'bash={pattern}')}" for pattern in patterns), "--allow bash"]
    narrow = [f"--allow {shlex.quote(f'{name}={one_line(pattern)}')}" for pattern in ask.patterns or ()]
    return [" ".join(narrow), f"--allow {shlex.quote(name)}"] if narrow else [f"--allow {shlex.quote(name)}"]


def without_asks(permission: Mapping[str, Action | dict[str, Action]], allowed: list[tuple[str, str]]):
    """A `[permission]` table without the asks that `--allow` names again; a deny stays a deny.

    The flag is the last layer, but rules have no order: of two equal ones the stricter wins.
    """
    table: Permissions = {}
    for name, value in permission.items():
        rules: dict[str, Action] = value if isinstance(value, dict) else {"*": value}
        table[name] = {
            pattern: action
            for pattern, action in rules.items()
            if action != "ask" or (name, pattern) not in allowed
        }
    return table
