"""What an event changed in each fold."""

from deskmate_session.core import changed
from deskmate_session.core.state import SessionState
from deskmate_session.model import events as e
from deskmate_session.model.queries import Difference
from tests.core import support


def changes(*payloads: e.EventPayload) -> tuple[list[str], list[str], list[str]]:
    """The paths that the last of these facts changed: conversation, work context, lifecycle."""
    state = SessionState()
    for seq, payload in enumerate((support.CREATED, *payloads), 1):
        found = changed.apply(state, support.event(seq, payload))
    return (
        [one.path for one in found.conversation],
        [one.path for one in found.work_context],
        [one.path for one in found.lifecycle],
    )


TURN = (support.received(), support.started(), support.constructed())


def test_a_text_batch_changes_its_part() -> None:
    parts = support.text_part("hello")
    assert changes(*TURN, *parts[:2]) == (["messages[msg_a].parts[prt_t].text"], [], [])


def test_a_read_enters_the_work_context() -> None:
    call = (
        support.call_part("call_1"),
        support.responded(("call_1", "read", {"path": "a"})),
        support.ran("call_1"),
    )
    done = support.completed("call_1", reads=(e.ReadFile(uri="file:///w/a", hash="h"),))
    conversation, work_context, lifecycle = changes(*TURN, *call, done)
    assert "messages[msg_a].parts[prt_call_1].state.status" in conversation
    assert work_context == ["files[file:///w/a]"]
    assert lifecycle == []


def test_a_prompt_enters_conversation_and_queue() -> None:
    assert changes(support.received()) == (["messages[msg_p]"], [], ["queue.prompts[msg_p]"])


def test_values_stand_beside_their_path_and_are_bounded() -> None:
    state = support.fold(*TURN, *support.text_part("", "msg_a")[:1])
    fact = e.PartAppended(message_id="msg_a", part_id="prt_t", offset=0, text="x" * 1_000)
    found = changed.apply(state, support.event(9, fact))
    assert found.conversation == (
        Difference(
            path="messages[msg_a].parts[prt_t].text", before="", after="x" * 200 + "… (1000 characters)"
        ),
    )
