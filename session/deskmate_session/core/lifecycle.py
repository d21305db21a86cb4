"""The life of a call and of a run, as tables; docs and property tests are made from them."""

from typing import Literal

from deskmate_session.model.messages import CallStatus

CallMove = Literal["start", "complete", "fail"]

CALL_MOVES: dict[tuple[CallStatus, CallMove], CallStatus] = {
    ("pending", "start"): "running",
    ("pending", "fail"): "error",
    ("running", "complete"): "completed",
    ("running", "fail"): "error",
}
"""Every legal move. A call that never ran can only fail; a settled call never moves again."""

SETTLED: frozenset[CallStatus] = frozenset({"completed", "error"})


def move(status: CallStatus, by: CallMove) -> CallStatus | None:
    """The status after a move, or None where the move is not legal (the fact is logged, the state stays)."""
    return CALL_MOVES.get((status, by))


RunState = Literal["idle", "running", "woken", "stopping", "succeeding"]
"""*woken*: one further pass follows. *stopping*: an interrupt cleans up. *succeeding*: another run follows
the clean-up."""
RunMove = Literal["wake", "interrupt", "ended"]
RunEffect = Literal["none", "start", "stop", "release"]
"""What whoever runs the session does: begin a pass, stop the turn, give the lease back."""

RUN_MOVES: dict[tuple[RunState, RunMove], tuple[RunState, RunEffect]] = {
    ("idle", "wake"): ("running", "start"),
    ("idle", "interrupt"): ("idle", "none"),
    ("idle", "ended"): ("idle", "none"),
    ("running", "wake"): ("woken", "none"),
    ("running", "interrupt"): ("stopping", "stop"),
    ("running", "ended"): ("idle", "release"),
    ("woken", "wake"): ("woken", "none"),
    ("woken", "interrupt"): ("stopping", "stop"),
    ("woken", "ended"): ("running", "start"),
    ("stopping", "wake"): ("succeeding", "none"),
    ("stopping", "interrupt"): ("stopping", "none"),
    ("stopping", "ended"): ("idle", "release"),
    ("succeeding", "wake"): ("succeeding", "none"),
    ("succeeding", "interrupt"): ("stopping", "none"),
    ("succeeding", "ended"): ("running", "start"),
}
"""Every move of a session's run in one process. Any number of wakes gives one further pass; an interrupt
drops a pending one, and a second interrupt joins the first."""


def run_move(state: RunState, by: RunMove) -> tuple[RunState, RunEffect]:
    """The run's state after a move, and what is to be done about it."""
    return RUN_MOVES[state, by]
