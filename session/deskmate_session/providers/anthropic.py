"""The Messages API through the `anthropic` SDK: its client, its authentication, its error types.

Only the raw byte stream is taken from it: its event objects cost more than twice our own reader, and its
helpers lose a turn over one bad byte of a call's arguments. Its own retries are off, since a retry must be
visible and cancellable. The import takes a second and 76 MB, so it happens in `load()`, in a thread.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, cast

from deskmate_session.errors import ProviderError
from deskmate_session.model.ports import (
    ModelCall,
    ModelMessage,
    ModelReasoning,
    ModelRequest,
    ModelResult,
    ModelText,
    StreamEvent,
)
from deskmate_session.model.settings import ProviderSettings, StreamingSettings
from deskmate_session.providers.anthropic_answer import AnthropicAnswer
from deskmate_session.providers.failures import Secrets, refused
from deskmate_session.providers.fragments import FragmentCache, to_json
from deskmate_session.providers.transfer import StallLimit, is_local, pump

if TYPE_CHECKING:
    import anthropic
    import httpx2

DEFAULT_BASE_URL = "https://api.anthropic.com"

_CACHED = {"type": "ephemeral"}


class AnthropicProvider:
    """A `Provider` for api.anthropic.com and whatever speaks its dialect."""

    def __init__(self, name: str, settings: ProviderSettings, streaming: StreamingSettings) -> None:
        self._name = name
        self._base_url = (settings.base_url or DEFAULT_BASE_URL).rstrip("/").removesuffix("/v1")
        self._headers = settings.headers
        self._key = settings.api_key
        self._secrets = Secrets([settings.api_key, *settings.headers.values()])
        self._streaming = streaming
        self._fragments = FragmentCache(self._encode_message)
        self._loading = asyncio.Lock()
        self._client: anthropic.AsyncAnthropic | None = None

    @property
    def name(self) -> str:
        """The name under `[providers]`."""
        return self._name

    async def load(self) -> None:
        """Import the SDK and make the client, in a thread (it reads certificates too)."""
        async with self._loading:
            if self._client is None:
                self._client = await asyncio.to_thread(self._connect)

    def encode(self, request: ModelRequest) -> bytes:
        """Return the body. The messages come last, so a longer history extends the same prefix."""
        head: dict[str, Any] = {"model": request.model, "max_tokens": request.max_output, "stream": True}
        # The top-level field caches up to the newest message without a mark inside any message, which
        # would have to move; the mark on the system keeps tools and system when the history changes.
        head["cache_control"] = _CACHED
        if request.tools:
            head["tools"] = [
                {"name": tool.name, "description": tool.description, "input_schema": tool.schema}
                for tool in request.tools
            ]
        if system := [{"type": "text", "text": text} for text in request.system if text.strip()]:
            head["system"] = [*system[:-1], {**system[-1], "cache_control": _CACHED}]
        return self._fragments.body(to_json(head)[:-1] + b',"messages":[', request)

    async def stream(self, body: bytes) -> AsyncGenerator[list[StreamEvent]]:
        """Send a body and yield the answer's events; see `Provider.stream`."""
        await self.load()
        import anthropic
        import httpx2

        failure: ProviderError | None = None
        async with aclosing(self._exchange(body)) as exchange:
            try:
                async for events in exchange:
                    yield events
            except (anthropic.AnthropicError, httpx2.HTTPError) as error:
                failure = self._translate(error)
        if failure is not None:
            # Raised here, not in the handler: the SDK's exceptions hold the request and its key.
            raise failure

    async def close(self) -> None:
        """Close the connections; the next `load()` makes a new client."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def _exchange(self, body: bytes) -> AsyncGenerator[list[StreamEvent]]:
        import httpx2

        client = self._client
        assert client is not None
        limit = StallLimit.of(self._name, self._streaming, self._base_url)
        # `content` sends our bytes as they are; the header makes the SDK hand out the response itself.
        raw = await limit.wait(
            client.post(
                "/v1/messages",
                cast_to=object,
                content=body,
                options={"headers": {"X-Stainless-Raw-Response": "stream"}},
            )
        )
        response = cast("anthropic.AsyncAPIResponse[object]", raw)
        try:
            chunks: AsyncIterator[bytes] = response.iter_bytes()
            answer = AnthropicAnswer(self._name, self._secrets)
            async with aclosing(pump(chunks, answer, limit, (httpx2.HTTPError,))) as events:
                async for batch in events:
                    yield batch
        finally:
            await response.close()

    def _connect(self) -> "anthropic.AsyncAnthropic":
        import anthropic

        local = is_local(self._base_url)
        # A placeholder where a local server needs no key: None would make the SDK look for the person's
        # credentials in the environment and on disk, and send them there.
        key = self._key or "none"
        return anthropic.AsyncAnthropic(
            api_key=key,
            base_url=self._base_url,
            max_retries=0,
            open_telemetry=False,
            # The SDK authenticates by `Authorization`; gateways look for the older header.
            default_headers={"x-api-key": key, **self._headers},
            http_client=anthropic.DefaultAsyncHttpxClient(
                trust_env=not local,
                follow_redirects=False,
                timeout=anthropic.Timeout(connect=10, read=None, write=60, pool=None),
            ),
            timeout=anthropic.Timeout(connect=10, read=None, write=60, pool=None),
        )

    def _translate(self, error: "anthropic.AnthropicError | httpx2.HTTPError") -> ProviderError:
        import anthropic

        if isinstance(error, anthropic.APIStatusError):
            body = error.body if error.body is not None else error.response.text
            return refused(self._name, error.status_code, body, self._secrets, error.response.headers)
        cause = error.__cause__ or error
        return ProviderError(
            "providerUnavailable",
            self._secrets.mask(f"provider {self._name!r} at {self._base_url} can't be reached: {cause}"),
            hint="check the network, and whether the server runs at that address",
            retryable=True,
        )

    def _encode_message(self, message: ModelMessage, model: str) -> bytes:
        own = f"{self._name}/{model}"
        content = [block for each in message.blocks if (block := _encode_block(each, own)) is not None]
        if not content:
            return b""
        # Results and the prompt after them stay two user messages: the API joins them, and joined by us
        # the first one's bytes would change after they were sent.
        role = "assistant" if message.role == "assistant" else "user"
        return to_json({"role": role, "content": content})


def _encode_block(
    block: ModelText | ModelReasoning | ModelCall | ModelResult, own: str
) -> dict[str, Any] | None:
    match block:
        case ModelText(text=text):
            return {"type": "text", "text": text} if text.strip() else None
        case ModelReasoning(model=model) if model != own:
            return None
        case ModelReasoning(redacted=str(redacted)):
            return {"type": "redacted_thinking", "data": redacted}
        case ModelReasoning(text=text, signature=str(signature)):
            return {"type": "thinking", "thinking": text, "signature": signature}
        case ModelReasoning():
            return None
        case ModelCall(call_id=call_id, tool=tool, args=args):
            return {"type": "tool_use", "id": call_id, "name": tool, "input": args}
        case ModelResult(call_id=call_id, output=output, is_error=is_error):
            result: dict[str, Any] = {"type": "tool_result", "tool_use_id": call_id, "content": output}
            return {**result, "is_error": True} if is_error else result
