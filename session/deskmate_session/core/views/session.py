"""A session's own views: status, queue, work context."""

from deskmate_session.core.conversation import MessageState, TextState
from deskmate_session.core.state import SessionState
from deskmate_session.model.messages import Queue, QueuedPrompt, SessionStatus

MAX_QUEUED_TEXT = 200


def status_view(state: SessionState) -> SessionStatus:
    """What the session is doing, as far as the log tells."""
    if state.turn is None:
        return SessionStatus(status="idle")
    if state.turn.interrupted:
        return SessionStatus(status="stopping")
    return SessionStatus(status="waiting" if state.asks else "busy")


def queue_view(state: SessionState) -> Queue:
    """The prompts that wait, in order."""
    messages = state.conversation.messages
    prompts = tuple(
        QueuedPrompt(message_id=message_id, text=_first_text(messages.get(message_id)))
        for message_id in state.queue
    )
    return Queue(held=state.held, prompts=prompts)


def _first_text(message: MessageState | None) -> str:
    if message is None:
        return ""
    texts = (part.text for part in message.parts if isinstance(part, TextState))
    text = " ".join(next(texts, "").split())
    return text if len(text) <= MAX_QUEUED_TEXT else text[: MAX_QUEUED_TEXT - 1] + "…"
