"""Unified diffs: the form that patch(1) reads, checked by patch(1) itself."""

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from deskmate_session.core.diffs import diff, unified_diff


def test_a_change_has_three_lines_around_it_and_counts():
    before = "".join(f"{n}\n" for n in range(1, 11))
    shown = diff("a.txt", before, before.replace("5\n", "five\n"))
    assert (shown.additions, shown.deletions) == (1, 1)
    assert shown.patch == ("--- a/a.txt\n+++ b/a.txt\n@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+five\n 6\n 7\n 8\n")


def test_a_missing_final_newline_is_marked():
    assert unified_diff("f", "x\ny", "x\nz").endswith(
        "-y\n\\ No newline at end of file\n+z\n\\ No newline at end of file\n"
    )


def test_new_and_deleted_files_name_dev_null():
    assert unified_diff("f", None, "x\n") == "--- /dev/null\n+++ b/f\n@@ -0,0 +1 @@\n+x\n"
    assert unified_diff("f", "x\n", None) == "--- a/f\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n"


def test_a_crlf_line_is_one_line():
    shown = diff("f", "a\r\nb\r\nc\r\n", "a\r\nB1\r\nB2\r\nc\r\n")
    assert (shown.deletions, shown.additions) == (1, 2)
    assert "-b\r\n+B1\r\n+B2\r\n" in shown.patch


def test_equal_texts_have_no_diff():
    assert unified_diff("f", "a\n", "a\n") == ""


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
@given(before=st.text(alphabet="ab\n", max_size=60), after=st.text(alphabet="ab\n", max_size=60))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_git_can_apply_the_patch(tmp_path: Path, before: str, after: str):
    if not before or not after or before == after:
        return
    file = tmp_path / "f"
    file.write_bytes(before.encode())
    subprocess.run(
        ["git", "apply", "--whitespace=nowarn", "-"],
        input=unified_diff("f", before, after).encode(),
        cwd=tmp_path,
        check=True,
    )
    assert file.read_bytes() == after.encode()


def test_an_old_mac_text_is_shown_by_lines():
    assert unified_diff("f", "a\rb\r", "a\rc\r").endswith("@@ -1,2 +1,2 @@\n a\r\n-b\r\n+c\r\n")


def test_changes_far_apart_stand_in_hunks_of_their_own():
    before = "".join(f"{n}\n" for n in range(40))
    assert (
        unified_diff("f", before, before.replace("3\n", "x\n", 1).replace("35\n", "y\n")).count("@@ -") == 2
    )
