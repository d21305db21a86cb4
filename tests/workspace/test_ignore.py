"""The walk sees what git sees, in one order, and ends in time; globs mean what they say."""

import shutil
import subprocess
import time
from pathlib import Path

import pytest

from deskmate_session.errors import ToolFailure
from deskmate_session.workspace.globs import compile_glob, split_base
from deskmate_session.workspace.ignore import Walk

IGNORED = {
    ".gitignore": "*.log\n/build/\n!keep.log\nnode_modules\n",
    "sub/.gitignore": "!important.log\nlocal.*\n",
    "sub/deep/.gitignore": "*\n!.gitignore\n!kept\n",
}
FILES = """
a.log keep.log build/x sub/build/y sub/x.log sub/important.log sub/local.txt sub/deep/z sub/deep/kept
node_modules/m/i.js sub/node_modules/q b/c.txt b.txt a/z é.txt
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A repository with nested ignore files."""
    for name in FILES.split():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    for name, text in IGNORED.items():
        (tmp_path / name).write_text(text)
    (tmp_path / ".git").mkdir()
    return tmp_path


def walk(root: Path, **more: float) -> list[str]:
    return list(Walk(str(root), (str(root),), **more))  # pyright: ignore[reportArgumentType] - one at a time


def test_the_order_is_by_names_and_git_is_left_out(tree: Path):
    assert walk(tree) == [
        ".gitignore",
        "a/z",
        "b/c.txt",
        "b.txt",
        "keep.log",
        "sub/.gitignore",
        "sub/build/y",
        "sub/deep/.gitignore",
        "sub/deep/kept",
        "sub/important.log",
        "é.txt",
    ]


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_git_sees_the_same_files(tree: Path):
    subprocess.run(["git", "init", "-q", str(tree)], check=True)
    (tree / ".git/info/exclude").write_text("b.txt\n")
    told = subprocess.run(
        ["git", "-C", str(tree), "ls-files", "-z", "--others", "--exclude-standard"],
        capture_output=True,
        check=True,
    ).stdout.decode()
    assert sorted(walk(tree)) == sorted(told.strip("\0").split("\0"))


def test_rules_above_the_start_count(tree: Path):
    assert list(Walk(str(tree / "sub"), (str(tree),))) == [
        ".gitignore",
        "build/y",
        "deep/.gitignore",
        "deep/kept",
        "important.log",
    ]


def test_links_that_lead_out_are_counted_not_followed(tree: Path):
    (tree / "b/up").symlink_to("/etc/hosts")
    (tree / "b/in").symlink_to("../b.txt")
    (tree / "b/round").symlink_to("..")
    seen = Walk(str(tree / "b"), (str(tree),))
    assert list(seen) == ["c.txt", "in"]
    assert seen.links_out == 1


def test_it_stops_at_the_time_limit_and_says_so(tree: Path):
    late = Walk(str(tree), (str(tree),), deadline=time.monotonic() - 1)
    assert (list(late), late.stopped) == ([], "at the time limit")
    short = Walk(str(tree), (str(tree),), limit=4)
    assert (len(list(short)) < 5, short.stopped) == (True, "after 4 entries")


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("*.py", ["a.py", "x/y/a.py", ".py"], ["a.pyc", "a.py/b"]),
        ("src/*.py", ["src/a.py"], ["src/x/a.py", "y/src/a.py"]),
        ("src/**/*.py", ["src/a.py", "src/x/y/a.py"], ["src.py"]),
        ("**", ["a", "a/b"], []),
        ("a?c", ["abc"], ["a/c", "ac"]),
        ("[ab].{x,y}", ["a.x", "b.y"], ["c.x", "a.z"]),
        ("[!a]", ["b"], ["a", "/"]),
        ("a.b", ["a.b"], ["axb"]),
        ("{a,b{c,d}}", ["a", "bc", "bd"], ["b"]),
        ("./x", ["x"], ["xx"]),
    ],
)
def test_globs(pattern: str, yes: list[str], no: list[str]):
    compiled = compile_glob(pattern)
    assert [name for name in yes if not compiled.fullmatch(name)] == []
    assert [name for name in no if compiled.fullmatch(name)] == []


def test_a_glob_with_too_many_alternatives_is_refused():
    with pytest.raises(ToolFailure, match="too many"):
        compile_glob("{a,b}" * 12)


def test_the_fixed_part_of_a_glob():
    assert split_base("/usr/lib/*.so") == ("/usr/lib", "*.so")
    assert split_base("/*.so") == ("/", "*.so")
    assert split_base("../x") == ("..", "x")
