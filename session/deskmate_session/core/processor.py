"""From a provider's stream to facts and deltas. Sans-IO: events in, an ordered list out.

Text is for the eyes at once (deltas) and for the log in batches: half a second or 2 KB. A call's
arguments stream as deltas only; the log gets them once, parsed, when the answer is complete.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from deskmate_session.model import events as e
from deskmate_session.model.limits import is_shallow
from deskmate_session.model.messages import (
    AnswerFinish,
    Part,
    ReasoningPart,
    TextPart,
    ToolPart,
    ToolState,
    TurnError,
    Usage,
)
from deskmate_session.model.ports import AnswerEnded, BlockDelta, BlockEnded, BlockStarted, Ids, StreamEvent
from deskmate_session.model.updates import Delta

BATCH_MS = 500
FOLLOWED_BATCH_MS = 100
"""The same while another process is attached: its people see the text no later than this."""
BATCH_CHARS = 2_000

Output = e.EventPayload | Delta


@dataclass(slots=True)
class _Block:
    kind: Literal["text", "reasoning", "tool"]
    part_id: str
    call_id: str = ""
    tool: str = ""
    provider_id: str | None = None
    chunks: list[str] = field(default_factory=list[str])
    """The whole text so far; joined when asked for."""
    length: int = 0
    unlogged: list[str] = field(default_factory=list[str])
    logged: int = 0
    ended: bool = False

    @property
    def text(self) -> str:
        if len(self.chunks) > 1:
            self.chunks = ["".join(self.chunks)]
        return self.chunks[0] if self.chunks else ""


class AnswerProcessor:
    """One answer. After `close` or `fail` it takes nothing more."""

    def __init__(self, session_id: str, message_id: str, step: int, ids: Ids, now: int) -> None:
        self._session_id = session_id
        self._message_id = message_id
        self._step = step
        self._ids = ids
        self._blocks: dict[int, _Block] = {}
        self._batch_since = now
        self.batch_ms = BATCH_MS
        """Milliseconds that text may wait for the log; less while another process follows it."""
        self.ended: AnswerEnded | None = None
        """The provider's own end, once it came."""

    def feed(self, events: Sequence[StreamEvent], now: int) -> list[Output]:
        """Take the events of one network chunk; neighbouring deltas of a block become one."""
        out: list[Output] = []
        run: list[str] = []
        run_index = -1
        for event in events:
            if type(event) is BlockDelta:
                if event.index != run_index:
                    self._delta(out, run_index, run)
                    run, run_index = [], event.index
                run.append(event.text)
                continue
            self._delta(out, run_index, run)
            run, run_index = [], -1
            match event:
                case BlockStarted():
                    out.append(self._start(event))
                case BlockEnded():
                    self._end(out, event)
                case AnswerEnded():
                    self.ended = event
                case BlockDelta():
                    pass  # taken above
        self._delta(out, run_index, run)
        out += self.batch(now)
        return out

    def batch(self, now: int, *, force: bool = False) -> list[Output]:
        """The text that is due for the log."""
        due = force or now - self._batch_since >= self.batch_ms
        out: list[Output] = [
            self._flush(block)
            for block in self._blocks.values()
            if block.unlogged and (due or block.length - block.logged >= BATCH_CHARS)
        ]
        if due:
            self._batch_since = now
        return out

    def live_part(self, part_id: str) -> Part | None:
        """A part as it stands now, its unlogged tail included."""
        block = next((b for b in self._blocks.values() if b.part_id == part_id), None)
        return block and _part(block)

    def live_parts(self) -> list[Part]:
        """All parts as they stand now, in order."""
        return [_part(block) for block in self._blocks.values()]

    @property
    def message_id(self) -> str:
        """The answer's id."""
        return self._message_id

    def close(self, now: int, usage: Usage, cost: int | None, finish: AnswerFinish) -> list[Output]:
        """The facts that complete the answer: the rest of the text, ends, `model.responded`.

        With finish `interrupted` calls whose answer was cut are settled as interrupted: they never ran.
        """
        out = self.batch(now, force=True)
        for block in self._blocks.values():
            if block.kind != "tool" and not block.ended:
                out.append(self._part_ended(block, BlockEnded(-1)))
        tools = [block for block in self._blocks.values() if block.kind == "tool"]
        whole = finish != "interrupted"
        calls = (
            tuple(
                e.CallRequested(
                    call_id=block.call_id,
                    tool=block.tool,
                    args=parse_arguments(block.text),
                    provider_id=block.provider_id,
                )
                for block in tools
            )
            if whole
            else ()
        )
        out.append(
            e.ModelResponded(
                message_id=self._message_id,
                step=self._step,
                kind="toolCalls" if calls else "text",
                calls=calls,
                finish=finish,
                usage=usage,
                cost=cost,
                confidence="deterministic" if calls else "nonDeterministic",
            )
        )
        if not whole:
            out += self._cut(tools, "the answer was interrupted before the call was complete")
        return out

    def fail(self, now: int, error: TurnError) -> list[Output]:
        """The facts of a failed attempt: what came is kept in the log, and never sent again."""
        out = self.batch(now, force=True)
        out.append(e.ModelFailed(message_id=self._message_id, step=self._step, error=error))
        tools = [block for block in self._blocks.values() if block.kind == "tool"]
        out += self._cut(tools, "the answer broke off before the call was complete")
        return out

    def _cut(self, tools: list[_Block], why: str) -> list[Output]:
        return [
            e.CallFailed(call_id=b.call_id, tool=b.tool, kind="interrupted", error=why, interrupted=True)
            for b in tools
        ]

    def _start(self, event: BlockStarted) -> e.PartStarted:
        block = _Block(event.kind, self._ids.new("prt"))
        if event.kind == "tool":
            block.call_id, block.tool = self._ids.new("call"), event.name or ""
            block.provider_id = event.provider_id
        self._blocks[event.index] = block
        return e.PartStarted(message_id=self._message_id, part=_part(block))

    def _delta(self, out: list[Output], index: int, run: list[str]) -> None:
        if not run:
            return
        block = self._blocks.get(index)
        if block is None:  # a provider that sends text for no block: nothing to show it in
            return
        text = "".join(run)
        if not text:
            return
        name = "input" if block.kind == "tool" else "text"
        out.append(Delta(self._session_id, self._message_id, block.part_id, name, block.length, text))
        block.chunks.append(text)
        block.length += len(text)
        if block.kind != "tool":
            block.unlogged.append(text)

    def _end(self, out: list[Output], event: BlockEnded) -> None:
        block = self._blocks.get(event.index)
        if block is None or block.ended or block.kind == "tool":
            return
        if block.unlogged:
            out.append(self._flush(block))
        out.append(self._part_ended(block, event))

    def _flush(self, block: _Block) -> e.PartAppended:
        text = "".join(block.unlogged)
        fact = e.PartAppended(
            message_id=self._message_id, part_id=block.part_id, offset=block.logged, text=text
        )
        block.logged += len(text)
        block.unlogged = []
        return fact

    def _part_ended(self, block: _Block, event: BlockEnded) -> e.PartEnded:
        block.ended = True
        return e.PartEnded(
            message_id=self._message_id,
            part_id=block.part_id,
            length=block.length,
            hash=hashlib.sha256(block.text.encode()).hexdigest(),
            signature=event.signature,
            redacted=event.redacted,
        )


def _part(block: _Block) -> Part:
    match block.kind:
        case "text":
            return TextPart(id=block.part_id, text=block.text)
        case "reasoning":
            return ReasoningPart(id=block.part_id, text=block.text)
        case "tool":
            return ToolPart(
                id=block.part_id,
                call_id=block.call_id,
                tool=block.tool,
                summary=block.tool,
                state=ToolState(status="pending", input=block.text),
            )


def parse_arguments(text: str) -> Any:
    """A call's arguments: the object, `{}` for none at all, else the raw text (a bad call).

    An object that was encoded twice is taken apart; truncated JSON is never guessed.
    """
    stripped = text.strip()
    if not stripped or stripped == "null":
        return {}
    try:
        value: Any = json.loads(stripped, parse_constant=_no_number)
        if isinstance(value, str):
            value = json.loads(value, parse_constant=_no_number)
    except (ValueError, RecursionError):
        return text
    if not is_shallow(value):
        return text
    return _well_formed(cast("dict[str, Any]", value)) if isinstance(value, dict) else text


def _no_number(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


def _well_formed(value: dict[str, Any]) -> dict[str, Any]:
    """Escaped lone surrogates become U+FFFD: no file, database or wire takes them."""
    encoded = json.dumps(value, ensure_ascii=False).encode("utf-16", "surrogatepass")
    return cast("dict[str, Any]", json.loads(encoded.decode("utf-16", "replace")))
