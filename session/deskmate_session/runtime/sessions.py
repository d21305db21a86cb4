"""Live sessions: each one's state in memory, kept by what the log commits, whichever process wrote it."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from deskmate_session.core import checkpoints
from deskmate_session.core.causes import Causes
from deskmate_session.core.state import SessionState
from deskmate_session.core.views.updates import text_delta, updates_for
from deskmate_session.errors import DeskmateError, Rejected
from deskmate_session.log.leases import Lease
from deskmate_session.log.store import EventLog
from deskmate_session.model import events as e
from deskmate_session.model.messages import FileDiff, TurnResult
from deskmate_session.runtime.bus import Bus, Item
from deskmate_session.supervisor import Supervisor

_logger = logging.getLogger(__name__)

MAX_IDLE = 32
"""Sessions without a turn that stay in memory."""
IDLE_FOR = 60.0
"""Seconds since a session was last asked for before it may leave memory: whoever asked is done with it."""
FOLDED_AT_ONCE = 200
"""Events of a long history that are folded before everyone else on the loop gets a turn."""

Diffs = Callable[[e.Event], Sequence[FileDiff]]
FoundDiffs = Callable[[str, str, e.ChangeApplied], Awaitable[Sequence[FileDiff]]]
Heard = Callable[[SessionState, e.Event, bool], None]
"""Told of each folded event, and whether this process wrote it."""


class _Loading:
    """A state on its way into memory, and what was committed meanwhile."""

    def __init__(self) -> None:
        self.state: asyncio.Future[SessionState] = asyncio.get_running_loop().create_future()
        self.meanwhile: list[tuple[e.Event, bool]] = []


@dataclass(slots=True)
class _Unshown:
    """What is shown of an event; None: it is still being found out, and all behind it waits."""

    seq: int
    items: list[Item] | None


class Sessions:
    """Folds committed events into live states and publishes what they show.

    A state begins at the newest checkpoint, so its conversation may be partial; `whole` completes it.
    """

    def __init__(self, log: EventLog, bus: Bus, supervisor: Supervisor) -> None:
        self._log = log
        self._bus = bus
        self._supervisor = supervisor
        self._told = log.delivered
        """`seq` up to which all live states are folded."""
        self._live: dict[str, SessionState] = {}
        self._asked: dict[str, float] = {}
        """When each live session was last asked for, in the loop's seconds."""
        self._loading: dict[str, _Loading] = {}
        self._waiters: dict[tuple[str, str], list[asyncio.Future[TurnResult]]] = {}
        self._heard: list[Heard] = []
        self.leases: dict[str, Lease] = {}
        """The lease under which this process runs a session; kept by the coordinator alone."""
        self.diffs_of: Diffs = lambda _event: ()
        """Gives the file diffs that belong to a `change.applied` of this process; set by whoever makes
        changes."""
        self.find_diffs: FoundDiffs = _no_diffs
        """Finds those of any process, by session id and folder path."""
        self._unshown: dict[str, deque[_Unshown]] = {}
        """By session, in order; only while a diff of another process's change is being found."""
        log.on_commit(self._committed)

    def on_event(self, heard: Heard) -> None:
        """Call `heard` after each event of a live session is folded and shown."""
        self._heard.append(heard)

    def live(self, session_id: str) -> SessionState | None:
        """The state, if it is in memory."""
        return self._live.get(session_id)

    def all_live(self) -> list[SessionState]:
        """Every state in memory."""
        return list(self._live.values())

    @property
    def told(self) -> int:
        """The `seq` up to which everything is folded and shown."""
        return min((unshown[0].seq - 1 for unshown in self._unshown.values()), default=self._told)

    async def get(self, session_id: str) -> SessionState:
        """The state, read from the log if need be. Raises `Rejected` (`sessionNotFound`)."""
        state = await self.known(session_id)
        if state.deleted or state.session is None:
            raise _not_found(session_id)
        return state

    async def known(self, session_id: str) -> SessionState:
        """The same, even of a deleted session: what ran there is still to be settled."""
        state = self._live.get(session_id) or await self._load(session_id)
        self._asked[session_id] = asyncio.get_running_loop().time()
        return state

    async def whole(self, session_id: str) -> SessionState:
        """The state with all of its conversation; that reads the history once."""
        state = await self.get(session_id)
        if state.whole:
            return state
        full = SessionState()
        # No await between the last look at `state.seq` and the adoption: nothing is folded twice or missed.
        while full.seq < state.seq:
            page = await self._log.read(
                session=session_id, after=full.seq, upto=state.seq, limit=FOLDED_AT_ONCE
            )
            for event in page:
                full.apply(event)
        state.adopt(full)
        return state

    def append(
        self, session_id: str, *facts: e.EventPayload, durable: bool = False, held: bool = False
    ) -> asyncio.Future[list[e.Event]]:
        """Append facts in one transaction, each with the event that led to it; see `EventLog.append`.

        Facts of a run are logged under the session's lease; without one they are refused (`LeaseLost`).
        `held`: requests too, since a run settles its own even in a deleted session.
        """
        drafts = self.drafts(session_id, facts)
        if not held and all(isinstance(fact, e.REQUESTS) for fact in facts):
            return self._log.append(session_id, drafts, durable=durable)
        return self._log.append(session_id, drafts, durable=durable, lease=self.leases.get(session_id))

    def drafts(self, session_id: str, facts: Sequence[e.EventPayload]) -> list[e.Draft]:
        """The facts with their causes."""
        state = self._live.get(session_id)
        causes = Causes() if state is None else state.causes
        return [e.Draft(fact, causes.of(fact)) for fact in facts]

    def result(self, session_id: str, message_id: str) -> asyncio.Future[TurnResult]:
        """How the turn of a prompt will end."""
        future: asyncio.Future[TurnResult] = asyncio.get_running_loop().create_future()
        self._waiters.setdefault((session_id, message_id), []).append(future)
        return future

    def forget(self, session_id: str, message_id: str, result: asyncio.Future[TurnResult]) -> None:
        """Nobody waits for this result any more."""
        waiting = self._waiters.get((session_id, message_id), [])
        if result in waiting:
            waiting.remove(result)
        if not waiting:
            self._waiters.pop((session_id, message_id), None)
        result.cancel()

    async def result_of_old(self, session_id: str, message_id: str) -> asyncio.Future[TurnResult]:
        """The same for a prompt that was received before: done at once if its turn has ended."""
        future = self.result(session_id, message_id)
        event = await self._log.turn_end(session_id, message_id)
        if event is not None and event.seq <= self._told and isinstance(event.payload, e.TurnEnded):
            self._ended(session_id, event.payload, event.seq)
        return future

    def fail_waiters(self, session_id: str, error: Exception) -> None:
        """Tell everyone who waits for a turn of the session that it can't be recorded any more."""
        for key in [key for key in self._waiters if key[0] == session_id]:
            for future in self._waiters.pop(key):
                if not future.done():
                    future.set_exception(error)
                    future.exception()  # nobody may be waiting

    async def _load(self, session_id: str) -> SessionState:
        loading = self._loading.get(session_id)
        if loading is not None:
            return await asyncio.shield(loading.state)
        loading = self._loading[session_id] = _Loading()
        return await self._fill(session_id, loading)

    async def _fill(self, session_id: str, loading: _Loading) -> SessionState:
        try:
            state = await self.at(session_id, self._told)
            if state.session is None and not loading.meanwhile and self._log.read_only is None:
                await self._log.catch_up()  # another process may have created it this moment
            if state.session is None and not loading.meanwhile:
                raise _not_found(session_id)
        except BaseException as error:
            del self._loading[session_id]
            loading.state.set_exception(error if isinstance(error, Exception) else asyncio.CancelledError())
            loading.state.exception()  # whoever waits gets it; nobody may be waiting
            raise
        del self._loading[session_id]
        self._evict()
        self._live[session_id] = state
        for event, ours in loading.meanwhile:
            self._fold(state, event, ours)
        loading.state.set_result(state)
        return state

    async def at(self, session_id: str, upto: int) -> SessionState:
        """The state after `upto`, from the log alone: newest good checkpoint, what its open turn and
        queue say, and the tail."""
        bound = upto
        while True:
            found = await self._log.newest_checkpoint(session_id, upto=bound)
            try:
                body = None if found is None else found.body
                needed = () if body is None else checkpoints.messages_needed(checkpoints.load(body))
            except (ValueError, RecursionError):  # checksummed, and still none of ours: an older one may do
                bound = found.seq - 1 if found is not None else 0
                continue
            since = 0 if found is None else found.seq
            earlier = (
                await self._log.message_events(session_id, needed, upto=since) if needed else list[e.Event]()
            )
            tail = await self._log.read(session=session_id, after=since, upto=upto)
            return checkpoints.open_partial(body, earlier, tail)

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

    def _committed(self, events: Sequence[e.Event], ours: bool) -> None:
        for event in events:
            self._take(event, ours)
            self._told = event.seq

    def _take(self, event: e.Event, ours: bool) -> None:
        session_id = event.session
        if session_id is None:
            return
        if session_id in self._loading:
            self._loading[session_id].meanwhile.append((event, ours))
            return
        state = self._live.get(session_id)
        if state is None and event.index == 0:
            state = self._live[session_id] = SessionState()
        if state is not None:
            self._fold(state, event, ours)
        elif self._bus.watched(session_id):
            # Somebody looks at a session that another process drives and that is not in memory here.
            loading = self._loading[session_id] = _Loading()
            loading.meanwhile.append((event, ours))
            self._supervisor.spawn(self._fill(session_id, loading), name=f"load {session_id}")

    def _fold(self, state: SessionState, event: e.Event, ours: bool) -> None:
        if event.seq <= state.seq:
            return
        state.apply(event)
        session_id = state.info.id
        self._show(state, event, ours)
        match event.payload:
            case e.TurnEnded() as fact:
                self._ended(session_id, fact, event.seq)
            case e.MessageUnqueued() as fact:
                for future in self._waiters.pop((session_id, fact.message_id), ()):
                    future.cancel()  # nobody gets a result for a prompt that was taken back
            case e.SessionDeleted():
                self.fail_waiters(session_id, _not_found(session_id))
            case _:
                pass
        for heard in self._heard:
            heard(state, event, ours)

    def _show(self, state: SessionState, event: e.Event, ours: bool) -> None:
        session_id, fact = state.info.id, event.payload
        if not ours and isinstance(fact, e.ChangeApplied) and self._bus.watched(session_id):
            unshown = _Unshown(event.seq, None)
            self._unshown.setdefault(session_id, deque()).append(unshown)
            self._supervisor.spawn(self._find(state, event, fact, unshown), name=f"diff {fact.uri}")
            return
        items: list[Item] = [*updates_for(state, event, self.diffs_of(event))]
        if not ours and (delta := text_delta(state, event)) is not None:
            items.append(delta)  # ours was shown as it streamed
        if session_id in self._unshown:
            self._unshown[session_id].append(_Unshown(event.seq, items))
        else:
            self._bus.publish(session_id, items)

    async def _find(
        self, state: SessionState, event: e.Event, fact: e.ChangeApplied, unshown: _Unshown
    ) -> None:
        """Show another process's change as that process shows it; the state is ahead meanwhile."""
        session_id = state.info.id
        diffs: Sequence[FileDiff] = ()
        try:
            diffs = await self.find_diffs(session_id, state.info.folder, fact)
        except (DeskmateError, KeyError, OSError, ValueError):
            _logger.exception("the diff of event %d can't be shown", event.seq)
        finally:
            unshown.items = [*updates_for(state, event, diffs)]
            waiting = self._unshown[session_id]
            while waiting and (items := waiting[0].items) is not None:
                self._bus.publish(session_id, items)
                waiting.popleft()
            if not waiting:
                del self._unshown[session_id]

    def _ended(self, session_id: str, fact: e.TurnEnded, seq: int) -> None:
        for future in self._waiters.pop((session_id, fact.message_id), ()):
            if not future.done():
                future.set_result(_turn_result(session_id, fact, seq))


async def _no_diffs(_session_id: str, _folder: str, _fact: e.ChangeApplied) -> Sequence[FileDiff]:
    return ()


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
