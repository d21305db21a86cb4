"""Two kernels on one folder, for tests: what both hold, show and log."""

import contextlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deskmate_session.kernel import Kernel
from deskmate_session.model import commands as c, events as e, queries as q
from deskmate_session.model.updates import Delta
from tests.runtime.support import (
    Hand,
    Seen,
    by_hand,
    create,
    until,
)

ROOT = Path(__file__).parents[2]
SESSION = "ses_0001"
ALLOW = {"edit": "allow", "bash": "allow"}


@dataclass
class Two:
    """Two kernels, each with a model of its own."""

    a: Kernel
    b: Kernel
    model_a: Hand
    model_b: Hand


@contextlib.asynccontextmanager
async def two(tmp: Path, **options: Any) -> AsyncGenerator[Two]:
    """Both on one folder, with one session that both know."""
    async with by_hand(tmp, **options) as (a, model_a), by_hand(tmp, **options) as (b, model_b):
        await create(a)
        assert await b.has_session(SESSION)
        yield Two(a, b, model_a, model_b)


async def seen_by(*kernels: Kernel) -> list[Seen]:
    """What each is shown of the folder from now on."""
    sinks = [Seen() for _ in kernels]
    for opened, sink in zip(kernels, sinks, strict=True):
        await opened.subscribe(q.Subscribe(partial_result_token="t"), sink)
    return sinks


def facts(seen: Seen) -> list[Any]:
    """The updates that come from events."""
    return [item.dump() for item in seen.items if not isinstance(item, Delta) and item.seq is not None]


def text(seen: Seen) -> str:
    """What the deltas come to; fails on a gap or a repeat."""
    parts: dict[str, str] = {}
    for item in seen.items:
        if isinstance(item, Delta) and item.field == "text":
            assert item.offset == len(parts.setdefault(item.part_id, "")), item
            parts[item.part_id] += item.text
    return "".join(parts.values())


async def owners(opened: Kernel) -> list[str]:
    """Who began each turn, in order."""
    events = await opened._log.read(session=SESSION)
    return [event.payload.owner for event in events if isinstance(event.payload, e.TurnStarted)]


async def replies(opened: Kernel) -> list[tuple[str, str]]:
    """How asks were settled."""
    events = await opened._log.read(session=SESSION)
    return [
        (event.payload.reply, event.payload.by) for event in events if isinstance(event.payload, e.AskReplied)
    ]


async def queue(opened: Kernel) -> tuple[bool, int]:
    """Whether the queue is held, and how long it is."""
    details = await opened.query(q.GetSession(session_id=SESSION))
    assert isinstance(details, q.SessionDetails)
    return details.queue.held, len(details.queue.prompts)


async def verified(opened: Kernel) -> None:
    """The log holds."""
    found = await opened.query(q.Verify())
    assert isinstance(found, c.Verified) and found.ok, found


async def level(*kernels: Kernel) -> None:
    """Every kernel has heard everything."""
    for opened in kernels:
        await opened._log.catch_up()
    assert len({opened._sessions.told for opened in kernels}) == 1


async def ask(opened: Kernel) -> str:
    """Wait for the open ask that a kernel sees."""
    state = opened._sessions.live(SESSION)
    assert state is not None
    await until(lambda: state.asks)
    return next(iter(state.asks))


async def events_of(opened: Kernel, kind: type) -> list[Any]:
    """The events of one kind."""
    return [event for event in await opened._log.read(session=SESSION) if isinstance(event.payload, kind)]
