"""Search the text of given files, in a child process that can be ended: ripgrep, else Python's `re`.

Which files are searched is decided before (ignore rules, secrets), so both engines see the same ones.
"""

import asyncio
import base64
import contextlib
import json
import shutil
import subprocess
import sys
import sysconfig
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deskmate_session.errors import ToolFailure
from deskmate_session.workspace.files import MAX_BYTES

_WORKER = Path(__file__).with_name("search_worker.py")
_MAX_WIDTH = 400
"""Characters of a matching line that are kept."""
_ARGUMENTS = 60_000
"""Bytes of file names for one run of ripgrep, well under every system's limit."""


@dataclass(frozen=True, slots=True)
class Match:
    """A line that matches."""

    file: str
    """As it was given."""
    line: int
    """From 1."""
    text: str


@dataclass(slots=True)
class Found:
    """What a search gave; `stopped` says why it is not complete, if it isn't."""

    matches: list[Match] = field(default_factory=list[Match])
    stopped: str | None = None
    binary: int = 0
    too_big: int = 0
    unreadable: int = 0


def find_ripgrep(configured: str | None = None) -> str | None:
    """The program: from the configuration, beside our Python, or on PATH."""
    beside = Path(sysconfig.get_path("scripts")) / "rg"
    return configured or (str(beside) if beside.is_file() else shutil.which("rg"))


async def search(
    pattern: str,
    base: str,
    files: Sequence[str],
    *,
    max_matches: int,
    timeout_s: float,
    ripgrep: str | None = None,
) -> Found:
    """Lines of `files` (relative to `base`) that match a regular expression, in the order of `files`.

    Ends at `max_matches` or after `timeout_s`, with what it has. Raises `ToolFailure` (`badArguments`) for
    a pattern that neither engine can read.
    """
    found = Found()
    try:
        async with asyncio.timeout(timeout_s):
            if ripgrep is None or not await _with_ripgrep(ripgrep, pattern, base, files, found, max_matches):
                await _with_python(pattern, base, files, found, max_matches)
    except TimeoutError:
        found.stopped = f"after {timeout_s:g} s"
    return found


async def _with_python(pattern: str, base: str, files: Sequence[str], found: Found, limit: int) -> None:
    task = {
        "pattern": pattern,
        "base": base,
        "files": list(files),
        "maxBytes": MAX_BYTES,
        "maxWidth": _MAX_WIDTH,
    }
    async with _child(sys.executable, "-I", "-S", str(_WORKER), stdin=True) as child:
        await _send(child, json.dumps(task).encode())
        async for line in _lines(child):
            message: dict[str, Any] = json.loads(line)
            if "file" in message:
                index: int = message["file"]
                match = Match(files[index], message["line"], message["text"])
                if not _add(found, match, limit):
                    return
            elif "error" in message:
                raise ToolFailure("badArguments", f"pattern {pattern!r} can't be read: {message['error']}")
            else:
                found.binary += message["binary"]
                found.too_big += message["tooBig"]
                found.unreadable += message["unreadable"]


async def _with_ripgrep(
    program: str, pattern: str, base: str, files: Sequence[str], found: Found, limit: int
) -> bool:
    """False: ripgrep can't run or can't read the pattern (it has no look-around), so `re` must."""
    arguments = (
        "--json",
        "--no-config",
        "--no-ignore",
        "--hidden",
        "--crlf",
        "--threads=1",
        f"--max-filesize={MAX_BYTES}",
    )
    for batch in _batches(files):
        try:
            async with _child(program, *arguments, "-e", pattern, "--", *batch, cwd=base) as child:
                async for line in _lines(child):
                    message: Any = json.loads(line)
                    if message["type"] == "end" and message["data"]["binary_offset"] is not None:
                        _drop_binary(found, _ripgrep_text(message["data"]["path"]))
                    elif message["type"] == "match" and not _add(
                        found, _ripgrep_match(message["data"]), limit
                    ):
                        return True
                failed = await child.wait() == 2
        except OSError:
            return False
        if failed and not found.matches:
            return False
    return True


def _ripgrep_match(data: dict[str, Any]) -> Match:
    text = _ripgrep_text(data["lines"]).rstrip("\r\n")
    start = 0
    if len(text) > _MAX_WIDTH and data["submatches"]:
        before = text.encode()[: data["submatches"][0]["start"]].decode("utf-8", "ignore")
        start = max(0, len(before) - _MAX_WIDTH // 2)
    return Match(_ripgrep_text(data["path"]), data["line_number"], text[start : start + _MAX_WIDTH])


def _drop_binary(found: Found, file: str) -> None:
    found.binary += 1
    found.matches = [match for match in found.matches if match.file != file]


def _ripgrep_text(value: dict[str, str]) -> str:
    return value["text"] if "text" in value else base64.b64decode(value["bytes"]).decode("latin-1")


def _batches(files: Sequence[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    size = 0
    for file in files:
        size += len(file.encode()) + 1
        if size > _ARGUMENTS:
            yield batch
            batch, size = [], len(file.encode()) + 1
        batch.append(file)
    if batch:
        yield batch


def _add(found: Found, match: Match, limit: int) -> bool:
    """False when that was one too many."""
    if len(found.matches) >= limit:
        found.stopped = f"at {limit:,} matches"
        return False
    found.matches.append(match)
    return True


@contextlib.asynccontextmanager
async def _child(
    program: str, *arguments: str, stdin: bool = False, cwd: str | None = None
) -> AsyncGenerator[Process]:
    """A child that is gone when the block is left, however that happens."""
    child = await asyncio.create_subprocess_exec(
        program,
        *arguments,
        stdin=PIPE if stdin else DEVNULL,
        stdout=PIPE,
        stderr=DEVNULL,
        cwd=cwd,
        start_new_session=True,
    )
    try:
        yield child
    finally:
        with contextlib.suppress(ProcessLookupError):
            child.kill()
        with contextlib.suppress(subprocess.SubprocessError):
            await child.wait()


async def _send(child: Process, data: bytes) -> None:
    assert child.stdin is not None
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        child.stdin.write(data)
        await child.stdin.drain()
        child.stdin.close()


async def _lines(child: Process) -> AsyncIterator[bytes]:
    """Lines of any length; `readline` has a limit."""
    assert child.stdout is not None
    rest = b""
    while data := await child.stdout.read(256 * 1024):
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            if line:
                yield line
