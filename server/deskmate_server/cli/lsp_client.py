"""A small LSP client over a subprocess's stdio: what the demo speaks to the real server with."""

import asyncio
import itertools
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Self, cast

Params = dict[str, Any]
Handler = Callable[[Params], Awaitable[Any]]
Spawn = Callable[..., "asyncio.Task[Any]"]

MAX_FRAME = 64 << 20
"""Bytes; the demo's messages are small."""
EXIT_TIMEOUT = 6.0
"""Seconds that the server gets to stop in order."""


class ServerError(Exception):
    """The server answered with an error, or went away."""


class LspClient:
    """A connection to one server process. Make it with `start`, end it with `close`."""

    def __init__(self, process: asyncio.subprocess.Process, spawn: Spawn) -> None:
        self._process = process
        self._spawn = spawn
        self._ids = itertools.count(1)
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._handlers: dict[str, Handler] = {}
        self._running: dict[str | int, asyncio.Task[None]] = {}
        self._gone: str | None = None
        self.on_notification: Callable[[str, Params], None] = lambda method, params: None
        self._errors = bytearray()
        self._readers = (
            spawn(self._read(), name="read the server"),
            spawn(self._read_errors(), name="read the server's stderr"),
        )

    @classmethod
    async def start(cls, command: Sequence[str], cwd: str, env: Mapping[str, str], spawn: Spawn) -> Self:
        """Start a server. It gets a session of its own: Ctrl-C is ours, and we stop the server in order."""
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=cwd,
            env=env,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        return cls(process, spawn)

    def on_request(self, method: str, handler: Handler) -> None:
        """Answer the server's requests of a method with what the handler returns."""
        self._handlers[method] = handler

    async def request(self, method: str, params: Params | None = None) -> Any:
        """Ask and wait. Raises `ServerError`."""
        if self._gone is not None:
            raise ServerError(self._gone)
        number = next(self._ids)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        self._send({"id": number, "method": method, "params": params})
        try:
            return await answer
        finally:
            self._answers.pop(number, None)

    def notify(self, method: str, params: Params | None = None) -> None:
        """Send a notification."""
        self._send({"method": method, "params": params})

    async def close(self) -> int:
        """`shutdown`, `exit`, and the exit code; a server that does not go is killed. No child is left."""
        with suppress(ServerError, TimeoutError):
            async with asyncio.timeout(EXIT_TIMEOUT):
                await self.request("shutdown")
                self.notify("exit")
                await self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.kill()
        code = await self._process.wait()
        for task in (*self._readers, *self._running.values()):
            task.cancel()
        return code

    def _send(self, message: Params) -> None:
        whole = {"jsonrpc": "2.0", **message}
        if whole.get("params", 0) is None:
            del whole["params"]
        body = json.dumps(whole).encode()
        stdin = self._process.stdin
        if stdin is not None and not stdin.is_closing():
            stdin.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)

    async def _read(self) -> None:
        stdout = self._process.stdout
        assert stdout is not None
        why = "the server went away"
        try:
            while (message := await _frame(stdout)) is not None:
                self._take(message)
        except (ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            why = f"the server wrote something that is no LSP message: {error}"
        said = self._errors[-2000:].decode("utf-8", "replace").strip()
        self._gone = f"{why}; it said:\n{said}" if said else why
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(ServerError(self._gone))

    async def _read_errors(self) -> None:
        stderr = self._process.stderr
        assert stderr is not None
        while piece := await stderr.read(1 << 16):
            self._errors += piece

    def _take(self, message: Params) -> None:
        method, number = message.get("method"), message.get("id")
        params: Any = message.get("params")
        given = cast("Params", params) if isinstance(params, dict) else {}
        if method is None:
            answer = self._answers.get(number) if isinstance(number, int) else None
            if answer is None or answer.done():
                return
            error: Any = message.get("error")
            if error is not None:
                answer.set_exception(ServerError(str(error["message"])))
            else:
                answer.set_result(message.get("result"))
        elif number is not None:
            task = self._spawn(self._answer(number, method, given), name=f"answer {method}")
            self._running[number] = task
            task.add_done_callback(lambda _: self._running.pop(number, None))
        elif method == "$/cancelRequest":
            if (running := self._running.get(given.get("id", ""))) is not None:
                running.cancel()
        else:
            self.on_notification(method, given)

    async def _answer(self, number: str | int, method: str, params: Params) -> None:
        handler = self._handlers.get(method)
        if handler is None:
            self._send({"id": number, "error": {"code": -32601, "message": f"{method} is not offered"}})
            return
        try:
            result = await handler(params)
        except asyncio.CancelledError:
            self._send({"id": number, "error": {"code": -32800, "message": "cancelled"}})
            raise
        self._send({"id": number, "result": result})


async def _frame(stream: asyncio.StreamReader) -> Params | None:
    """One message; None at the end of the stream."""
    length: int | None = None
    while (line := await stream.readline()) != b"\r\n":
        if not line:
            return None
        name, _, value = line.decode("ascii").partition(":")
        if name.lower() == "content-length":
            length = int(value)
    if length is None or length > MAX_FRAME:
        raise ValueError(f"a frame of {length} bytes")
    message: Any = json.loads(await stream.readexactly(length))
    if not isinstance(message, dict):
        raise ValueError("a message that is no object")
    return cast("Params", message)
