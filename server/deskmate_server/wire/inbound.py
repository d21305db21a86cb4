"""Reading from the client: a thread that parses frames, and a bounded inbox between it and the loop."""

import asyncio
import logging
import os
import threading
from collections.abc import Callable

from deskmate_server.wire.frames import Frame, FrameParser

logger = logging.getLogger(__name__)

MAX_BYTES = 16 << 20
MAX_FRAMES = 4096
"""What may wait in the inbox; beyond either the thread stops reading and the client feels the full pipe."""

_READ = 1 << 16


class Inbox:
    """Frames on their way from the reader thread to the loop.

    Bytes and frames count until `release`, not until `take`, so that what the loop has parsed and not yet
    dispatched is bounded too. One frame is always let in, whatever its size.
    """

    def __init__(self, *, max_bytes: int = MAX_BYTES, max_frames: int = MAX_FRAMES) -> None:
        self._max_bytes, self._max_frames = max_bytes, max_frames
        self._frames: list[Frame] = []
        self._changed = threading.Condition()
        self._bytes = self._count = 0
        self._closed = False

    def put(self, frame: Frame, before_wait: Callable[[], None]) -> bool:
        """Add a frame (reader thread); blocks while the inbox is full. False once it is closed.

        `before_wait` is called before blocking: the loop must know of what is in here, or both would wait.
        """
        size = size_of(frame)
        with self._changed:
            while self._count and (self._bytes + size > self._max_bytes or self._count >= self._max_frames):
                if self._closed:
                    return False
                before_wait()
                self._changed.wait()
            self._frames.append(frame)
            self._bytes += size
            self._count += 1
            return not self._closed

    def take(self) -> list[Frame]:
        """Everything that has arrived (loop); never blocks."""
        with self._changed:
            frames, self._frames = self._frames, []
            return frames

    def release(self, size: int) -> None:
        """A frame of `size` bytes is done with; makes room for the reader."""
        with self._changed:
            self._bytes -= size
            self._count -= 1
            self._changed.notify()

    def close(self) -> None:
        """Let a waiting reader go."""
        with self._changed:
            self._closed = True
            self._changed.notify()


def size_of(frame: Frame) -> int:
    """Bytes that a frame counts for in the inbox."""
    return len(frame) if isinstance(frame, bytes) else 0


def start_reader(
    fd: int,
    loop: asyncio.AbstractEventLoop,
    inbox: Inbox,
    on_frames: Callable[[], None],
    on_end: Callable[[], None],
) -> None:
    """Read `fd` in a daemon thread until its end; both callbacks run on the loop.

    Frames are handed over a read at a time, not one by one: a burst is seen whole, its cancels included.
    """

    def post(callback: Callable[[], None]) -> None:
        try:
            loop.call_soon_threadsafe(callback)
        except RuntimeError:
            logger.debug("the loop is closed")

    def run() -> None:
        parser = FrameParser()
        while True:
            try:
                data = os.read(fd, _READ)
            except OSError as error:
                logger.info("reading from the client failed: %s", error)
                break
            if not data:
                break
            for frame in parser.feed(data):
                if not inbox.put(frame, lambda: post(on_frames)):
                    return
            post(on_frames)
        post(on_end)

    threading.Thread(target=run, daemon=True, name="lsp-in").start()
