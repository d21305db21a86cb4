"""Replacement is exact and literal, and keeps line ends; edits for editors give the text they promise."""

import time

import pytest
from hypothesis import given, settings, strategies as st

from deskmate_session.core.edits import (
    Edit,
    apply_edits,
    apply_text_edits,
    replace,
    text_edits,
    with_line_ends_of,
)
from deskmate_session.core.lines import Change, diff_lines, line_end, newline_of, split_lines
from deskmate_session.errors import ToolFailure

TEXTS = st.text(alphabet="ab \t\n\r😋\ufeff\u2028", max_size=40)
LF_TEXTS = st.text(alphabet="ab \n", max_size=40)


def failure(text: str, *edits: Edit) -> ToolFailure:
    with pytest.raises(ToolFailure) as caught:
        apply_edits(text, edits)
    return caught.value


def test_a_crlf_file_keeps_its_line_ends():
    done = replace("a\r\nb\r\nc\r\n", "a\nb\n", "a\nB1\nB2\n")
    assert (done.text, done.count) == ("a\r\nB1\r\nB2\r\nc\r\n", 1)


def test_a_mixed_file_keeps_the_ends_of_the_lines_that_correspond():
    done = replace("a\r\nb\nc\r\nd\n", "a\nb\nc\n", "a\nB\nnew\nc\n")
    assert done.text == "a\r\nB\nnew\nc\r\nd\n"


def test_an_old_mac_file_keeps_carriage_returns():
    assert replace("a\rb\rc", "a\nb", "x\ny\nz").text == "x\ry\rz\rc"


def test_a_bare_carriage_return_in_a_line_is_a_character():
    assert replace("a\rb\nc\n", "a\rb", "ab").text == "ab\nc\n"


def test_several_matches_are_counted_and_named_by_line():
    said = failure("x\ny\nx\nx\n", Edit("x", "z")).message
    assert "3 times" in said
    assert "lines 1, 3, 4" in said


def test_overlapping_matches_are_ambiguous_too():
    assert "2 times" in failure("aaa", Edit("aa", "b")).message


def test_all_replaces_every_occurrence_and_tells_where():
    done = replace("x\ny x\n", "x", "long", all=True)
    assert (done.text, done.count, done.ranges) == ("long\ny long\n", 2, ((0, 4), (7, 11)))


def test_a_miss_names_the_nearest_lines():
    text = "".join(f"def f{n}():\n    return {n}\n" for n in range(50))
    said = failure(text, Edit("def f7():\n  return 8\n", "x")).message
    assert "15|def f7():" in said


def test_a_miss_by_white_space_only_says_so():
    said = failure("\tif x:\n\t\ty\n", Edit("    if x:\n        y\n", "z")).message
    assert "white space only" in said
    assert "1|\tif x:" in said


def test_a_miss_without_anything_alike_says_so():
    assert "no line of the file looks like it" in failure("abc\n", Edit("qqq zzz", "x")).message


def test_a_miss_in_a_big_file_is_answered_soon():
    text = "same line of text\n" * 200_000
    began = time.perf_counter()
    failure(text, Edit("\n".join(["same  line of text"] * 2_000) + "!", "x"))
    assert time.perf_counter() - began < 2


def test_many_edits_are_all_or_nothing():
    assert apply_edits("a b c", [Edit("a", "b2"), Edit("b2", "x"), Edit("c", "y")]).text == "x b y"
    said = failure("a b c", Edit("a", "x"), Edit("nothing", "y")).message
    assert said.startswith("edit 2 of 2: ")
    assert "no edit was applied" in said


@pytest.mark.parametrize("edits", [[Edit("a", "a")], [Edit("a", "x"), Edit("x", "a")]])
def test_nothing_would_change(edits: list[Edit]):
    assert "nothing would change" in failure("a\r\nb", *edits).message


def test_a_change_of_line_ends_only_is_no_change():
    assert "nothing would change" in failure("a\r\nb", Edit("a\r\nb", "a\nb")).message


@given(TEXTS, TEXTS)
@settings(max_examples=500, deadline=None)
def test_text_edits_give_the_text_after(before: str, after: str):
    edits = text_edits(before, after)
    assert apply_text_edits(before, edits) == after
    assert all(edit.text or edit.end > edit.start for edit in edits)
    for edit in edits:
        for place in (edit.start, edit.end):
            assert not (place and before[place - 1 : place + 1] == "\r\n"), "no place inside a line end"


def test_text_edits_are_small():
    assert len(text_edits("a\nb\nc\n", "a\nB\nc\n")) == 1
    edit = text_edits("one two three\n", "one 2 three\n")[0]
    assert (edit.start, edit.end, edit.text) == (4, 7, "2")


@pytest.mark.parametrize("step", [1, 2, 50])
def test_text_edits_of_many_lines_cost_little(step: int):
    lines = [f"{n % 90}\n" for n in range(20_000)]
    changed = [f"{n % 7}\n" if n % step == 0 else line for n, line in enumerate(lines)]
    began = time.perf_counter()
    before, after = "".join(lines), "".join(changed)
    assert apply_text_edits(before, text_edits(before, after)) == after
    assert time.perf_counter() - began < 3


@given(TEXTS)
def test_lines_joined_are_the_text(text: str):
    assert "".join(split_lines(text)) == text


@given(LF_TEXTS, LF_TEXTS, st.sampled_from(["\n", "\r\n"]))
def test_line_ends_are_those_of_a_uniform_text(before: str, new: str, end: str):
    written = with_line_ends_of(before.replace("\n", end), new, end)
    assert written == new.replace("\n", end)


@given(LF_TEXTS, st.text(alphabet="ab\n", min_size=1, max_size=3), LF_TEXTS)
@settings(max_examples=500)
def test_replacement_is_what_python_does_on_line_feeds(text: str, old: str, new: str):
    try:
        done = replace(text.replace("\n", "\r\n"), old, new, all=True)
    except ToolFailure:
        assert text.count(old) == 0 or old == new
        return
    assert done.text.replace("\r\n", "\n") == text.replace(old, new)
    if "\n" in text:
        assert newline_of(done.text) == "\r\n" or "\n" not in done.text
    assert [done.text[a:b].replace("\r\n", "\n") for a, b in done.ranges] == [new] * done.count


def test_no_edit_is_an_error():
    assert "`edits` is empty" in failure("a").message


def test_very_many_matches_are_counted_and_some_named():
    said = failure("x\n" * 500, Edit("x", "y")).message
    assert "500 times, at lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, …" in said


def test_line_ends_of_an_old_mac_text_are_told():
    assert (newline_of("a\rb"), split_lines("a\rb"), line_end("a\r")) == ("\r", ["a\r", "b"], "\r")


@given(st.lists(st.integers(0, 30), max_size=30), st.integers(0, 9))
@settings(max_examples=50, deadline=None)
def test_long_texts_with_moved_stretches_keep_what_did_not_move(places: list[int], seed: int):
    old = [f"{n}\n" if n % 5 else "same\n" for n in range(1_500)]
    new = list(old)
    for place in places:
        start = place * 37 + seed
        new[start : start + 20] = reversed(new[start : start + 20])
    changes = diff_lines(old, new)
    merged: list[str] = []
    at = 0
    for change in changes:
        assert old[at : change.start] == new[change.new_start - (change.start - at) : change.new_start]
        merged += [*old[at : change.start], *new[change.new_start : change.new_end]]
        at = change.end
    assert [*merged, *old[at:]] == new
    assert sum(change.end - change.start for change in changes) <= 40 * len(set(places))


def test_texts_with_nothing_in_common_are_one_change():
    old, new = [f"a{n}\n" for n in range(2_000)], [f"b{n}\n" for n in range(1_900)]
    assert diff_lines(old, new) == [Change(0, 2_000, 0, 1_900)]


@pytest.mark.parametrize(
    ("before", "after"), [("x\ny\r\n", "x\ny\r"), ("x\ny\r", "x\ny\r\n"), ("a\nb", "a\r\nb")]
)
def test_an_edit_never_parts_a_line_end(before: str, after: str):
    edits = text_edits(before, after)
    assert apply_text_edits(before, edits) == after
    assert [edit for edit in edits if before[edit.start - 1 : edit.start + 1] == "\r\n"] == []
