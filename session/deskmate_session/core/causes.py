"""Which event led to a fact: a prompt to its turn, an answer to its calls, a call to its end.

Facts that are appended together can't name each other; each names what was logged before.
"""

from deskmate_session.model import events as e


class Causes:
    """The fold: the id of the newest event about each message, call, ask and turn."""

    __slots__ = ("_events",)

    def __init__(self) -> None:
        self._events: dict[str, str] = {}

    def apply(self, event: e.Event) -> None:
        """Fold one event."""
        match event.payload:
            case e.MessageReceived() | e.ContextConstructed():
                self._events[event.payload.message_id] = event.id
            case e.TurnStarted() as fact:
                self._events[fact.turn_id] = self._events[_turn_of(fact.message_id)] = event.id
            case e.ModelResponded() as fact:
                for call in fact.calls:
                    self._events[call.call_id] = event.id
            case e.CallStarted() as fact:
                self._events[fact.call_id] = event.id
            case e.AskOpened() as fact:
                self._events[fact.ask.id] = event.id
            case e.InterruptRequested() as fact:
                self._events[fact.turn_id] = event.id
            case _:
                pass

    def of(self, payload: e.EventPayload) -> str | None:
        """The id of the event that led to a fact; None where nothing did."""
        match payload:
            case e.TurnStarted() | e.MessageUnqueued():
                return self._events.get(payload.message_id)
            case e.ContextConstructed():
                prompt = payload.parent_id
                return self._events.get(_turn_of(prompt)) or self._events.get(prompt)
            case e.PartStarted() | e.PartAppended() | e.PartEnded() | e.ModelResponded() | e.ModelFailed():
                return self._events.get(payload.message_id)
            case (
                e.CallStarted()
                | e.CallCompleted()
                | e.CallFailed()
                | e.ChangeStarted()
                | e.ChangeApplied()
                | e.ChangeRefused()
            ):
                return self._events.get(payload.call_id)
            case e.WorkContextUpdated():
                return self._events.get(payload.by)
            case e.AskOpened():
                return self._events.get(payload.ask.call_id or "")
            case e.AskReplied():
                return self._events.get(payload.ask_id)
            case e.InterruptRequested() | e.TurnEnded():
                return self._events.get(payload.turn_id)
            case (
                e.SessionCreated()
                | e.SessionUpdated()
                | e.SessionDeleted()
                | e.MessageReceived()
                | e.QueueHeld()
                | e.UnknownPayload()
            ):
                return None


def _turn_of(prompt_id: str) -> str:
    return f"turn of {prompt_id}"
