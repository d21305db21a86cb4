"""What one event changed, in each fold: two views compared. Pure."""

from collections.abc import Iterator
from typing import Any, cast

from deskmate_session.core.state import SessionState
from deskmate_session.core.views.session import queue_view, status_view
from deskmate_session.core.views.timeline import message_view
from deskmate_session.model import events as e
from deskmate_session.model.queries import ChangedBy, Difference

MAX_VALUE = 200
"""Code points of a string that are shown; the state itself has it whole."""

_ABSENT = object()
_NAMES = ("id", "uri", "callId", "messageId")
"""What an item of a list is known by."""
_ALWAYS = frozenset({"seq", "updatedAt"})
"""Fields that each event moves."""


def apply(state: SessionState, event: e.Event) -> ChangedBy:
    """Fold an event into `state`, and return what that changed."""
    message_id = _message(state, event.payload)
    before = _views(state, message_id)
    state.apply(event)
    after = _views(state, message_id)
    conversation, work_context, lifecycle = (
        tuple(_differences(was, now, "")) for was, now in zip(before, after, strict=True)
    )
    return ChangedBy(
        type=event.type, conversation=conversation, work_context=work_context, lifecycle=lifecycle
    )


def _message(state: SessionState, payload: e.EventPayload) -> str:
    """The message that the event is about; empty where it is about none."""
    found = getattr(payload, "message_id", None)
    if isinstance(found, str):
        return found
    call = state.conversation.calls.get(getattr(payload, "call_id", ""))
    return "" if call is None else call.message_id


def _views(state: SessionState, message_id: str) -> tuple[Any, Any, Any]:
    if state.session is None:
        return {}, {}, {}
    message = state.conversation.messages.get(message_id)
    shown = [] if message is None else [message_view(state.info.id, message).dump()]
    lifecycle = {
        "session": state.info.dump(),
        "status": status_view(state).status,
        "turn": None if state.turn is None else {"id": state.turn.turn_id, "steps": state.turn.steps},
        "queue": queue_view(state).dump(),
        "asks": [ask.dump() for ask in state.asks.values()],
        "grants": [f"{rule.permission} {rule.pattern}: {rule.action}" for rule in state.grants],
        "usage": state.usage.dump(),
        "cost": state.cost,
        "openChanges": [
            {"callId": change.call_id, "uri": change.uri}
            for changes in state.open_changes.values()
            for change in changes
        ],
    }
    return {"messages": shown}, state.work_context.view(state.info.folder).dump(), lifecycle


def _differences(was: Any, now: Any, path: str) -> Iterator[Difference]:
    if was == now:
        return
    if isinstance(was, list) and isinstance(now, list):
        was, now = _by_name(cast("list[Any]", was)), _by_name(cast("list[Any]", now))
    if isinstance(was, dict) and isinstance(now, dict):
        old, new = cast("dict[str, Any]", was), cast("dict[str, Any]", now)
        for key in dict.fromkeys((*old, *new)):
            if path in ("", "session") and key in _ALWAYS:
                continue
            inner = f"{path}{key}" if key.startswith("[") else f"{path}.{key}".lstrip(".")
            yield from _differences(old.get(key, _ABSENT), new.get(key, _ABSENT), inner)
        return
    yield Difference(path=path, before=_shown(was), after=_shown(now))


def _by_name(items: list[Any]) -> dict[str, Any]:
    """The items of a list by what they are known by, so that one more in front is one difference."""
    named: dict[str, Any] = {}
    for number, item in enumerate(items):
        data = cast("dict[str, Any]", item) if isinstance(item, dict) else {}
        name = next((str(data[key]) for key in _NAMES if key in data), str(number))
        named[f"[{name}]"] = item
    return named


def _shown(value: Any) -> Any:
    if value is _ABSENT:
        return None
    if isinstance(value, str):
        return value if len(value) <= MAX_VALUE else f"{value[:MAX_VALUE]}… ({len(value)} characters)"
    if isinstance(value, list):
        return [_shown(item) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {key: _shown(item) for key, item in cast("dict[str, Any]", value).items()}
    return value
