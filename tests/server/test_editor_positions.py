"""Positions: the three encodings against a slow model, and where lines end."""

from collections.abc import Callable

import pytest
from hypothesis import example, given, strategies as st

from deskmate_server.editor.positions import Encoding, Position, line_starts, offset_at, position_at, units

texts = st.text(st.sampled_from("ab\n\r\t é漢😋\x0b\x0c\x85\u2028\u0301"), max_size=40)
encodings = st.sampled_from(Encoding)

WIDTHS: dict[Encoding, Callable[[str], int]] = {
    Encoding.UTF8: lambda char: len(char.encode()),
    Encoding.UTF16: lambda char: 2 if ord(char) > 0xFFFF else 1,
    Encoding.UTF32: lambda char: 1,
}


def model(text: str, encoding: Encoding) -> list[Position]:
    """The position of each offset, by walking the text."""
    line = character = 0
    places: list[Position] = []
    for index, char in enumerate(text):
        places.append(Position(line, character))
        if char == "\r" and text[index + 1 : index + 2] == "\n":
            continue
        if char in "\r\n":
            line, character = line + 1, 0
        else:
            character += WIDTHS[encoding](char)
    return [*places, Position(line, character)]


@given(texts, encodings)
@example('x = "😋漢" # TODO', Encoding.UTF16)
@example("\r\n\r\r\n\n", Encoding.UTF8)
def test_every_offset_has_the_position_that_walking_gives(text: str, encoding: Encoding) -> None:
    starts = line_starts(text)
    for offset, place in enumerate(model(text, encoding)):
        assert position_at(text, starts, offset, encoding) == place
        # Only the offset between \r and \n has no position of its own.
        split = text[offset - 1 : offset + 1] == "\r\n" and offset > 0
        assert offset_at(text, starts, place, encoding) == (offset - 1 if split else offset)


@given(texts, encodings, st.integers(-2, 50), st.integers(-2, 100))
def test_any_position_clamps_into_the_text(text: str, encoding: Encoding, line: int, character: int) -> None:
    starts = line_starts(text)
    offset = offset_at(text, starts, Position(line, character), encoding)
    assert 0 <= offset <= len(text)
    place = position_at(text, starts, offset, encoding)
    if 0 <= line < len(starts):
        assert place.line == line
        assert place.character <= max(0, character)


@given(texts, encodings)
def test_units_add_up(text: str, encoding: Encoding) -> None:
    assert units(text, encoding) == sum(map(WIDTHS[encoding], text))


def test_only_three_line_breaks_count() -> None:
    assert line_starts("a\nb\r\nc\rd\x0ce\x0bf\u2028g\u2029h\x85i\x1cj") == [0, 2, 5, 7]


@pytest.mark.parametrize(
    ("encoding", "character"), [(Encoding.UTF16, 12), (Encoding.UTF8, 16), (Encoding.UTF32, 11)]
)
def test_L03_columns_after_emoji(encoding: Encoding, character: int) -> None:
    text = 'x = "😋漢" # TODO'
    starts = line_starts(text)
    place = position_at(text, starts, text.index("TODO"), encoding)
    assert place == Position(0, character)
    assert text[offset_at(text, starts, place, encoding) :] == "TODO"


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_the_middle_of_a_character_rounds_down(cut: int) -> None:
    assert offset_at("a😋b", [0], Position(0, 1 + cut), Encoding.UTF8) == 1
    assert offset_at("a😋b", [0], Position(0, 2), Encoding.UTF16) == 1
    assert offset_at("a😋b", [0], Position(0, 3), Encoding.UTF16) == 2


def test_a_lone_surrogate_is_one_unit() -> None:
    assert units("a\ud83db", Encoding.UTF16) == 3
    assert offset_at("a\ud83db", [0], Position(0, 2), Encoding.UTF16) == 2
