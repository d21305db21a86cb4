"""What the provider tests share: a provider of each wire, and an answer as one comparable value."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from deskmate_session.model.messages import Usage
from deskmate_session.model.ports import (
    AnswerEnded,
    BlockDelta,
    BlockEnded,
    BlockStarted,
    ModelMessage,
    ModelRequest,
    ModelText,
    Provider,
    StreamEvent,
    ToolSpec,
)
from deskmate_session.model.settings import ProviderSettings, StreamingSettings
from deskmate_session.providers.anthropic import AnthropicProvider
from deskmate_session.providers.openai_compatible import OpenAiProvider
from tests.support.fake_provider import FakeProvider

WIRES = ("anthropic", "openai")

READ = ToolSpec("read", "Reads a file.", {"type": "object", "properties": {"path": {"type": "string"}}})


@dataclass
class Heard:
    """An answer, put together from its events."""

    blocks: list[tuple[str, str]] = field(default_factory=list)
    """Kind (a tool's with its name) and text, in order."""
    ids: list[str | None] = field(default_factory=list)
    signatures: list[str | None] = field(default_factory=list)
    redacted: list[str | None] = field(default_factory=list)
    finish: str | None = None
    raw_finish: str | None = None
    usage: Usage | None = None
    batches: int = 0


def put_together(events: list[StreamEvent], heard: Heard) -> None:
    """Add events to an answer; asserts that they obey the port's rules."""
    assert heard.finish is None, "nothing comes after the end"
    for event in events:
        match event:
            case BlockStarted(index, kind, provider_id, name):
                assert index == len(heard.blocks)
                heard.blocks.append((kind if name is None else f"{kind} {name}", ""))
                heard.ids.append(provider_id)
                heard.signatures.append(None)
                heard.redacted.append(None)
            case BlockDelta(index, text):
                text.encode()
                kind, before = heard.blocks[index]
                heard.blocks[index] = (kind, before + text)
            case BlockEnded(index, signature, redacted):
                heard.signatures[index], heard.redacted[index] = signature, redacted
            case AnswerEnded(finish, usage, raw_finish):
                heard.finish, heard.usage, heard.raw_finish = finish, usage, raw_finish


def request(
    *messages: ModelMessage, tools: tuple[ToolSpec, ...] = (READ,), model: str = "test"
) -> ModelRequest:
    """A request with a system text and one tool."""
    return ModelRequest(model, ("You are Deskmate.",), messages or (user("hello"),), tools, 1024)


def user(text: str) -> ModelMessage:
    """A prompt."""
    return ModelMessage("user", (ModelText(text),))


def make(wire: str, base_url: str, key: str | None = "sk-secret-12345", **streaming: Any) -> Provider:
    """The adapter of a wire."""
    kind: Any = wire
    settings = ProviderSettings(kind=kind, base_url=base_url, api_key=key)
    adapter = AnthropicProvider if wire == "anthropic" else OpenAiProvider
    return adapter("mock", settings, StreamingSettings(**streaming))


@asynccontextmanager
async def provider(wire: str, fp: FakeProvider, **options: Any) -> AsyncIterator[Provider]:
    """The adapter of a wire, pointed at a fake server; closed afterwards."""
    made = make(wire, fp.base_url, **options)
    try:
        yield made
    finally:
        await made.close()


async def hear(made: Provider, asked: ModelRequest | None = None, into: Heard | None = None) -> Heard:
    """Send a request and listen to the end."""
    heard = into or Heard()
    async for events in made.stream(made.encode(asked or request())):
        assert events
        heard.batches += 1
        put_together(events, heard)
    return heard
