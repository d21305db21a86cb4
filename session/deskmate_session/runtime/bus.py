"""Updates and deltas, from the one that makes them to everyone who looks."""

from collections.abc import Callable, Iterable
from typing import Protocol

from deskmate_session.model.updates import Delta, Updated

Item = Updated | Delta


class Sink(Protocol):
    """Takes items in order; must not block and must not raise."""

    def push(self, item: Item) -> None:
        """Take one item."""
        ...


class Bus:
    """Fans items out to the sinks of a session, and to those that look at all of the folder."""

    def __init__(self) -> None:
        self._sinks: dict[str | None, list[Sink]] = {}

    def attach(self, session_id: str | None, sink: Sink) -> Callable[[], None]:
        """Add a sink, of all sessions without `session_id`; the returned function takes it away."""
        sinks = self._sinks.setdefault(session_id, [])
        sinks.append(sink)

        def detach() -> None:
            if sink in sinks:
                sinks.remove(sink)

        return detach

    def watched(self, session_id: str) -> bool:
        """Somebody looks at the session, or at all of the folder."""
        return bool(self._sinks.get(session_id) or self._sinks.get(None))

    def publish(self, session_id: str, items: Iterable[Item]) -> None:
        """Hand items to everyone who looks at the session."""
        sinks = [*self._sinks.get(session_id, ()), *self._sinks.get(None, ())]
        if not sinks:
            return
        for item in items:
            for sink in sinks:
                sink.push(item)
