"""Open asks: logged when opened, settled once, by whoever answers first, in whichever process."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from deskmate_session.core.state import SessionState
from deskmate_session.errors import Conflict
from deskmate_session.log.store import EventLog
from deskmate_session.model import events as e
from deskmate_session.model.commands import ReplyAsk
from deskmate_session.model.messages import AlwaysPattern, Ask
from deskmate_session.model.permissions import PermissionRequest, Reply
from deskmate_session.model.ports import Clock, Ids
from deskmate_session.runtime.sessions import Sessions

By = Literal["person", "timeout", "unattended", "interrupt", "recovery"]


@dataclass(frozen=True, slots=True)
class Answer:
    """How an ask was settled."""

    reply: Reply
    by: By
    message: str | None = None
    input: dict[str, Any] | None = None


class Asks:
    """Asks that wait for an answer. The log decides which answer was the first."""

    def __init__(
        self,
        log: EventLog,
        sessions: Sessions,
        ids: Ids,
        clock: Clock,
        timeout_ms: int | None,
        *,
        unattended: bool,
    ) -> None:
        self._log = log
        self._sessions = sessions
        self._ids = ids
        self._clock = clock
        self._unattended = unattended
        self._timeout = None if timeout_ms is None else timeout_ms / 1000
        self._waiting: dict[str, asyncio.Future[Answer]] = {}
        """Answers that calls of this process wait for, by ask."""
        sessions.on_event(self._heard)

    async def open_asks(self, session_id: str | None = None) -> tuple[Ask, ...]:
        """The open asks of every process, oldest first."""
        events = await self._log.open_asks(session_id)
        return tuple(event.payload.ask for event in events if isinstance(event.payload, e.AskOpened))

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
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[ask.id] = answer
        try:
            await self._sessions.append(session_id, e.AskOpened(ask=ask))
            if self._unattended:
                return await self._give_up(session_id, ask.id, answer, "unattended")
            return await asyncio.wait_for(asyncio.shield(answer), self._timeout)
        except TimeoutError:
            return await self._give_up(session_id, ask.id, answer, "timeout")
        except asyncio.CancelledError:
            # The fact must stand before the stack unwinds; a reply that comes later finds nothing open.
            await asyncio.shield(self._give_up(session_id, ask.id, answer, "interrupt"))
            raise
        finally:
            self._waiting.pop(ask.id, None)

    async def reply(self, command: ReplyAsk) -> bool:
        """Settle an ask of any process. False when it is settled already or unknown: the first answer won."""
        found = await self._log.ask(command.ask_id)
        if found is None:
            return False
        session_id, _ = found
        await self._sessions.get(session_id)  # its causes are known then
        fact = e.AskReplied(
            ask_id=command.ask_id,
            reply=command.reply,
            by="person",
            message=command.message,
            input=command.input,
        )
        try:
            await self._sessions.append(session_id, fact, durable=True)
        except Conflict:
            return False
        return True

    async def _give_up(self, session_id: str, ask_id: str, answer: asyncio.Future[Answer], by: By) -> Answer:
        with suppress(Conflict):  # a reply came first; it is the answer
            fact = e.AskReplied(ask_id=ask_id, reply="reject", by=by)
            await self._sessions.append(session_id, fact, held=True)
        return await answer

    def _heard(self, _state: SessionState, event: e.Event, _ours: bool) -> None:
        fact = event.payload
        if not isinstance(fact, e.AskReplied):
            return
        answer = self._waiting.get(fact.ask_id)
        if answer is not None and not answer.done():
            answer.set_result(Answer(fact.reply, fact.by, fact.message, fact.input))
