"""Prompts: received once, however often they come; resumed; taken back."""

from collections.abc import Callable, Mapping, Sequence

from deskmate_session.core import decide
from deskmate_session.core.conversation import MessageState
from deskmate_session.core.processor import AnswerProcessor
from deskmate_session.core.state import SessionState
from deskmate_session.core.views.timeline import fold
from deskmate_session.errors import Conflict, Rejected
from deskmate_session.log.store import EventLog
from deskmate_session.model import commands as c, events as e
from deskmate_session.model.messages import Accepted
from deskmate_session.model.ports import Ids
from deskmate_session.model.updates import AcceptedUpdate
from deskmate_session.runtime import watch
from deskmate_session.runtime.bus import Bus, Sink
from deskmate_session.runtime.coordinator import Coordinator
from deskmate_session.runtime.options import Turn
from deskmate_session.runtime.sessions import Sessions

Check = Callable[[str | None, str | None], object]
"""Raises `Rejected` where an agent or a model can't be used."""


class Prompts:
    """Takes prompts in and shows each one's turn to who sent it."""

    def __init__(
        self,
        log: EventLog,
        sessions: Sessions,
        bus: Bus,
        coordinator: Coordinator,
        ids: Ids,
        live: Mapping[str, AnswerProcessor],
        check: Check,
    ) -> None:
        self._log = log
        self._sessions = sessions
        self._bus = bus
        self._coordinator = coordinator
        self._ids = ids
        self._live = live
        self._check = check

    async def prompt(self, command: c.Prompt, sink: Sink | None = None) -> Turn:
        """Accept a prompt: durable in the log when this returns. `sink` is shown its turn.

        Raises `Rejected`: `sessionNotFound`, `noModel`, `conflict` (the id belongs to another prompt).
        """
        state = await self._sessions.get(command.session_id)
        if (known := await self._received(state, command)) is not None:
            return await self._again(state, known, sink)
        self._check(command.agent, command.model or state.info.model)
        if command.delivery == "interrupt":
            await self._coordinator.interrupt(command.session_id)
        message_id = command.message_id or self._ids.new("msg")
        facts = decide.receive(state, command, message_id, self._ids)
        try:
            return await self._begin(state, message_id, facts, sink)
        except Conflict:  # the same prompt came twice at once, maybe through another process
            if (known := await self._received(state, command)) is None:
                if command.message_id is None or state.deleted:
                    raise
                raise Rejected(
                    "conflict",
                    f"message {command.message_id!r} was taken back before",
                    "use a new messageId to send it again",
                ) from None
            return await self._again(state, known, sink)

    async def resume(self, command: c.Resume, sink: Sink | None = None) -> Turn:
        """Go on with the interrupted turn, or let a held queue go on; a running turn is joined.

        Raises `Rejected` (`conflict`) when there is nothing to go on with.
        """
        state = await self._sessions.get(command.session_id)
        await self._coordinator.settle_dead(command.session_id)
        if state.turn is not None:
            prompt = state.conversation.messages[state.turn.message_id]
            return await self._again(state, prompt, sink)
        facts = decide.resume(state, self._ids)
        match facts[0]:
            case e.MessageReceived(message_id=message_id):
                return await self._begin(state, message_id, facts, sink)
            case _:
                await self._coordinator.request(command.session_id, facts)
                prompt = state.conversation.messages[state.queue[0] if state.queue else ""]
                return await self._again(state, prompt, sink)

    async def unqueue(self, session_id: str, message_id: str) -> bool:
        """Take back a waiting prompt; False when it is not waiting any more."""
        await self._sessions.get(session_id)
        try:
            await self._coordinator.tell(session_id, e.MessageUnqueued(message_id=message_id))
        except Conflict:
            return False
        return True

    async def _received(self, state: SessionState, command: c.Prompt) -> MessageState | None:
        """The prompt that was received under this id before, or None. Raises `Rejected` (`conflict`) if it
        held other parts."""
        if command.message_id is None:
            return None
        known = state.conversation.messages.get(command.message_id)
        if known is None:  # it may be older than what is in memory, or another process logged it just now
            known = fold(await self._log.message_events(state.info.id, [command.message_id])).messages.get(
                command.message_id
            )
        return known and decide.repeated(known, command)

    async def _begin(
        self, state: SessionState, message_id: str, facts: Sequence[e.EventPayload], sink: Sink | None
    ) -> Turn:
        """Log a prompt and see that it runs."""
        session_id = state.info.id
        detach = self._show(state, message_id, sink)
        # Before it is logged: it may be taken back in the very transaction.
        result = self._sessions.result(session_id, message_id)
        try:
            events = await self._coordinator.request(session_id, facts)
        except BaseException:
            self._sessions.forget(session_id, message_id, result)
            detach()
            raise
        accepted = Accepted(session_id=session_id, message_id=message_id, seq=events[0].seq)
        return Turn(accepted, result, repeated=False, detach=detach)

    async def _again(self, state: SessionState, prompt: MessageState, sink: Sink | None) -> Turn:
        """A prompt once more: it runs once, and every request gets the one result."""
        session_id, message_id = state.info.id, prompt.id
        if sink is not None:
            sink.push(AcceptedUpdate(session_id=session_id, seq=prompt.seq, message_id=message_id))
            if state.turn is not None and state.turn.message_id == message_id:
                for item in watch.catch_up(state, self._live.get(session_id)):
                    sink.push(item)
        detach = self._show(state, message_id, sink)
        result = await self._sessions.result_of_old(session_id, message_id)
        if message_id in state.queue and state.held:
            # Who sends it again wants it to run.
            await self._coordinator.request(session_id, [e.QueueReleased()])
        else:
            self._coordinator.join(session_id)
        accepted = Accepted(session_id=session_id, message_id=message_id, seq=prompt.seq)
        return Turn(accepted, result, repeated=True, detach=detach)

    def _show(self, state: SessionState, message_id: str, sink: Sink | None) -> Callable[[], None]:
        if sink is None:
            return lambda: None
        return self._bus.attach(state.info.id, watch.PromptSink(sink, state, message_id))
