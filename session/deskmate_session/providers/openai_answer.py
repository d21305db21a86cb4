"""The chat-completions stream, sans-IO, in the dialects of Ollama, vLLM, llama.cpp, LM Studio,
OpenRouter, DeepSeek and Mistral."""

import json
from typing import Any, Literal, cast

from deskmate_session.errors import ProviderError
from deskmate_session.model.messages import AnswerFinish, Usage
from deskmate_session.model.ports import AnswerEnded, StreamEvent
from deskmate_session.providers.blocks import BlockWriter
from deskmate_session.providers.failures import Secrets, refused

_FINISH: dict[str, AnswerFinish] = {
    "stop": "stop",
    "eos": "stop",
    "end_turn": "stop",
    "length": "length",
    "max_tokens": "length",
    "content_filter": "refusal",
    "refusal": "refusal",
}
_MAY_MEAN_CALLS = {"stop", "eos", "end_turn", "tool_calls", "tool_use", "function_call"}


class _Call:
    """A call of the answer. `block` is None until its name is known."""

    __slots__ = ("arguments", "block", "id", "index", "name")

    def __init__(self, index: object, provider_id: str | None) -> None:
        self.index = index
        self.id = provider_id
        self.name = ""
        self.arguments = ""
        self.block: int | None = None


class OpenAiAnswer:
    """Accumulates one answer; see `transfer.Answer`."""

    def __init__(self, provider: str, secrets: Secrets) -> None:
        self._provider = provider
        self._secrets = secrets
        self._writer = BlockWriter()
        self._calls: list[_Call] = []
        self._prose: tuple[str, int] | None = None
        self._finish: str | None = None
        self._refused = False
        self._usage: Usage | None = None
        self._wrote = False
        self.ended = False

    @property
    def finishing(self) -> bool:
        """The finish has come; usage may follow, and some servers forget `[DONE]`."""
        return self._finish is not None and not self.ended

    def take(self) -> list[StreamEvent]:
        """Return the events since the last call."""
        return self._writer.take()

    def feed(self, name: str, data: str) -> None:
        """Take one event. Raises `ProviderError` for an error object and for what is no JSON object."""
        if self.ended:
            return
        if data.strip() == "[DONE]":
            if self._finish is None and not self._wrote:
                self.eof()
            self._end()
            return
        try:
            chunk: Any = json.loads(data)
            error: Any = chunk.get("error")
        except (ValueError, AttributeError):
            raise ProviderError(
                "badResponse",
                f"provider {self._provider!r} sent an event that is no JSON object",
                retryable=True,
            ) from None
        if error or name == "error":
            raise refused(self._provider, None, chunk, self._secrets)
        if isinstance(chunk.get("usage"), dict):
            self._usage = _usage(chunk["usage"])
        for choice in chunk.get("choices") or ():
            self._choice(choice)

    def eof(self) -> None:
        """End the answer if a finish was seen, else raise `badResponse`."""
        if self._finish is None:
            raise ProviderError(
                "badResponse",
                f"provider {self._provider!r} closed the stream before the end of its answer",
                hint="try again",
                retryable=True,
            )
        self._end()

    def _choice(self, choice: dict[str, Any]) -> None:
        if choice.get("index"):
            return  # only one answer was asked for
        delta = cast("dict[str, Any]", choice.get("delta") or choice.get("message") or {})
        reasoning = delta.get("reasoning_content") or delta.get("reasoning") or _details(delta)
        if isinstance(reasoning, str) and reasoning:
            self._write("reasoning", reasoning)
        self._content(delta.get("content"))
        if isinstance(refusal := delta.get("refusal"), str) and refusal:
            self._refused = True
            self._write("text", refusal)
        for call in delta.get("tool_calls") or ():
            self._call(call)
        if finish := choice.get("finish_reason"):
            if finish == "error":
                raise refused(self._provider, None, choice, self._secrets)
            self._finish = str(finish)  # a second one repeats the first

    def _content(self, content: object) -> None:
        if isinstance(content, str):
            if content:
                self._write("text", content)
        elif isinstance(content, list):  # Mistral: typed parts
            for part in cast("list[dict[str, Any]]", content):
                if part.get("type") == "thinking":
                    inner = cast("list[dict[str, Any]]", part.get("thinking") or [])
                    self._write("reasoning", "".join(str(each.get("text", "")) for each in inner))
                elif isinstance(text := part.get("text"), str):
                    self._write("text", text)

    def _write(self, kind: Literal["text", "reasoning"], text: str) -> None:
        self._wrote = True
        if self._prose is None or self._prose[0] != kind:
            if self._prose is not None:
                self._writer.end(self._prose[1])
            self._prose = (kind, self._writer.start(kind))
        self._writer.delta(self._prose[1], text)

    def _call(self, delta: dict[str, Any]) -> None:
        self._wrote = True
        function = cast("dict[str, Any]", delta.get("function") or {})
        arguments = function.get("arguments")
        if arguments is not None and not isinstance(arguments, str):
            arguments = json.dumps(arguments, ensure_ascii=False)
        name = function.get("name") or ""
        call = self._find(delta.get("index"), delta.get("id") or None, name, arguments or "")
        call.name = call.name or name
        call.arguments += arguments or ""
        if call.block is None:
            if not call.name:
                return
            if self._prose is not None:
                self._writer.end(self._prose[1])
                self._prose = None
            call.block = self._writer.start("tool", call.id, call.name)
            arguments = call.arguments
        if arguments:
            self._writer.delta(call.block, arguments)

    def _find(self, index: object, provider_id: str | None, name: str, arguments: str) -> _Call:
        """Find the call that a delta belongs to, or begin one: a call is new when its index is unseen
        or its id differs (Ollama numbers all of them 0); without an index a name begins one."""
        for call in reversed(self._calls):
            if provider_id is not None and call.id == provider_id:
                return call
            if index is not None and call.index == index:
                if provider_id is None and not (name and arguments and call.id is None and _whole(call)):
                    return call
                if provider_id is not None and call.id is None and not call.arguments:
                    call.id = provider_id
                    return call
                break
        if index is None and provider_id is None and not name and self._calls:
            return self._calls[-1]
        self._calls.append(_Call(index, provider_id))
        return self._calls[-1]

    def _end(self) -> None:
        for call in self._calls:
            if call.block is None:
                call.block = self._writer.start("tool", call.id, "")
                self._writer.delta(call.block, call.arguments)
        self.ended = True
        self._writer.finish(AnswerEnded(self._mapped(), self._usage, self._finish))

    def _mapped(self) -> AnswerFinish:
        if self._calls and (self._finish is None or self._finish in _MAY_MEAN_CALLS):
            return "toolCalls"
        if self._refused:
            return "refusal"
        return "stop" if self._finish is None else _FINISH.get(self._finish, "unknown")


def _whole(call: _Call) -> bool:
    """Say whether a call's arguments are complete already, so that more of them is another call."""
    try:
        json.loads(call.arguments)
    except ValueError:
        return False
    return True


def _details(delta: dict[str, Any]) -> str:
    """Read OpenRouter's typed reasoning, where it comes without the plain one."""
    details: Any = delta.get("reasoning_details")
    if not isinstance(details, list):
        return ""
    parts = cast("list[dict[str, Any]]", details)
    return "".join(str(part.get("text") or part.get("summary") or "") for part in parts)


def _usage(given: dict[str, Any]) -> Usage:
    def count(name: str, inside: str | None = None) -> int:
        place: Any = given.get(inside) if inside else given
        value: Any = cast("dict[str, Any]", place).get(name) if isinstance(place, dict) else None
        return value if isinstance(value, int) else 0

    prompt, output = count("prompt_tokens"), count("completion_tokens")
    cached = count("cached_tokens", "prompt_tokens_details") or count("prompt_cache_hit_tokens")
    return Usage(
        input=max(prompt - cached, 0),
        output=output,
        reasoning=count("reasoning_tokens", "completion_tokens_details"),
        cache_read=cached,
        context_used=prompt + output,
    )
