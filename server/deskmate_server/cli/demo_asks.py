"""The demo's answer to `deskmate/ask`: shows what wants to happen, and asks the person, if there is one."""

import asyncio
import contextlib
import os
import sys
import termios
from typing import Any

from deskmate_server.cli.live import Live
from deskmate_server.cli.lsp_client import Params
from deskmate_server.cli.output import Output, harmless

_REPLIES = {"y": "once", "yes": "once", "s": "session", "n": "reject", "no": "reject"}


class Asker:
    """Answers permission asks, one at a time."""

    def __init__(self, out: Output, live: Live, *, person: bool) -> None:
        self._out = out
        self._live = live
        self._person = person
        self._one = asyncio.Lock()

    async def ask(self, params: Params) -> Any:
        """Show an ask and return its reply."""
        async with self._one:
            ask: Params = params["ask"]
            self._live.end_text()
            self._show(ask)
            reply = await self._answer() if self._person else "once"
            if not self._person:
                self._out.line("  answered: once (no terminal, so the demo answers itself)", "yellow")
            return {"reply": reply}

    def _show(self, ask: Params) -> None:
        detail: Params = ask["detail"]
        self._out.line(f"? {harmless(ask['title'])} (permission {ask.get('permission')!r})", "yellow")
        if "diff" in detail:
            self._out.diff(detail["diff"], "    ")
        elif "command" in detail:
            for line in harmless(detail["command"]).split("\n"):
                self._out.line(f"    $ {line}", "bold")

    async def _answer(self) -> str:
        # What was typed before the question was shown is no answer to it.
        with contextlib.suppress(termios.error):
            termios.tcflush(sys.stdin, termios.TCIFLUSH)
        while True:
            self._out.write("  [y] once  [s] for this session  [n] no  > ", "yellow")
            line = await _read_line()
            if line is None:  # end of input: nobody there any more
                self._out.line()
                return "reject"
            self._out.echoed()
            reply = _REPLIES.get(line.strip().lower())
            if reply is not None:
                return reply
            self._out.line("  Type y, s or n, then Enter.", "yellow")


async def _read_line() -> str | None:
    """A line from the terminal, without blocking the loop; None at its end."""
    loop = asyncio.get_running_loop()
    read: asyncio.Future[bytes] = loop.create_future()
    fd = sys.stdin.fileno()

    def ready() -> None:
        if not read.done():
            # The terminal gives whole lines, so this does not block and takes nothing of the next one.
            read.set_result(os.read(fd, 4096))

    loop.add_reader(fd, ready)
    try:
        line = await read
    finally:
        loop.remove_reader(fd)
    return line.decode("utf-8", "replace") if line else None
