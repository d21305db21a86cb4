"""Open asks: logged when opened, settled once, by whoever answers first."""

import asyncio
from dataclasses import dataclass
from typing import Any, Literal

from deskmate_session.errors import Rejected
from deskmate_session.model import events as e
from deskmate_session.model.commands import ReplyAsk
from deskmate_session.model.messages import AlwaysPattern, Ask
from deskmate_session.model.permissions import PermissionRequest, Reply
from deskmate_session.model.ports import Clock, Ids
from deskmate_session.runtime.sessions import Sessions

By = Literal["person", "timeout", "unattended", "interrupt"]


@dataclass(frozen=True, slots=True)
class Answer:
    """How an ask was settled."""

    reply: Reply
    by: By
    message: str | None = None
    input: dict[str, Any] | None = None


class Asks:
    """Asks that wait for an answer."""

    def __init__(
        self, sessions: Sessions, ids: Ids, clock: Clock, timeout_ms: int | None, *, unattended: bool
    ) -> None:
        self._sessions = sessions
        self._ids = ids
        self._clock = clock
        self._unattended = unattended
        self._timeout = None if timeout_ms is None else timeout_ms / 1000
        self._open: dict[str, tuple[Ask, asyncio.Future[Answer]]] = {}

    def open_asks(self, session_id: str | None = None) -> tuple[Ask, ...]:
        """The open asks, oldest first."""
        asks = (ask for ask, _ in self._open.values())
        return tuple(ask for ask in asks if session_id is None or ask.session_id == session_id)

    async def permission(self, session_id: str, call_id: str, request: PermissionRequest) -> Answer:
        """Ask for a permission and wait. Cancelling the wait settles the ask as rejected by `interrupt`."""
        ask = Ask(
            id=self._ids.new("ask"),
            session_id=session_id,
            call_id=call_id,
            kind="permission",
            permission=request.permission,
            patterns=request.patterns,
            always=tuple(AlwaysPattern(pattern=pattern) for pattern in request.always),
            title=request.title,
            detail=request.detail,
            created_at=self._clock.now(),
        )
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._open[ask.id] = (ask, future)
        try:
            await self._sessions.append(session_id, e.AskOpened(ask=ask))
            if self._unattended:
                return await self._give_up(session_id, ask, future, "unattended")
            return await asyncio.wait_for(asyncio.shield(future), self._timeout)
        except TimeoutError:
            return await self._give_up(session_id, ask, future, "timeout")
        except asyncio.CancelledError:
            # The fact must stand before the stack unwinds; a reply that comes later finds nothing open.
            await asyncio.shield(self._give_up(session_id, ask, future, "interrupt"))
            raise
        finally:
            self._open.pop(ask.id, None)

    async def reply(self, command: ReplyAsk) -> bool:
        """Settle an ask. False when it is settled already or unknown: the first answer won."""
        entry = self._open.pop(command.ask_id, None)
        if entry is None or entry[1].done():
            return False
        ask, future = entry
        if ask.session_id is None:
            raise Rejected("notSupported", f"ask {command.ask_id!r} belongs to no session")
        fact = e.AskReplied(
            ask_id=ask.id, reply=command.reply, by="person", message=command.message, input=command.input
        )
        await self._sessions.append(ask.session_id, fact, durable=True)
        if not future.done():
            future.set_result(Answer(command.reply, "person", command.message, command.input))
        return True

    async def _give_up(self, session_id: str, ask: Ask, future: asyncio.Future[Answer], by: By) -> Answer:
        if ask.id not in self._open:  # a reply is being logged: it came first
            return await future
        del self._open[ask.id]
        fact = e.AskReplied(ask_id=ask.id, reply="reject", by=by)
        await self._sessions.append(session_id, fact)
        return Answer("reject", by)
