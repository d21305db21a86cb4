"""JSON in and out of the wire, strict where Python's is lax.

Inward: no NaN, and no lone surrogates, so that every string may be encoded later. Outward: no NaN either, and
UTF-8 whatever a string holds.
"""

import json
import re
from collections.abc import Callable
from typing import Any, cast

_SURROGATE_ESCAPE = re.compile(rb"\\u[dD][89a-fA-F]")


def loads(body: bytes) -> Any:
    """Parse one message body; raises ValueError for anything that is not JSON."""
    try:
        value = json.loads(body, parse_constant=_refuse_constant)
        return _well_formed(value) if _SURROGATE_ESCAPE.search(body) else value
    except RecursionError:
        raise ValueError("nested too deeply") from None


def dumps(value: Any, default: Callable[[Any], Any]) -> bytes:
    """Write compact UTF-8; raises TypeError or ValueError for what JSON can't hold."""
    text = json.dumps(value, default=default, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    try:
        return text.encode()
    except UnicodeEncodeError:
        return _join_surrogates(text).encode()


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _join_surrogates(text: str) -> str:
    """Pairs become their character, lone halves U+FFFD (one UTF-16 unit each, so positions stay true)."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _well_formed(value: Any) -> Any:
    match value:
        case str():
            return _join_surrogates(value)
        case list():
            return [_well_formed(item) for item in cast("list[Any]", value)]
        case dict():
            items = cast("dict[str, Any]", value).items()
            return {_join_surrogates(key): _well_formed(item) for key, item in items}
        case _:
            return value
