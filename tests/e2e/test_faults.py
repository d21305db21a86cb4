"""Damage, a full disk, a place that is gone, a lock: the server lives, the person is told once, nothing is
changed that the log can't record, and the same session goes on."""

import hashlib
import resource
import sqlite3
import subprocess
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.editor import APPLY, Editor
from tests.support.fake_provider import Request, answer, call, text
from tests.support.lsp_client import LspError
from tests.support.rig import ALLOW_ALL, Rig

CONFIG = {"permission": ALLOW_ALL}
AGAIN = "Deskmate: the event log can be written again; sessions go on"
EDIT = call("edit", {"path": "f", "old": "old", "new": "new"})


def database(rig: Rig) -> Path:
    [path] = rig.state.glob("*/events.db")
    return path


def told(rig: Rig) -> list[str]:
    """What the person was shown."""
    return [params["message"] for params in rig.client.received("window/showMessage")]


def messages(request: Any) -> str:
    return str(request.body["messages"])


async def talked(tmp: Path) -> tuple[Path, str, list[Any]]:
    """A log of a session with some turns, closed in order: its path, the session and its events."""
    answers = [answer(text(f"answer {n} " + "lorem ipsum " * 100)) for n in range(20)]
    async with Rig.open(tmp, answers) as rig:
        session = await rig.create()
        for n in range(20):
            assert (await rig.prompt(session, f"prompt {n}"))["finish"] == "stop"
        events = await rig.events(session, limit=1_000)
        path = database(rig)
        assert await rig.client.shutdown() == 0
        return path, session, events


async def test_D04_a_log_that_was_overwritten_in_the_middle_is_kept_and_salvaged(tmp_path: Path) -> None:
    path, session, before = await talked(tmp_path)
    content = bytearray(path.read_bytes())
    middle = len(content) // 2 // 4096 * 4096
    content[middle : middle + 4096] = b"\xa5" * 4096
    path.write_bytes(content)
    async with Rig.open(tmp_path, [answer(text("on again")), answer(text("and again"))]) as rig:
        assert [found["id"] for found in (await rig.call("session/list"))["sessions"]] == [session]
        [notice] = told(rig)
        [kept] = path.parent.glob("events.damaged-*.db")
        assert str(kept) in notice
        assert kept.read_bytes() == content
        after = await rig.events(session, limit=1_000)
        known = {event["seq"]: event for event in before}
        assert [known[event["seq"]] for event in after] == after
        [fact] = [
            event["payload"] for event in await rig.events(limit=1_000) if event["type"] == "log.salvaged"
        ]
        lost = {seq for each in fact["lost"] for seq in range(each["first"], each["last"] + 1)}
        assert set(known) - {event["seq"] for event in after} == lost & set(known)
        assert len(after) > len(before) // 2
        await rig.verified()
        assert (await rig.prompt(session, "still there?"))["finish"] == "stop"
        assert "on again" in await rig.text(session)
        assert len(told(rig)) == 1
        await rig.restart()
        assert (await rig.prompt(session, "and now?"))["finish"] == "stop"
        assert told(rig) == []
        assert list(path.parent.glob("events.damaged-*.db")) == [kept]
        await rig.verified()


async def test_D04_a_log_of_a_newer_build_is_read_and_not_touched(tmp_path: Path) -> None:
    path, session, before = await talked(tmp_path)
    with closing(sqlite3.connect(path)) as conn:
        conn.execute("pragma user_version = 9999")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    async with Rig.open(tmp_path) as rig:
        assert await rig.events(session, limit=1_000) == before
        with pytest.raises(LspError) as caught:
            await rig.prompt(session, "hello")
        assert caught.value.data["kind"] == "logReadOnly"
        [notice] = told(rig)
        assert "schema 9999" in notice
        assert await rig.client.shutdown() == 0
    assert hashlib.sha256(path.read_bytes()).hexdigest() == digest
    assert list(path.parent.glob("events.damaged-*")) == []


async def test_garbage_in_place_of_the_log_is_kept_and_the_server_works(tmp_path: Path) -> None:
    path, session, _ = await talked(tmp_path)
    garbage = b"\x5a" * 50_000
    path.write_bytes(garbage)
    async with Rig.open(tmp_path, [answer(text("hello"))]) as rig:
        with pytest.raises(LspError) as caught:
            await rig.prompt(session, "there?")
        assert caught.value.data["kind"] == "sessionNotFound"
        assert (await rig.prompt(await rig.create(), "hi"))["finish"] == "stop"
        [notice] = told(rig)
        [kept] = path.parent.glob("events.damaged-*.db")
        assert str(kept) in notice
        assert kept.read_bytes() == garbage
        await rig.verified()


# ── Faults at run time ───────────────────────────────────────────────────────────────────────────


class Limit:
    """No file of the server may grow or be written: a full disk, without a mount."""

    kind = "the disk is full"

    def __init__(self, tmp: Path) -> None:
        self._pid = 0

    def prepare(self) -> None:
        pass

    def begin(self, rig: Rig) -> None:
        self._pid = rig.client.process.pid
        resource.prlimit(self._pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))

    def end(self, rig: Rig) -> None:
        free = resource.RLIM_INFINITY, resource.RLIM_INFINITY
        resource.prlimit(self._pid, resource.RLIMIT_FSIZE, free)

    def close(self) -> None:
        pass


class Full:
    """The state folder is a small tmpfs, and full; the workspace is not."""

    kind = "the disk is full"

    def __init__(self, tmp: Path) -> None:
        self._state = tmp / "state"
        self._filler = self._state / "filler"

    def prepare(self) -> None:
        self._state.mkdir()
        mount("-t", "tmpfs", "-o", "size=2m", "tmpfs", str(self._state))

    def begin(self, rig: Rig) -> None:
        # What the log has on the disk already could be written again.
        with self._filler.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space"):
            while True:
                file.write(bytes(4096))

    def end(self, rig: Rig) -> None:
        self._filler.unlink()

    def close(self) -> None:
        subprocess.run(["umount", "-l", str(self._state)], check=True)


class Gone:
    """The state folder lies on a mount that is taken away, and comes back."""

    kind = "was removed or replaced"

    def __init__(self, tmp: Path) -> None:
        self._real, self._state = tmp / "real", tmp / "state"

    def prepare(self) -> None:
        self._real.mkdir()
        self._state.mkdir()
        self.end(None)

    def begin(self, rig: Rig) -> None:
        self.close()

    def end(self, rig: Rig | None) -> None:
        mount("--bind", str(self._real), str(self._state))

    def close(self) -> None:
        subprocess.run(["umount", "-l", str(self._state)], capture_output=True)  # it may be gone already


def mount(*args: str) -> None:
    made = subprocess.run(["mount", *args], capture_output=True, text=True)
    if made.returncode:
        pytest.skip(f"this environment lets nobody mount: {made.stderr.strip()}")


FAULTS = [Limit, Full, Gone]
Fault = Limit | Full | Gone


@pytest.fixture(params=FAULTS, ids=lambda kind: kind.__name__)
def fault(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Fault]:
    made: Fault = request.param(tmp_path)
    made.prepare()
    yield made
    made.close()


async def failed(work: Any) -> str:
    """How a turn ended that could not be recorded: the error of its request, or of its result."""
    try:
        result = await work
    except LspError as error:
        return str(error.data["kind"])
    assert result["finish"] == "error", result
    return str(result["error"]["kind"])


async def test_a_fault_in_mid_turn_ends_it_is_told_once_and_passes(tmp_path: Path, fault: Fault) -> None:
    rigs: list[Rig] = []

    def breaks(_: Request) -> Any:
        fault.begin(rigs[0])
        return answer(text("I edit it now. " * 50), EDIT)

    answers = [answer(text("hello")), breaks, answer(text("as you like"))]
    async with Rig.open(tmp_path, answers, files={"f": "old\n"}, config=CONFIG) as rig:
        rigs.append(rig)
        session = await rig.create()
        assert (await rig.prompt(session, "hi"))["finish"] == "stop"
        before = await rig.events(session)
        assert told(rig) == []
        assert await failed(rig.prompt(session, "edit")) in ("logReadOnly", "internal")
        [notice] = told(rig)
        assert fault.kind in notice
        # It lives: what it holds is read, what can't be recorded is refused, and nobody is told again.
        assert (await rig.events(session))[: len(before)] == before
        with pytest.raises(LspError) as caught:
            await rig.prompt(session, "edit, I said")
        assert caught.value.data["kind"] == "logReadOnly"
        assert told(rig) == [notice]
        assert (rig.folder / "f").read_text() == "old\n"
        fault.end(rig)
        assert (await rig.prompt(session, "never mind"))["finish"] == "stop"
        assert (await rig.text(session)).endswith("as you like")
        assert told(rig) == [notice, AGAIN]
        assert (rig.folder / "f").read_text() == "old\n"
        await rig.verified()
        assert await rig.client.shutdown() == 0


async def test_an_edit_that_is_allowed_while_nothing_can_be_logged_is_made_after_it(
    tmp_path: Path, fault: Fault
) -> None:
    """The answer to the ask can't be recorded, so it is none yet; it counts as soon as it can be."""
    answers = [answer(EDIT), answer(text("done")), answer(text("on again"))]
    async with Rig.open(tmp_path, answers, files={"f": "old\n"}, capabilities=APPLY) as rig:
        editor = Editor(rig.client)
        buffer = editor.open(rig.folder / "f")

        def breaks(_: Any) -> str:
            fault.begin(rig)
            return "once"

        rig.ask = breaks
        session = await rig.create()
        answering = rig.start(session, "edit", "t")
        notice = (await rig.client.wait_for("window/showMessage"))["message"]
        assert fault.kind in notice
        [ask] = rig.asked
        with pytest.raises(LspError) as caught:
            await rig.call("ask/reply", askId=ask["id"], reply="once")
        assert caught.value.data["kind"] == "logReadOnly"
        assert editor.edits == []
        assert (rig.folder / "f").read_text() == "old\n"
        assert not answering.done()
        fault.end(rig)
        assert (await answering)["finish"] == "stop"
        assert buffer.text == "new\n"
        assert told(rig) == [notice, AGAIN]
        assert (await rig.prompt(session, "and now?"))["finish"] == "stop"
        await rig.verified()
        assert await rig.client.shutdown() == 0


@contextmanager
def locked(path: Path) -> Iterator[Callable[[], None]]:
    with closing(sqlite3.connect(path, isolation_level=None)) as conn:
        conn.execute("begin exclusive")
        yield lambda: conn.execute("rollback").close()


async def test_a_lock_that_lasts_is_told_once_and_what_waited_goes_on(tmp_path: Path) -> None:
    answers = [answer(text("hello"))]
    async with Rig.open(tmp_path, answers, config=CONFIG) as rig:
        session = await rig.create()
        with locked(database(rig)) as release:
            answering = rig.start(session, "hi", "t")
            await rig.client.wait_for("window/showMessage")
            release()
        assert (await answering)["finish"] == "stop"
        [notice, again] = told(rig)
        assert "is locked by another program" in notice
        assert "can be written again" in again
        await rig.verified()


@asynccontextmanager
async def read_only(folder: Path) -> AsyncGenerator[None]:
    mount("--bind", str(folder), str(folder))
    try:
        mount("-o", "remount,bind,ro", str(folder))
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


async def test_a_read_only_state_folder_is_read_and_told_once(tmp_path: Path) -> None:
    _, session, before = await talked(tmp_path)
    async with read_only(tmp_path / "state"), Rig.open(tmp_path) as rig:
        assert await rig.events(session, limit=1_000) == before
        for _ in range(2):
            with pytest.raises(LspError) as caught:
                await rig.prompt(session, "hello")
            assert caught.value.data["kind"] == "logReadOnly"
        [notice] = told(rig)
        assert "Read-only file system" in notice
        assert "XDG_STATE_HOME" in notice
    async with Rig.open(tmp_path, [answer(text("on again"))]) as rig:
        assert (await rig.prompt(session, "and now?"))["finish"] == "stop"
        assert told(rig) == []
        await rig.verified()
