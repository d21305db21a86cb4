"""From a provider's stream to facts and deltas, however the chunks fall."""

import json
from typing import Any

from hypothesis import given, strategies as st

from deskmate_session.core.processor import BATCH_CHARS, BATCH_MS, AnswerProcessor, parse_arguments
from deskmate_session.core.views.timeline import message_view
from deskmate_session.model import events as e
from deskmate_session.model.messages import ReasoningPart, TextPart, ToolPart, TurnError, Usage
from deskmate_session.model.ports import AnswerEnded, BlockDelta, BlockEnded, BlockStarted, StreamEvent
from deskmate_session.model.updates import Delta
from tests.core.support import Ids, constructed, fold, received, started


def processor() -> AnswerProcessor:
    return AnswerProcessor("ses_1", "msg_a", 1, Ids(), now=0)


def facts(items: list[Any]) -> list[Any]:
    return [item for item in items if not isinstance(item, Delta)]


def test_a_part_is_announced_empty_and_neighbouring_deltas_become_one() -> None:
    p = processor()
    out = p.feed([BlockStarted(0, "text"), BlockDelta(0, "a"), BlockDelta(0, "b"), BlockEnded(0)], 1)
    assert [type(item).__name__ for item in out] == ["PartStarted", "Delta", "PartAppended", "PartEnded"]
    assert out[0].part == TextPart(id="prt_1", text="")
    assert (out[1].offset, out[1].text) == (0, "ab")
    assert (out[2].offset, out[2].text, out[3].length) == (0, "ab", 2)


def test_text_is_logged_after_half_a_second_or_two_kilobytes() -> None:
    p = processor()
    p.feed([BlockStarted(0, "text")], 0)
    assert facts(p.feed([BlockDelta(0, "x")], 10)) == []
    assert [f.text for f in facts(p.feed([BlockDelta(0, "y")], BATCH_MS))] == ["xy"]
    assert [len(f.text) for f in facts(p.feed([BlockDelta(0, "z" * BATCH_CHARS)], BATCH_MS + 1))] == [
        BATCH_CHARS
    ]
    assert p.batch(BATCH_MS * 3) == []


def test_a_call_s_arguments_stream_as_deltas_and_are_logged_once() -> None:
    p = processor()
    out = p.feed(
        [
            BlockStarted(0, "tool", "toolu_1", "read"),
            BlockDelta(0, '{"pa'),
            BlockDelta(0, 'th":"x"}'),
            BlockEnded(0),
        ],
        1,
    )
    assert [type(item).__name__ for item in out] == ["PartStarted", "Delta"]
    assert out[1].field == "input"
    live = p.live_part("prt_1")
    assert isinstance(live, ToolPart) and live.state.input == '{"path":"x"}'
    [last] = p.close(2, Usage(), None, "toolCalls")
    assert last.calls == (
        e.CallRequested(call_id="call_2", tool="read", args={"path": "x"}, provider_id="toolu_1"),
    )
    assert (last.kind, last.confidence) == ("toolCalls", "deterministic")


def test_an_interrupted_answer_keeps_its_text_and_settles_its_calls() -> None:
    p = processor()
    p.feed(
        [
            BlockStarted(0, "text"),
            BlockDelta(0, "half"),
            BlockStarted(1, "tool", None, "bash"),
            BlockDelta(1, '{"c'),
        ],
        1,
    )
    out = p.close(2, Usage(), None, "interrupted")
    assert [type(item).__name__ for item in out] == [
        "PartAppended",
        "PartEnded",
        "ModelResponded",
        "CallFailed",
    ]
    assert out[2].calls == ()
    assert (out[3].kind, out[3].interrupted) == ("interrupted", True)


def test_a_failed_answer_is_logged_and_its_calls_never_run() -> None:
    p = processor()
    p.feed([BlockStarted(0, "reasoning"), BlockDelta(0, "hm"), BlockStarted(1, "tool", None, "bash")], 1)
    out = p.fail(2, TurnError(kind="badResponse", message="broke"))
    assert [type(item).__name__ for item in out] == ["PartAppended", "ModelFailed", "CallFailed"]
    assert p.live_part("prt_1") == ReasoningPart(id="prt_1", text="hm")
    assert p.live_part("prt_none") is None


def test_what_belongs_to_no_block_is_passed_over() -> None:
    p = processor()
    ended = AnswerEnded("stop", None)
    assert (
        p.feed([BlockDelta(7, "lost"), BlockEnded(7), BlockStarted(0, "text"), BlockDelta(0, ""), ended], 1)[
            1:
        ]
        == []
    )
    assert p.ended is ended
    assert p.feed([BlockEnded(0), BlockEnded(0)], 2)[1:] == []


def test_a_signature_is_kept_with_its_part() -> None:
    p = processor()
    out = p.feed([BlockStarted(0, "reasoning"), BlockEnded(0, signature="s", redacted="r")], 1)
    assert (out[1].signature, out[1].redacted, out[1].length) == ("s", "r", 0)


def test_arguments_are_parsed_but_never_guessed() -> None:
    assert [parse_arguments(text) for text in ("", "  ", "null")] == [{}, {}, {}]
    assert parse_arguments('{"a": 1}') == {"a": 1}
    assert parse_arguments(json.dumps('{"a": 1}')) == {"a": 1}
    for broken in ('{"a": ', "[1]", "3", '"text"'):
        assert parse_arguments(broken) == broken
    assert parse_arguments('{"a": "\\ud83d"}') == {"a": "\ufffd"}


@given(
    st.lists(st.tuples(st.sampled_from(["text", "reasoning", "tool"]), st.text(max_size=30)), max_size=5),
    st.integers(1, 4),
    st.integers(0, 700),
)
def test_facts_fold_to_the_text_that_the_deltas_show(
    blocks: list[tuple[Any, str]], size: int, pace: int
) -> None:
    stream: list[StreamEvent] = []
    for index, (kind, text) in enumerate(blocks):
        stream.append(BlockStarted(index, kind, name="read"))
        stream += [BlockDelta(index, text[at : at + 3]) for at in range(0, len(text), 3)]
        stream.append(BlockEnded(index))
    p, out, now = processor(), [], 0
    for at in range(0, len(stream), size):
        now += pace
        out += p.feed(stream[at : at + size], now)
    live = p.live_parts()
    out += p.close(now, Usage(), None, "stop")
    shown: dict[str, str] = {}
    for item in out:
        if isinstance(item, Delta):
            assert item.offset == len(shown.get(item.part_id, ""))
            shown[item.part_id] = shown.get(item.part_id, "") + item.text
    state = fold(received(), started(), constructed(), *facts(out))
    view = message_view("ses_1", state.conversation.messages["msg_a"])
    texts = [part.text for part in view.parts if not isinstance(part, ToolPart)]
    assert texts == [text for kind, text in blocks if kind != "tool"]
    assert [part.text for part in live if not isinstance(part, ToolPart)] == texts
    assert [shown.get(part.id, "") for part in view.parts] == [text for _, text in blocks]
