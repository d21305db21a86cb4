"""`bash`: ends in time, leaves nothing running, is bounded and readable."""

import asyncio
import json
import resource
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from deskmate_session.errors import ToolFailure
from deskmate_session.model.messages import CommandDetail
from deskmate_session.model.ports import ToolLimits
from deskmate_session.tools.bash import suggested_rules
from tests.support.tool_context import ScriptedContext, asked


def running(call_id: str) -> list[str]:
    """Command lines of the processes that carry a call's mark."""
    found: list[str] = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("DESKMATE_CALL") == call_id and process.status() != "zombie":
                found.append(" ".join(process.cmdline()))
        except psutil.Error:
            continue
    return found


async def test_H01_a_background_child_does_not_hold_the_call(context: ScriptedContext):
    began = time.monotonic()
    result = await context.call("bash", command="sleep 60 & echo done")
    assert time.monotonic() - began < 2
    assert (result.exit_code, result.success) == (0, True)
    assert result.output.split("\n") == [
        "done",
        "[ended with the command, for it left them running: sleep 60]",
    ]
    assert running(context.call_id) == []


async def test_a_child_in_a_session_of_its_own_is_ended_too(context: ScriptedContext):
    result = await context.call("bash", command="setsid sleep 61 >/dev/null 2>&1 & sleep 0.2; echo done")
    assert "sleep 61" in result.output
    assert running(context.call_id) == []


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ('read x; echo "got:[$x]"', "got:[]"),
        ("python3 -c 'input()'", "EOFError"),
        ("echo tty; cat </dev/tty", "tty"),
        ("cat", "[no output]"),
    ],
)
async def test_H02_a_question_gets_end_of_file(context: ScriptedContext, command: str, said: str):
    began = time.monotonic()
    result = await context.call("bash", command=command)
    assert time.monotonic() - began < 3
    assert said in result.output


async def test_H02_an_interactive_editor_of_git_is_not_waited_for(folder: Path, context: ScriptedContext):
    setup = "git init -q . && git config core.editor 'sleep 300' && git config user.email a@b && "
    setup += "git config user.name n && echo x > f && git add f"
    subprocess.run(["bash", "-c", setup], cwd=folder, check=True)
    began = time.monotonic()
    result = await context.call("bash", command="git commit")
    assert time.monotonic() - began < 3
    assert not result.success
    assert "empty commit message" in result.output


async def test_H03_the_time_limit_ends_the_whole_tree(context: ScriptedContext):
    began = time.monotonic()
    said = await context.refused("bash", command="echo part; (sleep 301 & sleep 302) | cat", timeout=1_000)
    assert time.monotonic() - began < 3
    assert (said.kind, said.outcome_unknown) == ("timeout", True)
    assert said.message.startswith("part\n[timed out after 1,000 ms")
    assert running(context.call_id) == []


@pytest.mark.parametrize(
    "command",
    [
        "echo part; (sleep 301 & sleep 302) | cat",
        "trap '' TERM; echo part; sleep 303; sleep 304",
        "echo part; setsid bash -c \"trap '' TERM; sleep 305; sleep 306\"",
    ],
)
async def test_H03_a_cancel_ends_the_whole_tree(context: ScriptedContext, command: str):
    call = asyncio.ensure_future(context.call("bash", command=command))
    while not context.shown:
        await asyncio.sleep(0.01)
    began = time.monotonic()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert time.monotonic() - began < 2
    assert "".join(context.shown) == "part\n"
    assert running(context.call_id) == []


async def test_H04_a_flood_is_bounded_and_whole_in_a_file(context: ScriptedContext):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = await context.call("bash", command="seq 1 3000000; echo FINAL; exit 7")
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 100 * 1024  # KiB
    assert (result.exit_code, result.success, result.truncated) == (7, False, True)
    assert len(result.output.encode()) < 51_000
    lines = result.output.split("\n")
    assert lines[:3] == ["1", "2", "3"]
    assert lines[-2:] == ["FINAL", "[exit code 7]"]
    note = next(line for line in lines if line.startswith("[…"))
    kept = len(lines) - 2  # without the note and the exit code
    assert f"{3_000_001 - kept:,} lines left out of 3,000,001" in note
    assert result.output_file is not None
    assert result.output_file in note
    whole = Path(result.output_file).read_text().split("\n")
    assert (len(whole), whole[2_999_999], whole[3_000_000]) == (3_000_002, "3000000", "FINAL")
    assert Path(result.output_file).stat().st_mode & 0o077 == 0
    assert sum(map(len, context.shown)) < 500_000


async def test_one_endless_line_is_bounded_too(context: ScriptedContext):
    result = await context.call("bash", command="yes | tr -d '\\n' | head -c 30000000")
    assert len(result.output) < 51_000
    assert "the middle left out" in result.output


async def test_H05_escapes_progress_bars_and_bad_bytes_are_made_readable(context: ScriptedContext):
    command = r"printf '\033[31mred\033[0m\n10%%\r50%%\r100%%\nA\xff\xfeB\n'"
    result = await context.call("bash", command=command)
    assert result.output == "red\n100%\nA\ufffd\ufffdB"
    json.loads(json.dumps({"output": result.output}, ensure_ascii=False).encode())


async def test_H06_each_command_starts_in_the_folder(folder: Path, context: ScriptedContext):
    (folder / "sub").mkdir()
    for command in ("cd sub && true", "cd sub && false"):
        assert f"starts in {folder} again" in (await context.call("bash", command=command)).output
        assert (await context.call("bash", command="pwd")).output == str(folder)
    assert "/sub]" in (await context.call("bash", command="true", workdir="sub")).output


async def test_a_command_that_says_nothing_has_a_placeholder(context: ScriptedContext):
    assert (await context.call("bash", command="true")).output == "[no output]"
    assert (await context.call("bash", command="kill -9 $$")).exit_code == 137


async def test_progress_comes_while_it_runs(context: ScriptedContext):
    call = asyncio.ensure_future(context.call("bash", command="echo one; sleep 1; echo two"))
    while not context.shown:
        await asyncio.sleep(0.01)
    assert not call.done()
    await call
    assert "".join(context.shown) == "one\ntwo\n"


async def test_the_time_limit_that_the_model_asks_for_is_bounded(folder: Path):
    context = ScriptedContext(folder, ToolLimits(command_timeout_ms=200, command_timeout_max_ms=300))
    assert "after 300 ms" in (await context.refused("bash", command="sleep 9", timeout=60_000)).message
    assert "after 200 ms" in (await context.refused("bash", command="sleep 9")).message


async def test_a_folder_that_is_missing_is_said(context: ScriptedContext):
    assert (await context.refused("bash", command="true", workdir="nowhere")).kind == "notFound"


async def test_what_is_asked_is_what_runs(folder: Path, context: ScriptedContext):
    prepared = await context.prepare("bash", command="git status\nrm -rf x", description="Look")
    request = prepared.requests[0]
    assert request.detail == CommandDetail(command="git status\nrm -rf x", workdir=str(folder))
    assert asked(prepared) == [("bash", ("git status\nrm -rf x",))]
    assert request.always == ()
    outside = await context.prepare("bash", command="ls", workdir="/usr")
    assert asked(outside)[0] == ("external_directory", ("/usr",))


@pytest.mark.parametrize(
    ("command", "rules"),
    [
        ("git status --short", ("git status*",)),
        ("ls -la", ("ls*",)),
        ("git", ("git",)),
        ("git -c a.b=c status", ("git -c a.b=c status",)),
        ("git config x y", ("git config x y",)),
        ("npm run build -- --x", ("npm run build*",)),
        ("lsblk", ("lsblk",)),
        ("setsid touch x", ("setsid touch x",)),
        ("rm -rf build", ("rm -rf build",)),
        ("python -m pytest -q", ("python -m pytest -q",)),
        ("./run.sh now", ("./run.sh now",)),
        ("a && b", ()),
        ("echo $(id)", ()),
        ("FOO=1 make", ()),
    ],
)
def test_the_rule_that_always_would_add(command: str, rules: tuple[str, ...]):
    assert suggested_rules(command) == rules


async def test_a_blank_command_is_refused(context: ScriptedContext):
    with pytest.raises(ToolFailure, match="empty"):
        await context.prepare("bash", command="  ")
