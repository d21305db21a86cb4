"""Chat completions over httpx: OpenAI itself and the many servers that speak its dialect.

The openai SDK is not used: its helper breaks on quirks that are common outside OpenAI.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from deskmate_session.errors import ProviderError
from deskmate_session.model.ports import (
    ModelCall,
    ModelMessage,
    ModelRequest,
    ModelResult,
    ModelText,
    StreamEvent,
)
from deskmate_session.model.settings import ProviderSettings, StreamingSettings
from deskmate_session.providers.failures import Secrets, parse_body, refused, to_text
from deskmate_session.providers.fragments import FragmentCache, to_json
from deskmate_session.providers.openai_answer import OpenAiAnswer
from deskmate_session.providers.transfer import StallLimit, is_local, pump

if TYPE_CHECKING:
    import httpx

DEFAULT_BASE_URL = "https://api.openai.com/v1"

_USAGE = b'"stream_options":{"include_usage":true},'
_ERROR_BODY_BYTES = 64 * 1024


class OpenAiProvider:
    """A `Provider` for any `/chat/completions`."""

    def __init__(self, name: str, settings: ProviderSettings, streaming: StreamingSettings) -> None:
        self._name = name
        self._base_url = (settings.base_url or DEFAULT_BASE_URL).rstrip("/")
        self._headers = settings.headers
        self._key = settings.api_key
        self._secrets = Secrets([settings.api_key, *settings.headers.values()])
        self._streaming = streaming
        self._fragments = FragmentCache(_encode_message)
        self._ask_usage = True
        # OpenAI refuses the old name for its newer models; nearly all others know only that.
        openai = (urlsplit(self._base_url).hostname or "").endswith("openai.com")
        self._max_field = "max_completion_tokens" if openai else "max_tokens"
        self._loading = asyncio.Lock()
        self._client: httpx.AsyncClient | None = None

    @property
    def name(self) -> str:
        """The name under `[providers]`."""
        return self._name

    async def load(self) -> None:
        """Import httpx and make the client, in a thread (it reads certificates too)."""
        async with self._loading:
            if self._client is None:
                self._client = await asyncio.to_thread(self._connect)

    def encode(self, request: ModelRequest) -> bytes:
        """Return the body. The messages come last, so a longer history extends the same prefix."""
        head: dict[str, Any] = {"model": request.model, self._max_field: request.max_output, "stream": True}
        if request.tools:
            head["tools"] = [
                {
                    "type": "function",
                    "function": {
                        "name": tool.name,
                        "description": tool.description,
                        "parameters": tool.schema,
                    },
                }
                for tool in request.tools
            ]
        system = "\n\n".join(text for text in request.system if text.strip())
        first = to_json({"role": "system", "content": system}) if system else b""
        usage = _USAGE if self._ask_usage else b""
        return self._fragments.body(b"{" + usage + to_json(head)[1:-1] + b',"messages":[' + first, request)

    async def stream(self, body: bytes) -> AsyncGenerator[list[StreamEvent]]:
        """Send a body and yield the answer's events; see `Provider.stream`."""
        await self.load()
        import httpx

        failure: ProviderError | None = None
        async with aclosing(self._exchange(body)) as exchange:
            try:
                async for events in exchange:
                    yield events
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                failure = ProviderError(
                    "providerUnavailable",
                    self._secrets.mask(
                        f"provider {self._name!r} at {self._base_url} can't be reached: "
                        f"{error or type(error).__name__}"
                    ),
                    hint="check the network, and whether the server runs at that address",
                    retryable=not isinstance(error, (httpx.UnsupportedProtocol, httpx.InvalidURL)),
                )
        if failure is not None:
            # Raised here, not in the handler: httpx's exceptions hold the request and its key.
            raise failure

    async def close(self) -> None:
        """Close the connections; the next `load()` makes a new client."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def _exchange(self, body: bytes) -> AsyncGenerator[list[StreamEvent]]:
        import httpx

        limit = StallLimit.of(self._name, self._streaming, self._base_url)
        response = await self._send(body, limit)
        try:
            if response.status_code != 200:
                error = await self._error_body(response, limit)
                if response.status_code != 400 or not self._unknown_option(error, body):
                    raise refused(self._name, response.status_code, error, self._secrets, response.headers)
                self._ask_usage = False
                await response.aclose()
                response = await self._send(body.replace(_USAGE, b"", 1), limit)
                if response.status_code != 200:
                    error = await self._error_body(response, limit)
                    raise refused(self._name, response.status_code, error, self._secrets, response.headers)
            answer = OpenAiAnswer(self._name, self._secrets)
            chunks = response.aiter_bytes()
            async with aclosing(pump(chunks, answer, limit, (httpx.TransportError,))) as events:
                async for batch in events:
                    yield batch
        finally:
            await response.aclose()

    async def _send(self, body: bytes, limit: StallLimit) -> "httpx.Response":
        client = self._client
        assert client is not None
        request = client.build_request("POST", f"{self._base_url}/chat/completions", content=body)
        return await limit.wait(client.send(request, stream=True))

    async def _error_body(self, response: "httpx.Response", limit: StallLimit) -> object:
        content = b""
        chunks = response.aiter_bytes()
        while len(content) < _ERROR_BODY_BYTES:
            chunk = await limit.wait(anext(chunks, None))
            if chunk is None:
                break
            content += chunk
        return parse_body(content)

    def _unknown_option(self, error: object, body: bytes) -> bool:
        text = to_text(error)
        return body.startswith(b"{" + _USAGE) and ("stream_options" in text or "include_usage" in text)

    def _connect(self) -> "httpx.AsyncClient":
        import httpx

        headers = {"content-type": "application/json", "accept": "text/event-stream"}
        if self._key:
            headers["authorization"] = f"Bearer {self._key}"
        return httpx.AsyncClient(
            headers={**headers, **self._headers},
            trust_env=not is_local(self._base_url),
            follow_redirects=False,
            timeout=httpx.Timeout(connect=10, read=None, write=60, pool=None),
        )


def _encode_message(message: ModelMessage, model: str) -> bytes:
    """Encode one message; several results become several messages. Reasoning stays behind: this dialect
    has no signature that would let a server trust it."""
    if message.role == "tool":
        return b",".join(
            to_json({"role": "tool", "tool_call_id": block.call_id, "content": block.output})
            for block in message.blocks
            if isinstance(block, ModelResult)
        )
    text = "\n\n".join(
        block.text for block in message.blocks if isinstance(block, ModelText) and block.text.strip()
    )
    calls = [
        {
            "id": block.call_id,
            "type": "function",
            "function": {"name": block.tool, "arguments": to_json(block.args).decode()},
        }
        for block in message.blocks
        if isinstance(block, ModelCall)
    ]
    if not text and not calls:
        return b""
    encoded: dict[str, Any] = {"role": message.role, "content": text or None}
    return to_json({**encoded, "tool_calls": calls} if calls else encoded)
