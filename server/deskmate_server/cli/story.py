"""The log as a story: pure, from events to lines. Each line names the one that led to it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, assert_never, cast

from pydantic import ValidationError

from deskmate_server.cli.output import Style, harmless, one_line, wrap
from deskmate_session.model import events as e
from deskmate_session.model.messages import (
    CommandDetail,
    DiffDetail,
    FileDiff,
    FilePart,
    Part,
    ReasoningPart,
    TextPart,
    Usage,
)

MAX_TEXT = 2_000
"""Code points of an answer's text or a result in a story."""
NARROW = 60
"""Columns below which a story is no table any more."""


@dataclass(frozen=True, slots=True)
class Line:
    """One step of a story. `text` may hold several lines; it is harmless already."""

    seq: int
    at: int
    label: str
    text: str
    cause: int | None = None
    """`seq` of what led to it."""
    style: Style = "plain"


def story(events: Sequence[e.LoggedEvent], diffs: Mapping[int, FileDiff] | None = None) -> list[Line]:
    """Tell one session's events. `diffs`: what a `change.applied` did, by its `seq`."""
    return list(_Teller(diffs or {}).tell(events))


def printed(lines: Sequence[Line], width: int) -> Iterator[tuple[str, Style]]:
    """Lines as they are printed: position, what led to it, seconds since the first, what, text.

    Where that leaves no room for the text, it stands below, and the seconds are left out.
    """
    began = lines[0].at if lines else 0
    digits = len(str(lines[-1].seq)) + 1 if lines else 2
    for line in lines:
        if width < NARROW:
            cause = "" if line.cause is None else f" ← #{line.cause}"
            yield f"#{line.seq}{cause} {line.label}", line.style
            for text in wrap(line.text, width, "  "):
                yield text, line.style
            continue
        seq = f"#{line.seq}".ljust(digits)
        cause = " " * (digits + 2) if line.cause is None else f"← {f'#{line.cause}'.ljust(digits)}"
        head = f"{seq} {cause} {(line.at - began) / 1000:7.2f}s  {line.label:<9} "
        first, *rest = wrap(line.text, width - len(head))
        yield head + first, line.style
        for text in rest:
            yield " " * len(head) + text, line.style


class _Teller:
    def __init__(self, diffs: Mapping[int, FileDiff]) -> None:
        self._diffs = diffs
        self._texts: dict[str, tuple[str, list[str]]] = {}
        self._prompts: dict[str, int] = {}
        self._steps: dict[str, int] = {}
        """Answers, by message id."""
        self._calls: dict[str, int] = {}
        """Where a call was asked for."""
        self._about: dict[str, str] = {}
        self._asks: dict[str, int] = {}
        self._ids: dict[str, int] = {}
        self._folder = ""

    def tell(self, events: Sequence[e.LoggedEvent]) -> Iterator[Line]:
        for event in events:
            self._ids[event.id] = event.seq
            kind = e.EVENT_TYPES.get(event.type)
            try:
                payload = kind.parse(event.payload) if kind is not None else None
            except ValidationError:
                payload = None
            if payload is None:
                text = f"{event.type} (this Deskmate does not know it)"
                yield self._line(event, "other", text, style="dim")
            else:
                yield from self._one(event, payload)

    def _one(self, event: e.LoggedEvent, payload: e.EventPayload) -> Iterator[Line]:
        match payload:
            case e.SessionCreated():
                self._folder = payload.folder
                about = f"{payload.title!r} with {payload.model}, agent {payload.agent}, mode {payload.mode}"
                yield self._line(event, "session", about)
            case e.SessionUpdated():
                yield self._line(event, "session", _changed(payload), style="dim")
            case e.SessionDeleted():
                yield self._line(event, "session", "deleted", style="red")
            case e.MessageReceived():
                self._prompts[payload.message_id] = event.seq
                yield self._line(event, "prompt", _prompt(payload.parts), style="bold")
            case e.ContextConstructed():
                self._steps[payload.message_id] = event.seq
                text = f"{payload.model} is asked, with about {payload.token_count:,} tokens"
                cause = self._prompts.get(payload.parent_id)
                yield self._line(event, f"step {payload.step}", text, cause, "dim")
            case e.PartStarted():
                self._begin(payload.part)
            case e.PartAppended():
                if payload.part_id in self._texts:
                    self._texts[payload.part_id][1].append(payload.text)
            case e.PartEnded():
                yield from self._text(event, payload)
            case e.ModelResponded():
                yield from self._answer(event, payload)
            case e.ModelFailed():
                text = f"{payload.error.kind}: {payload.error.message}"
                yield self._line(event, "failed", text, self._steps.get(payload.message_id), "red")
            case e.CallCompleted() | e.CallFailed():
                yield self._result(event, payload)
            case e.ChangeApplied() | e.ChangeRefused() | e.ChangeObserved():
                yield self._change(event, payload)
            case e.AskOpened():
                yield self._ask(event, payload)
            case e.AskReplied():
                remark = f": {payload.message}" if payload.message else ""
                text = f"{payload.reply} ({payload.by}){remark}"
                style: Style = "red" if payload.reply == "reject" else "green"
                yield self._line(event, "reply", text, self._asks.get(payload.ask_id), style)
            case e.InterruptRequested():
                yield self._line(event, "interrupt", "the turn was to stop", style="yellow")
            case e.MessageUnqueued():
                cause = self._prompts.get(payload.message_id)
                yield self._line(event, "unqueued", "the prompt was taken back", cause, "yellow")
            case e.QueueHeld():
                yield self._line(event, "queue", f"held ({payload.reason})", style="yellow")
            case e.QueueReleased():
                yield self._line(event, "queue", "goes on", style="yellow")
            case e.LogSalvaged():
                text = f"the log was damaged: {payload.events:,} events were kept; see {payload.kept_as}"
                yield self._line(event, "salvaged", text, style="red")
            case e.TurnEnded():
                style = "green" if payload.finish == "stop" else "red"
                yield self._line(event, "end", _end(payload), self._prompts.get(payload.message_id), style)
            case (
                e.TurnStarted()
                | e.CallStarted()
                | e.ChangeStarted()
                | e.WorkContextUpdated()
                | e.UnknownPayload()
                | e.ErasedPayload()
            ):
                pass  # said by the lines around it
            case _:
                assert_never(payload)

    def _line(
        self,
        event: e.LoggedEvent,
        label: str,
        text: str,
        cause: int | None = None,
        style: Style = "plain",
    ) -> Line:
        if cause is None and event.cause is not None:
            cause = self._ids.get(event.cause)
        return Line(event.seq, event.at, label, _cut(harmless(text.strip())), cause, style)

    def _begin(self, part: Part) -> None:
        if isinstance(part, TextPart | ReasoningPart):
            self._texts[part.id] = ("thinks" if part.type == "reasoning" else "says", [part.text])

    def _text(self, event: e.LoggedEvent, fact: e.PartEnded) -> Iterator[Line]:
        label, pieces = self._texts.pop(fact.part_id, ("", []))
        if label and (text := "".join(pieces).strip()):
            style: Style = "dim" if label == "thinks" else "plain"
            yield self._line(event, label, text, self._steps.get(fact.message_id), style)

    def _rest(self, event: e.LoggedEvent, step: int | None) -> Iterator[Line]:
        """What had streamed when the answer was cut off."""
        for label, pieces in self._texts.values():
            if text := "".join(pieces).strip():
                yield self._line(event, label, f"{text} …", step)
        self._texts.clear()

    def _answer(self, event: e.LoggedEvent, fact: e.ModelResponded) -> Iterator[Line]:
        step = self._steps.get(fact.message_id)
        if fact.finish == "interrupted":
            yield from self._rest(event, step)
        for call in fact.calls:
            self._calls[call.call_id] = event.seq
            self._about[call.call_id] = about = call_line(call.tool, call.args)
            yield self._line(event, "calls", about, step, "cyan")
        if fact.finish not in ("stop", "toolCalls"):
            yield self._line(event, "finish", fact.finish, step, "yellow")

    def _result(self, event: e.LoggedEvent, fact: e.CallCompleted | e.CallFailed) -> Line:
        cause = self._calls.get(fact.call_id)
        about = self._about.get(fact.call_id, fact.tool)
        if isinstance(fact, e.CallFailed):
            kind = "" if fact.error.startswith(fact.kind) else f"{fact.kind}: "
            if fact.outcome_unknown:
                kind = "outcome unknown: "
            return self._line(event, "failed", f"{about}: {kind}{fact.error}", cause, "red")
        style: Style = "green" if fact.success else "red"
        short = in_short(fact.tool, fact.output, fact.exit_code)
        return self._line(event, "done", f"{about}: {short}", cause, style)

    def _change(
        self, event: e.LoggedEvent, fact: e.ChangeApplied | e.ChangeRefused | e.ChangeObserved
    ) -> Line:
        cause = self._calls.get(fact.call_id)
        name = self._name(fact.uri)
        if isinstance(fact, e.ChangeRefused):
            return self._line(event, "refused", f"{name}: {fact.reason}", cause, "red")
        if isinstance(fact, e.ChangeObserved):
            return self._line(event, "changes", f"{name} (seen later)", cause, "green")
        diff = self._diffs.get(event.seq)
        size = "" if diff is None else f" +{diff.additions} -{diff.deletions}"
        via = "through the editor" if fact.via != "disk" else "on disk"
        saved = "" if fact.saved else ", not saved"
        return self._line(event, "changes", f"{name}{size} ({via}{saved})", cause, "green")

    def _ask(self, event: e.LoggedEvent, fact: e.AskOpened) -> Line:
        ask = fact.ask
        match ask.detail:
            case CommandDetail():
                what = ask.detail.command
            case DiffDetail():
                what = self._name(ask.detail.uri)
            case _:
                what = ask.title
        self._asks[ask.id] = event.seq
        verb = {"bash": "run", "edit": "edit", "read": "read"}.get(ask.permission or "", "do")
        text = f"may it {verb} {one_line(what)}?"
        return self._line(event, "asks", text, self._calls.get(ask.call_id or ""), "yellow")

    def _name(self, uri: str) -> str:
        return uri.removeprefix(self._folder.rstrip("/") + "/").removeprefix("file://")


def call_line(tool: str, args: Any) -> str:
    """One line that tells a person what a call is about."""
    if not isinstance(args, dict):
        return one_line(tool)
    named = cast("dict[str, Any]", args)
    keys = ("command", "path", "pattern", "url", "query", "name")
    subject = next((named[key] for key in keys if isinstance(named.get(key), str)), "")
    return one_line(f"{tool} {subject}")


def in_short(tool: str, output: str, exit_code: int | None) -> str:
    """A result in a few words: how a command ended and its last line; else the one line, or how many."""
    lines = [line for line in output.strip().splitlines() if line.strip()]
    if exit_code is not None:
        said = [line for line in lines if not line.startswith("[exit code")]
        return one_line(f"exit code {exit_code}" + (f", {said[-1]}" if said else ""))
    if len(lines) > 1 or (lines and tool in ("read", "list", "glob", "grep")):
        return "1 line" if len(lines) == 1 else f"{len(lines):,} lines"
    return one_line(lines[0]) if lines else "no output"


def usage_line(usage: Usage, cost: int) -> str:
    """Tokens, and money where it is known."""
    known = [f"{usage.input + usage.cache_read + usage.cache_write:,} tokens in", f"{usage.output:,} out"]
    if cost:
        known.append(f"${cost / 1_000_000:.4f}")
    return ", ".join(known)


def _end(fact: e.TurnEnded) -> str:
    why = f": {fact.error.kind}: {fact.error.message}" if fact.error else ""
    steps = "1 step" if fact.steps == 1 else f"{fact.steps} steps"
    return f"{fact.finish}{why}; {steps}, {usage_line(fact.usage, fact.cost)}"


def _prompt(parts: Iterable[Part]) -> str:
    said = [
        part.text if isinstance(part, TextPart) else f"[file {part.uri}]"
        for part in parts
        if isinstance(part, TextPart | FilePart)
    ]
    return "\n".join(said)


def _changed(fact: e.SessionUpdated) -> str:
    fields = fact.model_dump(exclude_none=True)
    return ", ".join(f"{name} is now {value!r}" for name, value in fields.items()) or "updated"


def _cut(text: str) -> str:
    return text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + " …"
