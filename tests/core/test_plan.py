"""What comes next in a turn: a table of states and steps."""

from typing import Any

import pytest

from deskmate_session.core import lifecycle
from deskmate_session.core.plan import DropCalls, Finish, Infer, RunCalls, Step, next_step
from deskmate_session.model import events as e
from deskmate_session.model.messages import Ask, ToolDetail, TurnError
from deskmate_session.model.ports import Effect
from tests.core.support import (
    call_part,
    completed,
    constructed,
    failed,
    fold,
    ran,
    received,
    responded,
    started,
    text_part,
)

BEGUN = (received(), started())
ASK = Ask(
    id="ask_1",
    call_id="c1",
    kind="permission",
    permission="bash",
    title="t",
    detail=ToolDetail(tool="t", input={}),
    created_at=1,
)
REJECTED = e.AskReplied(ask_id="ask_1", reply="reject", by="person")
BROKEN = TurnError(kind="badResponse", message="broke")


def effect(tool: str) -> Effect:
    return "effect" if tool == "bash" else "none"


def answer(*calls: tuple[str, str], finish: Any = None) -> list[e.EventPayload]:
    return [
        constructed(),
        *(call_part(i, tool) for i, tool in calls),
        responded(*((i, tool, {}) for i, tool in calls), finish=finish),
    ]


@pytest.mark.parametrize(
    ("facts", "step"),
    [
        ([], Infer(1)),
        ([e.InterruptRequested(turn_id="turn_1")], Finish("interrupted")),
        (answer(), Finish("stop")),
        (answer(finish="length"), Finish("length")),
        (answer(finish="refusal"), Finish("refused")),
        (answer(finish="interrupted"), Finish("interrupted")),
        (answer(finish="unknown"), Infer(2)),
        (answer(finish="toolCalls"), Infer(2)),
        # neighbours that only read run together; one with effects runs alone
        (answer(("c1", "read"), ("c2", "glob"), ("c3", "bash"), ("c4", "read")), RunCalls(("c1", "c2"))),
        (answer(("c1", "bash"), ("c2", "read")), RunCalls(("c1",))),
        ([*answer(("c1", "bash"), ("c2", "read")), ran("c1"), completed("c1")], RunCalls(("c2",))),
        # a provider's `stop` beside calls does not end the turn
        ([*answer(("c1", "read"), finish="stop"), ran("c1"), completed("c1")], Infer(2)),
        ([*answer(("c1", "read")), failed("c1", kind="badArguments")], Infer(2)),
        # an interrupt or a rejection settles what is left, then ends
        (
            [*answer(("c1", "read")), e.InterruptRequested(turn_id="turn_1")],
            DropCalls(("c1",), "not run: the turn was interrupted"),
        ),
        (
            [*answer(("c1", "read")), failed("c1"), e.InterruptRequested(turn_id="turn_1")],
            Finish("interrupted"),
        ),
        (
            [*answer(("c1", "bash"), ("c2", "read")), e.AskOpened(ask=ASK), REJECTED, failed("c1")],
            DropCalls(("c2",), "not run: an earlier call was rejected"),
        ),
        ([*answer(("c1", "bash")), e.AskOpened(ask=ASK), REJECTED, failed("c1")], Finish("denied")),
        (
            [
                *answer(("c1", "bash")),
                e.AskOpened(ask=ASK),
                REJECTED.model_copy(update={"message": "why"}),
                failed("c1"),
            ],
            Infer(2),
        ),
        ([constructed(), e.ModelFailed(message_id="msg_a", step=1, error=BROKEN)], Finish("error", BROKEN)),
        # nothing after a result is a clean end
        (
            [
                *answer(("c1", "read")),
                ran("c1"),
                completed("c1"),
                constructed("msg_b", 2),
                responded(message_id="msg_b", step=2),
            ],
            Finish("stop"),
        ),
    ],
)
def test_the_next_step_follows_from_the_state(facts: list[e.EventPayload], step: Step) -> None:
    assert next_step(fold(*BEGUN, *facts), effect) == step


def test_at_most_eight_calls_run_side_by_side() -> None:
    calls = [(f"c{n}", "read") for n in range(12)]
    step = next_step(fold(*BEGUN, *answer(*calls)), effect)
    assert step == RunCalls(tuple(f"c{n}" for n in range(8)))


def test_a_model_that_never_ends_and_never_calls_is_an_error() -> None:
    facts: list[e.EventPayload] = []
    for step in range(1, 4):
        facts += [
            constructed(f"msg_{step}", step),
            responded(message_id=f"msg_{step}", step=step, finish="unknown"),
        ]
    last = next_step(fold(*BEGUN, *facts), effect)
    assert isinstance(last, Finish)
    assert (last.finish, last.error and last.error.kind) == ("error", "badResponse")


def test_a_session_without_a_turn_has_no_next_step() -> None:
    with pytest.raises(LookupError):
        next_step(fold(received()), effect)


def test_text_alone_ends_the_turn() -> None:
    assert next_step(fold(*BEGUN, constructed(), *text_part("hi"), responded()), effect) == Finish("stop")


def test_a_settled_call_never_moves_again() -> None:
    for settled in lifecycle.SETTLED:
        assert {lifecycle.move(settled, by) for by in ("start", "complete", "fail")} == {None}
    assert lifecycle.move("pending", "complete") is None
    reachable = {to for (_, _), to in lifecycle.CALL_MOVES.items()} | {"pending"}
    assert reachable == {"pending", "running", "completed", "error"}
