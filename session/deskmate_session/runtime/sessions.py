"""Live sessions: each one's state in memory, kept by what the log commits."""

import asyncio
from collections.abc import Callable, Sequence

from deskmate_session.core.causes import Causes
from deskmate_session.core.state import SessionState
from deskmate_session.core.views.updates import updates_for
from deskmate_session.errors import Rejected
from deskmate_session.log.store import EventLog
from deskmate_session.model import events as e
from deskmate_session.model.messages import FileDiff, TurnResult
from deskmate_session.runtime.bus import Bus

MAX_IDLE = 32
"""Sessions without a turn that stay in memory."""
IDLE_FOR = 60.0
"""Seconds since a session was last asked for before it may leave memory: whoever asked is done with it."""

Diffs = Callable[[e.Event], Sequence[FileDiff]]


class Sessions:
    """Folds committed events into live states and publishes what they show."""

    def __init__(self, log: EventLog, bus: Bus) -> None:
        self._log = log
        self._bus = bus
        self._live: dict[str, SessionState] = {}
        self._asked: dict[str, float] = {}
        """When each live session was last asked for, in the loop's seconds."""
        self._loading: dict[str, tuple[asyncio.Future[SessionState], list[e.Event]]] = {}
        self._waiters: dict[tuple[str, str], list[asyncio.Future[TurnResult]]] = {}
        self.diffs_of: Diffs = lambda _event: ()
        """Gives the file diffs that belong to a `change.applied`; set by whoever makes changes."""
        log.on_commit(self._committed)

    def live(self, session_id: str) -> SessionState | None:
        """The state, if it is in memory."""
        return self._live.get(session_id)

    def all_live(self) -> list[SessionState]:
        """Every state in memory."""
        return list(self._live.values())

    async def get(self, session_id: str) -> SessionState:
        """The state, read from the log if need be. Raises `Rejected` (`sessionNotFound`)."""
        state = self._live.get(session_id) or await self._load(session_id)
        self._asked[session_id] = asyncio.get_running_loop().time()
        if state.deleted or state.session is None:
            raise _not_found(session_id)
        return state

    def append(
        self, session_id: str, *facts: e.EventPayload, durable: bool = False
    ) -> asyncio.Future[list[e.Event]]:
        """Append facts in one transaction, each with the event that led to it; see `EventLog.append`."""
        state = self._live.get(session_id)
        causes = Causes() if state is None else state.causes
        return self._log.append(
            session_id, [e.Draft(fact, causes.of(fact)) for fact in facts], durable=durable
        )

    def result(self, session_id: str, message_id: str) -> asyncio.Future[TurnResult]:
        """How the turn of a prompt ends; a future, done at once if it has ended."""
        future: asyncio.Future[TurnResult] = asyncio.get_running_loop().create_future()
        state = self._live.get(session_id)
        if state is not None and message_id in state.results:
            ended, seq = state.results[message_id]
            future.set_result(_turn_result(session_id, ended, seq))
        else:
            self._waiters.setdefault((session_id, message_id), []).append(future)
        return future

    def fail_waiters(self, session_id: str, error: Exception) -> None:
        """Tell everyone who waits for a turn of the session that it can't be recorded any more."""
        for key in [key for key in self._waiters if key[0] == session_id]:
            for future in self._waiters.pop(key):
                if not future.done():
                    future.set_exception(error)
                    future.exception()  # nobody may be waiting

    def drop_waiters(self, session_id: str, message_id: str) -> None:
        """A prompt was taken back: nobody gets a result for it."""
        for future in self._waiters.pop((session_id, message_id), ()):
            future.cancel()

    async def _load(self, session_id: str) -> SessionState:
        if session_id in self._loading:
            return await asyncio.shield(self._loading[session_id][0])
        future: asyncio.Future[SessionState] = asyncio.get_running_loop().create_future()
        meanwhile: list[e.Event] = []
        self._loading[session_id] = (future, meanwhile)
        try:
            state = SessionState()
            for event in await self._log.read(session=session_id):
                state.apply(event)
            for event in meanwhile:
                if event.seq > state.seq:
                    state.apply(event)
            if state.session is None:
                raise _not_found(session_id)
        except BaseException as error:
            del self._loading[session_id]
            future.set_exception(error if isinstance(error, Exception) else asyncio.CancelledError())
            future.exception()  # whoever waits gets it; nobody may be waiting
            raise
        del self._loading[session_id]
        self._evict()
        self._live[session_id] = state
        future.set_result(state)
        return state

    def _evict(self) -> None:
        now = asyncio.get_running_loop().time()
        idle = [
            session_id
            for session_id, state in self._live.items()
            if state.turn is None and not state.queue and now - self._asked.get(session_id, 0.0) > IDLE_FOR
        ]
        for session_id in idle[: max(0, len(self._live) - MAX_IDLE)]:
            del self._live[session_id]
            self._asked.pop(session_id, None)

    def _committed(self, events: Sequence[e.Event]) -> None:
        for event in events:
            if event.session is None:
                continue
            if event.session in self._loading:
                self._loading[event.session][1].append(event)
                continue
            state = self._live.get(event.session)
            if state is None and event.index == 0:
                state = self._live[event.session] = SessionState()
            if state is None:
                continue
            state.apply(event)
            self._bus.publish(event.session, updates_for(state, event, self.diffs_of(event)))
            if isinstance(event.payload, e.TurnEnded):
                self._ended(event.session, event.payload, event.seq)
            elif isinstance(event.payload, e.SessionDeleted):
                self.fail_waiters(event.session, _not_found(event.session))

    def _ended(self, session_id: str, fact: e.TurnEnded, seq: int) -> None:
        for future in self._waiters.pop((session_id, fact.message_id), ()):
            if not future.done():
                future.set_result(_turn_result(session_id, fact, seq))


def _turn_result(session_id: str, fact: e.TurnEnded, seq: int) -> TurnResult:
    return TurnResult(
        session_id=session_id,
        message_id=fact.message_id,
        seq=seq,
        finish=fact.finish,
        error=fact.error,
        usage=fact.usage,
        cost=fact.cost,
        steps=fact.steps,
    )


def _not_found(session_id: str) -> Rejected:
    return Rejected(
        "sessionNotFound", f"there is no session {session_id!r}", "list sessions, or create a new one"
    )
