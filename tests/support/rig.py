"""A whole Deskmate for a test: workspace, state folder, a fake model server, the real server, a client.

async with Rig.open(tmp_path, [answer(text("hello"))]) as rig:
    session = await rig.create()
    result = await rig.prompt(session, "hi")
    async with rig.second() as other:  # another editor with a server of its own, on the same folder
        await other.text(session)
"""

import contextlib
import signal
import sys
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.fake_provider import FakeProvider, Script
from tests.support.lsp_client import LspClient

SERVER = (sys.executable, "-m", "deskmate_server", "lsp")
CLEAN_ENV = {
    "ANTHROPIC_API_KEY": "",
    "ANTHROPIC_BASE_URL": "",
    "OPENAI_API_KEY": "",
    "OPENAI_BASE_URL": "",
}
ALLOW_ALL = {"read": "allow", "edit": "allow", "bash": "allow", "external_directory": "allow"}


@dataclass
class Rig:
    """What a test holds. `ask` is how the client answers asks: a reply, or a function of the ask."""

    folder: Path
    state: Path
    fake: FakeProvider
    client: LspClient
    config: dict[str, Any]
    experimental: dict[str, bool]
    encodings: Sequence[str] | None = None
    capabilities: dict[str, Any] | None = None
    ask: Any = "once"
    asked: list[dict[str, Any]] = field(default_factory=list)
    tokens: int = 0

    @classmethod
    @contextlib.asynccontextmanager
    async def open(
        cls,
        tmp: Path,
        answers: Sequence[Script] = (),
        *,
        kind: str = "anthropic",
        config: dict[str, Any] | None = None,
        experimental: dict[str, bool] | None = None,
        files: dict[str, str | bytes] | None = None,
        encodings: Sequence[str] | None = None,
        capabilities: dict[str, Any] | None = None,
        folder: str = "work",
        command: Sequence[str | Path] = SERVER,
        default: Script | None = None,
    ) -> AsyncGenerator["Rig"]:
        """Start everything; kills the server at the end."""
        workspace, state = tmp / folder, tmp / "state"
        workspace.mkdir(parents=True, exist_ok=True)
        for name, content in (files or {}).items():
            path = workspace / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        with FakeProvider(answers, default=default) as fake:
            provider = {"kind": kind, "base_url": fake.base_url, "api_key": "test-key"}
            settings = {"model": "mock/test", "providers": {"mock": provider}, **(config or {})}
            offered = {"ask": True} if experimental is None else experimental
            client = await LspClient.start(command, env={**CLEAN_ENV, "XDG_CONFIG_HOME": str(tmp / "config")})
            rig = cls(workspace, state, fake, client, settings, offered, encodings, capabilities)
            try:
                await rig.hello()
                yield rig
            finally:
                await rig.client.kill()

    @contextlib.asynccontextmanager
    async def second(
        self,
        *,
        config: dict[str, Any] | None = None,
        experimental: dict[str, bool] | None = None,
        capabilities: dict[str, Any] | None = None,
        encodings: Sequence[str] | None = None,
        command: Sequence[str | Path] = SERVER,
    ) -> AsyncGenerator["Rig"]:
        """Another editor with a real server of its own, on the same folder and state; the model is shared.

        Its configuration is this one's unless given; nothing of its capabilities is.
        """
        client = await LspClient.start(command, env=CLEAN_ENV)
        offered = {"ask": True} if experimental is None else experimental
        settings = {**self.config, **(config or {})}
        other = type(self)(
            self.folder, self.state, self.fake, client, settings, offered, encodings, capabilities
        )
        try:
            await other.hello()
            yield other
        finally:
            await other.client.kill()

    async def hello(self) -> Any:
        """The handshake, with the client's ways to answer asks and edits."""
        self.client.on_request("deskmate/ask", self._answer)
        return await self.client.initialize(
            self.folder,
            options={"stateDir": str(self.state), "config": self.config},
            experimental=self.experimental,
            encodings=self.encodings,
            capabilities=self.capabilities,
        )

    async def restart(self, command: Sequence[str | Path] = SERVER) -> None:
        """Kill the server and start another one on the same state."""
        await self.client.kill()
        self.client = await LspClient.start(command, env=CLEAN_ENV)
        await self.hello()

    async def die(self) -> bool:
        """Kill the server (SIGKILL) and take in all that it had written until then; `restart` goes on.
        Returns whether it had ended before."""
        ended = self.client.process.returncode is not None
        if not ended:
            with contextlib.suppress(ProcessLookupError):
                self.client.process.kill()
        await self.client.wait_exit()
        return ended

    def freeze(self) -> None:
        """Stop the server where it stands (SIGSTOP): it lives, and does nothing."""
        self.client.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let a stopped server go on (SIGCONT)."""
        self.client.process.send_signal(signal.SIGCONT)

    async def call(self, method: str, **params: Any) -> Any:
        """`deskmate/METHOD` with these params."""
        return await self.client.request(f"deskmate/{method}", params)

    async def create(self, **params: Any) -> str:
        """A new session's id."""
        return (await self.call("session/create", **params))["id"]

    def token(self) -> str:
        """A fresh progress token."""
        self.tokens += 1
        return f"token-{self.tokens}"

    async def prompt(self, session: str, words: str, **params: Any) -> Any:
        """Run a prompt to the end of its turn; returns the `TurnResult`."""
        params.setdefault("partialResultToken", self.token())
        return await self.call(
            "session/prompt", sessionId=session, parts=[{"type": "text", "text": words}], **params
        )

    def start(self, session: str, words: str, token: str, **params: Any) -> Any:
        """Send a prompt; returns the future of its answer."""
        return self.client.send(
            "deskmate/session/prompt",
            {
                "sessionId": session,
                "parts": [{"type": "text", "text": words}],
                "partialResultToken": token,
                **params,
            },
        )

    async def events(self, session: str | None = None, **params: Any) -> list[Any]:
        """The log's events, of a session or of the folder."""
        given = params if session is None else {"sessionId": session, **params}
        return (await self.call("session/events", **given))["events"]

    async def types(self, session: str) -> list[str]:
        """The types of a session's events, in order."""
        return [event["type"] for event in await self.events(session)]

    async def text(self, session: str) -> str:
        """All text that the model wrote in a session."""
        page = await self.call("session/messages", sessionId=session)
        return "".join(
            part["text"]
            for message in page["messages"]
            if message["role"] == "assistant"
            for part in message["parts"]
            if part["type"] == "text"
        )

    async def calls(self, session: str) -> list[Any]:
        """The tool parts of a session, in order."""
        page = await self.call("session/messages", sessionId=session)
        return [p for m in page["messages"] for p in m["parts"] if p["type"] == "tool"]

    async def verified(self) -> Any:
        """`verify` of the whole folder; the test fails when it finds something."""
        found = await self.call("session/verify")
        assert found["ok"], found
        return found

    def shown(self, token: str, field: str = "text") -> str:
        """What the deltas on a token came to; fails on a gap or a repeat."""
        texts: dict[str, str] = {}
        for value in self.client.values(token):
            if value["kind"] == "delta" and value["field"] == field:
                known = texts.setdefault(value["partId"], "")
                assert value["offset"] == len(known), f"a gap or a repeat at {value}"
                texts[value["partId"]] = known + value["text"]
        return "".join(texts.values())

    async def _answer(self, params: Any) -> Any:
        self.asked.append(params["ask"])
        reply = self.ask(params["ask"]) if callable(self.ask) else self.ask
        if hasattr(reply, "__await__"):
            reply = await reply
        return {"reply": reply} if isinstance(reply, str) else reply
