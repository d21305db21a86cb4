"""From a provider's refusal to a `ProviderError`: by type, then by status. One table for all dialects."""

import json
import math
import re
import time
from collections.abc import Iterable, Mapping
from email.utils import parsedate_to_datetime
from typing import Any, cast
from urllib.parse import unquote

from deskmate_session.errors import ProviderError, ProviderErrorKind

_OVERFLOW = re.compile(
    r"prompt is too long|context[ _](length|window|size)|maximum context|too many (input )?tokens"
    r"|exceeds? the (model's )?(maximum|available) (context|input)|input is too long",
    re.IGNORECASE,
)

_BY_TYPE: dict[str, tuple[ProviderErrorKind, bool]] = {
    "authentication_error": ("providerAuth", False),
    "permission_error": ("providerAuth", False),
    "billing_error": ("providerAuth", False),
    "invalid_api_key": ("providerAuth", False),
    "insufficient_quota": ("providerAuth", False),
    "request_too_large": ("contextOverflow", False),
    "context_length_exceeded": ("contextOverflow", False),
    "exceed_context_size_error": ("contextOverflow", False),
    "not_found_error": ("badResponse", False),
    "model_not_found": ("badResponse", False),
    "rate_limit_error": ("providerUnavailable", True),
    "rate_limit_exceeded": ("providerUnavailable", True),
    "overloaded_error": ("providerUnavailable", True),
    "timeout_error": ("providerUnavailable", True),
    "api_error": ("providerUnavailable", True),
    "server_error": ("providerUnavailable", True),
}
"""`error.code` and `error.type`, as Anthropic, OpenAI and llama.cpp spell them."""

_BY_STATUS: dict[int, tuple[ProviderErrorKind, bool]] = {
    401: ("providerAuth", False),
    402: ("providerAuth", False),
    403: ("providerAuth", False),
    408: ("providerUnavailable", True),
    409: ("providerUnavailable", True),
    413: ("contextOverflow", False),
    425: ("providerUnavailable", True),
    429: ("providerUnavailable", True),
}


class Secrets:
    """Strings that may never be shown. Its repr tells nothing."""

    def __init__(self, values: Iterable[str | None]) -> None:
        words = {word for value in values if value for word in (value, *value.split())}
        # A short word would mask half of an ordinary text, and is no key.
        self._words = sorted((word for word in words if len(word) >= 6), key=len, reverse=True)

    def mask(self, text: str) -> str:
        """Replace each secret by `[key]`, also where it was percent-encoded."""
        if "%" in text and any(word in unquote(text) for word in self._words):
            text = unquote(text)
        for word in self._words:
            text = text.replace(word, "[key]")
        return text

    def __repr__(self) -> str:
        return f"Secrets({len(self._words)})"


def refused(
    provider: str,
    status: int | None,
    body: object,
    secrets: Secrets,
    headers: Mapping[str, str] | None = None,
) -> ProviderError:
    """Make the error for an answer with a bad status, or (`status` None) for an error inside a stream.

    `body` is the parsed JSON or the text. The message is masked and at most 500 characters long.
    """
    types, message, inner_status = _dissect(body)
    status = status or inner_status
    kind, retryable = _classify(types, status, message)
    shown = secrets.mask(" ".join(message.split()))[:500]
    what = f"answered {status}" if status else "broke off its answer"
    return ProviderError(
        kind,
        f"provider {provider!r} {what}: {shown or 'no reason given'}",
        hint=_hint(kind, types, status, provider),
        retryable=_told_to_retry(headers, retryable),
        retry_after_ms=retry_after_ms(headers or {}),
    )


def parse_body(content: bytes) -> object:
    """Return an error's body as JSON where it is, else as text."""
    text = content.decode("utf-8", "replace")
    try:
        return json.loads(text)
    except ValueError:
        return text


def retry_after_ms(headers: Mapping[str, str]) -> int | None:
    """Read `retry-after-ms` or `retry-after` (seconds or an HTTP date); None when absent or unreadable."""
    for name, unit in (("retry-after-ms", 1), ("retry-after", 1000)):
        value = headers.get(name)
        if not value:
            continue
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if math.isfinite(number):
            return max(round(number * unit), 0)
        try:
            at = parsedate_to_datetime(value).timestamp()
        except (ValueError, TypeError, OverflowError):
            continue
        return max(round((at - time.time()) * 1000), 0)
    return None


def _dissect(body: object) -> tuple[list[str], str, int | None]:
    """Return the error's types (most telling first), its message, and a status that it names."""
    if not isinstance(body, dict):
        return [], str(body or ""), None
    outer = cast("dict[str, Any]", body)
    error: Any = outer.get("error", outer)
    if not isinstance(error, dict):
        return [], str(error or outer.get("message") or ""), None
    inner = cast("dict[str, Any]", error)
    message = inner.get("message") or inner.get("detail") or outer.get("message")
    code = inner.get("code")
    types = [word for word in (code, inner.get("type")) if isinstance(word, str)]
    status = code if isinstance(code, int) and 400 <= code < 600 else None
    return types, message if isinstance(message, str) else to_text(message or inner), status


def to_text(value: object) -> str:
    """Show any JSON value on one line."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=True, default=str)


def _classify(types: list[str], status: int | None, message: str) -> tuple[ProviderErrorKind, bool]:
    for word in types:
        if word in _BY_TYPE:
            return _BY_TYPE[word]
    if status in (None, 400, 422, 500) and _OVERFLOW.search(message):
        return "contextOverflow", False
    if "invalid_request_error" in types:
        return _BY_STATUS.get(status or 0, ("badResponse", False))
    if status is None or status >= 500:
        return "providerUnavailable", True
    return _BY_STATUS.get(status, ("badResponse", False))


def _told_to_retry(headers: Mapping[str, str] | None, otherwise: bool) -> bool:
    told = (headers or {}).get("x-should-retry", "")
    return {"true": True, "false": False}.get(told, otherwise)


def _hint(kind: ProviderErrorKind, types: list[str], status: int | None, provider: str) -> str | None:
    place = f"[providers.{provider}]"
    if kind == "providerAuth":
        if status == 402 or {"billing_error", "insufficient_quota"} & set(types):
            return "the account has no credit left: check its billing"
        return f"check the API key of {place} (or its environment variable) and what it may use"
    if kind == "contextOverflow":
        return "the conversation is longer than the model's window: compact it or start a new session"
    if status == 404:
        return f"check the model's name and base_url in {place}"
    if status is not None and 300 <= status < 400:
        return (
            f"redirects are not followed, the key could leak: write the final address as base_url in {place}"
        )
    return None
