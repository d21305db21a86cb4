"""`deskmate demo`: a whole session against the real server, with a scripted model; no key, no network."""

import asyncio
import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from importlib import resources
from pathlib import Path

from deskmate_server.cli.demo_asks import Asker
from deskmate_server.cli.demo_editor import DemoEditor
from deskmate_server.cli.interrupts import interruptible
from deskmate_server.cli.live import Live
from deskmate_server.cli.lsp_client import LspClient, Params, ServerError
from deskmate_server.cli.output import Output, complain, harmless, one_line, stdout, wrap
from deskmate_server.cli.story import printed, story
from deskmate_session.kernel import Supervisor
from deskmate_session.model.events import ChangeApplied, LoggedEvent
from deskmate_session.model.messages import FileDiff

PROMPT = "One of the tests fails. Find out why and mend it."
TESTS = ("python3", "-m", "unittest")
TURN_TIMEOUT = 120.0
"""Seconds for a turn that nobody is asked in; a person may take longer."""
TOKEN = "demo"


class _Failed(Exception):
    """The demo did not come to its good end; the message says why."""


class _Refused(Exception):
    """The person said no; the message says what that led to."""


def run() -> int:
    """Run the demo; 0 only if the tests turned green and the log is sound."""
    out = stdout()
    with tempfile.TemporaryDirectory(prefix="deskmate-demo-", ignore_cleanup_errors=True) as made:
        try:
            interruptible(_Demo(out, Path(made).resolve()).run())
        except _Refused as refused:
            out.line()
            out.line(str(refused), "bold")
            out.line("The demo ends here, with exit code 1. Start it again and answer y to see the rest.")
            return 1
        except (_Failed, ServerError) as failed:
            out.line()
            complain(f"the demo failed: {failed}")
            return 1
    out.line()
    out.line("Done. That was the whole of it; the copy and its log are deleted again.", "bold")
    out.line("Next: `deskmate doctor` tells what your own setup lacks.")
    return 0


class _Demo:
    def __init__(self, out: Output, home: Path) -> None:
        self._out = out
        self._home = home
        self._folder = home / "shop"
        self._python = _environment(home)
        self._live = Live(out, out, everything=True)
        person = out.terminal and sys.stdin.isatty()
        self._asker = Asker(out, self._live, person=person)
        self._person = person

    async def run(self) -> int:
        """The scenes, in order. Raises `_Failed`."""
        self._prepare()
        self._introduce()
        self._scene("The tests before")
        if await self._tests():
            raise _Failed("the tests of the demo's project pass before anything was done")
        supervisor = Supervisor()
        command = [sys.executable, "-m", "deskmate_server", "lsp"]
        client = await LspClient.start(command, str(self._home), self._python, supervisor.spawn)
        try:
            await self._session(client)
        finally:
            # Shielded: after Ctrl-C the server still stops in order and leaves no process behind.
            code = await asyncio.shield(client.close())
            await supervisor.close()
        if code != 0:
            raise _Failed(f"the server ended with exit code {code}")
        return 0

    async def _session(self, client: LspClient) -> None:
        editor = DemoEditor(client)
        client.on_request("deskmate/ask", self._asker.ask)
        client.on_notification = self._notified
        await self._connect(client)
        for name in ("pricing.py", "test_pricing.py"):
            editor.open(self._folder / name)
        created = await client.request("deskmate/session/create", {"title": "Mend the shop's tests"})
        session = {"sessionId": created["id"]}
        self._scene("The session, as it happens")
        self._out.line(f"you: {PROMPT}", "bold")
        result = await self._turn(client, session)
        self._scene("The change")
        diff = await client.request("deskmate/session/diff", session)
        for file in diff["files"]:
            self._out.diff(file["patch"])
        if not diff["files"]:
            self._out.line("nothing was changed", "yellow")
        self._scene("The tests after")
        green = await self._tests()
        await self._story(client, session)
        sound = await self._verify(client, session)
        if not sound:
            raise _Failed("the log did not pass its verification")
        if result["finish"] == "denied":
            kept = "so that was not done; what you had allowed stays done"
            raise _Refused(f"You said no, {kept if diff['files'] else 'so nothing was changed'}.")
        if result["finish"] != "stop":
            error: Params = result.get("error") or {}
            raise _Failed(f"the turn ended with {result['finish']!r}: {error.get('message', 'see above')}")
        if not green:
            raise _Failed("the tests are still red")

    async def _connect(self, client: LspClient) -> None:
        script = self._home / "script.txt"
        deskmate = {
            "stateDir": str(self._home / "state"),
            "config": {
                "model": "demo/script",
                "providers": {"demo": {"kind": "scripted", "base_url": str(script)}},
                "streaming": {"chunk_size": 1},
            },
        }
        offers = {"ask": True, "save": True}
        await client.request(
            "initialize",
            {
                "processId": os.getpid(),
                "rootUri": self._folder.as_uri(),
                "workspaceFolders": [{"uri": self._folder.as_uri(), "name": "shop"}],
                "initializationOptions": {"deskmate": deskmate},
                "capabilities": {
                    "general": {"positionEncodings": ["utf-32"]},
                    "workspace": {"applyEdit": True, "workspaceEdit": {"documentChanges": True}},
                    "experimental": {"deskmate": offers},
                },
            },
        )
        client.notify("initialized", {})

    async def _turn(self, client: LspClient, session: Params) -> Params:
        prompt = client.request(
            "deskmate/session/prompt",
            {**session, "parts": [{"type": "text", "text": PROMPT}], "partialResultToken": TOKEN},
        )
        try:
            async with asyncio.timeout(None if self._person else TURN_TIMEOUT):
                result: Params = await prompt
        except TimeoutError:
            raise _Failed(f"the turn did not end within {TURN_TIMEOUT:.0f} s") from None
        except asyncio.CancelledError:
            self._live.end_text()
            self._out.line("interrupted: the server stops the turn and settles its log", "yellow")
            with contextlib.suppress(ServerError, TimeoutError):
                await asyncio.wait_for(client.request("deskmate/session/interrupt", session), 4)
            raise
        self._live.end_text()
        return result

    def _notified(self, method: str, params: Params) -> None:
        if method == "$/progress" and params.get("token") == TOKEN:
            self._live.show(params["value"])
        elif method == "window/showMessage":
            self._out.line(harmless(str(params.get("message"))), "yellow")

    async def _story(self, client: LspClient, session: Params) -> None:
        self._scene("The log, as `deskmate sessions show` tells it")
        page = await client.request("deskmate/session/events", session)
        events = [LoggedEvent.parse(event) for event in page["events"]]
        diffs: dict[int, FileDiff] = {}
        for event in events:
            if event.type == ChangeApplied.type:
                one = {**session, "fromSeq": event.seq, "toSeq": event.seq}
                found = await client.request("deskmate/session/diff", one)
                if found["files"]:
                    diffs[event.seq] = FileDiff.parse(found["files"][0])
        for text, style in printed(story(events, diffs), self._out.width):
            self._out.line(text, style)

    async def _verify(self, client: LspClient, session: Params) -> bool:
        verified = await client.request("deskmate/session/verify", session)
        events: int = verified["events"]
        self._out.line()
        if verified["ok"]:
            words = f"verify: ok, {events} events, each one's hash covers the one before it"
            self._out.line(words, "green")
            return True
        for problem in verified["problems"]:
            self._out.line(f"verify: #{problem['seq']} {problem['kind']}: {problem['detail']}", "red")
        return False

    def _prepare(self) -> None:
        """A fresh copy of the project, and the script at the pace that fits who looks on."""
        data = resources.files("deskmate_server.cli")
        self._folder.mkdir()
        (self._home / "config").mkdir()
        for file in data.joinpath("demo_project").iterdir():
            if file.name.endswith(".txt"):
                text = file.read_text(encoding="utf-8")
                (self._folder / file.name.removesuffix(".txt")).write_text(text, encoding="utf-8")
        script = data.joinpath("demo_script.txt").read_text(encoding="utf-8")
        if not self._out.terminal:
            script = re.sub(r"^pace: .*$", "pace: 0ms", script, flags=re.MULTILINE)
        (self._home / "script.txt").write_text(script, encoding="utf-8")

    def _introduce(self) -> None:
        self._out.line("Deskmate: a demo of a whole session", "bold")
        words = (
            "This starts the real language server and speaks real LSP to it, as your editor would. The model "
            "is a script that ships with Deskmate: no key, no network. It works on a fresh copy of a small "
            f"Python project in {self._folder}. One of its tests fails; the agent reads the code, proposes "
            "an edit and runs the tests. Before it edits or runs anything, it asks."
        )
        for line in wrap(words, self._out.width):
            self._out.line(line)
        if not self._person:
            self._out.line("(No terminal, so nobody can be asked: each ask is answered with 'once'.)", "dim")

    def _scene(self, title: str) -> None:
        self._live.end_text()
        self._out.line()
        self._out.line(f"── {title} " + "─" * max(0, min(self._out.width, 100) - len(title) - 4), "cyan")

    async def _tests(self) -> bool:
        """Run the project's tests ourselves, believing nobody; True when they pass."""
        self._out.line(f"$ {' '.join(TESTS)}", "bold")
        ran = await asyncio.to_thread(
            subprocess.run,
            TESTS,
            cwd=self._folder,
            env=self._python,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=60,
            check=False,
        )
        text = ran.stdout.decode("utf-8", "replace").replace(str(self._folder), ".")
        for line in text.splitlines():
            if line.strip() and not line.startswith(("---", "===")):
                self._out.line(f"  {one_line(line) if line[:1] != ' ' else harmless(line)}", "dim")
        green = ran.returncode == 0
        self._out.line("the tests pass" if green else "a test fails", "green" if green else "red")
        return green


def _environment(home: Path) -> dict[str, str]:
    """Ours, less the person's configuration; `python3` is the Python that runs this."""
    beside = home / "bin"
    beside.mkdir()
    (beside / "python3").symlink_to(sys.executable)
    found = shutil.which("python3", path=str(Path(sys.executable).parent))
    first = str(Path(found).parent) if found else str(beside)
    return {
        **os.environ,
        "XDG_CONFIG_HOME": str(home / "config"),
        "XDG_STATE_HOME": str(home / "state"),
        "PATH": f"{first}{os.pathsep}{os.environ.get('PATH', '')}",
        # A stale .pyc could hide the edit: it is told from the source by size and whole seconds.
        "PYTHONDONTWRITEBYTECODE": "1",
    }
