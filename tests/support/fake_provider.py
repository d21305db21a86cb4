"""A fake model server ("FP"): a local HTTP server that speaks both wires and does what a test tells it.

    with FakeProvider([answer(text("Hello")), answer(call("read", {"path": "x"}))]) as fp:
        …  # point a client at fp.base_url
        assert fp.requests[0].body["model"] == "test"

It runs in a thread with its own event loop, so it serves code in this process and in subprocesses alike.
`POST …/messages` is answered in Anthropic's dialect, `POST …/chat/completions` in OpenAI's: one script
tests both. Each request takes the next answer of the list; a request beyond it gets a 400 that says so
(with `default=` it gets that). An answer may also be a function of the request. Only the standard library
is used, and nothing of deskmate.

Faults are fields of an answer: `answer(text("…"), chunk_bytes=1, crlf=True, stall_after=2)`.
"""

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from tests.support.fake_answers import (
    Answer,
    Block,
    Raw,
    Redacted,
    Reply,
    Request,
    Script,
    Text,
    ToolUse,
    answer,
    call,
    deltas,
    error,
    plan,
    raw,
    text,
    thinking,
)

__all__ = [
    "Answer",
    "Block",
    "FakeProvider",
    "Raw",
    "Redacted",
    "Reply",
    "Request",
    "Script",
    "Text",
    "ToolUse",
    "answer",
    "call",
    "deltas",
    "error",
    "raw",
    "text",
    "thinking",
]


class FakeProvider:
    """The server. A context manager, or `start()` and `stop()`."""

    def __init__(self, answers: Sequence[Script] = (), *, default: Script | None = None) -> None:
        self.requests: list[Request] = []
        self._answers = list(answers)
        self._default = default
        self._lock = threading.Condition()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fake-provider", daemon=True)
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0

    @property
    def base_url(self) -> str:
        """`http://127.0.0.1:PORT/v1`, right for both kinds of provider."""
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def bodies(self) -> list[Any]:
        """The parsed bodies of the requests so far."""
        return [request.body for request in self.requests]

    def add(self, *answers: Script) -> None:
        """Put answers at the end of the list."""
        with self._lock:
            self._answers += answers

    def wait_for(self, count: int, timeout: float = 5.0) -> list[Request]:
        """Wait until `count` requests have come; raises TimeoutError."""
        with self._lock:
            if not self._lock.wait_for(lambda: len(self.requests) >= count, timeout):
                raise TimeoutError(f"{len(self.requests)} of {count} requests came within {timeout} s")
            return self.requests[:count]

    def start(self) -> "FakeProvider":
        """Listen on a free port."""
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(5)
        return self

    def stop(self) -> None:
        """Stop listening, drop open connections, end the thread."""
        asyncio.run_coroutine_threadsafe(self._shut(), self._loop).result(5)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()

    def __enter__(self) -> "FakeProvider":
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._connection, "127.0.0.1", 0, limit=1 << 20)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _shut(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while (request := await _read(reader)) is not None:
                reply = self._next(request)
                try:
                    if not await self._reply(request, reply, reader, writer):
                        break
                finally:
                    request.done.set()
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            with contextlib.suppress(Exception):
                writer.transport.abort() if writer.transport.get_write_buffer_size() else writer.close()

    def _next(self, request: Request) -> Reply:
        with self._lock:
            script = self._answers.pop(0) if self._answers else self._default
            self.requests.append(request)
            self._lock.notify_all()
        if script is None:
            return error(400, {"error": {"type": "fake", "message": "the fake provider has no answer left"}})
        return script if isinstance(script, Answer | Raw) else script(request)

    async def _reply(
        self, request: Request, reply: Reply, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """Send a reply; return whether the connection can be used again."""
        rendered = reply if isinstance(reply, Raw) else plan(reply, request.wire or "anthropic")
        gone = asyncio.ensure_future(_left(reader, writer))
        sending = asyncio.ensure_future(self._send(rendered, reply, writer))
        try:
            await asyncio.wait({gone, sending}, return_when=asyncio.FIRST_COMPLETED)
            if not sending.done():
                request.left.set()
                return False
            await sending
            return not (rendered.cut or rendered.stall) and not gone.done()
        except ConnectionError:
            request.left.set()
            return False
        finally:
            sending.cancel()
            gone.cancel()
            await asyncio.gather(gone, sending, return_exceptions=True)

    async def _send(self, plan: Raw, reply: Reply, writer: asyncio.StreamWriter) -> None:
        if isinstance(reply, Answer) and reply.delay_ms:
            await asyncio.sleep(reply.delay_ms / 1000)
        head = f"HTTP/1.1 {plan.status} Fake\r\ntransfer-encoding: chunked\r\n"
        head += "".join(f"{name}: {value}\r\n" for name, value in plan.headers)
        writer.write(head.encode() + b"\r\n")
        for number, chunk in enumerate(plan.chunks):
            if number and plan.chunk_delay_ms:
                await asyncio.sleep(plan.chunk_delay_ms / 1000)
            writer.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
            await writer.drain()
        if plan.stall:
            every = reply.ping_while_stalled_ms if isinstance(reply, Answer) else None
            while True:
                await asyncio.sleep(3600 if every is None else every / 1000)
                ping = b'event: ping\ndata: {"type":"ping"}\n\n'
                writer.write(b"%x\r\n%b\r\n" % (len(ping), ping))
                await writer.drain()
        if not plan.cut:
            writer.write(b"0\r\n\r\n")
        await writer.drain()


async def _left(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Return when the client has closed; by polling, since a read could take a byte of its next request."""
    while not (reader.at_eof() or writer.is_closing()):
        await asyncio.sleep(0.01)


async def _read(reader: asyncio.StreamReader) -> Request | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.strip().split("\r\n")
    method, path, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    at = time.monotonic()
    content = await reader.readexactly(int(headers.get("content-length", "0")))
    request = Request(method, path, headers, content, at)
    with contextlib.suppress(ValueError):
        request.body = json.loads(content)
    return request
