"""Writes checkpoints: states to open a session from, so that opening costs no history."""

from dataclasses import dataclass

from deskmate_session.core import checkpoints
from deskmate_session.core.state import SessionState
from deskmate_session.errors import LogError
from deskmate_session.log.store import EventLog
from deskmate_session.model import events as e
from deskmate_session.runtime.sessions import Sessions
from deskmate_session.supervisor import Supervisor

LOOK_EVERY = 25
"""Events between two looks at whether one is due, once the interval is over."""


@dataclass(slots=True)
class _Since:
    """What a session's newest checkpoint leaves to be read again."""

    events: int = 0
    look_at: int = 0
    """Events at which to look again."""
    busy: bool = False


class Checkpointing:
    """Follows the sessions that run here and checkpoints them when enough has been logged."""

    def __init__(self, log: EventLog, sessions: Sessions, supervisor: Supervisor, interval: int) -> None:
        self._log = log
        self._sessions = sessions
        self._supervisor = supervisor
        self._interval = interval
        self._since: dict[str, _Since] = {}
        sessions.on_event(self._heard)

    def _heard(self, state: SessionState, _event: e.Event, _ours: bool) -> None:
        session_id = state.info.id
        if session_id not in self._sessions.leases:
            return  # whoever runs it does this
        since = self._since.setdefault(session_id, _Since(look_at=0))
        since.events += 1
        if since.busy or since.events < since.look_at:
            return
        since.busy = True
        self._supervisor.spawn(self._write(state, since), name=f"checkpoint {session_id}")

    async def _write(self, state: SessionState, since: _Since) -> None:
        session_id = state.info.id
        try:
            size = await self._log.since_checkpoint(session_id)
            if not checkpoints.due(size.events, size.bytes, size.last, self._interval):
                since.events = 0
                since.look_at = max(LOOK_EVERY, self._interval - size.events)
                return
            seq, body = state.seq, checkpoints.dump(state)
            await self._log.checkpoint(session_id, seq, body)
            since.events, since.look_at = 0, self._interval
        except LogError:
            since.events, since.look_at = 0, self._interval  # a state to open from is no loss
        finally:
            since.busy = False
