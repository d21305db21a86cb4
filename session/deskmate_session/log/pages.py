"""Events in the raw bytes of a damaged database, found without SQLite.

A tree can't be walked behind a damaged page, but a row is whole by itself: its hash covers all of it. So each
page is searched for what looks like a row of `events`, and only what its own hash confirms is taken; where in
the tree it stood does not matter. The format is https://sqlite.org/fileformat2.html, sections 1.5, 1.6, 2.1
and 4.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

from deskmate_session.errors import LogCorrupt
from deskmate_session.log import chain, codec
from deskmate_session.log.rows import Row

PAGE = 8192
"""Bytes of a page in every log that we made."""

_MAGIC = b"SQLite format 3\0"
_Order = Literal["little", "big"]
_ORDERS: dict[bytes, _Order] = {b"\x37\x7f\x06\x82": "little", b"\x37\x7f\x06\x83": "big"}
_NATIVE: _Order = "little" if memoryview(b"\1\0\0\0").cast("I")[0] == 1 else "big"
_COLUMNS = 13
# The header of a row: its own length (one byte, since each column takes one to four), then null for `seq`,
# which is the row's number.
_ROW = re.compile(rb"(?=[\x0e-\x38]\x00)")
# A row of sqlite_sequence: text of six bytes, then a number.
_SEQUENCE = re.compile(rb"\x03\x19([\x01-\x06])events")
_WIDTH = (0, 1, 2, 3, 4, 6, 8, 8, 0, 0)
"""Bytes of a value, by serial type below 10."""


class Found:
    """What a file holds: events by `seq`, and the highest `seq` that was ever given."""

    def __init__(self) -> None:
        self.rows: dict[int, Row] = {}
        self.last = 0


def search(path: Path) -> Found:
    """Return what can be read of a database and of the write-ahead log beside it. Blocks."""
    content = path.read_bytes()
    try:
        wal = path.with_name(f"{path.name}-wal").read_bytes()
    except OSError:
        wal = b""
    sizes = {PAGE, _page_size(content)}
    return max((_search(content, wal, size) for size in sorted(sizes)), key=lambda found: len(found.rows))


def committed(wal: bytes, size: int) -> dict[int, bytes]:
    """Return the pages that a write-ahead log holds, by number, as of its last commit.

    As SQLite does it, reading ends at the first frame that is of an older log or has a wrong checksum.
    """
    order = _ORDERS.get(wal[:4])
    if order is None or int.from_bytes(wal[8:12], "big") != size:
        return {}
    pages: dict[int, bytes] = {}
    pending: dict[int, bytes] = {}
    sums = _sums(wal[:24], (0, 0), order)
    for start in range(32, len(wal) - 24 - size + 1, 24 + size):
        head, page = wal[start : start + 24], wal[start + 24 : start + 24 + size]
        sums = _sums(page, _sums(head[:8], sums, order), order)
        told = int.from_bytes(head[16:20], "big"), int.from_bytes(head[20:24], "big")
        if head[8:16] != wal[16:24] or told != sums:
            break
        pending[int.from_bytes(head[:4], "big")] = page
        if any(head[4:8]):  # the size of the database after it: this frame commits
            pages.update(pending)
            pending.clear()
    return pages


def whole(row: Row) -> bool:
    """Tell whether a row is what was written: values of the right kinds, its hash, its payload's digest."""
    if not (
        _are(int, row.idx, row.version, row.at)
        and _are(str, row.id, row.session, row.type, *filter(_given, (row.cause, row.debug_tag)))
        and _are(bytes, row.payload, row.digest, row.prev, row.hash)
    ):
        return False
    header = chain.header(
        session=row.session or None,
        index=row.idx,
        id=row.id,
        type=row.type,
        version=row.version,
        at=row.at,
        cause=row.cause,
    )
    if chain.link(row.prev, header, row.digest) != row.hash:
        return False
    try:
        plain = codec.unpack(row.payload)
        codec.decode(row.type, row.version, plain)
    except LogCorrupt:
        return False
    return chain.digest(plain) == row.digest


def _search(content: bytes, wal: bytes, size: int) -> Found:
    newer = committed(wal, size)
    count = max([-(-len(content) // size), *newer])

    def page(number: int) -> bytes:
        return newer.get(number) or content[(number - 1) * size : number * size]

    found = Found()
    for number in range(1, count + 1):
        bytes_ = page(number)
        for row in _rows(bytes_, size, page):
            # A page that was split leaves copies behind: the same event, since none ever changes.
            found.rows.setdefault(row.seq, row)
        for match in _SEQUENCE.finditer(bytes_):
            width = _WIDTH[match[1][0]]
            found.last = max(found.last, int.from_bytes(bytes_[match.end() : match.end() + width], "big"))
    newest = max(found.rows, default=0)
    # A number far beyond all events is damage itself.
    found.last = newest if found.last > 2 * newest + 1_000_000 else max(found.last, newest)
    return found


def _rows(page: bytes, size: int, get: Callable[[int], bytes]) -> Iterator[Row]:
    for match in _ROW.finditer(page):
        row = _row(page, match.start(), size, get)
        if row is not None:
            yield row


def _row(page: bytes, start: int, size: int, get: Callable[[int], bytes]) -> Row | None:
    """Return the row whose header stands at `start`, if there is one and its hash fits."""
    at, end = start + 1, start + page[start]
    serials: list[int] = []
    while at < end and len(serials) <= _COLUMNS:
        serial, at = _varint(page, at)
        serials.append(serial)
    # Of a row of ours digest, prev and hash have 32 bytes.
    if at != end or len(serials) != _COLUMNS or not serials[8] == serials[10] == serials[11] == 76:
        return None
    widths = [_WIDTH[serial] if serial < 10 else (serial - 12) // 2 for serial in serials]
    length = page[start] + sum(widths)
    seq = _before(page, start, length)
    if seq is None:
        return None
    body = _payload(page, start, length, size, get)
    if body is None:
        return None
    values: list[object] = []
    place = page[start]
    for serial, width in zip(serials, widths, strict=True):
        values.append(_value(serial, body[place : place + width]))
        place += width
    row = Row(*(seq, *values[1:]))  # pyright: ignore[reportArgumentType]  # `whole` looks
    return row if whole(row) else None


def _given(value: object) -> bool:
    return value is not None


def _are(kind: type, *values: object) -> bool:
    return all(isinstance(value, kind) for value in values)


def _payload(page: bytes, start: int, length: int, size: int, get: Callable[[int], bytes]) -> bytes | None:
    """Return a row's bytes: those on the page, and those on the pages that it overflows to."""
    local, most = length, size - 35
    if length > most:
        least = (size - 12) * 32 // 255 - 23
        local = least + (length - least) % (size - 4)
        local = local if local <= most else least
    body = page[start : start + local]
    if local == length:
        return body if len(body) == length else None
    next = int.from_bytes(page[start + local : start + local + 4], "big")
    parts, missing = [body], length - local
    while missing > 0 and next > 0:
        more = get(next)
        if len(more) < 5:
            return None
        parts.append(more[4 : 4 + missing])
        missing -= len(parts[-1])
        next = int.from_bytes(more[:4], "big")
    return b"".join(parts) if missing == 0 else None


def _value(serial: int, data: bytes) -> object:
    match serial:
        case 0:
            return None
        case 8 | 9:
            return serial - 8
        case _ if serial < 8:
            return int.from_bytes(data, "big", signed=True) if serial != 7 else None
        case _ if serial % 2:
            try:
                return data.decode()
            except UnicodeDecodeError:
                return b""  # no text, so no value of ours
        case _:
            return data


def _varint(page: bytes, at: int) -> tuple[int, int]:
    """Return a number and where it ends; a bad one ends behind the page."""
    value = 0
    for place in range(at, min(at + 9, len(page))):
        byte = page[place]
        if place == at + 8:
            return value << 8 | byte, place + 1
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, place + 1
    return 0, len(page) + 1


def _before(page: bytes, end: int, length: int) -> int | None:
    """Return the row's number, which ends before `end`; before that its length must stand."""
    start = end - 1
    while start > 0 and page[start - 1] >= 0x80 and end - start < 8:
        start -= 1
    told = _encoded(length)
    return _varint(page, start)[0] if page[max(0, start - len(told)) : start] == told else None


def _encoded(number: int) -> bytes:
    groups = [number & 0x7F]
    while number := number >> 7:
        groups.append(number & 0x7F | 0x80)
    return bytes(reversed(groups))


def _page_size(content: bytes) -> int:
    told = int.from_bytes(content[16:18], "big")
    size = 65536 if told == 1 else told
    good = content[:16] == _MAGIC and 512 <= size <= 65536 and size & (size - 1) == 0
    return size if good else PAGE


def _sums(data: bytes, sums: tuple[int, int], order: _Order) -> tuple[int, int]:
    first, second = sums
    words = memoryview(data).cast("I").tolist()
    if order != _NATIVE:
        words = [int.from_bytes(word.to_bytes(4, order), _NATIVE) for word in words]
    for even, odd in zip(words[::2], words[1::2], strict=True):
        first = (first + even + second) & 0xFFFFFFFF
        second = (second + odd + first) & 0xFFFFFFFF
    return first, second
