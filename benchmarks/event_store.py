"""Three homes for the event log, measured: memory, a file of JSON lines, SQLite.

    .venv/bin/python benchmarks/event_store.py

All three encode and chain alike; the SQLite one is the real `EventLog`, read model included. Prints the table
of docs/decisions/002-event-store.md. `--write KIND DIR` is what its own child processes run.
"""

import asyncio
import fcntl
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

sys.path.insert(0, str(Path(__file__).parents[1] / "session"))

from deskmate_session.ids import RandomIds
from deskmate_session.log import chain, codec
from deskmate_session.log.store import EventLog
from deskmate_session.model.events import (
    ContextConstructed,
    Draft,
    PartAppended,
    SessionCreated,
    SessionUpdated,
)

EVENTS = 14_000
SESSION = "ses_bench"
WRITERS, EACH = 3, 1_000


class Clock:
    def now(self) -> int:
        return time.time_ns() // 1_000_000


def part(n: int) -> Draft:
    """An event of about 330 bytes, ten to a message."""
    text = f"{n} the quick brown fox jumps over the lazy dog; " * 5
    return Draft(PartAppended(message_id=f"msg_{n // 10}", part_id="prt_1", offset=n, text=text))


def message(n: int) -> Draft:
    return Draft(
        ContextConstructed(
            message_id=f"msg_{n}",
            parent_id="msg_0",
            step=1,
            agent="build",
            model="mock/test",
            policy="full",
            history_rounds=1,
            work_context_files=(),
            tool_results=0,
            token_count=0,
            request_hash="0" * 64,
            versions={},
        )
    )


class Store(Protocol):
    """Blocking stores; the real log is asynchronous and measured apart."""

    def append(self, draft: Draft, durable: bool) -> int: ...
    def replay(self) -> Iterator[object]: ...


def line(draft: Draft, index: int, prev: bytes) -> tuple[bytes, bytes]:
    """One event as a line, and its hash."""
    plain = codec.encode(draft.payload)
    type, version = codec.tag(draft.payload)
    fields = {"session": SESSION, "index": index, "id": RandomIds().new("evt"), "type": type}
    head = chain.header(**fields, version=version, at=Clock().now(), cause=None)
    hash = chain.link(prev, head, chain.digest(plain))
    return b'{"hash":"%b","header":%b,"payload":%b}\n' % (hash.hex().encode(), head, plain), hash


def parse(raw: bytes) -> object:
    head, _, payload = raw.partition(b',"payload":')
    row = json.loads(head + b"}")["header"]
    return codec.decode(row["type"], row["version"], payload.rstrip()[:-1])


class Memory:
    def __init__(self, _: Path) -> None:
        self._lines: list[bytes] = []
        self._prev = chain.GENESIS

    def append(self, draft: Draft, durable: bool) -> int:
        raw, self._prev = line(draft, len(self._lines), self._prev)
        self._lines.append(raw)
        return len(self._lines) - 1

    def replay(self) -> Iterator[object]:
        return map(parse, self._lines)


class JsonLines:
    """As good as a plain file gets: a lock for other writers, the head read again only if they wrote."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "events.jsonl"
        self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        self._size, self._index, self._prev = 0, 0, chain.GENESIS

    def append(self, draft: Draft, durable: bool) -> int:
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        try:
            size = os.fstat(self._fd).st_size
            if size != self._size:
                tail = os.pread(self._fd, 8_192, max(0, size - 8_192)).splitlines()[-1]
                row = json.loads(tail)
                self._index, self._prev = row["header"]["index"] + 1, bytes.fromhex(row["hash"])
            raw, self._prev = line(draft, self._index, self._prev)
            os.write(self._fd, raw)
            if durable:
                os.fdatasync(self._fd)
            self._size, self._index = size + len(raw), self._index + 1
            return self._index - 1
        finally:
            fcntl.flock(self._fd, fcntl.LOCK_UN)

    def replay(self) -> Iterator[object]:
        with self._path.open("rb") as file:
            yield from map(parse, file)


def page(store: Store) -> int:
    """A page of 50 messages from the middle: without an index, all is read."""
    first, last = EVENTS // 20, EVENTS // 20 + 50
    wanted = {f"msg_{n}" for n in range(first, last)}
    return sum(getattr(payload, "message_id", None) in wanted for payload in store.replay())


def timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


GROUP = "append, nobody waits for the disk (1/s)"
DURABLE = "append, each on disk (1/s)"
WAIT = "one append awaited, median (ms)"
WAIT_DURABLE = "one append awaited, on disk, median (ms)"
REPLAY = "replay of 14,000 (ms)"
PAGE = "page of 50 messages from the middle (ms)"


def blocking(kind: type[Memory] | type[JsonLines], folder: Path) -> dict[str, float]:
    store = kind(folder)
    many = timed(lambda: [store.append(part(n), False) for n in range(EVENTS)])
    replay = timed(lambda: list(store.replay()))
    read = timed(lambda: page(store))
    waits = sorted(timed(lambda n=n: store.append(part(n), False)) for n in range(1_000))
    durable = sorted(timed(lambda n=n: store.append(part(n), True)) for n in range(1_000))
    return {
        GROUP: EVENTS / many,
        DURABLE: 1_000 / sum(durable),
        WAIT: waits[500] * 1_000,
        WAIT_DURABLE: durable[500] * 1_000,
        REPLAY: replay * 1_000,
        PAGE: read * 1_000,
    }


async def sqlite(folder: Path) -> dict[str, float]:
    log = await EventLog.open(folder, Clock(), RandomIds())
    lease = (await log.request(SESSION, [created()])).lease
    await asyncio.gather(*(log.append(SESSION, [message(n)], lease=lease) for n in range(EVENTS // 10)))
    start = time.perf_counter()
    await asyncio.gather(*(log.append(SESSION, [part(n)], lease=lease) for n in range(EVENTS)))
    many = time.perf_counter() - start
    waits: dict[bool, list[float]] = {False: [], True: []}
    for durable, found in waits.items():
        for n in range(1_000):
            start = time.perf_counter()
            await log.append(SESSION, [part(n)], durable=durable, lease=lease)
            found.append(time.perf_counter() - start)
    start = time.perf_counter()
    await log.read(SESSION, limit=EVENTS)
    replay = time.perf_counter() - start
    middle = (await log.message_page(SESSION, limit=1)).messages[0][1][0].seq - EVENTS // 20
    start = time.perf_counter()
    await log.message_page(SESSION, before=middle, limit=50)
    read = time.perf_counter() - start
    await log.close()
    return {
        GROUP: EVENTS / many,
        DURABLE: 1_000 / sum(waits[True]),
        WAIT: sorted(waits[False])[500] * 1_000,
        WAIT_DURABLE: sorted(waits[True])[500] * 1_000,
        REPLAY: replay * 1_000,
        PAGE: read * 1_000,
    }


def best(runs: list[dict[str, float]]) -> dict[str, str]:
    """The best of several runs, since other work on the machine only ever slows one down."""
    found: dict[str, str] = {}
    for row in runs[0]:
        values = [run[row] for run in runs]
        found[row] = f"{max(values):,.0f}" if "1/s" in row else f"{min(values):.3g}"
    return found


def created() -> Draft:
    return Draft(SessionCreated(folder="file:///w", title="Bench", agent="build", model="mock/test"))


def write(kind: str, folder: Path) -> None:
    """Append and acknowledge each event on stdout, until done or killed."""
    if kind == "sqlite":
        asyncio.run(write_sqlite(folder))
        return
    store = Memory(folder) if kind == "memory" else JsonLines(folder)
    for n in range(EACH):
        print(store.append(part(n), False), flush=True)


async def write_sqlite(folder: Path) -> None:
    log = await EventLog.open(folder, Clock(), RandomIds())
    for n in range(EACH):
        # What any process may append; all else needs the session's lease, which one has at a time.
        renamed = Draft(SessionUpdated(title=f"{n} the quick brown fox jumps over the lazy dog; " * 5))
        print((await log.append(SESSION, [renamed]))[0].index, flush=True)
    await log.close()


def child(kind: str, folder: Path) -> "subprocess.Popen[str]":
    command = [sys.executable, __file__, "--write", kind, str(folder)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


async def kept(kind: str, folder: Path) -> list[int]:
    """The indices that a new process finds."""
    if kind == "sqlite":
        log = await EventLog.open(folder, Clock(), RandomIds())
        found = [event.index for event in await log.read(SESSION)]
        await log.close()
        return found
    path = folder / "events.jsonl"
    lines = path.read_bytes().splitlines() if path.exists() else []
    return [json.loads(raw)["header"]["index"] for raw in lines]


async def killed(kind: str) -> str:
    with tempfile.TemporaryDirectory() as name:
        process = child(kind, Path(name))
        assert process.stdout
        told = [int(process.stdout.readline()) for _ in range(EACH // 2)]
        process.kill()
        told += [int(row) for row in process.stdout.read().split()]
        process.wait()
        lost = set(told) - set(await kept(kind, Path(name)))
        return f"{len(lost)} of {len(told)}"


async def together(kind: str) -> str:
    with tempfile.TemporaryDirectory() as name:
        start = time.perf_counter()
        for process in [child(kind, Path(name)) for _ in range(WRITERS)]:
            process.communicate()
        took = time.perf_counter() - start
        found = await kept(kind, Path(name))
        good = found == list(range(WRITERS * EACH))
        return f"{'one gapless chain' if good else 'no common log'}, {took:.1f} s"


async def main() -> None:
    runs: dict[str, list[dict[str, float]]] = {"memory": [], "JSON lines": [], "SQLite": []}
    for _ in range(3):
        for title, kind in (("memory", Memory), ("JSON lines", JsonLines)):
            with tempfile.TemporaryDirectory() as name:
                runs[title].append(blocking(kind, Path(name)))
        with tempfile.TemporaryDirectory() as name:
            runs["SQLite"].append(await sqlite(Path(name)))
    columns = {title: best(found) for title, found in runs.items()}
    for title, kind in (("memory", "memory"), ("JSON lines", "jsonl"), ("SQLite", "sqlite")):
        columns[title]["acknowledged and lost at kill -9"] = await killed(kind)
        columns[title][f"{WRITERS} processes, {EACH:,} events each"] = await together(kind)
    print("| | " + " | ".join(columns) + " |\n|---|" + "---|" * len(columns))
    for row in columns["SQLite"]:
        print(f"| {row} | " + " | ".join(column[row] for column in columns.values()) + " |")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--write"]:
        write(sys.argv[2], Path(sys.argv[3]))
    else:
        asyncio.run(main())
