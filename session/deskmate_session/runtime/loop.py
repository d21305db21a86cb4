"""The run loop: plan (pure) → perform (dumb) → commit, until the plan says that the turn is over."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import assert_never

from deskmate_session.config.agents import Agent
from deskmate_session.core import plan
from deskmate_session.core.state import SessionState
from deskmate_session.errors import DeskmateError, LogError, Rejected
from deskmate_session.model import events as e
from deskmate_session.model.messages import TurnError
from deskmate_session.providers.registry import Resolved
from deskmate_session.runtime.calls import Calls
from deskmate_session.runtime.control import TurnControl
from deskmate_session.runtime.infer import Inference
from deskmate_session.runtime.sessions import Sessions

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Loop:
    """Runs turns."""

    sessions: Sessions
    calls: Calls
    inference: Inference
    agents: dict[str, Agent]
    resolve: Callable[[str], Resolved]
    owner: str

    async def turn(self, state: SessionState, message_id: str, control: TurnControl) -> None:
        """Run one prompt's turn from its start to its end."""
        session_id = state.info.id
        started = e.TurnStarted(turn_id=control.turn_id, message_id=message_id, owner=self.owner)
        await self.sessions.append(session_id, started)
        try:
            finish = await self._steps(state, control)
        except (LogError, asyncio.CancelledError):
            raise
        except Exception as error:
            if not isinstance(error, DeskmateError):
                _logger.exception("turn %s failed", control.turn_id)
            finish = plan.Finish("error", _internal(error))
            await self._settle(state, _internal(error))
        await self._end(state, finish)

    async def _steps(self, state: SessionState, control: TurnControl) -> plan.Finish:
        while not isinstance(step := plan.next_step(state, self.calls.effect), plan.Finish):
            await self._perform(state, step, control)
            if control.interrupted:
                await control.recorded.wait()  # the plan must see the interrupt that ended the step
                if state.turn is not None and not state.turn.interrupted:
                    # It could not be logged then, or the session was deleted: nobody else may any more.
                    request = e.InterruptRequested(turn_id=control.turn_id)
                    await self.sessions.append(state.info.id, request, held=True)
        return step

    async def _perform(
        self, state: SessionState, step: plan.Infer | plan.RunCalls | plan.DropCalls, control: TurnControl
    ) -> None:
        match step:
            case plan.Infer(number):
                prompt = state.conversation.messages[state.turn.message_id if state.turn else ""]
                agent, resolved = self.agents[prompt.agent], self.resolve(prompt.model)
                await self.inference.run(state, number, agent, resolved, control)
            case plan.RunCalls(call_ids):
                await self.calls.run(state, call_ids, control)
            case plan.DropCalls(call_ids, reason):
                kind = "interrupted" if control.interrupted else "denied"
                await self.calls.drop(state, call_ids, reason, kind)
            case _:
                assert_never(step)

    async def _settle(self, state: SessionState, error: TurnError) -> None:
        """No answer and no call of a failed turn stays open."""
        answer = state.conversation.messages.get((state.turn and state.turn.answer_id) or "")
        if answer is not None and answer.completed_at is None:
            failed = e.ModelFailed(message_id=answer.id, step=answer.step, error=error)
            await self.sessions.append(state.info.id, failed)
        left = tuple(call.call_id for call in state.conversation.calls.values() if not call.settled)
        if left:
            await self.calls.drop(state, left, "the turn failed before this call was done", "failed")

    async def _end(self, state: SessionState, finish: plan.Finish) -> None:
        turn = state.turn
        if turn is None:
            return
        facts: list[e.EventPayload] = [
            e.TurnEnded(
                turn_id=turn.turn_id,
                message_id=turn.message_id,
                finish=finish.finish,
                error=finish.error,
                usage=turn.usage,
                cost=turn.cost,
                steps=turn.steps,
            )
        ]
        if state.queue and finish.finish == "error":
            facts.append(e.QueueHeld(reason="error"))
        elif state.queue and finish.finish == "interrupted" and state.held:
            # What waited when the interrupt came; a prompt that was sent after it goes on at once.
            facts.append(e.QueueHeld(reason="interrupted"))
        await self.sessions.append(state.info.id, *facts)


def _internal(error: Exception) -> TurnError:
    match error:
        case Rejected():
            return TurnError(kind="internal", message=error.message, hint=error.hint)
        case DeskmateError():
            return TurnError(kind="internal", message=str(error), hint="see `deskmate doctor`")
        case _:
            hint = "see the server's log; the session goes on"
            return TurnError(kind="internal", message=f"{type(error).__name__}: {error}", hint=hint)
