"""Cases from bug reports, through the whole server: bytes on disk, modes, commands."""

import stat
import time
from pathlib import Path

import pytest

from tests.support.fake_provider import answer, call, text
from tests.support.rig import ALLOW_ALL, Rig

DONE = answer(text("done"))
CONFIG = {"permission": ALLOW_ALL}


async def run(tmp: Path, name: str, args: object, files: dict[str, str | bytes]) -> tuple[Path, dict, list]:
    """Let the model make one call; returns the folder, the call's state and the session's diff."""
    async with Rig.open(tmp, [answer(call(name, args)), DONE], files=files, config=CONFIG) as rig:
        session = await rig.create()
        assert (await rig.prompt(session, "go"))["finish"] == "stop"
        [part] = await rig.calls(session)
        diff = (await rig.call("session/diff", sessionId=session))["files"]
        await rig.verified()
        return rig.folder, part["state"], diff


async def test_E01_a_crlf_file_and_a_model_that_writes_lf(tmp_path: Path) -> None:
    args = {"path": "f", "old": "a\nb\n", "new": "a\nB1\nB2\n"}
    folder, _, diff = await run(tmp_path, "edit", args, {"f": b"a\r\nb\r\nc\r\n"})
    assert (folder / "f").read_bytes() == b"a\r\nB1\r\nB2\r\nc\r\n"
    assert [(file["deletions"], file["additions"]) for file in diff] == [(1, 2)]


async def test_E03_a_byte_order_mark_is_kept_once_and_never_shown(tmp_path: Path) -> None:
    answers = [
        answer(call("read", {"path": "f"})),
        answer(call("edit", {"path": "f", "old": "hello", "new": "hello2"})),
        answer(call("write", {"path": "f", "content": "new é\n"})),
        DONE,
    ]
    async with Rig.open(
        tmp_path, answers, files={"f": b"\xef\xbb\xbfhello\n\xc3\xa9\n"}, config=CONFIG
    ) as rig:
        session = await rig.create()
        assert (await rig.prompt(session, "go"))["finish"] == "stop"
        read, edited, written = [part["state"] for part in await rig.calls(session)]
        assert "\ufeff" not in read["output"]
        assert (edited["status"], written["status"]) == ("completed", "completed")
        assert (rig.folder / "f").read_bytes() == b"\xef\xbb\xbfnew \xc3\xa9\n"


@pytest.mark.parametrize("all_of_them", [False, True])
@pytest.mark.parametrize("new", ["$& ok", "\\1", "\\g<0>", "a\\nb", "\\\\"])
async def test_E04_a_replacement_is_literal(tmp_path: Path, new: str, all_of_them: bool) -> None:
    before = 'log("done")\n' * (2 if all_of_them else 1)
    args = {"path": "f", "old": "done", "new": new, "all": all_of_them}
    folder, _, _ = await run(tmp_path, "edit", args, {"f": before})
    assert (folder / "f").read_text() == before.replace("done", new)


@pytest.mark.parametrize(("before", "after"), [("x\ny", "x\nz"), ("x\ny\n", "x\nz\n")])
async def test_E05_a_final_newline_is_neither_added_nor_taken(
    tmp_path: Path, before: str, after: str
) -> None:
    folder, _, _ = await run(tmp_path, "edit", {"path": "f", "old": "y", "new": "z"}, {"f": before})
    assert (folder / "f").read_text() == after


async def test_E06_mode_bits_are_kept(tmp_path: Path) -> None:
    answers = [
        answer(call("edit", {"path": "run.sh", "old": "a", "new": "b"})),
        answer(call("read", {"path": "key.pem"})),
        answer(call("write", {"path": "key.pem", "content": "new\n"})),
        answer(call("write", {"path": "fresh", "content": "new\n"})),
        DONE,
    ]
    async with Rig.open(tmp_path, answers, files={"run.sh": "a\n", "key.pem": "old\n"}, config=CONFIG) as rig:
        (rig.folder / "run.sh").chmod(0o755)
        (rig.folder / "key.pem").chmod(0o600)
        session = await rig.create()
        assert (await rig.prompt(session, "go"))["finish"] == "stop"
        modes = {name: stat.S_IMODE((rig.folder / name).stat().st_mode) for name in ("run.sh", "key.pem")}
        assert modes == {"run.sh": 0o755, "key.pem": 0o600}
        assert (rig.folder / "key.pem").read_text() == "new\n"
        (rig.folder / "made").touch()
        assert (rig.folder / "fresh").stat().st_mode == (rig.folder / "made").stat().st_mode


@pytest.mark.parametrize("all_of_them", [False, True])
async def test_E08_an_empty_old_is_refused_on_a_file_and_creates_a_missing_one(
    tmp_path: Path, all_of_them: bool
) -> None:
    args = {"path": "f", "old": "", "new": "X", "all": all_of_them}
    folder, state, _ = await run(tmp_path / "there", "edit", args, {"f": "abc"})
    assert (state["status"], (folder / "f").read_text()) == ("error", "abc")
    folder, state, _ = await run(tmp_path / "missing", "edit", args, {})
    assert (state["status"], (folder / "f").read_text()) == ("completed", "X")


async def test_H01_a_background_child_does_not_hold_the_call(tmp_path: Path) -> None:
    began = time.monotonic()
    _, state, _ = await run(tmp_path, "bash", {"command": "sleep 60 & echo done"}, {})
    assert state["output"].startswith("done")
    assert (state["exitCode"], state["success"]) == (0, True)
    assert state["endedAt"] - state["startedAt"] < 2_000
    assert time.monotonic() - began < 30


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ('read x; echo "got:[$x]"; readlink /proc/self/fd/0', "got:[]\n/dev/null"),
        ("git init -q . && git -c core.editor=vim commit --allow-empty", ""),
        ("python3 -c 'input()'", "EOFError"),
    ],
)
async def test_H02_a_command_that_asks_gets_the_end_of_input(
    tmp_path: Path, command: str, shown: str
) -> None:
    _, state, _ = await run(tmp_path, "bash", {"command": command}, {})
    assert shown in state["output"]
    assert state["endedAt"] - state["startedAt"] < 3_000
