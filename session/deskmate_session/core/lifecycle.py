"""The life of a call, as a table; docs and property tests are made from it."""

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
