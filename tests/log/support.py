"""What the log's tests share: a clock and ids that count, drafts, a log in a folder, tampering."""

import asyncio
import itertools
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

from deskmate_session.log.store import EventLog, Lease
from deskmate_session.model import events as e
from deskmate_session.model.messages import Ask, TextPart, ToolDetail, ToolPart, ToolState, TurnError, Usage

ROOT = Path(__file__).parents[2]


class Ticks:
    """A clock that moves one millisecond a look."""

    def __init__(self) -> None:
        self._now = itertools.count(1_000)

    def now(self) -> int:
        return next(self._now)


class Counted:
    """Ids that count, under a name of their own."""

    def __init__(self, name: str = "t") -> None:
        self._name = name
        self._next = itertools.count(1)

    def new(self, prefix: str) -> str:
        return f"{prefix}_{self._name}{next(self._next)}"


class HeldLog(EventLog):
    """A log that holds the lease of whatever it appends to, as if nobody else were there."""

    def append(
        self,
        session: str | None,
        drafts: Sequence[e.Draft],
        *,
        durable: bool = False,
        lease: Lease | None = None,
    ) -> asyncio.Future[list[e.Event]]:
        if lease is None and session is not None and not self.read_only and not self._closed:
            lease = self._lease(session)
        return super().append(session, drafts, durable=durable, lease=lease)

    def _lease(self, session: str) -> Lease:
        leases: dict[str, Lease] = self.__dict__.setdefault("leases", {})
        if session not in leases:
            with closing(sqlite3.connect(self.path, isolation_level=None)) as conn:
                [(epoch,)] = conn.execute(
                    "insert into leases values (?, 1, ?)"
                    " on conflict do update set epoch = epoch + 1, owner = excluded.owner returning epoch",
                    (session, self.owner),
                ).fetchall()
            leases[session] = Lease(session, epoch)
        return leases[session]


@asynccontextmanager
async def opened(folder: Path, log: type[EventLog] = HeldLog, **options: Any) -> AsyncIterator[EventLog]:
    """A log that is closed at the end; its ids are unique to this opening."""
    name = f"n{len(list(folder.glob('opening*')))}x"
    folder.mkdir(exist_ok=True)
    (folder / f"opening{name}").touch()
    there = await log.open(folder, Ticks(), Counted(name), **options)
    try:
        yield there
    finally:
        await there.close()


def draft(payload: e.EventPayload, cause: str | None = None) -> e.Draft:
    return e.Draft(payload, cause)


def created(title: str = "A title", parent: str | None = None) -> e.Draft:
    return draft(
        e.SessionCreated(folder="file:///w", title=title, agent="build", model="mock/test", parent_id=parent)
    )


def updated(title: str) -> e.Draft:
    """A request: any process may append it."""
    return draft(e.SessionUpdated(title=title))


def deleted() -> e.Draft:
    return draft(e.SessionDeleted())


def unqueued(message: str = "msg_1") -> e.Draft:
    return draft(e.MessageUnqueued(message_id=message))


def interrupted(turn: str = "turn_1") -> e.Draft:
    return draft(e.InterruptRequested(turn_id=turn))


def held() -> e.Draft:
    return draft(e.QueueHeld(reason="interrupted"))


def released() -> e.Draft:
    return draft(e.QueueReleased())


def asked(ask: str = "ask_1", call: str = "call_1") -> e.Draft:
    detail = ToolDetail(tool="edit", input={})
    return draft(
        e.AskOpened(ask=Ask(id=ask, call_id=call, kind="permission", title="?", detail=detail, created_at=1))
    )


def replied(ask: str = "ask_1") -> e.Draft:
    return draft(e.AskReplied(ask_id=ask, reply="once", by="person"))


def received(message: str = "msg_1") -> e.Draft:
    part = TextPart(id="prt_1", text="hello")
    return draft(
        e.MessageReceived(
            message_id=message, delivery="queue", parts=(part,), agent="build", model="mock/test"
        )
    )


def turn_started(turn: str = "turn_1", message: str = "msg_1", owner: str = "own_1") -> e.Draft:
    return draft(e.TurnStarted(turn_id=turn, message_id=message, owner=owner))


def turn_ended(turn: str = "turn_1", message: str = "msg_1") -> e.Draft:
    return draft(e.TurnEnded(turn_id=turn, message_id=message, finish="stop", usage=Usage(), cost=0, steps=1))


def constructed(message: str = "msg_2", parent: str = "msg_1") -> e.Draft:
    return draft(
        e.ContextConstructed(
            message_id=message,
            parent_id=parent,
            step=1,
            agent="build",
            model="mock/test",
            policy="full",
            history_rounds=1,
            work_context_files=(),
            tool_results=0,
            token_count=10,
            request_hash="0" * 64,
            versions={},
        )
    )


def part_started(message: str = "msg_2", part: str = "prt_2", call: str | None = None) -> e.Draft:
    if call is None:
        return draft(e.PartStarted(message_id=message, part=TextPart(id=part, text="")))
    tool = ToolPart(id=part, call_id=call, tool="read", summary="read", state=ToolState(status="pending"))
    return draft(e.PartStarted(message_id=message, part=tool))


def appended(text: str, offset: int = 0, message: str = "msg_2", part: str = "prt_2") -> e.Draft:
    return draft(e.PartAppended(message_id=message, part_id=part, offset=offset, text=text))


def part_ended(message: str = "msg_2", part: str = "prt_2") -> e.Draft:
    return draft(e.PartEnded(message_id=message, part_id=part, length=0, hash="0" * 64))


def responded(message: str = "msg_2", *calls: str) -> e.Draft:
    return draft(
        e.ModelResponded(
            message_id=message,
            step=1,
            kind="toolCalls" if calls else "text",
            calls=tuple(e.CallRequested(call_id=call, tool="read", args={"path": "a"}) for call in calls),
            finish="toolCalls" if calls else "stop",
            usage=Usage(),
            confidence="deterministic" if calls else "nonDeterministic",
        )
    )


def model_failed(message: str = "msg_2") -> e.Draft:
    error = TurnError(kind="badResponse", message="cut off")
    return draft(e.ModelFailed(message_id=message, step=1, error=error))


def call_started(call: str = "call_1") -> e.Draft:
    return draft(e.CallStarted(call_id=call, tool="read", args={"path": "a", "limit": None}))


def call_completed(call: str = "call_1", output: str = "text") -> e.Draft:
    return draft(e.CallCompleted(call_id=call, tool="read", success=True, output=output))


def call_failed(call: str = "call_1") -> e.Draft:
    return draft(e.CallFailed(call_id=call, tool="read", kind="failed", error="no"))


def changed(call: str = "call_1", before: str | None = None, after: str | None = None) -> e.Draft:
    return draft(
        e.ChangeApplied(
            call_id=call,
            uri="file:///w/a",
            before=before,
            after=after,
            via="disk",
            verified=True,
            saved=True,
        )
    )


def tamper(folder: Path, statement: str, args: tuple[object, ...] = ()) -> None:
    """Change the database behind the log's back, triggers taken down."""
    with closing(sqlite3.connect(folder / "events.db", isolation_level=None)) as conn:
        for trigger in ("events_no_update", "events_no_delete"):
            conn.execute(f"drop trigger if exists {trigger}")
        conn.execute(statement, args)


def child(code: str, *args: str) -> "subprocess.Popen[str]":
    """Run Python code in a process of its own, with the repository's packages at hand."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *args],
        env={"PYTHONPATH": f"{ROOT / 'session'}:{ROOT}", "PATH": ""},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
