"""What resuming a session appends."""

import pytest

from deskmate_session.core import decide
from deskmate_session.errors import Rejected
from deskmate_session.model import events as e
from deskmate_session.model.messages import TextPart
from tests.core.support import Ids, ended, fold, received, started

BEGUN = (received(), started())
HELD = e.QueueHeld(reason="crash")


@pytest.mark.parametrize("finish", ["interrupted", "error"])
def test_a_turn_that_was_cut_off_goes_on_with_a_prompt_of_ours(finish: str) -> None:
    state = fold(*BEGUN, received("msg_q"), ended(finish), HELD, e.SessionUpdated(agent="other", variant="v"))
    [fact] = decide.resume(state, Ids())
    assert fact == e.MessageReceived(
        message_id="msg_2",
        delivery="queue",
        parts=(TextPart(id="prt_1", text=decide.RESUME, label="resume", synthetic=True),),
        agent="other",
        model="mock/test",
        variant="v",
    )


def test_what_is_held_goes_on_after_a_turn_that_ended_by_itself() -> None:
    state = fold(*BEGUN, ended(), received("msg_q"), HELD)
    assert decide.resume(state, Ids()) == [e.QueueReleased()]


def test_resuming_twice_joins_the_prompt_that_is_about_to_run() -> None:
    cut = fold(*BEGUN, ended("interrupted"))
    [prompt] = decide.resume(cut, Ids())
    again = fold(*BEGUN, ended("interrupted"), prompt)
    assert decide.resume(again, Ids()) == [e.QueueReleased()]


@pytest.mark.parametrize("facts", [(), (*BEGUN, ended()), (*BEGUN, ended("denied"))])
def test_there_is_nothing_to_resume_after_an_end_of_its_own(facts: tuple[e.EventPayload, ...]) -> None:
    with pytest.raises(Rejected) as caught:
        decide.resume(fold(*facts), Ids())
    assert caught.value.kind == "conflict"
    assert (caught.value.hint or "").endswith("send a prompt")
