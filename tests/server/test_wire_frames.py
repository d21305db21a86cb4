"""The frame parser: whatever the bytes and however they are cut, the next good message is found."""

import pytest
from hypothesis import given, strategies as st

from deskmate_server.wire.frames import Frame, FrameParser, NoLength, Oversize, encode_frame
from deskmate_server.wire.jsontext import dumps, loads

GOOD = b'{"jsonrpc":"2.0"}'


def parse(stream: bytes, cuts: list[int] | None = None, max_body: int = 1 << 20) -> list[Frame]:
    parser, frames, start = FrameParser(max_body), list[Frame](), 0
    for cut in [*sorted(cuts or []), len(stream)]:
        frames += parser.feed(stream[start:cut])
        start = max(start, cut)
    return frames


@given(st.lists(st.binary(max_size=300), max_size=6), st.lists(st.integers(0, 2000), max_size=8))
def test_frames_come_out_whole_however_the_stream_is_cut(bodies: list[bytes], cuts: list[int]) -> None:
    assert parse(b"".join(map(encode_frame, bodies)), cuts) == bodies


@pytest.mark.parametrize(
    "header",
    [
        b"content-length: 17\r\n\r\n",
        b"CONTENT-LENGTH:17\r\n\r\n",
        b"Content-Length: 17\n\n",
        b"Content-Type: application/vscode-jsonrpc; charset=utf-8\r\nContent-Length: 17\r\n\r\n",
        b"\r\n\r\nContent-Length:  17 \r\nX-Other: 1\r\n\r\n",
    ],
)
def test_headers_are_read_as_leniently_as_they_are_written(header: bytes) -> None:
    assert parse(header + GOOD + encode_frame(b"next")) == [GOOD, b"next"]


@pytest.mark.parametrize(
    "rubbish",
    [
        b"Content-Length: abc\r\n\r\n{}",
        b"Content-Length: -5\r\n\r\n{}",
        b"Content-Length: 12345678901234567890\r\n\r\n{}",
        b"hello world\r\n\r\n",
        b"no line end " * 1000,
    ],
)
def test_a_malformed_header_does_not_end_the_stream(rubbish: bytes) -> None:
    frames = parse(rubbish + encode_frame(GOOD) + encode_frame(b"next"))
    assert [frame for frame in frames if not isinstance(frame, NoLength)] == [GOOD, b"next"]


def test_a_length_in_characters_costs_one_message_only() -> None:
    body = '{"text":"éé"}'.encode()
    short = b"Content-Length: %d\r\n\r\n" % (len(body) - 2) + body
    assert parse(short + encode_frame(GOOD))[1:] == [GOOD]


def test_a_body_over_the_cap_is_skipped_and_not_held() -> None:
    big = b'{"id":7,' + b"x" * 50_000
    assert parse(encode_frame(big) + encode_frame(GOOD), [100, 10_000], max_body=1000) == [
        Oversize(len(big), big[:4096]),
        GOOD,
    ]


def test_lone_surrogates_neither_come_in_nor_go_out() -> None:
    assert loads(rb'["\ud83d\ude0b", "a\ud83d!", {"k\udc00": 1}]') == ["😋", "a\ufffd!", {"k\ufffd": 1}]
    assert loads(dumps(["\ud83d\ude0b", "a\ud83d!", "é"], str)) == ["😋", "a\ufffd!", "é"]


@pytest.mark.parametrize("body", [b"", b"{", b"[NaN]", b"\xff", b"[" * 100_000])
def test_what_is_not_json_is_a_value_error(body: bytes) -> None:
    with pytest.raises(ValueError):
        loads(body)
