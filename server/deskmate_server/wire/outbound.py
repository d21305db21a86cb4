"""Writing to the client without ever blocking the loop."""

import asyncio
import collections
import logging
import os
import select
import stat
import threading
from collections.abc import Callable

logger = logging.getLogger(__name__)

HIGH_WATER = 1 << 20
"""Queued bytes above which `drain` waits (until half of it)."""

HARD_LIMIT = 256 << 20
"""Queued bytes above which the client counts as gone: it has stopped reading, and nobody waited for it."""

_CHUNK = 256 << 10
_AT_ONCE = select.PIPE_BUF
"""Bytes that a pipe which is ready for writing takes without blocking (POSIX)."""


class OutWriter:
    """A queue in front of a file descriptor, emptied by a thread of its own.

    `on_broken` is called on the loop, once, when the pipe is broken or the hard limit is passed; from then on
    writes are dropped and `drain` never waits.
    """

    def __init__(
        self,
        fd: int,
        loop: asyncio.AbstractEventLoop,
        on_broken: Callable[[], None],
        *,
        high_water: int = HIGH_WATER,
        hard_limit: int = HARD_LIMIT,
    ) -> None:
        self._fd, self._loop, self._on_broken = fd, loop, on_broken
        self._high, self._hard = high_water, hard_limit
        self._queue: collections.deque[bytes] = collections.deque()
        self._changed = threading.Condition()
        self._pending = 0
        self._closed = self._broken = self._relaxed = False
        self._low = asyncio.Event()
        self._low.set()
        self._finished = asyncio.Event()
        self._ready = select.poll() if stat.S_ISFIFO(os.fstat(fd).st_mode) else None
        if self._ready is not None:
            self._ready.register(fd, select.POLLOUT)
        self._thread = threading.Thread(target=self._run, daemon=True, name="lsp-out")
        self._thread.start()

    @property
    def backlog(self) -> int:
        """Bytes queued that the client has not taken yet."""
        return self._pending

    def write(self, data: bytes) -> None:
        """Queue bytes; call it on the loop. Dropped after `close` and once the client is gone."""
        with self._changed:
            if self._broken or self._closed:
                return
            if self._write_at_once(data):
                return
            self._queue.append(data)
            self._pending += len(data)
            if self._pending > self._high and not self._relaxed:
                self._low.clear()
            overrun = self._pending > self._hard
            self._changed.notify()
        if overrun:
            logger.error("the client does not read: %d bytes wait for it; giving up on it", self._pending)
            self._break()

    def _write_at_once(self, data: bytes) -> bool:
        """Write a small message on the loop where the pipe surely takes it whole.

        A busy loop would make the thread wait for the interpreter, tens of milliseconds at worst.
        """
        if self._pending or self._ready is None or len(data) > _AT_ONCE:
            return False
        if self._ready.poll(0) != [(self._fd, select.POLLOUT)]:
            return False  # full, or broken: the thread finds out which
        try:
            os.write(self._fd, data)
        except OSError:
            return False
        return True

    async def drain(self) -> None:
        """Wait while more than the high-water mark is queued."""
        await self._low.wait()

    def relax(self) -> None:
        """Never make `drain` wait again: the input has ended, so what is still to come is bounded."""
        self._relaxed = True
        self._low.set()

    async def close(self, timeout: float = 2.0) -> None:  # noqa: ASYNC109 -- expiry is not an error here
        """Take no more, and wait until the queue is written, at most `timeout` seconds."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        try:
            async with asyncio.timeout(timeout):
                await self._finished.wait()
        except TimeoutError:
            logger.warning("the client left %d bytes unread", self._pending)

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._queue and not self._closed:
                    self._changed.wait()
                chunk = self._take()
            if not chunk:
                break
            try:
                rest = memoryview(chunk)
                while rest:
                    rest = rest[os.write(self._fd, rest) :]
            except OSError as error:
                logger.info("writing to the client failed: %s", error)
                self._on_loop(self._break)
                break
            with self._changed:
                self._pending -= len(chunk)
                low = self._pending <= self._high // 2
            if low:
                self._on_loop(self._settle)
        self._on_loop(self._finished.set)

    def _take(self) -> bytes:
        parts: list[bytes] = []
        size = 0
        while self._queue and size < _CHUNK:
            parts.append(self._queue.popleft())
            size += len(parts[-1])
        return b"".join(parts)

    def _settle(self) -> None:
        # Looked at again on the loop: more may have been queued since the thread saw the queue low.
        if self._pending <= self._high:
            self._low.set()

    def _break(self) -> None:
        if not self._broken:
            with self._changed:
                self._broken = True
                self._queue.clear()
            self._low.set()
            self._on_broken()

    def _on_loop(self, callback: Callable[[], None]) -> None:
        try:
            self._loop.call_soon_threadsafe(callback)
        except RuntimeError:
            logger.debug("the loop is closed")
