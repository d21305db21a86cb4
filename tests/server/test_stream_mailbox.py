"""What waits for one token: merged, in order, bounded; and when it is due."""

from typing import Any

from hypothesis import given, strategies as st

from deskmate_server.stream.mailbox import MAX_WAITING, Mailbox
from deskmate_session.model.messages import TextPart
from deskmate_session.model.updates import Delta, StatusUpdate

PATIENCE = 0.025
BUSY = StatusUpdate(session_id="ses_1", status="busy")


def delta(offset: int, text: str, part: str = "prt_1") -> Delta:
    return Delta("ses_1", "msg_1", part, "text", offset, text)


def box(chunk_size: int = 32, whole: Any = lambda session, part: None) -> Mailbox:
    return Mailbox(chunk_size, whole)


def drain(mailbox: Mailbox) -> list[Any]:
    taken = []
    while not mailbox.empty:
        taken.append(mailbox.take())
    return taken


def test_the_first_delta_goes_at_once_and_later_ones_wait_for_company() -> None:
    b = box()
    assert b.due(0, PATIENCE) is None
    b.push(delta(0, "a"), 0)
    assert b.due(0, PATIENCE) == 0
    assert b.take()["text"] == "a"
    b.push(delta(1, "b"), 1.0)
    assert 0 < b.due(1.0, PATIENCE) <= PATIENCE
    b.push(delta(2, "c"), 1.01)
    assert b.due(1.02, PATIENCE) < PATIENCE
    assert b.due(1.1, PATIENCE) == 0
    b.push(delta(3, "d" * 32), 1.02)
    assert b.due(1.02, PATIENCE) == 0
    assert b.take() == {**delta(1, "bc" + "d" * 32).dump()}


def test_something_behind_a_delta_lets_it_go() -> None:
    b = box()
    b.push(delta(0, "a"), 0)
    b.take()
    b.push(delta(1, "b"), 0)
    b.push(BUSY, 0)
    assert b.due(0, PATIENCE) == 0
    assert [item["kind"] for item in drain(b)] == ["delta", "status"]


def test_with_chunk_size_zero_everything_goes_as_it_comes() -> None:
    b = box(0)
    b.push(delta(0, "a"), 0)
    b.take()
    b.push(delta(1, "b"), 0)
    assert b.due(0, PATIENCE) == 0


def test_a_reader_that_falls_behind_loses_deltas_and_gets_the_part_whole() -> None:
    part = TextPart(id="prt_1", text="all of it")
    b = box(whole=lambda session, part_id: part)
    b.push(BUSY, 0)
    b.push(delta(0, "x" * MAX_WAITING), 0)
    b.push(delta(MAX_WAITING, "y"), 0)
    b.push(delta(MAX_WAITING + 1, "dropped: the whole part will hold it"), 0)
    assert [(i["kind"], i.get("part")) for i in drain(b)] == [("status", None), ("part", part.dump())]
    b.push(delta(9, "after"), 0)
    assert b.take()["text"] == "after"


def test_a_part_that_has_ended_meanwhile_is_not_sent_whole() -> None:
    b = box()
    b.push(delta(0, "x" * (MAX_WAITING + 1)), 0)
    assert drain(b) == [None]


def test_output_that_was_lost_is_not_sent_again() -> None:
    b = box()
    b.push(Delta("ses_1", "msg_1", "prt_1", "output", 0, "x" * (MAX_WAITING + 1)), 0)
    assert b.empty


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.text(min_size=1, max_size=9)), max_size=40),
    st.integers(0, 20),
)
def test_nothing_is_lost_or_reordered(pieces: list[tuple[str, str]], size: int) -> None:
    b, offsets, sent = box(size), {"a": 0, "b": 0}, []
    for number, (part, text) in enumerate(pieces):
        b.push(delta(offsets[part], text, part), float(number))
        offsets[part] += len(text)
        if number % 3 == 0:
            sent += drain(b)
    sent += drain(b)
    for part in "ab":
        mine = [item for item in sent if item["partId"] == part]
        assert "".join(item["text"] for item in mine) == "".join(
            text for name, text in pieces if name == part
        )
        at = 0
        for item in mine:
            assert item["offset"] == at
            at += len(item["text"])
