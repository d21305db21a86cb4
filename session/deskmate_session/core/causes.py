"""Which event led to a fact: a prompt to its turn, an answer to its calls, a call to its end.

Facts that are appended together can't name each other; each names what was logged before. Only what a later
fact can need is kept: prompts that wait, the running turn, changes whose end is not known.
"""

from deskmate_session.model import events as e


class Causes:
    """The fold: the id of the newest event about each message, call, ask and turn."""

    __slots__ = ("changes", "turn", "waiting")

    def __init__(self) -> None:
        self.waiting: dict[str, str] = {}
        """`message.received` of prompts that wait, by message id."""
        self.turn: dict[str, str] = {}
        """What belongs to the running turn, by the id of its turn, messages, calls and asks."""
        self.changes: dict[str, dict[str, str]] = {}
        """`change.started` without an end, by URI, then by call id."""

    def apply(self, event: e.Event) -> None:
        """Fold one event."""
        match event.payload:
            case e.MessageReceived() as fact:
                self.waiting[fact.message_id] = event.id
            case e.MessageUnqueued() as fact:
                self.waiting.pop(fact.message_id, None)
            case e.TurnStarted() as fact:
                self.waiting.pop(fact.message_id, None)
                self.turn[fact.turn_id] = self.turn[_turn_of(fact.message_id)] = event.id
            case e.ContextConstructed() as fact:
                self.turn[fact.message_id] = event.id
            case e.ModelResponded() as fact:
                for call in fact.calls:
                    self.turn[call.call_id] = event.id
            case e.CallStarted() as fact:
                self.turn[fact.call_id] = event.id
            case e.AskOpened() as fact:
                self.turn[fact.ask.id] = event.id
            case e.AskReplied() as fact:
                self.turn.pop(fact.ask_id, None)
            case e.InterruptRequested() as fact:
                if fact.turn_id in self.turn:
                    self.turn[fact.turn_id] = event.id
            case e.TurnEnded() as fact:
                if fact.turn_id in self.turn:
                    self.turn.clear()
            case e.ChangeStarted() as fact:
                self.changes.setdefault(fact.uri, {})[fact.call_id] = event.id
            case e.ChangeApplied() | e.ChangeObserved() as fact:
                self.changes.pop(fact.uri, None)  # what the file holds is known again
            case e.ChangeRefused() as fact:
                self._refuse(fact)
            case _:
                pass

    def of(self, payload: e.EventPayload) -> str | None:
        """The id of the event that led to a fact; None where nothing did, or its turn is over."""
        match payload:
            case e.TurnStarted() | e.MessageUnqueued():
                return self.waiting.get(payload.message_id)
            case e.ContextConstructed():
                prompt = payload.parent_id
                return self.turn.get(_turn_of(prompt)) or self.waiting.get(prompt)
            case e.PartStarted() | e.PartAppended() | e.PartEnded() | e.ModelResponded() | e.ModelFailed():
                return self.turn.get(payload.message_id)
            case (
                e.CallStarted()
                | e.CallCompleted()
                | e.CallFailed()
                | e.ChangeStarted()
                | e.ChangeApplied()
                | e.ChangeRefused()
            ):
                return self.turn.get(payload.call_id)
            case e.ChangeObserved():
                return self.changes.get(payload.uri, {}).get(payload.call_id)
            case e.WorkContextUpdated():
                return self.turn.get(payload.by)
            case e.AskOpened():
                return self.turn.get(payload.ask.call_id or "")
            case e.AskReplied():
                return self.turn.get(payload.ask_id)
            case e.InterruptRequested() | e.TurnEnded():
                return self.turn.get(payload.turn_id)
            case (
                e.SessionCreated()
                | e.SessionUpdated()
                | e.SessionDeleted()
                | e.MessageReceived()
                | e.QueueHeld()
                | e.QueueReleased()
                | e.LogSalvaged()
                | e.UnknownPayload()
                | e.ErasedPayload()
            ):
                return None

    def _refuse(self, fact: e.ChangeRefused) -> None:
        calls = self.changes.get(fact.uri, {})
        calls.pop(fact.call_id, None)
        if not calls:
            self.changes.pop(fact.uri, None)


def _turn_of(prompt_id: str) -> str:
    return f"turn of {prompt_id}"
