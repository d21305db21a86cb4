"""The SSE reader: any cut, any line end, nothing lost."""

import time
from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from deskmate_session.errors import ProviderError
from deskmate_session.providers.sse import SseReader

STREAM = (
    ": ping\n\n"
    'event: message_start\ndata: {"a": "你好🦀"}\n\n'
    "data:no space\ndata:  two spaces\ndata\n\n\n"
    "event: lonely\n\n"
    "id: 7\nretry: 10\nevent: x\u2028y\ndata: last\n\n"
)
EVENTS = [
    ("message_start", '{"a": "你好🦀"}'),
    ("message", "no space\n two spaces\n"),
    ("x\u2028y", "last"),
]


@given(st.sampled_from(["\n", "\r\n", "\r"]), st.booleans(), st.lists(st.integers(0, 400), max_size=40))
def test_events_are_the_same_however_the_stream_is_cut(end: str, bom: bool, cuts: list[int]) -> None:
    content = (("\ufeff" if bom else "") + STREAM.replace("\n", end)).encode()
    places = [0, *sorted(cut for cut in cuts if cut < len(content)), len(content)]
    reader = SseReader()
    events = [event for start, stop in pairwise(places) for event in reader.feed(content[start:stop])]
    assert events + reader.flush() == EVENTS


def test_one_byte_at_a_time_gives_the_same_events() -> None:
    reader = SseReader()
    content = STREAM.replace("\n", "\r\n").encode()
    assert [event for byte in content for event in reader.feed(bytes([byte]))] == EVENTS


def test_an_event_without_its_blank_line_comes_at_the_end() -> None:
    reader = SseReader()
    assert reader.feed(b"data: [DONE]\n") == []
    assert reader.flush() == [("message", "[DONE]")]
    assert reader.flush() == []


def test_an_event_that_outgrows_the_limit_is_refused() -> None:
    reader = SseReader(max_event_bytes=100)
    with pytest.raises(ProviderError, match="larger than 100 bytes") as caught:
        for _ in range(20):
            reader.feed(b"data: 12345")
    assert caught.value.kind == "badResponse"


def test_twenty_thousand_deltas_take_well_under_a_tenth_of_a_second() -> None:
    event = (
        b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,'
        b'"delta":{"type":"text_delta","text":"word "}}\n\n'
    )
    content = event * 20_000
    reader = SseReader()
    began = time.perf_counter()
    count = sum(len(reader.feed(content[at : at + 65_536])) for at in range(0, len(content), 65_536))
    assert count == 20_000
    assert time.perf_counter() - began < 0.1
