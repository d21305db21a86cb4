"""`python -m tests.log.mortal`: a process whose children open a log, and die of SIGKILL at a chosen moment.

It forks for each opening, so an opening costs no imports. JSON in, its length before it in eight digits; JSON
lines out:

    {"open": folder, "die": moment}    → {"pid": …} once it is open, or {"died": true}
    {"appends": [...], "die": moment}  → {"taken": true}, a line for each append as it is settled, then
                                         {"heard": [seq, …]}: of each event since the opening
    {"close": true}                    → {"died": true}

A moment is a count of statements on the writing connection: 2n is before the nth from now, 2n + 1 after it;
null lives. Whoever dies says nothing more but `{"died": true}`, which the parent process writes.
"""

import asyncio
import importlib
import json
import os
import signal
import sqlite3
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from deskmate_session.errors import Conflict
from deskmate_session.ids import RandomIds
from deskmate_session.log import database
from deskmate_session.log.store import EventLog, Lease, Requested
from deskmate_session.model.events import REQUESTS
from tests.log import support

Json = Any


class _Death:
    """Comes after so many looks; the loop sets it, the writer's thread counts."""

    def __init__(self) -> None:
        self._left: int | None = None
        self._lock = threading.Lock()

    def after(self, moments: int | None) -> None:
        with self._lock:
            self._left = moments

    def look(self) -> None:
        with self._lock:
            if self._left is None:
                return
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            self._left -= 1


_death = _Death()


class _Mortal(sqlite3.Connection):
    """A connection that may be the death of its process, before or after any statement."""

    def execute(self, sql: str, parameters: Json = (), /) -> sqlite3.Cursor:
        _death.look()
        cursor = super().execute(sql, parameters)
        _death.look()
        return cursor

    def executemany(self, sql: str, parameters: Iterable[Json], /) -> sqlite3.Cursor:
        _death.look()
        cursor = super().executemany(sql, parameters)
        _death.look()
        return cursor


def _connect(path: Json, **options: Json) -> sqlite3.Connection:
    # Readers come by URI.
    kind = sqlite3.Connection if options.get("uri") else _Mortal
    return _real_connect(path, factory=kind, **options)


_real_connect = sqlite3.connect


def _say(value: Json) -> None:
    os.write(1, json.dumps(value).encode() + b"\n")


def _hear() -> Json:
    # Never more than is meant for this process: the next order may be for another one.
    if not (length := os.read(0, 8)):
        os._exit(0)
    line = b""
    while len(line) < int(length):
        line += os.read(0, int(length) - len(line))
    return json.loads(line)


def _fail_thread(told: threading.ExceptHookArgs) -> None:
    sys.__excepthook__(told.exc_type, told.exc_value or told.exc_type(), told.exc_traceback)
    os._exit(1)


def _fail(_: asyncio.AbstractEventLoop, context: dict[str, Json]) -> None:
    # Else whoever waits for a line would wait for good.
    print(context["message"], repr(context.get("exception")), file=sys.stderr, flush=True)
    os._exit(1)


async def _live(folder: Path, die: int | None) -> None:
    asyncio.get_running_loop().set_exception_handler(_fail)
    threading.excepthook = _fail_thread
    _death.after(die)
    log = await EventLog.open(folder, support.Ticks(), RandomIds())
    _death.after(None)
    heard: list[int] = []
    log.on_commit(lambda events, _ours: heard.extend(event.seq for event in events))
    leases: dict[str, Lease] = {}
    _say({"pid": os.getpid()})
    while "close" not in (order := await asyncio.to_thread(_hear)):
        _say({"taken": True})
        _death.after(order["die"])
        await _append(log, leases, order["appends"])
        _death.after(None)
        _say({"heard": heard})
    await log.close()


async def _append(log: EventLog, leases: dict[str, Lease], orders: list[Json]) -> None:
    drafts = [[getattr(support, kind)(*args) for kind, args in order["facts"]] for order in orders]
    leased = [
        order["leased"] or not all(isinstance(draft.payload, REQUESTS) for draft in facts)
        for order, facts in zip(orders, drafts, strict=True)
    ]
    for order, needs in zip(orders, leased, strict=True):
        session = order["session"]
        if needs and session not in leases:
            lease = await log.take(session)
            assert lease is not None
            leases[session] = lease
    futures: list[asyncio.Future[Json]] = []
    for number, (order, facts, needs) in enumerate(zip(orders, drafts, leased, strict=True)):
        if needs or not order["asks"]:
            lease = leases[order["session"]] if needs else None
            future = log.append(order["session"], facts, durable=order["durable"], lease=lease)
        else:
            future = log.request(order["session"], facts, durable=order["durable"])
        future.add_done_callback(lambda future, number=number: _settled(number, future))
        futures.append(future)
    await asyncio.gather(*futures, return_exceptions=True)


def _settled(number: int, future: "asyncio.Future[Json]") -> None:
    error = future.exception()
    if error is not None:
        assert isinstance(error, Conflict), repr(error)
        _say({"of": number, "refused": str(error)})
        return
    result = future.result()
    epoch = None
    if isinstance(result, Requested):
        assert result.lease is not None
        result, epoch = result.events, result.lease.epoch
    events = [[event.seq, event.id, event.index, event.hash] for event in result]
    _say({"of": number, "events": events, "epoch": epoch})


def main() -> None:
    """Serve until stdin ends."""
    importlib.import_module("deskmate_session.log.migrations")  # else each first opening would load it
    database.sqlite3.connect = _connect  # pyright: ignore[reportAttributeAccessIssue, reportPrivateImportUsage]
    while True:
        order = _hear()
        if (pid := os.fork()) == 0:
            asyncio.run(_live(Path(order["open"]), order["die"]))
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        # Of SIGKILL, or in order; anything else is a fault, and told on stderr.
        _say({"died": True, "fault": status not in (0, signal.SIGKILL)})


if __name__ == "__main__":
    main()
