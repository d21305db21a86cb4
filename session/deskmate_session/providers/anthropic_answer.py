"""The Messages API's stream, sans-IO: its events in, ours out.

Source: https://docs.anthropic.com/en/api/messages-streaming. Unknown events, blocks and deltas are passed
over, as that page asks.
"""

import json
from typing import Any, cast

from deskmate_session.errors import ProviderError
from deskmate_session.model.messages import AnswerFinish, Usage
from deskmate_session.model.ports import AnswerEnded, StreamEvent
from deskmate_session.providers.blocks import BlockWriter
from deskmate_session.providers.failures import Secrets, refused

_FINISH: dict[str | None, AnswerFinish] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "toolCalls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refusal",
}


class _Open:
    """A block that has begun: our index, and what belongs to its end."""

    __slots__ = ("got_input", "index", "redacted", "signature", "whole_input")

    def __init__(self, index: int) -> None:
        self.index = index
        self.signature: str | None = None
        self.redacted: str | None = None
        self.whole_input: object = None
        self.got_input = False


class AnthropicAnswer:
    """Accumulates one answer; see `transfer.Answer`."""

    finishing = False

    def __init__(self, provider: str, secrets: Secrets) -> None:
        self._provider = provider
        self._secrets = secrets
        self._writer = BlockWriter()
        self._open: dict[object, _Open] = {}
        self._stop: str | None = None
        self._usage: dict[str, Any] = {}
        self.ended = False

    def take(self) -> list[StreamEvent]:
        """Return the events since the last call."""
        return self._writer.take()

    def feed(self, name: str, data: str) -> None:
        """Take one event. Raises `ProviderError` for an error event and for what is no JSON object."""
        if self.ended:
            return
        try:
            event: Any = json.loads(data)
            kind: str = event.get("type") or name
        except (ValueError, AttributeError):
            raise ProviderError(
                "badResponse",
                f"provider {self._provider!r} sent an event that is no JSON object",
                retryable=True,
            ) from None
        match kind:
            case "content_block_delta":
                self._delta(event)
            case "content_block_start":
                self._start(event)
            case "content_block_stop":
                self._end(event.get("index"))
            case "message_start":
                self._count(_object(event, "message").get("usage"))
            case "message_delta":
                self._stop = _object(event, "delta").get("stop_reason") or self._stop
                self._count(event.get("usage"))
            case "message_stop":
                self._finish()
            case "error":
                raise refused(self._provider, None, event, self._secrets)
            case _:
                pass

    def eof(self) -> None:
        """Raise `badResponse`: a whole answer ends with `message_stop`."""
        raise ProviderError(
            "badResponse",
            f"provider {self._provider!r} closed the stream before the end of its answer",
            hint="try again",
            retryable=True,
        )

    def _start(self, event: dict[str, Any]) -> None:
        key = event.get("index")
        self._end(key)
        block = _object(event, "content_block")
        match block.get("type"):
            case "text":
                self._open[key] = _Open(self._writer.start("text"))
                self._text(key, block.get("text"))
            case "thinking":
                opened = self._open[key] = _Open(self._writer.start("reasoning"))
                opened.signature = block.get("signature") or None
                self._text(key, block.get("thinking"))
            case "redacted_thinking":
                self._open[key] = _Open(self._writer.start("reasoning"))
                self._open[key].redacted = block.get("data")
            case "tool_use":
                opened = _Open(self._writer.start("tool", block.get("id") or None, block.get("name") or ""))
                opened.whole_input = block.get("input")
                self._open[key] = opened
            case _:
                pass

    def _delta(self, event: dict[str, Any]) -> None:
        key = event.get("index")
        opened = self._open.get(key)
        if opened is None:
            return
        delta = _object(event, "delta")
        match delta.get("type"):
            case "text_delta":
                self._text(key, delta.get("text"))
            case "input_json_delta":
                piece = delta.get("partial_json")
                opened.got_input = opened.got_input or bool(piece)
                self._text(key, piece)
            case "thinking_delta":
                self._text(key, delta.get("thinking"))
            case "signature_delta":
                opened.signature = delta.get("signature")
            case _:
                pass

    def _text(self, key: object, text: object) -> None:
        if text and isinstance(text, str):
            self._writer.delta(self._open[key].index, text)

    def _end(self, key: object) -> None:
        opened = self._open.pop(key, None)
        if opened is None:
            return
        if opened.whole_input and not opened.got_input:
            # Some gateways send the arguments whole, at the block's start.
            self._writer.delta(opened.index, json.dumps(opened.whole_input, ensure_ascii=False))
        self._writer.end(opened.index, opened.signature, opened.redacted)

    def _count(self, usage: object) -> None:
        """Counters are cumulative: the later value replaces the earlier one."""
        if isinstance(usage, dict):
            given = cast("dict[str, Any]", usage)
            self._usage.update({key: value for key, value in given.items() if value is not None})

    def _finish(self) -> None:
        for key in tuple(self._open):
            self._end(key)
        self.ended = True
        self._writer.finish(AnswerEnded(_FINISH.get(self._stop, "unknown"), self._totals(), self._stop))

    def _totals(self) -> Usage | None:
        if not self._usage:
            return None
        count = self._counter
        details: Any = self._usage.get("output_tokens_details")
        thinking: Any = (
            cast("dict[str, Any]", details).get("thinking_tokens") if isinstance(details, dict) else 0
        )
        read, write = count("cache_read_input_tokens"), count("cache_creation_input_tokens")
        fresh, output = count("input_tokens"), count("output_tokens")
        return Usage(
            input=fresh,
            output=output,
            reasoning=thinking if isinstance(thinking, int) else 0,
            cache_read=read,
            cache_write=write,
            context_used=fresh + read + write + output,
        )

    def _counter(self, name: str) -> int:
        value = self._usage.get(name)
        return value if isinstance(value, int) else 0


def _object(event: dict[str, Any], name: str) -> dict[str, Any]:
    value = event.get(name)
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
