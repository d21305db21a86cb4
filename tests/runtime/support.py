"""A kernel in this process, played by a script: `check(script, prompt, …)` tells a story through one door."""

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

from deskmate_server.editor.no_editor import NoEditor
from deskmate_session.config.layers import load
from deskmate_session.core.state import SessionState
from deskmate_session.errors import ProviderError
from deskmate_session.ids import RandomIds
from deskmate_session.kernel import Kernel, KernelOptions
from deskmate_session.log.store import EventLog
from deskmate_session.model import commands as c, queries as q
from deskmate_session.model.events import Event
from deskmate_session.model.messages import TextInput, TurnResult, Usage
from deskmate_session.model.ports import AnswerEnded, StreamEvent
from deskmate_session.model.updates import Delta, Updated
from deskmate_session.providers.blocks import BlockWriter
from deskmate_session.providers.scripted import ScriptedProvider
from deskmate_session.runtime.coordinator import Coordinator
from deskmate_session.runtime.options import SystemClock, Turn


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


class Answering:
    """One request that a `Hand` is answering."""

    def __init__(self, words: str) -> None:
        self.words = words
        """Of the prompt, or the last results that the request brings."""
        self.orders: asyncio.Queue[list[StreamEvent] | ProviderError | None] = asyncio.Queue()
        self._writer = BlockWriter()

    def say(self, text: str) -> None:
        """Stream a block of text."""
        self._writer.delta(index := self._writer.start("text"), text)
        self._writer.end(index)
        self.orders.put_nowait(self._writer.take())

    def call(self, tool: str, **args: Any) -> None:
        """Ask for a call."""
        self._writer.delta(index := self._writer.start("tool", None, tool), json.dumps(args))
        self._writer.end(index)
        self.orders.put_nowait(self._writer.take())

    def end(self, finish: Any = "stop") -> None:
        """End the answer well."""
        self._writer.finish(AnswerEnded(finish, Usage(input=1, output=1), finish))
        self.orders.put_nowait(self._writer.take())
        self.orders.put_nowait(None)

    def fail(self) -> None:
        """Break the stream off."""
        self.orders.put_nowait(ProviderError("badResponse", "the stream broke"))


class Hand(ScriptedProvider):
    """A model that a test plays by hand: each request waits for its orders."""

    def __init__(self) -> None:
        super().__init__("mock", Path("nowhere"))
        self.answering: list[Answering] = []
        """Requests that are being answered, oldest first."""
        self.most = 0
        """How many there were at the same time."""
        self.asked: list[str] = []
        """The words of every request."""

    async def load(self) -> None:
        """There is no script."""

    async def stream(self, body: bytes) -> AsyncGenerator[list[StreamEvent]]:
        """Do what the test says."""
        blocks = json.loads(body)["messages"][-1]["blocks"]
        texts = [block.get("text") or block.get("output") or "" for block in blocks]
        mine = Answering(next(text for text in reversed(texts) if not text.startswith("<work-context")))
        self.answering.append(mine)
        self.asked.append(mine.words)
        self.most = max(self.most, len(self.answering))
        try:
            while (order := await mine.orders.get()) is not None:
                if isinstance(order, ProviderError):
                    raise order
                yield order
        finally:
            self.answering.remove(mine)

    async def next(self, words: str | None = None) -> Answering:
        """Wait for a request (that brings these words)."""
        await until(lambda: any(words in (None, mine.words) for mine in self.answering))
        return next(mine for mine in self.answering if words in (None, mine.words))


async def until(holds: Callable[[], object], within_s: float = 10.0) -> None:
    """Wait for something that no future tells; fails loudly when it never comes."""
    async with asyncio.timeout(within_s):
        while not holds():
            await asyncio.sleep(0.001)


def real() -> dict[str, Any]:
    """Ids and a clock for kernels that share a folder: no id comes twice, and text is logged in time."""
    return {"ids": RandomIds(), "clock": SystemClock()}


@contextlib.asynccontextmanager
async def by_hand(tmp: Path, **options: Any) -> AsyncGenerator[tuple[Kernel, Hand]]:
    """A kernel whose model is played by the test; several may be open on one `tmp`, as processes are."""
    hand = Hand()
    async with kernel(tmp, "say: never played", **{**real(), **options}) as opened:
        opened._providers._made["mock"] = hand
        yield opened, hand


def coordinator(opened: Kernel) -> Coordinator:
    """Who runs things in a kernel."""
    return opened._coordinator


async def send(opened: Kernel, session_id: str, words: str, **fields: Any) -> Turn:
    """Send a prompt; it is accepted when this returns."""
    return await opened.prompt(c.Prompt(session_id=session_id, parts=(TextInput(text=words),), **fields))


async def idle(opened: Kernel, session_id: str) -> None:
    """Wait until this process runs nothing of a session and holds no lease of it."""
    await until(lambda: not opened.runs_here(session_id) and session_id not in opened._sessions.leases)


async def types(opened: Kernel, session_id: str) -> list[str]:
    """The types of a session's events, but those of the streamed answer."""
    shown = [event["type"] for event in await logged(opened, session_id)]
    return [type for type in shown if not type.startswith(("part.", "model.", "context."))]


@contextlib.asynccontextmanager
async def kernel(
    tmp: Path,
    script: str,
    *,
    files: dict[str, str] | None = None,
    permission: dict[str, Any] | None = None,
    ids: Any = None,
    clock: Any = None,
    config: dict[str, Any] | None = None,
) -> AsyncGenerator[Kernel]:
    """Open a kernel on `tmp/work` whose model plays `script`."""
    folder = tmp / "work"
    folder.mkdir(exist_ok=True)
    for name, text in (files or {}).items():
        (folder / name).write_text(text)
    path = tmp / f"script-{os.getpid()}.txt"  # another process may play another one
    path.write_text(script)
    provider = {"kind": "scripted", "base_url": str(path)}
    given = permission if permission is not None else {"edit": "allow", "bash": "allow"}
    said = {"model": "mock/test", "providers": {"mock": provider}, "permission": given, **(config or {})}
    settings = load(said, {"HOME": str(tmp)})
    opened = await Kernel.open(
        KernelOptions(
            folder=str(folder),
            host=NoEditor(),
            settings=settings.settings,
            environment={"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(tmp)},
            state_home=tmp / "state",
            ids=ids or CountingIds(),
            clock=clock or StillClock(),
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
