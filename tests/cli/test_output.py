"""What goes to a terminal: harmless, in colour only where wanted, cut to the width."""

import io
import json
import os
import pty
from pathlib import Path
from typing import Any

import pytest

from deskmate_server.cli.live import Live
from deskmate_server.cli.output import Output, cells, harmless, one_line, settled, shorten, wrap


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        raise OSError("none")


def out(environment: dict[str, str], stream: io.StringIO | None = None) -> tuple[Output, io.StringIO]:
    stream = Terminal() if stream is None else stream
    return Output(stream, environment), stream


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "␛[31mred␛[0m"),
        ("\x1b]0;title\x07", "␛]0;title␇"),
        ("a\rb\x08c\x00", "a␍b␈c␀"),
        ("one\r\ntwo\n\tthree", "one\ntwo\n\tthree"),
        ("\x9b2J", "<9B>2J"),
        ("if admin\u202e # off", "if admin<U+202E> # off"),
        ("größe 東京 👍🏽", "größe 東京 👍🏽"),
    ],
)
def test_text_of_others_is_harmless(text: str, shown: str) -> None:
    assert harmless(text) == shown


def test_harmless_works_piece_by_piece() -> None:
    text = "a\x1b[2Jb\u2066c"
    assert "".join(harmless(piece) for piece in text) == harmless(text)


def test_one_line_is_one_line() -> None:
    assert one_line(" make\n\ttest \x1b[2J") == "make test ␛[2J"


@pytest.mark.parametrize(
    ("text", "width", "cut"),
    [("hello", 5, "hello"), ("hello!", 5, "hell…"), ("東京都", 6, "東京都"), ("東京都", 5, "東京…")],
)
def test_a_line_is_cut_at_columns(text: str, width: int, cut: str) -> None:
    assert shorten(text, width) == cut
    assert cells(cut) <= width


def test_wrapping_keeps_line_ends_and_blank_lines() -> None:
    assert wrap("one two three four five\n\nsix", 24, "  ") == ["  one two three four", "  five", "", "  six"]


def test_colours_need_a_terminal_and_no_NO_COLOR() -> None:
    assert out({"TERM": "xterm"})[0].colour
    assert not out({"TERM": "xterm", "NO_COLOR": "1"})[0].colour
    assert not out({"TERM": "dumb"})[0].colour
    assert not out({"TERM": "xterm"}, io.StringIO())[0].colour


def test_colours_are_painted_and_left_out() -> None:
    coloured, stream = out({"TERM": "xterm"})
    coloured.line("ok", "green")
    plain, other = out({"NO_COLOR": "1"})
    plain.line("ok", "green")
    assert (stream.getvalue(), other.getvalue()) == ("\x1b[32mok\x1b[0m\n", "ok\n")


def test_a_line_begins_on_a_line_of_its_own() -> None:
    output, stream = out({"NO_COLOR": "1"})
    output.write("streamed")
    output.line("next")
    output.finish_line()
    assert stream.getvalue() == "streamed\nnext\n"


def test_json_is_one_line_of_ascii() -> None:
    output, stream = out({})
    output.json({"text": "a\n\x1b\ud800ü"})
    line = stream.getvalue()
    assert line.isascii()
    assert line.count("\n") == 1
    assert json.loads(line) == {"text": "a\n\x1b\ud800ü"}


def test_a_diff_of_others_is_harmless_too() -> None:
    output, stream = out({"NO_COLOR": "1"})
    output.diff("--- a/x\n+++ b/x\n@@ -1 +1 @@\n-\x1b[2J\n+b\n", "  ")
    assert stream.getvalue() == "  --- a/x\n  +++ b/x\n  @@ -1 +1 @@\n  -␛[2J\n  +b\n"


def test_the_width_is_the_terminals() -> None:
    main, side = pty.openpty()
    with os.fdopen(main), os.fdopen(side, "w") as stream:
        assert Output(stream, {"COLUMNS": "52"}).width == 52
        assert Output(stream, {}).width >= 40


def test_a_reader_that_goes_away_ends_no_command() -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as stream:
        output = Output(stream, {})
        output.line("a")
        output.line("b")
    assert settled(0) == 1
    assert settled(0) == 0


def test_a_full_disk_is_told_once_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    with Path("/dev/full").open("w") as stream:
        output = Output(stream, {})
        output.line("a")
        output.line("größe")
    assert settled(0) == 1
    assert capsys.readouterr().err == "deskmate: the output could not be written: No space left on device\n"


def test_a_stream_that_can_not_say_it_says_what_it_can() -> None:
    raw = io.BytesIO()
    output = Output(io.TextIOWrapper(raw, encoding="ascii"), {})
    output.line("größe")
    assert raw.getvalue() == b"gr??e\n"


def failed_call(why: str) -> dict[str, Any]:
    """The update of a call that failed."""
    state = {"status": "error", "input": {"path": "a.txt"}, "error": why}
    return {
        "kind": "part",
        "part": {"id": "prt_1", "type": "tool", "callId": "c", "tool": "edit", "state": state},
    }


def test_why_a_call_failed_is_broken_and_not_cut() -> None:
    why = "the text to replace stands nowhere in the file; the nearest lines are 10 to 12, read them first"
    output, stream = out({}, io.StringIO())
    Live(output, output).show(failed_call(why))
    lines = stream.getvalue().splitlines()
    assert " ".join(line.strip() for line in lines) == f"✗ edit a.txt: {why}"
    assert max(map(len, lines)) <= 100
    Live(output, output).show(failed_call("word " * 500))
    assert stream.getvalue().endswith("word\n  …\n")
