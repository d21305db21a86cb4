"""A session as JSON lines, to be carried to another log. Pure: rows ↔ text.

The first line tells what it is, then comes one line an event, in order, then one an object that events name.
An event's payload is the JSON that its digest covers, so whoever reads the file can check the whole chain.
"""

import base64
import binascii
import hashlib
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from deskmate_session.errors import LogCorrupt, Rejected
from deskmate_session.log import chain, codec
from deskmate_session.log.rows import Row
from deskmate_session.model.events import ErasedPayload, Event

FORMAT = "session"
VERSION = 1
MAX_BYTES = 64 << 20
"""Of a file that is read."""
MAX_OBJECT = 256 << 20
"""Of one object's plain bytes; more is no object of ours."""


@dataclass(frozen=True, slots=True)
class Portable:
    """What a file holds, verified."""

    session: str
    events: tuple[Event, ...]
    objects: Mapping[str, bytes]
    """By SHA-256 (hex)."""


def lines(
    rows: Iterable[Row], objects: Iterable[tuple[str, bytes]], redact: Iterable[str] = ()
) -> Iterator[str]:
    """Yield the lines of a session, without line ends.

    An event whose payload holds one of the texts `redact` goes without its payload; its header and digest
    stay, so the chain still holds. Objects that hold one are left out.
    """
    secrets = tuple(text for text in redact if text)
    first = True
    for row in rows:
        if first:
            yield _dump({"deskmate": FORMAT, "version": VERSION, "sessionId": row.session})
            first = False
        yield _dump(_event(row, secrets))
    for hash, data in objects:
        if not any(secret.encode() in data for secret in secrets):
            yield _dump({"object": hash, "data": base64.b64encode(zlib.compress(data)).decode()})


def parse(text: str) -> Portable:
    """Read and verify a file. Raises `Rejected` (`logCorrupt`) with the line that is wrong."""
    numbered = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    if not numbered:
        raise _wrong(1, "the file is empty")
    head = _object(*numbered[0])
    if head.get("deskmate") != FORMAT:
        raise _wrong(1, "this is no session that Deskmate exported")
    if head.get("version") != VERSION:
        raise _wrong(1, f"format {head.get('version')} is not known here: update Deskmate")
    session, events, objects = str(head.get("sessionId")), list[Event](), dict[str, bytes]()
    prev = chain.GENESIS
    for number, line in numbered[1:]:
        data = _object(number, line)
        if "object" in data:
            hash, plain = _read_object(number, data)
            objects[hash] = plain
            continue
        event, prev = _read_event(number, data, session, len(events), prev)
        events.append(event)
    if not events:
        raise _wrong(len(numbered), "the file holds no event")
    return Portable(session, tuple(events), objects)


def _event(row: Row, secrets: tuple[str, ...]) -> dict[str, Any]:
    plain = codec.unpack(row.payload)
    data: dict[str, Any] = {
        "seq": row.seq,
        "id": row.id,
        "sessionId": row.session,
        "index": row.idx,
        "type": row.type,
        "version": row.version,
        "at": row.at,
        "cause": row.cause,
        "prev": row.prev.hex(),
        "hash": row.hash.hex(),
    }
    text = plain.decode()
    if any(secret in text or json.dumps(secret, ensure_ascii=False)[1:-1] in text for secret in secrets):
        return {**data, "erased": "redacted", "digest": row.digest.hex()}
    return {**data, "payload": json.loads(plain)}


def _read_event(
    number: int, data: dict[str, Any], session: str, index: int, prev: bytes
) -> tuple[Event, bytes]:
    try:
        erased = "payload" not in data
        plain = b"" if erased else codec.canonical(data["payload"])
        digest = bytes.fromhex(data["digest"]) if erased else chain.digest(plain)
        header = chain.header(
            session=session,
            index=index,
            id=data["id"],
            type=data["type"],
            version=int(data["version"]),
            at=int(data["at"]),
            cause=data.get("cause"),
        )
        hash = chain.link(prev, header, digest)
        if data.get("sessionId") != session or data.get("index") != index:
            raise _wrong(number, f"event {index} of session {session!r} was to come here")
        if data.get("prev") != prev.hex() or data.get("hash") != hash.hex():
            raise _wrong(number, "the event is not what was exported: its hash does not fit")
        payload = (
            ErasedPayload(tag=data["type"]) if erased else codec.decode(data["type"], data["version"], plain)
        )
        event = Event(
            *(int(data["seq"]), data["id"], session, index, data["type"], data["version"], data["at"]),
            *(payload, data.get("cause"), prev.hex(), hash.hex()),
        )
    except LogCorrupt as error:
        raise _wrong(number, str(error)) from error
    except (KeyError, TypeError, ValueError) as error:
        raise _wrong(number, f"this is no event ({type(error).__name__}: {error})") from error
    return event, hash


def _read_object(number: int, data: dict[str, Any]) -> tuple[str, bytes]:
    try:
        unpacker = zlib.decompressobj()
        plain = unpacker.decompress(base64.b64decode(data["data"], validate=True), MAX_OBJECT)
    except (KeyError, TypeError, ValueError, binascii.Error, zlib.error) as error:
        raise _wrong(number, f"this is no object ({error})") from error
    hash = hashlib.sha256(plain).hexdigest()
    if hash != data["object"]:
        raise _wrong(number, "the object is not what was exported: its hash does not fit")
    return hash, plain


def _object(number: int, line: str) -> dict[str, Any]:
    try:
        data = json.loads(line)
    except ValueError as error:
        raise _wrong(number, f"this is no JSON ({error})") from error
    if not isinstance(data, dict):
        raise _wrong(number, "this is no JSON object")
    return cast("dict[str, Any]", data)


def _wrong(line: int, what: str) -> Rejected:
    return Rejected(
        "logCorrupt", f"line {line}: {what}", "export the session once more; nothing was imported"
    )


def _dump(value: object) -> str:
    return codec.canonical(value).decode()
