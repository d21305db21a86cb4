"""Sessions to measure on: the facts of plausible turns, appended straight to a log, checkpointed as they are
by the kernel that runs one."""

import asyncio
import random
import string
import time
from pathlib import Path

from deskmate_session.core import checkpoints
from deskmate_session.core.state import SessionState
from deskmate_session.ids import RandomIds
from deskmate_session.log.store import EventLog, Lease
from deskmate_session.model import events as e
from deskmate_session.model.messages import TextInput, TextPart, ToolPart, ToolState, Usage

CHECKPOINT_AFTER = 75
"""Events; what settings say unless they are told otherwise (`checkpoint.interval`)."""
_BATCH = 50
"""Turns that are appended at once."""


class Clock:
    """The real one."""

    def now(self) -> int:
        """Milliseconds since the epoch."""
        return time.time_ns() // 1_000_000


def letters(count: int, seed: int = 7) -> str:
    """Words of random letters: those of a language would compress, and flatter the log."""
    source = random.Random(seed)
    return "".join(source.choices(string.ascii_lowercase + " ", k=count))


def part(n: int) -> e.Draft:
    """A batch of streamed text, 330 bytes as a payload, ten to a message."""
    return e.Draft(
        e.PartAppended(message_id=f"msg_{n // 10}", part_id="prt_1", offset=n, text=letters(245, n))
    )


def created() -> e.Draft:
    """The first fact of a session."""
    return e.Draft(e.SessionCreated(folder="file:///w", title="Bench", agent="build", model="mock/test"))


def turn(number: int) -> list[e.Draft]:
    """A turn of two steps and three messages: a prompt, an answer that reads a file, an answer of text."""
    prompt, call = f"msg_prompt{number}", f"call_{number}"
    first, second = f"msg_call{number}", f"msg_text{number}"
    question = TextPart(id=f"prt_q{number}", text=TextInput(text="what does it say?").text)
    read = ToolPart(id=f"prt_c{number}", call_id=call, tool="read", summary="read", state=_PENDING)
    facts: list[e.EventPayload] = [
        e.MessageReceived(
            message_id=prompt, delivery="queue", parts=(question,), agent="build", model="mock/test"
        ),
        e.TurnStarted(turn_id=f"turn_{number}", message_id=prompt, owner="own_bench"),
        _constructed(first, prompt, 1),
        e.PartStarted(message_id=first, part=read),
        _responded(first, 1, (e.CallRequested(call_id=call, tool="read", args={"path": "notes.txt"}),)),
        e.CallStarted(call_id=call, tool="read", args={"path": "notes.txt"}),
        e.CallCompleted(call_id=call, tool="read", success=True, output=letters(1_000, number)),
        _constructed(second, prompt, 2),
        e.PartStarted(message_id=second, part=TextPart(id=f"prt_t{number}", text="")),
        e.PartAppended(message_id=second, part_id=f"prt_t{number}", offset=0, text=letters(300, number + 1)),
        e.PartEnded(message_id=second, part_id=f"prt_t{number}", length=300, hash="0" * 64),
        _responded(second, 2, ()),
        e.TurnEnded(
            turn_id=f"turn_{number}", message_id=prompt, finish="stop", usage=Usage(), cost=0, steps=2
        ),
    ]
    return [e.Draft(fact) for fact in facts]


async def leased(log: EventLog, session: str) -> Lease:
    """A new session, and the lease to run it."""
    lease = (await log.request(session, [created()])).lease
    assert lease is not None
    return lease


async def build(state_dir: Path, session: str, messages: int) -> None:
    """A log with one session of so many messages, of which the last turns are behind its checkpoint."""
    log = await EventLog.open(state_dir, Clock(), RandomIds())
    state, since, size, last = SessionState(), 0, 0, None
    try:
        lease = await leased(log, session)
        for logged in await log.read(session):
            state.apply(logged)
        turns = -(-messages // 3)
        for first in range(0, turns, _BATCH):
            numbers = range(first, min(first + _BATCH, turns))
            runs = await asyncio.gather(*(log.append(session, turn(n), lease=lease) for n in numbers))
            for events in runs:
                for logged in events:
                    state.apply(logged)
                since += len(events)
                size += sum(len(str(logged.payload)) for logged in events)
                if checkpoints.due(since, size, last, CHECKPOINT_AFTER):
                    body = checkpoints.dump(state)
                    await log.checkpoint(session, state.seq, body)
                    since, size, last = 0, 0, len(body)
        await log.release(lease)
    finally:
        await log.close()


_PENDING = ToolState(status="pending")


def _constructed(message: str, parent: str, step: int) -> e.EventPayload:
    return e.ContextConstructed(
        message_id=message,
        parent_id=parent,
        step=step,
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


def _responded(message: str, step: int, calls: tuple[e.CallRequested, ...]) -> e.EventPayload:
    return e.ModelResponded(
        message_id=message,
        step=step,
        kind="toolCalls" if calls else "text",
        calls=calls,
        finish="toolCalls" if calls else "stop",
        usage=Usage(),
        confidence="deterministic" if calls else "nonDeterministic",
    )
