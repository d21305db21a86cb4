"""What both HTTP adapters share while bytes flow: the time limits, and the pump from chunks to events."""

import asyncio
import contextlib
import ipaddress
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable
from typing import Protocol, TypeVar
from urllib.parse import urlsplit

from deskmate_session.errors import ProviderError
from deskmate_session.model.ports import StreamEvent
from deskmate_session.model.settings import StreamingSettings
from deskmate_session.providers.sse import SseReader

T = TypeVar("T")

_FIRST_CONTENT_MS = 600_000
_DRAIN_S = 0.1
"""How long to wait for the connection's tidy end, so that it can be used again."""
_LINGER_S = 5.0
"""How long to wait for the usage after the finish."""


class Answer(Protocol):
    """A dialect's sans-IO half: SSE events in, stream events out."""

    @property
    def ended(self) -> bool:
        """The provider has said its last word; nothing more needs to be read."""
        ...

    @property
    def finishing(self) -> bool:
        """All that is needed has come; what may follow (usage) is not worth a long wait."""
        ...

    def feed(self, name: str, data: str) -> None:
        """Take one SSE event. Raises `ProviderError`."""
        ...

    def eof(self) -> None:
        """The stream is over. Raises `ProviderError` (`badResponse`) unless the answer was complete."""
        ...

    def take(self) -> list[StreamEvent]:
        """Return the events since the last call."""
        ...


class StallLimit:
    """Time that may pass until the first content, then between content. Only our own waiting counts,
    not the time that the reader of the events takes; pings are no content."""

    def __init__(self, provider: str, first_ms: int | None, idle_ms: int) -> None:
        self._provider = provider
        self._limit_ms = first_ms
        self._idle_ms = idle_ms
        self._left_s = None if first_ms is None else first_ms / 1000

    @classmethod
    def of(cls, provider: str, settings: StreamingSettings, base_url: str) -> "StallLimit":
        """Take the limits from the settings; a local server may load its model as long as it needs."""
        first = settings.first_content_ms
        if first is None and not is_local(base_url):
            first = _FIRST_CONTENT_MS
        return cls(provider, first, settings.idle_timeout_ms)

    async def wait(self, awaitable: Awaitable[T]) -> T:
        """Await within what is left. Raises `ProviderError` (`providerUnavailable`, retryable)."""
        left_s = self._left_s
        if left_s is None:
            return await awaitable
        loop = asyncio.get_running_loop()
        began = loop.time()
        scope = asyncio.timeout(max(left_s, 0))
        try:
            async with scope:
                return await awaitable
        except TimeoutError:
            if not scope.expired():
                raise
        finally:
            self._left_s = left_s - (loop.time() - began)
        raise ProviderError(
            "providerUnavailable",
            f"provider {self._provider!r} sent nothing for {self._limit_ms or 0:,} ms",
            hint="try again, or raise streaming.first_content_ms or streaming.idle_timeout_ms",
            retryable=True,
        )

    def content(self) -> None:
        """Content has come: from now on the limit between content holds, anew."""
        self._limit_ms = self._idle_ms
        self._left_s = self._idle_ms / 1000

    def linger(self) -> None:
        """Only extras are missing: wait for them briefly."""
        self._left_s = min(self._idle_ms / 1000, _LINGER_S)


async def pump(
    chunks: AsyncIterator[bytes],
    answer: Answer,
    limit: StallLimit,
    cut: tuple[type[Exception], ...],
) -> AsyncGenerator[list[StreamEvent]]:
    """Yield the events of each chunk. An exception of `cut` is the end of the stream, like EOF."""
    reader = SseReader()
    while True:
        try:
            chunk = await limit.wait(anext(chunks, None))
        except cut:
            chunk = None
        except ProviderError:
            if not answer.finishing:
                raise
            chunk = None
        failure: ProviderError | None = None
        try:
            for name, data in reader.flush() if chunk is None else reader.feed(chunk):
                answer.feed(name, data)
            if chunk is None and not answer.ended:
                answer.eof()
        except ProviderError as error:
            failure = error  # what came before it in this chunk is shown first
        except (AttributeError, TypeError, KeyError, ValueError):
            # The answers read JSON by use; a field of the wrong shape shows itself here.
            failure = ProviderError("badResponse", "the answer has an unknown shape", retryable=True)
        if events := answer.take():
            limit.content()
            yield events
        if answer.finishing:
            limit.linger()
        if failure is not None:
            raise failure
        if chunk is None:
            return
        if answer.ended:
            with contextlib.suppress(TimeoutError, *cut):
                async with asyncio.timeout(_DRAIN_S):
                    while await anext(chunks, None) is not None:
                        pass
            return


def is_local(base_url: str) -> bool:
    """Say whether an address is this machine or the private network: no key and no proxy is needed."""
    try:
        host = urlsplit(base_url).hostname or ""
    except ValueError:
        return False
    try:
        return not ipaddress.ip_address(host).is_global
    except ValueError:
        # A name without a dot (`localhost`, a container's) is no public one.
        return bool(host) and ("." not in host or host.endswith((".localhost", ".local", ".internal")))
