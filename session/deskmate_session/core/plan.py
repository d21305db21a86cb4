"""From a session's state to the next step. Pure: the loop performs what this decides.

A turn ends only if the last answer has a finish other than `toolCalls` and `unknown`, owes the model no
result, and answers the prompt of this turn. A provider's `stop` beside calls does not end it.
"""

from collections.abc import Callable
from dataclasses import dataclass

from deskmate_session.core.conversation import CallState, MessageState
from deskmate_session.core.state import SessionState, TurnState
from deskmate_session.model.messages import Finish as TurnFinish, TurnError
from deskmate_session.model.ports import Effect

MAX_PARALLEL = 8
MAX_IDLE_ANSWERS = 3
"""Answers in a row that neither call a tool nor end the turn; a provider that does this is broken."""


@dataclass(frozen=True, slots=True)
class Infer:
    """Ask the model. `step` counts from 1 in a turn."""

    step: int


@dataclass(frozen=True, slots=True)
class RunCalls:
    """Run these calls side by side; one alone if it has an effect."""

    call_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DropCalls:
    """Settle these calls without running them."""

    call_ids: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Finish:
    """The turn is over."""

    finish: TurnFinish
    error: TurnError | None = None


Step = Infer | RunCalls | DropCalls | Finish


def next_step(state: SessionState, effect: Callable[[str], Effect]) -> Step:
    """What the running turn does next; `effect` tells a tool's by its name."""
    turn = state.turn
    if turn is None:
        raise LookupError("next_step was asked for a session without a turn")
    if turn.answer_id is None:
        return Finish("interrupted") if turn.interrupted else Infer(1)
    answer = state.conversation.messages[turn.answer_id]
    pending = [call for call in answer.calls if not call.settled]
    if turn.interrupted or turn.denied:
        if pending:
            why = "the turn was interrupted" if turn.interrupted else "an earlier call was rejected"
            return DropCalls(tuple(call.call_id for call in pending), f"not run: {why}")
        return Finish("interrupted" if turn.interrupted else "denied")
    if answer.error is not None:
        return Finish("error", answer.error)
    if pending:
        return RunCalls(_batch(pending, effect))
    return _after(answer, turn)


def _batch(pending: list[CallState], effect: Callable[[str], Effect]) -> tuple[str, ...]:
    """The next calls in order: neighbours that only read together, one with effects alone."""
    batch: list[str] = []
    for call in pending[:MAX_PARALLEL]:
        if effect(call.tool) != "none":
            break
        batch.append(call.call_id)
    return tuple(batch) or (pending[0].call_id,)


def _after(answer: MessageState, turn: TurnState) -> Step:
    if any(call.requested for call in answer.calls):
        return Infer(turn.steps + 1)
    match answer.finish:
        case "stop" | None:
            return Finish("stop")
        case "length":
            return Finish("length")
        case "refusal":
            return Finish("refused")
        case "interrupted":
            return Finish("interrupted")
        case "toolCalls" | "unknown":
            if turn.idle_answers < MAX_IDLE_ANSWERS:
                return Infer(turn.steps + 1)
            return Finish(
                "error",
                TurnError(
                    kind="badResponse",
                    message=f"the model gave {MAX_IDLE_ANSWERS} answers in a row without text end or call",
                    hint="try again, or choose another model",
                ),
            )
