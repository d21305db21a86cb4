"""Payload ↔ bytes. Pure.

Canonical JSON: UTF-8, sorted keys, no spaces. Hashes cover these bytes; they are written once and never
re-encoded. On disk a payload is the JSON itself (it begins with `{`) or its zlib stream (`x`).
"""

import json
import json.encoder
import re
import zlib
from collections.abc import Callable, Iterable
from typing import Any

from pydantic import ValidationError

from deskmate_session.errors import LogCorrupt
from deskmate_session.model.events import EVENT_TYPES, ErasedPayload, EventPayload, UnknownPayload

PACK_OVER = 400
"""Plain bytes above which a payload is compressed."""

_PACKED = b"x"
_ENCODER = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False)
# Kept: `json.dumps` makes both anew each time, which costs more than the encoding. (It asks each time, too,
# whether a value holds itself; what comes from a model can't.)
_CHUNKS: Callable[[object, int], Iterable[str]] = getattr(json.encoder, "c_make_encoder")(  # noqa: B009
    None, _ENCODER.default, json.encoder.encode_basestring, None, ":", ",", True, False, False
)
quote = json.encoder.encode_basestring
"""Returns a string as canonical JSON has it, but for lone surrogates, which stay."""

_SURROGATE = re.compile("[\ud800-\udfff]")


def canonical(value: object) -> bytes:
    """Return canonical JSON.

    What JSON or UTF-8 can't hold is replaced, since a model can produce it: lone surrogates become
    U+FFFD, NaN and infinities null. Raises `TypeError` for what is no JSON at all.
    """
    try:
        return _dump(value)
    except ValueError:
        # Cleaned as a whole and sorted anew: a replaced character may stand in a key.
        loose = _SURROGATE.sub("\ufffd", json.dumps(value, ensure_ascii=False))
        return _dump(json.loads(loose, parse_constant=lambda _: None))


def tag(payload: EventPayload) -> tuple[str, int]:
    """Return the payload's type and version."""
    named = isinstance(payload, UnknownPayload | ErasedPayload)
    return (payload.tag if named else payload.type), payload.version


def to_data(payload: EventPayload) -> dict[str, Any]:
    """Return the payload's JSON object: camelCase, absent fields left out."""
    if isinstance(payload, UnknownPayload):
        return payload.data
    # Not mode="json": it does the same for our shapes, and costs twice the time. Nor `model_dump`, whose own
    # defaults cost a third of it.
    return payload.__pydantic_serializer__.to_python(payload, by_alias=True, exclude_none=True)


def encode(payload: EventPayload) -> bytes:
    """Return the payload's plain bytes, over which its digest is taken."""
    return canonical(to_data(payload))


def decode(type: str, version: int, plain: bytes) -> EventPayload:
    """Return the payload of a logged event.

    A type that is not known, or a version newer than known, is kept whole as `UnknownPayload`. Raises
    `LogCorrupt` for bytes that are no such payload.
    """
    known = EVENT_TYPES.get(type)
    try:
        if known is None or version > known.version:
            return UnknownPayload(tag=type, data=json.loads(plain))
        return known.model_validate_json(plain)
    except ValueError as error:  # ValidationError and JSONDecodeError are ValueErrors
        raise LogCorrupt(f"the payload is no {type!r}: {_first_line(error)}") from error


def pack(plain: bytes) -> bytes:
    """Return the bytes to store: compressed when that pays."""
    if len(plain) <= PACK_OVER:
        return plain
    packed = zlib.compress(plain, 1)
    return packed if len(packed) < len(plain) else plain


def unpack(stored: bytes) -> bytes:
    """Return the plain bytes. Raises `LogCorrupt` when they can't be unpacked."""
    if stored[:1] != _PACKED:
        return stored
    try:
        return zlib.decompress(stored)
    except zlib.error as error:
        raise LogCorrupt(f"the payload can't be unpacked: {error}") from error


def _dump(value: object) -> bytes:
    return "".join(_CHUNKS(value, 0)).encode()


def _first_line(error: ValueError) -> str:
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False)[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg'].lower()}"
    return str(error)
