"""A checkpoint's bytes, what it leaves out, and when the next one is due."""

import json

import pytest

from deskmate_session.core.checkpoints import SCHEMA, due, dump, load, messages_needed, open_partial
from deskmate_session.model import events as e
from deskmate_session.model.messages import Ask, ToolDetail
from tests.core.support import (
    CREATED,
    call_part,
    completed,
    constructed,
    ended,
    event,
    fold,
    ran,
    received,
    responded,
    started,
    text_part,
)

ASK = Ask(
    id="ask_1",
    kind="permission",
    title="t",
    detail=ToolDetail(tool="t", input={"none": None, "half": 0.5, "deep": [None, {"x": None}]}),
    created_at=1,
)
TURN: list[e.EventPayload] = [
    received(words="secret words"),
    received("msg_q", "other words"),
    started(),
    constructed(),
    *text_part("spoken text"),
    call_part("c1", "bash"),
    responded(("c1", "bash", {})),
    e.AskOpened(ask=ASK),
    ran("c1", "bash"),
    completed("c1", "bash", reads=(e.ReadFile(uri="file:///w/a", hash="h"),), command="make", exit_code=0),
    constructed("msg_b", 2),
    call_part("c2", "edit", "msg_b"),
    responded(("c2", "edit", {}), message_id="msg_b", step=2),
    ran("c2", "edit"),
    e.ChangeStarted(call_id="c2", uri="file:///w/a", via="disk"),
]


def test_a_checkpoint_comes_back_as_it_was() -> None:
    body = dump(fold(*TURN))
    assert dump(load(body)) == body
    assert (
        body
        == json.dumps(json.loads(body), ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode()
    )
    assert load(body).asks == {"ask_1": ASK}


def test_a_checkpoint_holds_no_words_of_messages() -> None:
    body = dump(fold(*TURN)).decode()
    assert "words" not in body and "spoken" not in body


def test_what_is_needed_is_the_open_turn_and_what_waits() -> None:
    assert messages_needed(fold(*TURN)) == ["msg_p", "msg_a", "msg_b", "msg_q"]
    assert messages_needed(fold(*TURN, ended("error"))) == ["msg_q"]
    assert messages_needed(fold()) == []


def test_the_context_of_the_open_turn_s_prompt_stays_as_it_was_sent() -> None:
    first = [received("msg_1"), started("msg_1"), completed("c0", command="make", exit_code=2)]
    facts = [CREATED, *first, ended(message_id="msg_1"), received(), started()]
    facts += [e.WorkContextUpdated(uri="file:///w/new", change="created", after="h", by="c1")]
    events = [event(seq, fact) for seq, fact in enumerate(facts, 1)]
    whole = open_partial(None, (), events)
    sent = whole.conversation.messages["msg_p"].context
    assert whole.whole and sent is not None and "make" in sent and "new" not in sent
    partial = open_partial(dump(whole), [events[5], events[6]], ())
    assert not partial.whole
    assert partial.conversation.messages == {"msg_p": whole.conversation.messages["msg_p"]}


def test_events_that_the_checkpoint_holds_are_not_folded_again() -> None:
    events = [event(seq, fact) for seq, fact in enumerate((CREATED, *TURN), 1)]
    whole = fold(*TURN)
    assert dump(open_partial(dump(whole), events, events)) == dump(whole)


def test_lone_surrogates_become_what_the_log_makes_of_them() -> None:
    body = dump(fold(e.SessionUpdated(title="a\ud800b")))
    assert load(body).info.title == "a\ufffdb"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff",
        b"{}",
        b"[1]",
        b"null",
        dump(fold())[:-1],
        dump(fold()).replace(b'"schemaVersion":%d' % SCHEMA, b'"schemaVersion":%d' % (SCHEMA + 1)),
        dump(fold()).replace(b'"queue":[]', b'"queue":[{}]'),
    ],
)
def test_what_is_no_checkpoint_of_ours_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError):
        load(body)


@pytest.mark.parametrize(
    ("events", "size", "last", "wanted"),
    [
        (74, 1_000_000, None, False),
        (75, 0, None, True),
        (75, 999, 1_000, False),
        (75, 1_000, 1_000, True),
        (74, 1_000_000, 1_000, False),
    ],
)
def test_checkpoints_are_spaced_by_events_and_by_their_own_size(
    events: int, size: int, last: int | None, wanted: bool
) -> None:
    assert due(events, size, last, 75) is wanted
