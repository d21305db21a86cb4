"""A provider that plays a script (see `script.py`): for the demo, for tests, for docs.

It keeps no state: which answer comes next follows from the request alone, so a restart or a second
session changes nothing. The last prompt chooses the turn (the first whose `when` it holds, else the turns
without `when` in order, one for each prompt that no `when` took); the assistant messages after that prompt
choose the answer. User texts wrapped in a tag (`<work-context>…</work-context>`) are notes, no prompts.
"""

import asyncio
import json
import re
from collections.abc import AsyncGenerator
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from deskmate_session.errors import ConfigError, ProviderError
from deskmate_session.model.messages import Usage
from deskmate_session.model.ports import (
    AnswerEnded,
    ModelCall,
    ModelMessage,
    ModelReasoning,
    ModelRequest,
    ModelResult,
    ModelText,
    StreamEvent,
)
from deskmate_session.providers.blocks import BlockWriter
from deskmate_session.providers.fragments import FragmentCache, to_json
from deskmate_session.providers.script import Call, Fail, Say, Script, ScriptedAnswer, Think, Wait

_PIECES = re.compile(r"\s*\S+\s*|\s+")
_NOTE = re.compile(r"\s*<([\w-]+)[^>]*>.*</\1>\s*", re.DOTALL)
_RETRYABLE = {"providerUnavailable", "badResponse"}


class ScriptedProvider:
    """A `Provider` without a network. Reads its script in `load()` when given a path."""

    def __init__(self, name: str, script: Script | Path, pace_ms: int | None = None) -> None:
        self._name = name
        self._script = script if isinstance(script, Script) else None
        self._path = script if isinstance(script, Path) else None
        self._pace_ms = pace_ms
        self._fragments = FragmentCache(lambda message, _: _encode_message(message))

    @classmethod
    def from_text(cls, text: str, name: str = "scripted", pace_ms: int | None = None) -> "ScriptedProvider":
        """Make one from a script's text; `pace_ms` overrides the script's own. Raises `ScriptError`."""
        return cls(name, Script.parse(text), pace_ms)

    @classmethod
    def from_address(cls, address: str, name: str) -> "ScriptedProvider":
        """Make one from `base_url`: a path (`~` is the home) or a file URI."""
        path = unquote(urlsplit(address).path) if address.startswith("file:") else address
        return cls(name, Path(path).expanduser())

    @property
    def name(self) -> str:
        """The name under `[providers]`."""
        return self._name

    async def load(self) -> None:
        """Read the script. Raises `ConfigError` with the place when it can't be read."""
        if self._script is None:
            self._script = await asyncio.to_thread(self.read)

    def read(self) -> Script:
        """The script, read anew where there is a path. Raises `ConfigError`, as `load` does."""
        path = self._path
        if path is None:
            assert self._script is not None
            return self._script
        try:
            text = path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"can't read the script {str(path)!r}: {error}; set base_url of [providers.{self._name}]"
            ) from error
        return Script.parse(text, str(path))

    def encode(self, request: ModelRequest) -> bytes:
        """Return the request as JSON, the messages last."""
        head: dict[str, Any] = {
            "model": request.model,
            "system": request.system,
            "tools": [asdict(tool) for tool in request.tools],
            "maxOutput": request.max_output,
        }
        return self._fragments.body(to_json(head)[:-1] + b',"messages":[', request)

    async def stream(self, body: bytes) -> AsyncGenerator[list[StreamEvent]]:
        """Play the answer that the request calls for. Raises `ProviderError` where the script says so, and
        (`badResponse`, not retryable) where it has nothing for this prompt."""
        await self.load()
        script = self._script
        assert script is not None
        answer = _choose(script, json.loads(body)["messages"], self._name)
        pace_s = (script.pace_ms if self._pace_ms is None else self._pace_ms) / 1000
        writer = BlockWriter()
        written = 0
        for action in answer.actions:
            match action:
                case Wait(ms=ms):
                    await asyncio.sleep(ms / 1000)
                    continue
                case Fail(kind=kind, message=message):
                    raise ProviderError(kind, message, retryable=kind in _RETRYABLE)
                case Say(text=text):
                    index = writer.start("text")
                case Think(text=text):
                    index = writer.start("reasoning")
                case Call(tool=tool, args=args):
                    index = writer.start("tool", None, tool)
                    text = json.dumps(args, ensure_ascii=False)
            for count, piece in enumerate(_PIECES.findall(text)):
                if pace_s or count % 32 == 0:
                    await asyncio.sleep(pace_s)
                writer.delta(index, piece)
                yield writer.take()
            written += len(text)
            writer.end(index, signature="scripted" if isinstance(action, Think) else None)
        tokens = len(body) // 4
        usage = Usage(input=tokens, output=written // 4 + 1, context_used=tokens + written // 4 + 1)
        writer.finish(AnswerEnded(answer.finish, usage, answer.finish))
        yield writer.take()

    async def close(self) -> None:
        """Nothing is open."""


def _choose(script: Script, messages: list[dict[str, Any]], name: str) -> ScriptedAnswer:
    prompts = [(at, text) for at, message in enumerate(messages) if (text := _prompt(message))]
    last, prompt = prompts[-1] if prompts else (-1, "")
    matching = _matching(script, prompt)
    if matching is None:
        plain = [turn for turn in script.turns if turn.when is None]
        earlier = sum(_matching(script, text) is None for _, text in prompts[:-1])
        matching = plain[earlier] if earlier < len(plain) else None
    answers = matching.answers if matching else ()
    number = sum(message["role"] == "assistant" for message in messages[last + 1 :])
    if number < len(answers):
        return answers[number]
    missing = f"has no answer {number + 1}" if matching else "has no turn"
    raise ProviderError(
        "badResponse",
        f"script {script.source!r} {missing} for the prompt {prompt[:80]!r}",
        hint=f"add it to the script of [providers.{name}], or begin a new session",
    )


def _matching(script: Script, prompt: str):
    lowered = prompt.lower()
    return next((turn for turn in script.turns if turn.when and turn.when.lower() in lowered), None)


def _prompt(message: dict[str, Any]) -> str:
    if message["role"] != "user":
        return ""
    texts = [str(block["text"]) for block in message["blocks"] if block["type"] == "text"]
    return "\n".join(text for text in texts if not _NOTE.fullmatch(text))


def _encode_message(message: ModelMessage) -> bytes:
    return to_json({"role": message.role, "blocks": [_encode_block(block) for block in message.blocks]})


def _encode_block(block: ModelText | ModelReasoning | ModelCall | ModelResult) -> dict[str, Any]:
    match block:
        case ModelText():
            kind = "text"
        case ModelReasoning():
            kind = "reasoning"
        case ModelCall():
            kind = "call"
        case ModelResult():
            kind = "result"
    return {"type": kind, **asdict(block)}
