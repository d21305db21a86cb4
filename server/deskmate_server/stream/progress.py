"""One token's stream: a mailbox, and a task that empties it as fast as the client reads."""

import asyncio
from collections.abc import Callable
from typing import Any

from deskmate_server.stream.mailbox import Mailbox
from deskmate_server.wire.server import WireServer
from deskmate_session.model.base import Wire
from deskmate_session.model.updates import Delta, Updated

PATIENCE = 0.025
"""Seconds that a delta may wait for company."""


class ProgressStream:
    """A `Sink` that sends `$/progress` under a token."""

    def __init__(
        self,
        server: WireServer,
        token: str | int,
        chunk_size: int,
        whole: Callable[[str, str], Wire | None],
    ) -> None:
        self._server = server
        self._token = token
        self._box = Mailbox(chunk_size, whole)
        self._loop = asyncio.get_running_loop()
        self._more = asyncio.Event()
        self._sent = asyncio.Event()
        self._closed = False

    def push(self, item: Updated | Delta) -> None:
        """Take one item; never blocks."""
        if not self._closed:
            self._box.push(item, self._loop.time())
            self._sent.clear()
            self._more.set()

    async def run(self) -> None:
        """Send until cancelled. Only this task waits for a client that reads slowly."""
        while True:
            wait = self._box.due(self._loop.time(), PATIENCE)
            if wait is None:
                self._sent.set()
                await self._more.wait()
                self._more.clear()
            elif wait > 0:
                self._more.clear()
                try:
                    await asyncio.wait_for(self._more.wait(), wait)
                except TimeoutError:
                    self._send()
            else:
                self._send()
                await self._server.drain()

    async def finish(self) -> None:
        """Take nothing more, and wait until everything is sent."""
        self._closed = True
        if not self._box.empty:
            await self._sent.wait()

    def _send(self) -> None:
        value: dict[str, Any] | None = self._box.take()
        if value is not None:
            self._server.notify("$/progress", {"token": self._token, "value": value})
