"""One connection over stdio: guard the descriptors, pump messages, notice the end, stop in order.

POSIX only. The order of a stop: no more dispatch, running requests cancelled, `on_stop`, the outbound queue
flushed. Each step has a deadline, because an editor kills a server that takes long.
"""

import asyncio
import collections
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, NoReturn, cast

from lsprotocol import types

from deskmate_server.wire.inbound import Inbox, size_of, start_reader
from deskmate_server.wire.outbound import OutWriter
from deskmate_server.wire.parents import ParentWatch
from deskmate_server.wire.protocol import DeskmateProtocol, Message
from deskmate_server.wire.server import WireServer

logger = logging.getLogger(__name__)

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@dataclass(frozen=True, slots=True)
class Stdio:
    """The protocol's own descriptors, not inherited by children."""

    read_fd: int
    write_fd: int


def claim_stdio() -> Stdio:
    """Take descriptors 0 and 1 for the protocol and leave harmless ones in their place.

    Afterwards stdin is empty, and whatever Python, a C library or a child writes to stdout goes to stderr.
    Call it once, as early as possible.
    """
    stdio = Stdio(os.dup(0), os.dup(1))
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    try:
        os.dup2(2, 1)
    except OSError:
        # Started without a stderr: both are to be open, or the next file opened would get their numbers.
        os.dup2(null, 1)
        os.dup2(null, 2)
    os.close(null)
    sys.stdout = sys.stderr
    return stdio


async def serve(
    server: WireServer,
    on_stop: Callable[[], Awaitable[None]] | None = None,
    *,
    stdio: Stdio | None = None,
    stop_deadline: float = 5.0,
) -> int:
    """Serve one client until it goes, and return the exit code: 0 after `shutdown` and `exit`, else 1.

    Ends at `exit`, end of input, a broken pipe, SIGTERM, SIGINT or SIGHUP, or when the parent dies. `on_stop`
    has `stop_deadline` seconds to end in order; a second signal cuts it short. The reader thread still sits
    in read() afterwards, so leave with `leave(code)`.
    """
    loop = asyncio.get_running_loop()
    stdio = stdio or claim_stdio()
    end: asyncio.Future[tuple[int, str]] = loop.create_future()

    def stop(code: int, why: str) -> None:
        if not end.done():
            end.set_result((code, why))

    ending: list[asyncio.Task[None]] = []

    def interrupt() -> None:
        stop(1, "interrupted by a signal")
        for task in ending:
            task.cancel()

    writer = OutWriter(stdio.write_fd, loop, lambda: stop(1, "the client stopped reading"))
    server.protocol.set_writer(writer)  # pyright: ignore[reportArgumentType] -- pygls never closes it: `exit` is ours
    server.protocol.on_exit = lambda code: stop(code, "the client said exit")
    pump = _Pump(server.protocol, writer)
    for number in _SIGNALS:
        loop.add_signal_handler(number, interrupt)
    start_reader(stdio.read_fd, loop, pump.inbox, pump.wake, pump.end_of_input)
    parents = ParentWatch(lambda why: stop(1, why))
    server.protocol.on_client_pid = parents.client
    helpers = (asyncio.create_task(pump.run()), asyncio.create_task(parents.run()))
    helpers[0].add_done_callback(lambda task: stop(1, _why_ended(task)))
    try:
        code, why = await end
    finally:
        pump.inbox.close()
        for task in helpers:
            task.cancel()
    logger.info("stopping: %s", why)
    server.protocol.close()
    # Three turns of the loop: a cancelled request unwinds, its task ends, its answer is queued.
    for _ in range(3):
        await asyncio.sleep(0)
    if on_stop is not None:
        ending.append(asyncio.create_task(_run(on_stop)))
        done, _ = await asyncio.wait(ending, timeout=stop_deadline)
        if not done:
            logger.error("stopping takes longer than %s s; leaving now", stop_deadline)
            ending[0].cancel()
    await writer.close()
    return code


def _why_ended(pump: "asyncio.Task[None]") -> str:
    if pump.cancelled() or (error := pump.exception()) is None:
        return "the client's stream ended"
    logger.error("reading messages failed", exc_info=error)
    return "reading messages failed"


async def _run(on_stop: Callable[[], Awaitable[None]]) -> None:
    try:
        await on_stop()
    except Exception:
        logger.exception("stopping failed")


def leave(code: int) -> NoReturn:
    """End the process without waiting for threads that sit in a blocking call."""
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.flush()
    logging.shutdown()
    os._exit(code)


class _Pump:
    """Moves messages from the inbox to the protocol, in order, except that cancels overtake.

    Before each dispatch everything that has arrived is looked at: a request whose cancel is already here is
    answered and never run. After each dispatch the loop turns once, so that a coroutine handler's first step
    precedes the next message.
    """

    def __init__(self, protocol: DeskmateProtocol, writer: OutWriter) -> None:
        self.inbox = Inbox()
        self._protocol, self._writer = protocol, writer
        self._waiting: collections.deque[tuple[Message, int]] = collections.deque()
        self._arrived = asyncio.Event()
        self._ended = False

    def wake(self) -> None:
        self._arrived.set()

    def end_of_input(self) -> None:
        # A client that neither reads nor writes any more must not hold up what it sent before.
        self._ended = True
        self._writer.relax()
        self._arrived.set()

    async def run(self) -> None:
        """Return once everything up to the end of the input is dispatched."""
        while True:
            await self._writer.drain()
            self._absorb()
            if self._waiting:
                message, size = self._waiting.popleft()
                try:
                    self._protocol.dispatch(message)
                except Exception:
                    logger.exception("can't dispatch %r", message.method)
                self.inbox.release(size)
                await asyncio.sleep(0)
            elif self._ended:
                return
            else:
                await self._arrived.wait()
                self._arrived.clear()

    def _absorb(self) -> None:
        for frame in self.inbox.take():
            size = size_of(frame)
            message = self._protocol.decode(frame)
            if message is None:
                self.inbox.release(size)
            elif message.method == types.CANCEL_REQUEST and message.id is None:
                self._cancel(message)
                self.inbox.release(size)
            else:
                self._waiting.append((message, size))

    def _cancel(self, cancel: Message) -> None:
        params = cancel.body.get("params")
        target: Any = cast("dict[str, Any]", params).get("id") if isinstance(params, dict) else None
        for index, (message, size) in enumerate(self._waiting):
            if message.id == target and message.method is not None and target is not None:
                del self._waiting[index]
                self.inbox.release(size)
                self._protocol.refuse_cancelled(target)
                return
        if isinstance(target, str | int | float):
            self._protocol.cancel(target)
