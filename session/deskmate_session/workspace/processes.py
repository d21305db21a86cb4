"""Run a shell command so that nothing of it outlives the call.

One thread starts the command, reads what it prints and ends it; the loop only waits. The command leads a
session of its own, reads from /dev/null and has no terminal. It is over when the shell exits, not when the
last holder of the pipe does. Then, and at a cancel or the time limit, everything it left is ended: its
process group, and whoever carries its `DESKMATE_CALL` in the environment.
"""

import asyncio
import contextlib
import os
import selectors
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from deskmate_session.errors import ToolFailure
from deskmate_session.workspace.descendants import Descendants
from deskmate_session.workspace.transcript import Shown, Transcript

KILL_AFTER_S = 0.25
"""From TERM to KILL."""
_GRACE_S = 0.075
"""How long the pipe must be silent after the shell's exit before we stop listening."""
_MAX_DRAIN_S = 0.5
_POLL_S = 0.02
_LAST_WAIT_S = 2.0
_CHUNK = 64 * 1024
_FLUSH_S = 0.1
_MAX_FLUSH = 8 * 1024
"""Characters shown at once while a command runs: at most ten times a second."""

NO_QUESTIONS: Mapping[str, str] = {
    "GIT_TERMINAL_PROMPT": "0",
    # Nobody can type: an editor that leaves the text as it is beats one that waits for ever.
    "GIT_EDITOR": "true",
    "GIT_SEQUENCE_EDITOR": "true",
    "EDITOR": "true",
    "VISUAL": "true",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "MANPAGER": "cat",
    "SYSTEMD_PAGER": "",
    "SSH_ASKPASS_REQUIRE": "never",
    "DEBIAN_FRONTEND": "noninteractive",
    "TERM": "dumb",
}
"""Set for every command: there is no person at its terminal, and no terminal."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command and its bounds."""

    command: str
    workdir: str
    env: Mapping[str, str]
    call_id: str
    outputs: Path
    """Folder for `<call_id>.txt`, written only when the output is longer than what is shown."""
    timeout_s: float
    max_lines: int = 2_000
    max_bytes: int = 50_000


@dataclass(frozen=True, slots=True)
class CommandResult:
    """How a command ended."""

    exit_code: int
    """128 + n for signal n, as shells say it."""
    shown: Shown
    timed_out: bool = False
    ended: tuple[str, ...] = ()
    """Names of the processes that were left behind and ended with the call."""


async def run_command(command: Command, on_output: Callable[[str], None]) -> CommandResult:
    """Run it to its end. `on_output` gets clean text on the loop, now and then, not all of a flood.

    When the task is cancelled all processes are ended and the last text is shown before `CancelledError`
    goes on. Raises `ToolFailure` (`notFound`, `permission`, `failed`) when it can't start.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[CommandResult] = loop.create_future()
    run = _Run(command, lambda text: _post(loop, on_output, text))

    def work() -> None:
        try:
            result = run.to_the_end()
        except BaseException as error:  # noqa: BLE001, RUF100 - crosses to the waiting task
            _post(loop, _settle, done, error)
        else:
            _post(loop, _settle, done, result)

    threading.Thread(target=work, name=f"command-{command.call_id}", daemon=True).start()
    try:
        return await asyncio.shield(done)
    except asyncio.CancelledError:
        run.stop()
        while not done.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([done])
        if not done.cancelled():
            done.exception()  # seen: the cancel is what counts
        raise


def _post(loop: asyncio.AbstractEventLoop, call: Callable[..., None], *args: object) -> None:
    with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
        loop.call_soon_threadsafe(call, *args)


def _settle(done: asyncio.Future[CommandResult], outcome: CommandResult | BaseException) -> None:
    if done.done():
        return
    if isinstance(outcome, BaseException):
        done.set_exception(outcome)
    else:
        done.set_result(outcome)


class _Run:
    """One command, in its own thread."""

    def __init__(self, command: Command, show: Callable[[str], None]) -> None:
        self._command = command
        self._transcript = Transcript(
            command.outputs / f"{command.call_id}.txt", command.max_lines, command.max_bytes
        )
        self._progress = _Progress(show)
        self._stopped = threading.Event()
        self._open = True

    def stop(self) -> None:
        """End it from another thread; seen within 20 ms."""
        self._stopped.set()

    def to_the_end(self) -> CommandResult:
        read_end, write_end = os.pipe()
        try:
            os.set_blocking(read_end, False)
            try:
                process = self._start(write_end)
            finally:
                os.close(write_end)
            return self._follow(process, read_end)
        finally:
            self._transcript.close()
            os.close(read_end)

    def _start(self, output: int) -> subprocess.Popen[bytes]:
        command = self._command
        env = {**command.env, **NO_QUESTIONS, "DESKMATE_CALL": command.call_id}
        try:
            return subprocess.Popen(
                [_shell(), "-c", command.command],
                cwd=command.workdir,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        except (FileNotFoundError, NotADirectoryError):
            raise ToolFailure("notFound", f"folder {command.workdir!r} does not exist") from None
        except PermissionError:
            raise ToolFailure("permission", f"folder {command.workdir!r} may not be entered") from None
        except (OSError, ValueError) as error:
            raise ToolFailure("failed", f"the command can't be started: {error}") from None

    def _follow(self, process: subprocess.Popen[bytes], pipe: int) -> CommandResult:
        family = Descendants(process.pid, self._command.call_id)
        deadline = time.monotonic() + self._command.timeout_s
        timed_out = False
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            while process.poll() is None:
                timed_out = time.monotonic() > deadline
                if timed_out or self._stopped.is_set():
                    break
                self._read(selector, pipe, _POLL_S)
            if process.poll() is None:
                ended: tuple[str, ...] = ()
                family.end(KILL_AFTER_S, lambda: self._read(selector, pipe, _POLL_S))
                self._drain(selector, pipe)
            else:
                self._drain(selector, pipe)
                ended = family.end(KILL_AFTER_S, lambda: self._read(selector, pipe, _POLL_S))
        code = _exit_code(process)
        rest, shown = self._transcript.finish()
        self._progress.add(rest)
        self._progress.flush()
        return CommandResult(code, shown, timed_out, ended)

    def _drain(self, selector: selectors.BaseSelector, pipe: int) -> None:
        """Take what is still in the pipe: until it ends or falls silent."""
        until = time.monotonic() + _MAX_DRAIN_S
        while self._open and time.monotonic() < until and self._read(selector, pipe, _GRACE_S):
            pass

    def _read(self, selector: selectors.BaseSelector, pipe: int, wait_s: float) -> bool:
        """Read once; False when nothing came in time."""
        if not self._open:
            time.sleep(_POLL_S)
        elif selector.select(wait_s):
            data = os.read(pipe, _CHUNK)
            if data:
                self._progress.add(self._transcript.feed(data))
                return True
            self._open = False
        self._progress.tick()
        return False


class _Progress:
    """Lets a flood through in spoonfuls: at most `_MAX_FLUSH` characters in `_FLUSH_S`."""

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show = show
        self._pending: list[str] = []
        self._size = 0
        self._last = 0.0
        self._at_start = True

    def add(self, text: str) -> None:
        if text:
            self._pending.append(text)
            self._size += len(text)
            while self._size - len(self._pending[0]) > _MAX_FLUSH:
                self._size -= len(self._pending.pop(0))
                self._at_start = False
        self.tick()

    def tick(self) -> None:
        if self._pending and time.monotonic() - self._last >= _FLUSH_S:
            self.flush()

    def flush(self) -> None:
        if not self._pending:
            return
        text = "".join(self._pending)
        if len(text) > _MAX_FLUSH or not self._at_start:
            text = f"…\n{text[-_MAX_FLUSH:]}"
        self._pending.clear()
        self._size = 0
        self._at_start = True
        self._last = time.monotonic()
        self._show(text)


def _exit_code(process: subprocess.Popen[bytes]) -> int:
    try:
        code = process.wait(_LAST_WAIT_S)
    except subprocess.TimeoutExpired:  # stuck in the kernel, such as on a dead network disk
        code = -signal.SIGKILL
    return code if code >= 0 else 128 - code


def _shell() -> str:
    return "/bin/bash" if Path("/bin/bash").exists() else shutil.which("bash") or "/bin/sh"
