"""LC: a raw, scripted LSP client for tests. Standard library only; it trusts nothing that the server ships.

    async with await LspClient.start([sys.executable, "-m", "deskmate_server", "lsp"], cwd=folder) as client:
        await client.initialize(folder)
        client.on_request("deskmate/ask", lambda params: {"reply": "once"})
        token, prompt = "t1", client.send("deskmate/session/prompt", {..., "token": "t1"})
        await client.progress(token, until=lambda value: value["kind"] == "accepted")
        result = await prompt
        assert await client.shutdown() == 0

Every wait is woken by the message it waits for (no sleeps) and has a deadline; when the server dies meanwhile
it fails with the end of the server's stderr. Framing is checked to the byte: anything on stdout that is no
frame fails every later wait with `FramingError`.
"""

import asyncio
import contextlib
import inspect
import itertools
import json
import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, cast

Json = Any
Predicate = Callable[[Json], bool]
Handler = Callable[[Json], Json | Awaitable[Json]]
Id = int | str

DEADLINE = 20.0
"""Seconds that any wait may take unless told otherwise; generous, since a passing test never spends them."""


class LspError(Exception):
    """The server's error answer. A handler given to `on_request` raises it to answer with an error."""

    def __init__(self, code: int, message: str, data: Json = None) -> None:
        super().__init__(f"{code}: {message}" + (f" {data}" if data is not None else ""))
        self.code, self.message, self.data = code, message, data


class FramingError(Exception):
    """The server wrote something to stdout that is no LSP frame."""


class ServerExited(Exception):
    """The server ended while somebody waited for it."""


@dataclass(frozen=True, slots=True)
class Logged:
    """One frame in the log: direction (`>` to the server), seconds since the start, message."""

    way: Literal[">", "<"]
    at: float
    message: Json

    @property
    def method(self) -> str | None:
        """The message's method; None for an answer."""
        return cast("dict[str, Json]", self.message).get("method") if isinstance(self.message, dict) else None

    @property
    def params(self) -> Json:
        """The message's params, if any."""
        return self.message.get("params")


@dataclass(slots=True)
class _Waiter:
    ready: Callable[[], bool]
    future: "asyncio.Future[None]"


@dataclass
class LspClient:
    """A client connected to one server process. Make it with `start`."""

    process: asyncio.subprocess.Process
    frames: list[Logged] = field(default_factory=list[Logged])
    """Every frame in both directions, in order."""
    stderr: bytearray = field(default_factory=bytearray)
    """Everything that the server wrote to stderr so far."""
    capabilities: Json = None
    """The server's capabilities, after `initialize`."""

    def __post_init__(self) -> None:
        self._ids = itertools.count(1)
        self._answers: dict[Id, asyncio.Future[Json]] = {}
        self._handlers: dict[str, Handler] = {
            "window/workDoneProgress/create": lambda params: None,
            "client/registerCapability": lambda params: None,
            "client/unregisterCapability": lambda params: None,
        }
        self._progress: dict[Id, list[Json]] = {}
        self._running: dict[Id, asyncio.Task[None]] = {}
        self._waiters: list[_Waiter] = []
        self._failure: Exception | None = None
        self._reading = asyncio.Event()
        self._reading.set()
        self._began = time.monotonic()
        self._tasks = [asyncio.create_task(self._read()), asyncio.create_task(self._read_stderr())]

    # Life.

    @classmethod
    async def start(
        cls,
        command: Sequence[str | Path],
        *,
        cwd: str | Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Self:
        """Spawn a server. `env` is added to this process's environment."""
        process = await asyncio.create_subprocess_exec(
            *map(str, command),
            cwd=cwd,
            env={**os.environ, **(env or {})},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        return cls(process)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Kill the server if it still runs; a test that cares how it ends calls `shutdown` or `wait_exit`."""
        await self.kill()

    async def initialize(
        self,
        root: str | Path | None = None,
        *,
        options: Json = None,
        capabilities: Json = None,
        experimental: Json = None,
        encodings: Sequence[str] | None = None,
        folders: Sequence[str | Path] | None = None,
        process_id: int | None = None,
        timeout: float = DEADLINE,
    ) -> Json:
        """The handshake, `initialized` included; returns the `initialize` result.

        `options` goes to `initializationOptions.deskmate`, `experimental` to
        `capabilities.experimental.deskmate`, `encodings` to `general.positionEncodings`. Folders are paths or
        URIs; without any, `root` is the one folder.
        """
        given: dict[str, Json] = dict(capabilities or {})
        if experimental is not None:
            given["experimental"] = {**given.get("experimental", {}), "deskmate": experimental}
        if encodings is not None:
            given["general"] = {**given.get("general", {}), "positionEncodings": list(encodings)}
        if folders is None:
            folders = [] if root is None else [root]
        uris = [as_uri(folder) for folder in folders]
        params: dict[str, Json] = {
            "processId": process_id,
            "rootUri": uris[0] if uris else None,
            "capabilities": given,
            "workspaceFolders": [{"uri": uri, "name": uri.rsplit("/", 1)[-1]} for uri in uris] or None,
        }
        if options is not None:
            params["initializationOptions"] = {"deskmate": options}
        result = await self.request("initialize", params, timeout)
        self.capabilities = result["capabilities"]
        self.notify("initialized", {})
        return result

    async def shutdown(self, timeout: float = DEADLINE) -> int:
        """`shutdown`, `exit`, and the exit code."""
        await self.request("shutdown", None, timeout)
        self.notify("exit")
        return await self.wait_exit(timeout)

    async def wait_exit(self, timeout: float = DEADLINE) -> int:
        """Wait for the server's end and return its exit code (negative: the signal that killed it)."""
        async with asyncio.timeout(timeout):
            code = await self.process.wait()
            await asyncio.gather(*self._tasks, return_exceptions=True)
        return code

    def close_stdin(self) -> None:
        """End the server's input, as an editor that goes away does."""
        if self.process.stdin is not None:
            self.process.stdin.close()

    async def kill(self) -> None:
        """End the server at once (SIGKILL) and this client's tasks; harmless when it has ended."""
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        self._reading.set()
        self.close_stdin()
        for task in [*self._running.values(), *self._tasks]:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        # A grandchild may hold the pipes open; without this they would outlive the loop.
        cast("Json", self.process)._transport.close()
        await self.process.wait()

    # Sending.

    async def request(self, method: str, params: Json = None, timeout: float = DEADLINE) -> Json:
        """Ask and wait. Raises LspError, TimeoutError, ServerExited or FramingError."""
        answer = self.send(method, params)
        try:
            async with asyncio.timeout(timeout):
                return await answer
        except TimeoutError:
            raise TimeoutError(f"no answer to {method!r} in {timeout} s{self._tail()}") from None

    def send(self, method: str, params: Json = None, *, id: Id | None = None) -> "asyncio.Future[Json]":
        """Send a request and return the future of its result; `id` overrides the running number."""
        number = next(self._ids) if id is None else id
        answer: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        # A test may ignore the answer; that is not worth a warning at the end.
        answer.add_done_callback(lambda done: done.cancelled() or done.exception())
        if self._failure is not None:
            answer.set_exception(self._failure)
            return answer
        self._answers[number] = answer
        message = {"jsonrpc": "2.0", "id": number, "method": method}
        self.send_message(message if params is None else {**message, "params": params})
        return answer

    def id_of(self, answer: "asyncio.Future[Json]") -> Id:
        """The id of a request that `send` sent and that is not answered yet."""
        return next(number for number, future in self._answers.items() if future is answer)

    def cancel(self, answer: "asyncio.Future[Json]") -> None:
        """Send `$/cancelRequest` for a request; its future then usually raises LspError -32800."""
        self.notify("$/cancelRequest", {"id": self.id_of(answer)})

    def notify(self, method: str, params: Json = None) -> None:
        """Send a notification."""
        message = {"jsonrpc": "2.0", "method": method}
        self.send_message(message if params is None else {**message, "params": params})

    def send_message(self, message: Json) -> None:
        """Send any JSON value in a frame."""
        self.frames.append(Logged(">", self._now(), message))
        self.send_raw(frame(message))

    def send_raw(self, data: bytes) -> None:
        """Send bytes as they are; not logged."""
        if self.process.stdin is not None and not self.process.stdin.is_closing():
            self.process.stdin.write(data)

    # Documents.

    def did_open(self, uri: str, text: str, *, language: str = "plaintext", version: int = 1) -> None:
        """`textDocument/didOpen`."""
        item = {"uri": uri, "languageId": language, "version": version, "text": text}
        self.notify("textDocument/didOpen", {"textDocument": item})

    def did_change(self, uri: str, version: int, *changes: Json) -> None:
        """`textDocument/didChange`; a change is a string (the whole text) or `{range, text}`."""
        events = [{"text": change} if isinstance(change, str) else change for change in changes]
        document = {"uri": uri, "version": version}
        self.notify("textDocument/didChange", {"textDocument": document, "contentChanges": events})

    def did_save(self, uri: str) -> None:
        """`textDocument/didSave`."""
        self.notify("textDocument/didSave", {"textDocument": {"uri": uri}})

    def did_close(self, uri: str) -> None:
        """`textDocument/didClose`."""
        self.notify("textDocument/didClose", {"textDocument": {"uri": uri}})

    # Receiving.

    def on_request(self, method: str, handler: Handler) -> None:
        """Answer the server's requests of this method with what `handler(params)` returns (or awaits).

        Without a handler the answer is -32601, except that progress creation and (un)registration are
        accepted. A coroutine handler is cancelled by the server's `$/cancelRequest` and then answered -32800.
        """
        self._handlers[method] = handler

    def received(self, method: str) -> list[Json]:
        """The params of every notification and request of this method so far."""
        return [logged.params for logged in self.frames if logged.way == "<" and logged.method == method]

    async def wait_for(
        self, method: str, until: Predicate = lambda params: True, *, skip: int = 0, timeout: float = DEADLINE
    ) -> Json:
        """Wait for a notification or request whose params satisfy `until`, and return the params.

        Those already here count; `skip` leaves out that many of the method's first ones.
        """
        found: list[Json] = []

        def ready() -> bool:
            found[:] = [params for params in self.received(method)[skip:] if until(params)]
            return bool(found)

        await self.wait_until(ready, timeout, f"a {method!r}")
        return found[0]

    def values(self, token: Id) -> list[Json]:
        """The `$/progress` values of a token so far."""
        return self._progress.setdefault(token, [])

    async def progress(
        self,
        token: Id,
        until: Predicate = lambda value: True,
        *,
        skip: int = 0,
        timeout: float = DEADLINE,
    ) -> list[Json]:
        """Wait for a `$/progress` value that satisfies `until`; return the token's values from `skip` up to
        it.

        Values already here count, so that no update is missed between two calls.
        """
        values = self.values(token)
        seen = skip
        end: int | None = None

        def ready() -> bool:
            nonlocal seen, end
            while end is None and seen < len(values):
                seen += 1
                if until(values[seen - 1]):
                    end = seen
            return end is not None

        await self.wait_until(ready, timeout, f"progress on {token!r}; so far {len(values) - skip} values")
        return values[skip:end]

    async def wait_until(
        self, ready: Callable[[], bool], timeout: float = DEADLINE, what: str = "it"
    ) -> None:
        """Wait until `ready()`, which is asked again after each message and each piece of stderr."""
        if ready():
            return
        if self._failure is not None:
            raise self._failure
        waiter = _Waiter(ready, asyncio.get_running_loop().create_future())
        self._waiters.append(waiter)
        try:
            async with asyncio.timeout(timeout):
                await waiter.future
        except TimeoutError:
            raise TimeoutError(f"waited {timeout} s for {what}{self._tail()}") from None
        finally:
            self._waiters.remove(waiter)

    def pause(self) -> None:
        """Stop reading the server's stdout, as a busy editor does; a little is still taken into buffers."""
        self._reading.clear()

    def resume(self) -> None:
        """Read on."""
        self._reading.set()

    # Details.

    async def _read(self) -> None:
        stdout = cast("asyncio.StreamReader", self.process.stdout)
        failure: Exception
        try:
            while (message := await self._read_frame(stdout)) is not None:
                self.frames.append(Logged("<", self._now(), message))
                self._take(message)
                self._wake()
            await self.process.wait()
            failure = ServerExited(f"the server ended with code {self.process.returncode}{self._tail()}")
        except FramingError as error:
            failure = error
        self._failure = failure
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(failure)
        for waiter in self._waiters:
            if not waiter.future.done():
                waiter.future.set_exception(failure)

    async def _read_frame(self, stdout: asyncio.StreamReader) -> Json:
        """One message, or None at a clean end."""
        await self._reading.wait()
        length: int | None = None
        while (line := await stdout.readline()) != b"\r\n":
            if not line and length is None:
                return None
            name, colon, value = line.partition(b": ")
            if not line.endswith(b"\r\n") or not colon or name not in (b"Content-Length", b"Content-Type"):
                raise FramingError(f"not a header: {line[:200]!r}")
            if name == b"Content-Length":
                if not value.strip().isdigit():
                    raise FramingError(f"not a length: {line[:200]!r}")
                length = int(value)
        if length is None:
            raise FramingError("a header block without Content-Length")
        body = bytearray()
        while len(body) < length:
            await self._reading.wait()
            piece = await stdout.read(length - len(body))
            if not piece:
                raise FramingError(f"the stream ended {length - len(body)} bytes before the message")
            body += piece
        try:
            message = json.loads(body.decode())
        except ValueError as error:
            raise FramingError(f"{error} in {bytes(body[:200])!r}") from None
        if not isinstance(message, dict) or cast("dict[str, Json]", message).get("jsonrpc") != "2.0":
            raise FramingError(f"no JSON-RPC message: {bytes(body[:200])!r}")
        return cast("Json", message)

    def _take(self, message: Json) -> None:
        method, number = message.get("method"), message.get("id")
        if method is None:
            answer = self._answers.pop(number, None) if number is not None else None
            if answer is None or answer.done():
                return
            if (error := message.get("error")) is not None:
                answer.set_exception(LspError(error["code"], error["message"], error.get("data")))
            else:
                answer.set_result(message["result"])
        elif number is not None:
            task = asyncio.create_task(self._answer(number, method, message.get("params")))
            self._running[number] = task
            task.add_done_callback(lambda done: self._running.pop(number, None))
        elif method == "$/progress":
            self.values(message["params"]["token"]).append(message["params"]["value"])
        elif method == "$/cancelRequest" and message["params"]["id"] in self._running:
            self._running[message["params"]["id"]].cancel()

    async def _answer(self, number: Id, method: str, params: Json) -> None:
        reply: dict[str, Json] = {"jsonrpc": "2.0", "id": number}
        try:
            if (handler := self._handlers.get(method)) is None:
                raise LspError(-32601, f"the test has no handler for {method!r}")
            result = handler(params)
            reply["result"] = await result if inspect.isawaitable(result) else result
        except LspError as error:
            reply["error"] = {"code": error.code, "message": error.message}
            if error.data is not None:
                reply["error"]["data"] = error.data
        except asyncio.CancelledError:
            reply["error"] = {"code": -32800, "message": "cancelled"}
        except Exception as error:
            reply["error"] = {"code": -32603, "message": f"the test's handler failed: {error!r}"}
        self.send_message(reply)

    async def _read_stderr(self) -> None:
        stderr = cast("asyncio.StreamReader", self.process.stderr)
        while piece := await stderr.read(1 << 16):
            self.stderr += piece
            self._wake()

    def _wake(self) -> None:
        for waiter in self._waiters:
            if waiter.future.done():
                continue
            try:
                if waiter.ready():
                    waiter.future.set_result(None)
            except Exception as error:
                waiter.future.set_exception(error)

    def _now(self) -> float:
        return time.monotonic() - self._began

    def _tail(self) -> str:
        text = self.stderr[-2000:].decode(errors="replace").strip()
        return f"; stderr ends with:\n{text}" if text else ""


def frame(message: Json) -> bytes:
    """A JSON value as one LSP frame."""
    body = json.dumps(message, ensure_ascii=False).encode()
    return b"Content-Length: %d\r\n\r\n" % len(body) + body


def as_uri(place: str | Path) -> str:
    """A path as a `file:` URI; a string is taken for a URI if it looks like one, else for a path."""
    if isinstance(place, str) and "://" in place:
        return place
    return Path(place).absolute().as_uri()
