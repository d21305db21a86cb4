"""One token's stream: a mailbox, and a task that empties it as fast as the client reads."""

import asyncio
from collections.abc import Callable, Coroutine
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
        self._timer: asyncio.TimerHandle | None = None
        self._pump: asyncio.Task[None] | None = None
        self._closed = False

    def start(self, spawn: Callable[[Coroutine[Any, Any, None], str], "asyncio.Task[None]"]) -> None:
        """Begin to send; what was pushed before goes first."""
        if not self._closed:
            self._pump = spawn(self.run(), f"progress {self._token}")

    def stop(self) -> None:
        """Send nothing more."""
        self._closed = True
        if self._pump is not None:
            self._pump.cancel()

    def push(self, item: Updated | Delta) -> None:
        """Take one item; never blocks."""
        if self._closed:
            return
        now = self._loop.time()
        self._box.push(item, now)
        self._sent.clear()
        self._wake(now)

    async def run(self) -> None:
        """Send until cancelled. Only this task waits for a client that reads slowly."""
        try:
            while True:
                while self._box.due(self._loop.time(), PATIENCE) == 0:
                    self._send()
                    await self._server.drain()
                self._more.clear()
                self._wake(self._loop.time())
                await self._more.wait()
        finally:
            if self._timer is not None:
                self._timer.cancel()

    def _wake(self, now: float) -> None:
        """Wake the pump when the next item is due; a delta that waits for company costs one timer."""
        wait = self._box.due(now, PATIENCE)
        if wait is None:
            self._sent.set()
        elif wait == 0:
            self._more.set()
        elif self._timer is None:
            self._timer = self._loop.call_later(wait, self._timed)

    def _timed(self) -> None:
        self._timer = None
        self._more.set()

    async def finish(self) -> None:
        """Take nothing more, and wait until everything is sent."""
        self._closed = True
        if not self._box.empty:
            await self._sent.wait()

    def _send(self) -> None:
        value: dict[str, Any] | None = self._box.take()
        if value is not None:
            self._server.notify("$/progress", {"token": self._token, "value": value})
