"""`glob` and `grep`: what is ignored, skipped, bounded, and said."""

import asyncio
import time
from pathlib import Path

import pytest

from deskmate_session.model.ports import ToolLimits
from deskmate_session.tools.grep import GrepTool
from deskmate_session.tools.registry import parse_args
from deskmate_session.workspace.search import find_ripgrep
from tests.support.tool_context import ScriptedContext, asked


@pytest.fixture
def tree(folder: Path) -> Path:
    """A small project with everything that is skipped for a reason."""
    for name, text in {
        "a.py": "x = 1\nKEY = 2\n",
        "src/b.py": "\tKEY\n",
        "src/c.ts": "let KEY\n",
        "build/out.py": "KEY\n",
        ".env": "KEY=secret\n",
        "certs/k.pem": "KEY secret\n",
        ".gitignore": "build/\n",
        ".git/config": "KEY\n",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / "bin.dat").write_bytes(b"KEY\0KEY\n")
    return folder


@pytest.mark.parametrize(
    ("args", "found"),
    [
        ({"pattern": "*.py"}, ["a.py", "src/b.py"]),
        ({"pattern": "src/*.{py,ts}"}, ["src/b.py", "src/c.ts"]),
        ({"pattern": "**/*.ts"}, ["src/c.ts"]),
        ({"pattern": "*", "path": "src"}, ["src/b.py", "src/c.ts"]),
        ({"pattern": "[!a].py"}, ["src/b.py"]),
        ({"pattern": "nothing"}, ["[no file matches]"]),
    ],
)
async def test_glob_finds_by_name(
    tree: Path, context: ScriptedContext, args: dict[str, str], found: list[str]
):
    assert (await context.call("glob", **args)).output.split("\n") == found


async def test_glob_outside_is_asked(tree: Path, context: ScriptedContext):
    prepared = await context.prepare("glob", pattern="/usr/*.py")
    assert asked(prepared) == [("external_directory", ("/usr",)), ("read", ("/usr",))]
    assert (await context.refused("glob", pattern="*", path="nowhere")).kind == "notFound"


async def test_glob_does_not_follow_links_out(tree: Path, context: ScriptedContext):
    (tree / "up").symlink_to("/etc")
    (tree / "hosts.py").symlink_to("/etc/hosts")
    (tree / "in.py").symlink_to("a.py")
    output = (await context.call("glob", pattern="*")).output
    assert "in.py" in output
    assert "hosts" not in output.replace("links", "")


async def test_glob_says_when_it_is_cut(folder: Path):
    context = ScriptedContext(folder, ToolLimits(output_max_lines=3))
    for n in range(9):
        (folder / f"f{n}").touch()
    lines = (await context.call("glob", pattern="f*")).output.split("\n")
    assert lines[:3] == ["f0", "f1", "f2"]
    assert "more than 3 files match" in lines[3]


async def test_grep_finds_lines_and_says_what_it_skipped(tree: Path, context: ScriptedContext):
    lines = (await context.call("grep", pattern="KEY")).output.split("\n")
    assert lines == [
        "a.py:2:KEY = 2",
        "src/b.py:1:\tKEY",
        "src/c.ts:1:let KEY",
        "[5 files searched; skipped: 2 that no rule lets you read, 1 binary]",
    ]


async def test_grep_in_some_files(tree: Path, context: ScriptedContext):
    assert "src/c.ts:1" in (await context.call("grep", pattern="KEY", glob="*.ts")).output
    assert (await context.call("grep", pattern="^x", path="a.py")).output.startswith("a.py:1:x = 1\n")
    output = (await context.call("grep", pattern="KEY", glob="{.env,a.py}")).output
    assert "secret\n" not in output
    assert "skipped: 1 that no rule lets you read" in output
    assert (await context.call("grep", pattern="absent")).output.startswith("[no match]\n")


async def test_grep_of_a_secret_is_asked_for_that_file(tree: Path, context: ScriptedContext):
    prepared = await context.prepare("grep", pattern="KEY", path=".env")
    assert asked(prepared) == [("read", (".env",))]
    assert prepared.requests[0].always == ()


async def test_grep_sees_crlf_and_odd_encodings(folder: Path, context: ScriptedContext):
    (folder / "crlf").write_bytes(b"end\r\nend x\r\n")
    (folder / "latin").write_bytes(b"caf\xe9 end\n")
    (folder / "utf16").write_bytes("the end\n".encode("utf-16"))
    output = (await context.call("grep", pattern="end$")).output
    assert output.startswith("crlf:1:end\nlatin:1:café end\nutf16:1:the end\n")


async def test_grep_survives_a_pattern_that_never_ends(folder: Path):
    context = ScriptedContext(folder, ToolLimits(search_timeout_ms=1_000))
    (folder / "a").write_text("hit aab\n")
    (folder / "z").write_text("a" * 60 + "!\n")
    began = time.monotonic()
    tool = GrepTool()
    prepared = await tool.prepare(parse_args(tool, {"pattern": r"(?=h)hit|^(a|aa)+(?<=x)$"}), context)
    output = (await prepared.run()).output
    assert time.monotonic() - began < 3
    assert "a:1:hit aab" in output
    assert "results are partial" in output


async def test_grep_names_a_bad_pattern(tree: Path, context: ScriptedContext):
    failure = await context.refused("grep", pattern="(unclosed")
    assert failure.kind == "badArguments"
    assert "(unclosed" in failure.message


async def test_grep_is_bounded(folder: Path, context: ScriptedContext):
    (folder / "f").write_text("x" * 5_000 + "\n" + "x\n" * 5_000)
    result = await context.call("grep", pattern="x")
    assert len(result.output) < 51_000
    assert result.truncated
    assert "at 500 matches" in result.output


@pytest.mark.parametrize("pattern", ["KEY", "(?i)key$", "x(?= =)", "^\\t", "nothing at all"])
async def test_ripgrep_and_python_find_the_same(tree: Path, context: ScriptedContext, pattern: str):
    (tree / "latin").write_bytes(b"caf\xe9 KEY\n")
    (tree / "crlf").write_bytes(b"KEY\r\nx\r\n")
    outputs: list[list[str]] = []
    ripgrep = await asyncio.to_thread(find_ripgrep)
    assert ripgrep is not None, "the dev dependencies bring it"
    for program in ("/nowhere/rg", ripgrep):
        tool = GrepTool(program)
        prepared = await tool.prepare(parse_args(tool, {"pattern": pattern}), context)
        lines = (await prepared.run()).output.split("\n")
        outputs.append([line for line in lines if "files searched" not in line])  # rg counts less
    assert outputs[0] == outputs[1]
