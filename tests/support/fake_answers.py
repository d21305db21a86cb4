"""What the fake provider can answer, and how it looks on each wire. Nothing here opens a socket."""

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

Wire = Literal["anthropic", "openai"]


@dataclass(frozen=True)
class Text:
    """Text of an answer, cut into deltas of `size` code points."""

    text: str
    size: int = 8
    kind: Literal["text", "thinking"] = "text"
    signature: str = ""


@dataclass(frozen=True)
class ToolUse:
    """A call; `raw` replaces the JSON of `args` on the wire, `size` cuts it."""

    name: str
    args: Any
    id: str
    raw: str | None = None
    size: int = 8


@dataclass(frozen=True)
class Redacted:
    """Redacted thinking (Anthropic only)."""

    data: str


Block = Text | ToolUse | Redacted


@dataclass(frozen=True)
class Answer:
    """A reply that streams blocks. Counts of events include the wire's own (`message_start`, …)."""

    blocks: tuple[Block, ...] = ()
    finish: str | None = None
    """The wire's own word (`end_turn`, `length`, …); by default what the blocks mean."""
    usage: dict[str, Any] | None = field(default_factory=lambda: {"input": 12, "output": 7})
    """`input`, `output`, `cache_read`, `cache_write`, `reasoning`; None: not told."""
    delay_ms: int = 0
    """Before the first byte of the response."""
    delta_delay_ms: int = 0
    """Between events."""
    chunk_bytes: int | None = None
    """Bytes of each HTTP chunk; by default one chunk an event, or all at once without delays."""
    crlf: bool = False
    cr: bool = False
    comments: bool = False
    """A `: ping` comment and an `event: ping` before each event."""
    multiline: bool = False
    """Each event's JSON over several `data:` lines."""
    bom: bool = False
    cut_after: int | None = None
    """Close the socket after so many events, in the middle of the response."""
    end_after: int | None = None
    """End the response properly after so many events, without the wire's own end."""
    stall_after: int | None = None
    """After so many events send nothing more until the client leaves."""
    ping_while_stalled_ms: int | None = None
    """While stalled, a ping so often."""
    error_after: tuple[int, dict[str, Any]] | None = None
    """After so many events an error event with this body."""
    no_end: bool = False
    """Leave out the wire's last event (`message_stop`, `[DONE]`)."""


@dataclass(frozen=True)
class Raw:
    """A reply of given bytes, chunk by chunk."""

    chunks: tuple[bytes, ...]
    status: int = 200
    headers: tuple[tuple[str, str], ...] = (("content-type", "text/event-stream"),)
    chunk_delay_ms: int = 0
    cut: bool = False
    """Close the socket after the last chunk without ending the response."""
    stall: bool = False
    """Send nothing after the last chunk until the client leaves."""


@dataclass
class Request:
    """A request as it arrived."""

    method: str
    path: str
    headers: dict[str, str]
    """Names in lower case."""
    content: bytes
    at: float
    """`time.monotonic()` when the head had been read."""
    body: Any = None
    """The parsed JSON, or None."""
    left: threading.Event = field(default_factory=threading.Event)
    """Set when the client closed the connection before the reply was whole."""
    done: threading.Event = field(default_factory=threading.Event)
    """Set when the reply is over, one way or another."""

    @property
    def wire(self) -> Wire | None:
        """The dialect, by the path."""
        if self.path.endswith("/messages"):
            return "anthropic"
        return "openai" if self.path.endswith("/chat/completions") else None


Reply = Answer | Raw
Script = Reply | Callable[[Request], Reply]


def text(value: str, size: int = 8) -> Text:
    """Text, in deltas of `size` code points."""
    return Text(value, size)


def thinking(value: str, signature: str = "sig", size: int = 8) -> Text:
    """Reasoning."""
    return Text(value, size, "thinking", signature)


def call(name: str, args: Any = None, *, id: str | None = None, raw: str | None = None) -> ToolUse:
    """A tool call; ids count by themselves where none is given."""
    global _calls
    _calls += 1
    return ToolUse(name, {} if args is None else args, id or f"toolu_{_calls:04}", raw)


_calls = 0


def answer(*blocks: Block, **options: Any) -> Answer:
    """An `Answer` of these blocks; the options are its fields."""
    return Answer(blocks, **options)


def deltas(count: int, value: str = "word ") -> Raw:
    """An Anthropic answer of `count` text deltas, rendered beforehand and sent at full speed."""
    body = anthropic_events(Answer((Text(value * count, len(value)),)))
    return Raw((b"".join(frame(event, Answer()) for event in body),))


def raw(*chunks: bytes, **options: Any) -> Raw:
    """A `Raw` of these chunks; the options are its fields."""
    return Raw(chunks, **options)


def error(status: int, body: Any = None, **headers: str) -> Raw:
    """A refusal: `error(429, retry_after="2")`. The body is JSON, or text as it is."""
    if body is None:
        body = {"error": {"type": _ERROR_TYPES.get(status, "api_error"), "message": f"status {status}"}}
    content = body.encode() if isinstance(body, str) else json.dumps({"type": "error", **body}).encode()
    given = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    return Raw((content,), status, (("content-type", "application/json"), *given))


_ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}


def plan(reply: Answer, wire: Wire) -> Raw:
    """Render an answer to the chunks that go out."""
    events = anthropic_events(reply) if wire == "anthropic" else openai_events(reply)
    ends = [each for each in (reply.cut_after, reply.end_after, reply.stall_after) if each is not None]
    if reply.error_after is not None:
        count, body = reply.error_after
        name = "error" if wire == "anthropic" else ""
        events = [*events[:count], (name, {"type": "error", **body})]
    elif ends:
        events = events[: min(ends)]
    elif reply.no_end:
        events = events[:-1]
    frames = [frame(event, reply) for event in events]
    if reply.bom:
        frames[0] = b"\xef\xbb\xbf" + frames[0]
    if reply.chunk_bytes:
        whole = b"".join(frames)
        frames = [whole[at : at + reply.chunk_bytes] for at in range(0, len(whole), reply.chunk_bytes)]
    elif not reply.delta_delay_ms:
        frames = [b"".join(frames)] if frames else []
    return Raw(
        tuple(frames),
        chunk_delay_ms=reply.delta_delay_ms,
        cut=reply.cut_after is not None,
        stall=reply.stall_after is not None,
    )


def frame(event: tuple[str, Any], reply: Answer) -> bytes:
    name, body = event
    data = body if isinstance(body, str) else json.dumps(body, ensure_ascii=False, separators=(",", ":"))
    if reply.multiline and not isinstance(body, str):
        data = json.dumps(body, ensure_ascii=False, indent=1)
    lines = [f"event: {name}"] if name else []
    lines += [f"data: {line}" for line in data.split("\n")]
    if reply.comments:
        lines = [": ping", "", "event: ping", 'data: {"type": "ping"}', "", *lines]
    end = "\r\n" if reply.crlf else "\r" if reply.cr else "\n"
    return (end.join(lines) + end * 2).encode("utf-8", "surrogatepass")


def _cut(value: str, size: int) -> list[str]:
    return [value[at : at + size] for at in range(0, len(value), size)]


def anthropic_events(reply: Answer) -> list[tuple[str, Any]]:
    usage = reply.usage or {}
    counters = {
        "input_tokens": usage.get("input", 0),
        "cache_read_input_tokens": usage.get("cache_read", 0),
        "cache_creation_input_tokens": usage.get("cache_write", 0),
    }
    start: dict[str, Any] = {"id": "msg_fake", "type": "message", "role": "assistant", "model": "test"}
    start |= {"content": [], "stop_reason": None, "stop_sequence": None}
    if reply.usage is not None:
        start["usage"] = {**counters, "output_tokens": 1}
    bodies: list[dict[str, Any]] = [{"type": "message_start", "message": start}]
    for index, block in enumerate(reply.blocks):
        pieces: list[dict[str, Any]]
        match block:
            case Text(kind="thinking"):
                begun: dict[str, Any] = {"type": "thinking", "thinking": "", "signature": ""}
                pieces = [
                    {"type": "thinking_delta", "thinking": each} for each in _cut(block.text, block.size)
                ]
                pieces.append({"type": "signature_delta", "signature": block.signature})
            case Text():
                begun = {"type": "text", "text": ""}
                pieces = [{"type": "text_delta", "text": each} for each in _cut(block.text, block.size)]
            case ToolUse():
                begun = {"type": "tool_use", "id": block.id, "name": block.name, "input": {}}
                json_text = json.dumps(block.args, ensure_ascii=False) if block.raw is None else block.raw
                pieces = [
                    {"type": "input_json_delta", "partial_json": each}
                    for each in ("", *_cut(json_text, block.size))
                ]
            case Redacted():
                begun, pieces = {"type": "redacted_thinking", "data": block.data}, []
        bodies.append({"type": "content_block_start", "index": index, "content_block": begun})
        bodies += [{"type": "content_block_delta", "index": index, "delta": each} for each in pieces]
        bodies.append({"type": "content_block_stop", "index": index})
    calls = any(isinstance(block, ToolUse) for block in reply.blocks)
    finish = reply.finish or ("tool_use" if calls else "end_turn")
    end: dict[str, Any] = {"type": "message_delta", "delta": {"stop_reason": finish, "stop_sequence": None}}
    if reply.usage is not None:
        end["usage"] = {**counters, "output_tokens": usage.get("output", 0)}
        if "reasoning" in usage:
            end["usage"]["output_tokens_details"] = {"thinking_tokens": usage["reasoning"]}
    bodies += [end, {"type": "message_stop"}]
    return [(body["type"], body) for body in bodies]


def openai_events(reply: Answer) -> list[tuple[str, Any]]:
    def chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return {
            "id": "chatcmpl-fake",
            "object": "chat.completion.chunk",
            "model": "test",
            "choices": [choice],
        }

    bodies: list[Any] = [chunk({"role": "assistant", "content": ""})]
    number = 0
    for block in reply.blocks:
        match block:
            case Text():
                key = "reasoning_content" if block.kind == "thinking" else "content"
                bodies += [chunk({key: each}) for each in _cut(block.text, block.size)]
            case ToolUse():
                function: dict[str, Any] = {"name": block.name, "arguments": ""}
                begun = {"index": number, "id": block.id, "type": "function", "function": function}
                bodies.append(chunk({"tool_calls": [begun]}))
                json_text = json.dumps(block.args, ensure_ascii=False) if block.raw is None else block.raw
                bodies += [
                    chunk({"tool_calls": [{"index": number, "function": {"arguments": each}}]})
                    for each in _cut(json_text, block.size)
                ]
                number += 1
            case Redacted():
                pass
    bodies.append(chunk({}, reply.finish or ("tool_calls" if number else "stop")))
    if (usage := reply.usage) is not None:
        prompt = usage.get("input", 0) + usage.get("cache_read", 0)
        told: dict[str, Any] = {"prompt_tokens": prompt, "completion_tokens": usage.get("output", 0)}
        told["prompt_tokens_details"] = {"cached_tokens": usage.get("cache_read", 0)}
        if "reasoning" in usage:
            told["completion_tokens_details"] = {"reasoning_tokens": usage["reasoning"]}
        bodies.append({"id": "chatcmpl-fake", "choices": [], "usage": told})
    return [("", body) for body in (*bodies, "[DONE]")]
