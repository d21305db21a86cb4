"""Who runs: one run for a session. Every door goes through here."""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager, suppress

from deskmate_session.core.state import SessionState
from deskmate_session.errors import LogError
from deskmate_session.model import events as e
from deskmate_session.model.commands import Interrupted
from deskmate_session.model.ports import Ids
from deskmate_session.runtime import recovery
from deskmate_session.runtime.control import TurnControl
from deskmate_session.runtime.loop import Loop
from deskmate_session.runtime.sessions import Sessions
from deskmate_session.supervisor import Supervisor

CLEAN_UP = 3.0
"""Seconds that an interrupt waits for all clean-up; then it names what is left."""


class Coordinator:
    """Starts runs and stops them."""

    def __init__(self, sessions: Sessions, loop: Loop, supervisor: Supervisor, ids: Ids) -> None:
        self._sessions = sessions
        self._loop = loop
        self._supervisor = supervisor
        self._ids = ids
        self._runs: set[str] = set()
        self._controls: dict[str, TurnControl] = {}
        self._arriving: dict[str, int] = {}
        """Prompts on their way into the log, by session."""

    @contextmanager
    def arriving(self, session_id: str) -> Generator[None]:
        """Around the acceptance of a prompt."""
        self._arriving[session_id] = self._arriving.get(session_id, 0) + 1
        try:
            yield
        finally:
            self._arriving[session_id] -= 1
            if not self._arriving[session_id]:
                del self._arriving[session_id]

    def wake(self, state: SessionState) -> None:
        """See that waiting prompts run; joins a run that is going on."""
        session_id = state.info.id
        if session_id not in self._runs:
            self._runs.add(session_id)
            self._supervisor.spawn(self._run(state), name=f"run {session_id}")

    def running(self, session_id: str) -> bool:
        """A turn is going on."""
        return session_id in self._controls

    async def interrupt(self, session_id: str) -> Interrupted:
        """Stop the running turn; returns after all clean-up is finished and logged, at most 3 s."""
        # A prompt that was sent before this interrupt is meant by it, even if its turn has not begun.
        while session_id in self._arriving or (  # noqa: ASYNC110 - a commit, a millisecond or two
            session_id in self._runs and session_id not in self._controls
        ):
            await asyncio.sleep(0.001)
        control = self._controls.get(session_id)
        if control is None:
            return Interrupted(interrupted=False)
        if not control.interrupted:
            request = e.InterruptRequested(turn_id=control.turn_id)
            asked = self._sessions.append(session_id, request, durable=True)
            control.interrupt()
            try:
                await asked
            finally:
                control.recorded.set()
        left = await control.clean(CLEAN_UP)
        return Interrupted(interrupted=True, left=left or None)

    async def close(self) -> None:
        """Interrupt everything, so that each turn is settled in the log."""
        with suppress(LogError):
            await asyncio.gather(*(self.interrupt(session_id) for session_id in tuple(self._controls)))

    async def _settle(self, state: SessionState) -> None:
        if facts := recovery.turn_facts(state):
            await self._sessions.append(state.info.id, *facts, durable=True)

    async def _run(self, state: SessionState) -> None:
        session_id = state.info.id
        try:
            # A turn that the log could not end: it is settled before another one begins.
            await self._settle(state)
            while state.queue and not state.held and not state.deleted:
                control = self._controls[session_id] = TurnControl(self._ids.new("turn"))
                try:
                    await self._loop.turn(state, state.queue[0], control)
                finally:
                    del self._controls[session_id]
                    control.ended.set()
        except LogError as error:
            self._sessions.fail_waiters(session_id, error)
            with suppress(LogError):  # it may have been a passing fault; else the next prompt settles it
                await self._settle(state)
            raise
        finally:
            self._runs.discard(session_id)
