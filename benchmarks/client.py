"""A small LSP client that notes when it read what. One thread, no loop: it costs next to nothing."""

import json
import os
import select
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

DEADLINE = 120.0
"""Seconds that any wait may take."""

Json = Any


class Client:
    """One server process and the pipe to it. A context manager that ends the server."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str], cwd: Path) -> None:
        self.spawned = time.monotonic()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 -- closed with the server
        self.process = subprocess.Popen(
            command, env=env, cwd=cwd, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._in, self._out = self.process.stdin, self.process.stdout.fileno()
        self._poll = select.poll()
        self._poll.register(self._out, select.POLLIN | select.POLLHUP)
        self._buffer = bytearray()
        self._next = 0

    @property
    def pid(self) -> int:
        """The server's."""
        return self.process.pid

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        """End it in order, or at once when it doesn't end."""
        try:
            if self.process.poll() is None:
                self.request("shutdown")
                self.notify("exit")
                self._in.close()
                self.process.wait(10)
        except (OSError, EOFError, subprocess.TimeoutExpired, RuntimeError):
            self.process.kill()
            self.process.wait(10)
        finally:
            self._errors.close()
            if self.process.stdout is not None:
                self.process.stdout.close()

    def initialize(self, folder: Path, options: Json) -> float:
        """`initialize`; returns when it was answered."""
        uri = folder.as_uri()
        params = {
            "processId": os.getpid(),
            "rootUri": uri,
            "capabilities": {},
            "workspaceFolders": [{"uri": uri, "name": folder.name}],
            "initializationOptions": {"deskmate": options},
        }
        at, _ = self.request("initialize", params)
        return at

    def request(
        self, method: str, params: Json = None, on_progress: Callable[[float, Json], None] | None = None
    ) -> tuple[float, Json]:
        """Ask; returns when the answer was read, and its result. Raises RuntimeError for an error."""
        self._next += 1
        number = self._next
        self._send({"id": number, "method": method, "params": params or {}})
        while True:
            at, message = self._read()
            if message.get("method") == "$/progress":
                if on_progress is not None:
                    on_progress(at, message["params"]["value"])
            elif "method" in message and "id" in message:
                self._send({"id": message["id"], "result": None})
            elif message.get("id") == number and "method" not in message:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return at, message["result"]

    def notify(self, method: str, params: Json = None) -> None:
        """Tell."""
        self._send({"method": method, "params": params or {}})

    def _send(self, message: dict[str, Json]) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self._in.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        self._in.flush()

    def _read(self) -> tuple[float, dict[str, Json]]:
        while (end := self._buffer.find(b"\r\n\r\n")) < 0:
            self._more()
        length = int(self._buffer[:end].lower().partition(b"content-length:")[2].split()[0])
        while len(self._buffer) < end + 4 + length:
            self._more()
        at = time.monotonic()
        body = bytes(self._buffer[end + 4 : end + 4 + length])
        del self._buffer[: end + 4 + length]
        return at, json.loads(body)

    def _more(self) -> None:
        if not self._poll.poll(DEADLINE * 1000):
            raise TimeoutError(f"the server said nothing for {DEADLINE} s")
        piece = os.read(self._out, 1 << 18)
        if not piece:
            self._errors.seek(0)
            raise EOFError(f"the server ended: {self._errors.read()[-2000:].decode(errors='replace')}")
        self._buffer += piece
