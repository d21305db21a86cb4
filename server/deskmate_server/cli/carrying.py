"""`deskmate sessions export` and `import`: a session from one log to another."""

import argparse
import asyncio
import json
import sys
import tempfile
from pathlib import Path

from deskmate_server.cli.opening import newest, opened, settings
from deskmate_server.cli.output import Output, harmless, one_line
from deskmate_session.model import commands as c, queries as q
from deskmate_session.model.messages import Session


async def export(out: Output, args: argparse.Namespace) -> int:
    """Write a session; the exit code."""
    if args.output is not None:
        await _write(args, _uri(args.output))
        return 0
    with tempfile.TemporaryDirectory(prefix="deskmate-") as folder:  # it may be longer than an answer holds
        written = f"{folder}/session"
        await _write(args, _uri(written))
        text = await asyncio.to_thread(_read, written)
    if args.format == "markdown":
        out.write(harmless(text) if out.terminal else text)
    else:
        for line in text.removesuffix("\n").split("\n"):  # a text may hold other ends of lines
            out.json(json.loads(line))
    return 0


async def _write(args: argparse.Namespace, uri: str) -> None:
    async with opened(settings()) as kernel:
        session_id = args.id or await newest(kernel)
        await kernel.query(
            q.Export(session_id=session_id, format=args.format, to_uri=uri, redact=tuple(args.redact))
        )


async def take_in(out: Output, file: str) -> int:
    """Read a session; the exit code."""
    if file == "-":
        command = c.ImportSession(data=await asyncio.to_thread(sys.stdin.read))
    else:
        command = c.ImportSession(from_uri=_uri(file))
    async with opened(settings()) as kernel:
        session = await kernel.submit(command)
    assert isinstance(session, Session)
    out.line(f"{session.id}  {one_line(session.title)}, from {harmless(file)}")
    return 0


def _uri(file: str) -> str:
    return Path(file).absolute().as_uri()


def _read(path: str) -> str:
    return Path(path).read_text("utf-8")
