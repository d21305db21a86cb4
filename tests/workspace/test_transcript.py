"""What a command prints, in whatever pieces it comes, is the same readable text."""

from pathlib import Path

from hypothesis import HealthCheck, given, settings, strategies as st

from deskmate_session.workspace.transcript import Cleaner, Transcript

RAW = st.lists(
    st.sampled_from(
        [
            b"a",
            "é😋".encode(),
            b"\n",
            b"\r",
            b"\r\n",
            b"\x1b[31m",
            b"\x1b[0m",
            b"\x1b]0;title\x07",
            b"\xff",
            b"\x08",
        ]
    ),
    max_size=25,
).map(b"".join)


def clean(data: bytes, size: int) -> str:
    cleaner = Cleaner()
    text = "".join(cleaner.feed(data[at : at + size]) for at in range(0, len(data), size))
    return text + cleaner.feed(b"", final=True)


@given(RAW, st.integers(1, 7))
@settings(max_examples=400)
def test_the_size_of_the_pieces_does_not_matter(data: bytes, size: int):
    whole = clean(data, max(1, len(data)))
    assert clean(data, size) == whole
    assert "\x1b" not in whole
    assert "\r" not in whole


def test_a_progress_bar_keeps_its_last_state():
    assert clean(b"start\n10%\r50%\r100%\nend\n", 3) == "start\n100%\nend\n"
    assert clean(b"a\r\nb\r\n", 2) == "a\nb\n"
    assert clean(b"1%\r2%\r", 1) == "2%"


def test_an_endless_progress_bar_takes_no_memory():
    cleaner = Cleaner()
    for n in range(50_000):
        assert cleaner.feed(b"%d%%\r" % n) == ""
    assert cleaner.feed(b"", final=True) == "49999%"


@given(st.lists(st.text("ab", max_size=30), max_size=60), st.integers(2, 20), st.integers(20, 400))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_is_shown_is_bounded_and_the_file_is_whole(
    tmp_path: Path, lines: list[str], max_lines: int, max_bytes: int
):
    text = "".join(f"{line}\n" for line in lines)
    transcript = Transcript(tmp_path / "out.txt", max_lines, max_bytes)
    for at in range(0, len(text), 50):
        transcript.feed(text[at : at + 50].encode())
    _, shown = transcript.finish()
    if shown.output_file is None:
        assert shown.text == text
        return
    assert Path(shown.output_file).read_text() == text
    kept = [line for line in shown.text.split("\n")[:-1] if not line.startswith("[…")]
    assert len(kept) <= max_lines
    assert sum(len(line) + 1 for line in kept) <= max_bytes + 1  # the end of a cut line
    assert shown.omitted_lines == max(0, len(lines) - len(kept))
