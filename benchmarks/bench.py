"""What every measurement needs: a mock and a reference in processes of their own, and our server."""

import atexit
import contextlib
import itertools
import json
import os
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from benchmarks.client import Client

REPO = Path(__file__).parents[1]
DESKMATE = [str(Path(sys.executable).with_name("deskmate")), "lsp"]
BARE = [sys.executable, str(Path(__file__).with_name("bare_server.py"))]

Wire = Literal["anthropic", "openai"]
Json = Any


@dataclass
class Turn:
    """One prompt as the client saw it; times on CLOCK_MONOTONIC."""

    sent: float
    first: float = 0.0
    """When the first delta of text was read."""
    answered: float = 0.0
    deltas: list[tuple[float, int, int]] = field(default_factory=list[tuple[float, int, int]])
    """(when it was read, offset, code points) of each delta of text."""

    def take(self, at: float, value: Json) -> None:
        """Note an update."""
        if value["kind"] == "delta" and value["field"] == "text":
            self.first = self.first or at
            self.deltas.append((at, value["offset"], len(value["text"])))


class Bench:
    """One run."""

    def __init__(self, scratch: Path, rounds: int, profile: Path | None = None) -> None:
        self.scratch, self.rounds = scratch, rounds
        self.workspace = scratch / "workspace"
        self.workspace.mkdir()
        lines = (f"line {number}: the quick brown fox jumps over the dog\n" for number in range(200))
        (self.workspace / "notes.txt").write_text("".join(lines))
        self._profile = profile
        self._numbers = itertools.count(1)
        self._env = {
            name: value
            for name, value in os.environ.items()
            if not name.upper().startswith(("ANTHROPIC", "OPENAI", "DESKMATE"))
            and "PROXY" not in name.upper()
        }
        self._env |= {"XDG_CONFIG_HOME": str(scratch / "config"), "XDG_STATE_HOME": str(scratch / "state")}
        mock = self._helper("benchmarks.mock")
        assert mock.stdout is not None
        self.address = f"http://127.0.0.1:{int(mock.stdout.readline())}"
        self._reference: subprocess.Popen[str] | None = None

    # Servers.

    def bare(self) -> Client:
        """Spawn a pygls server that does nothing."""
        return Client(BARE, self._env, self.scratch)

    def ours(self) -> Client:
        """Spawn our server."""
        command = DESKMATE
        if self._profile is not None:
            self._profile.mkdir(parents=True, exist_ok=True)
            file = self._profile.absolute() / f"{next(self._numbers)}.prof"
            command = [sys.executable, "-m", "benchmarks.profiled", str(file), "lsp"]
        return Client(command, {**self._env, "PYTHONPATH": str(REPO)}, self.scratch)

    @contextlib.contextmanager
    def session(self, wire: Wire) -> Iterator["Session"]:
        """Our server with a session of a mock model, and a state folder of its own."""
        state = self.scratch / f"state{next(self._numbers)}"
        with self.ours() as client:
            client.initialize(self.workspace, {"stateDir": str(state), "config": self.config(wire)})
            client.notify("initialized")
            _, session = client.request("deskmate/session/create")
            yield Session(client, session["id"], state)
        shutil.rmtree(state)

    def config(self, wire: Wire) -> Json:
        """Settings that point to the mock and ask nothing."""
        model = {"context_window": 10_000_000, "max_output": 8192}
        address = self.address + ("" if wire == "anthropic" else "/v1")
        provider = {"kind": wire, "base_url": address, "api_key": "none", "models": {"test": model}}
        return {
            "model": "mock/test",
            "providers": {"mock": provider},
            "permission": {"read": "allow"},
            "compaction": {"auto": False, "prune": False},
        }

    # The mock and the reference.

    def plan(self, deltas: int, **fields: Json) -> None:
        """Tell the mock what it answers next; forgets its records."""
        body = json.dumps({"deltas": deltas, **fields}).encode()
        urllib.request.urlopen(urllib.request.Request(f"{self.address}/plan", body, method="PUT")).close()

    def records(self) -> list[Json]:
        """What the mock saw since the plan."""
        with urllib.request.urlopen(f"{self.address}/records") as response:
            return json.load(response)

    def reference(self, what: str, given: Json = None) -> dict[str, float]:
        """Measure the reference `what`; see `benchmarks.reference`."""
        if self._reference is None:
            self._reference = self._helper("benchmarks.reference", self.address)
        assert self._reference.stdin is not None
        assert self._reference.stdout is not None
        self._reference.stdin.write(json.dumps({"what": what, "with": given}) + "\n")
        self._reference.stdin.flush()
        return json.loads(self._reference.stdout.readline())

    def _helper(self, module: str, *arguments: str) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            cwd=REPO,
            env=self._env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        atexit.register(process.kill)
        return process


@dataclass(frozen=True, slots=True)
class Session:
    """One of our sessions."""

    client: Client
    id: str
    state: Path

    def prompt(self) -> Turn:
        """Run a turn to its end."""
        params = {
            "sessionId": self.id,
            "parts": [{"type": "text", "text": "hello"}],
            "partialResultToken": "bench",
        }
        turn = Turn(time.monotonic())
        turn.answered, result = self.client.request("deskmate/session/prompt", params, turn.take)
        if result["finish"] != "stop":
            raise RuntimeError(f"the turn ended {result['finish']!r}: {result.get('error')}")
        return turn


def overhead(sent: float, seen: float, record: Json) -> float:
    """Milliseconds between sending a prompt and seeing its first delta that the mock did not take itself."""
    return ((seen - sent) - (record["first"] - record["received"])) * 1000
