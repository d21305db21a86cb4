"""Who runs: one run for a session, in one process. Every door goes through here.

What a run does when it is woken, interrupted or ended stands in the table `core.lifecycle.RUN`. Between
processes a lease decides: it comes with the fact that asks for work, and goes when nothing waits any more.
"""

import asyncio
import logging
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from deskmate_session.core import lifecycle
from deskmate_session.core.state import SessionState
from deskmate_session.errors import Conflict, LeaseLost, LogError, Rejected
from deskmate_session.log.leases import Lease
from deskmate_session.log.store import EventLog
from deskmate_session.model import events as e
from deskmate_session.model.commands import Interrupted
from deskmate_session.model.ports import Ids
from deskmate_session.runtime.control import TurnControl
from deskmate_session.runtime.loop import Loop
from deskmate_session.runtime.recovery import Recovery
from deskmate_session.runtime.sessions import Sessions
from deskmate_session.supervisor import Supervisor

CLEAN_UP = 3.0
"""Seconds that an interrupt waits for all clean-up; then it names what is left."""
MEND_AFTER = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Seconds until a turn that the log could not end is tried again; the last one repeats."""

_logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Run:
    """A session's run in this process."""

    state: lifecycle.RunState = "idle"
    control: TurnControl | None = None
    """The turn that is going on."""
    crashed: bool = False
    """The lease was a dead process's, and nobody here asked for anything: what waits is held."""
    failed: int = 0
    """Passes in a row that the log cut off."""
    over: asyncio.Task[None] | None = None


class Coordinator:
    """Starts runs and stops them; takes leases and gives them back."""

    def __init__(
        self,
        log: EventLog,
        sessions: Sessions,
        loop: Loop,
        recovery: Recovery,
        supervisor: Supervisor,
        ids: Ids,
    ) -> None:
        self._log = log
        self._sessions = sessions
        self._loop = loop
        self._recovery = recovery
        self._supervisor = supervisor
        self._ids = ids
        self._runs: dict[str, _Run] = {}
        self._arriving: dict[str, int] = {}
        """Prompts on their way into the log, by session."""
        self._asked: set[tuple[str, str]] = set()
        """Prompts that came to this process and wait, by session and message."""
        self._recovering = asyncio.Lock()
        self._closing = False
        sessions.on_event(self._heard)
        log.on_owners_gone(self._owners_gone)

    # ── Doors ────────────────────────────────────────────────────────────────────────────────

    async def request(self, session_id: str, facts: Sequence[e.EventPayload]) -> list[e.Event]:
        """Log what the person asks for, durably, and see that it is done: here, or where the session runs.

        Raises `Conflict` for what contradicts the log, such as a prompt that is there already.
        """
        with self._arrival(session_id):
            await self.settle_dead(session_id)
            drafts = self._sessions.drafts(session_id, facts)
            prompts = {(session_id, fact.message_id) for fact in facts if isinstance(fact, e.MessageReceived)}
            self._asked |= prompts
            try:
                requested = await self._log.request(session_id, drafts)
            except BaseException:
                self._asked -= prompts
                raise
            if requested.lease is not None:
                self._hold(session_id, requested.lease)
                self._wake(session_id)
        return requested.events

    async def tell(self, session_id: str, *facts: e.EventPayload) -> list[e.Event]:
        """Log what the person says about a session; it starts nothing."""
        return await self._sessions.append(session_id, *facts, durable=True)

    async def begin(self, session_id: str, drafts: Sequence[e.Draft]) -> list[e.Event]:
        """Log a whole session that comes from elsewhere; it waits for its first prompt here."""
        return await self._log.begin(session_id, drafts)

    async def interrupt(self, session_id: str) -> Interrupted:
        """Stop the running turn, wherever it runs; returns after all clean-up is finished and logged, at
        most 3 s."""
        loop = asyncio.get_running_loop()
        until = loop.time() + CLEAN_UP
        state = await self._sessions.get(session_id)
        await self.settle_dead(session_id)
        # A prompt that was sent before this interrupt is meant by it, even if its turn has not begun.
        while self._about_to_run(state) and loop.time() < until:  # noqa: ASYNC110 - a commit or two
            await asyncio.sleep(0.001)
        turn = state.turn
        if turn is None:
            return Interrupted(interrupted=False)
        run = self._runs.get(session_id)
        control = run.control if run is not None else None
        ended = self._sessions.result(session_id, turn.message_id)
        if not turn.interrupted and not (control is not None and control.interrupted):
            request = e.InterruptRequested(turn_id=turn.turn_id)
            asked = self._sessions.append(session_id, request, durable=True)
            if run is not None and control is not None:
                self._stop(run)
            try:
                await asked
            except Conflict:
                return Interrupted(interrupted=False)  # it ended by itself meanwhile
            finally:
                if control is not None:
                    control.recorded.set()
        if control is not None:
            left = await control.clean(max(0.0, until - loop.time()))
            return Interrupted(interrupted=True, left=left or None)
        await asyncio.wait({ended}, timeout=max(0.0, until - loop.time()))
        return Interrupted(interrupted=True, left=None if ended.done() else (turn.turn_id,))

    def join(self, session_id: str) -> None:
        """See that what waits runs; joins a run that goes on, here or elsewhere."""
        self._wake(session_id)

    async def settle_dead(self, session_id: str) -> None:
        """A turn whose process is dead is settled before anything new is logged."""
        state = await self._sessions.get(session_id)
        if state.turn is not None and session_id not in self._sessions.leases:
            await self._recover(session_id, hold=False)

    async def recover(self, failed: int = 0) -> None:
        """Settle what dead processes left: their children ended, their turns settled, their queues held.

        What the log does not take is tried again, as `failed` goes up.
        """
        left = False
        async with self._recovering:
            try:
                for session_id in await self._left_by_dead():
                    try:
                        await self._recover(session_id, hold=not self._waits_for_us(session_id))
                    except LogError:
                        left = True
                        _logger.exception("session %s could not be recovered", session_id)
            except LogError:
                left = True
                _logger.exception("what dead processes left could not be found")
        if left and not self._closing:
            self._supervisor.spawn(self._recover_later(failed + 1), name="recover")

    def _waits_for_us(self, session_id: str) -> bool:
        """Nothing was cut off, and a prompt that came to this process waits: its process went in order."""
        state = self._sessions.live(session_id)
        return (
            state is not None
            and state.turn is None
            and any((session_id, message_id) in self._asked for message_id in state.queue)
        )

    async def _recover_later(self, failed: int) -> None:
        await asyncio.sleep(MEND_AFTER[min(failed, len(MEND_AFTER)) - 1])
        await self.recover(failed)

    async def close(self) -> None:
        """Interrupt everything, so that each turn is settled in the log, and give the leases back."""
        self._closing = True
        running = [session_id for session_id, run in self._runs.items() if run.control is not None]
        await asyncio.gather(*(self._interrupted(session_id) for session_id in running))
        over = [run.over for run in self._runs.values() if run.over is not None]
        if over:
            await asyncio.wait(over, timeout=CLEAN_UP)
        for lease in set(self._sessions.leases.values()):
            with suppress(LogError):
                await self._log.release(lease, anyway=True)  # what waits is seen to by who asked for it
        self._sessions.leases.clear()

    async def _interrupted(self, session_id: str) -> None:
        with suppress(LogError, Rejected):  # the next process settles it; deleted: it is stopped already
            await self.interrupt(session_id)

    async def drained(self, session_id: str) -> None:
        """Wait until nothing of a session runs in this process."""
        run = self._runs.get(session_id)
        while run is not None and run.over is not None and not run.over.done():
            await asyncio.wait({run.over})

    def runs(self, session_id: str) -> bool:
        """A run of the session goes on in this process."""
        run = self._runs.get(session_id)
        return run is not None and run.state != "idle"

    # ── Runs ─────────────────────────────────────────────────────────────────────────────────

    @contextmanager
    def _arrival(self, session_id: str) -> Generator[None]:
        self._arriving[session_id] = self._arriving.get(session_id, 0) + 1
        try:
            yield
        finally:
            self._arriving[session_id] -= 1
            if not self._arriving[session_id]:
                del self._arriving[session_id]

    def _about_to_run(self, state: SessionState) -> bool:
        session_id = state.info.id
        if session_id in self._arriving:
            return True
        if state.turn is not None or state.deleted:
            return False
        return bool(state.queue) and not state.held

    def _wake(self, session_id: str) -> None:
        run = self._runs.setdefault(session_id, _Run())
        if self._move(run, "wake") == "start":
            run.over = self._supervisor.spawn(self._run(session_id, run), name=f"run {session_id}")

    def _stop(self, run: _Run) -> None:
        if self._move(run, "interrupt") == "stop" and run.control is not None:
            run.control.interrupt()

    def _move(self, run: _Run, move: lifecycle.RunMove) -> lifecycle.RunEffect:
        run.state, effect = lifecycle.run_move(run.state, move)
        return effect

    async def _run(self, session_id: str, run: _Run) -> None:
        try:
            while True:
                try:
                    await self._pass(session_id, run)
                    lease = self._sessions.leases.get(session_id)
                    if lease is not None and not await self._release(session_id, lease):
                        self._move(run, "wake")  # something was asked for in the moment of giving back
                except LeaseLost as error:
                    # A wake that came meanwhile still counts: its request may have taken a new lease.
                    _logger.warning("session %s: %s", session_id, error)
                    self._sessions.leases.pop(session_id, None)
                if self._move(run, "ended") != "start" or self._closing:
                    break
        except LogError as error:
            run.failed += 1
            self._sessions.fail_waiters(session_id, error)
            self._supervisor.spawn(self._mend(session_id, run.failed), name=f"mend {session_id}")
            raise
        except Exception as error:
            self._sessions.fail_waiters(session_id, error)  # a fault of ours: nobody waits for it in vain
            raise
        finally:
            run.state, run.control = "idle", None

    async def _pass(self, session_id: str, run: _Run) -> None:
        """Settle what is left of a dead turn, then run what waits, one turn after the other."""
        if session_id not in self._sessions.leases:
            lease = await self._log.take(session_id)
            if lease is None:
                return  # it runs elsewhere, and what waits is seen there
            self._hold(session_id, lease)
        state = await self._sessions.known(session_id)
        if state.turn is not None or (run.crashed and state.queue and not state.held):
            await self._recovery.settle(state, crashed=run.crashed)
        run.crashed = False
        # A stopped pass ends with its turn: what was asked for after the interrupt is the successor's, which
        # can be interrupted anew.
        while run.state not in ("stopping", "succeeding") and self._next(state):
            await self._turn(session_id, run)
        run.failed = 0
        if self._closing and state.queue and not state.held and not state.deleted:
            await self._sessions.append(session_id, e.QueueHeld(reason="interrupted"))

    def _next(self, state: SessionState) -> str | None:
        """The prompt whose turn begins now."""
        if state.held or state.deleted or self._closing or not state.queue:
            return None
        return state.queue[0]

    async def _turn(self, session_id: str, run: _Run) -> None:
        state = await self._sessions.whole(session_id)
        if (message_id := self._next(state)) is None:
            return
        control = run.control = TurnControl(self._ids.new("turn"))
        try:
            await self._loop.turn(state, message_id, control)
        except Conflict:
            # Another process took the prompt back, or deleted the session, before the turn was logged.
            if state.turn is not None or self._next(state) == message_id:
                raise
        finally:
            run.control = None
            control.ended.set()

    async def _mend(self, session_id: str, failed: int) -> None:
        """A run that the log cut off is tried again: it ends its turn, and goes on with what waits."""
        await asyncio.sleep(MEND_AFTER[min(failed, len(MEND_AFTER)) - 1])
        if not self._closing:
            self._wake(session_id)

    # ── Leases ───────────────────────────────────────────────────────────────────────────────

    def _hold(self, session_id: str, lease: Lease) -> None:
        self._sessions.leases[session_id] = lease

    async def _release(self, session_id: str, lease: Lease) -> bool:
        """Give the lease back, unless something waits. It stays while another session runs under it."""
        if any(
            other != session_id and self._sessions.leases[other] == lease for other in self._sessions.leases
        ):
            del self._sessions.leases[session_id]
            return True
        released = await self._log.release(lease, anyway=self._closing)
        # A request that came after may have taken it anew, under a later epoch.
        if released and self._sessions.leases.get(session_id) == lease:
            del self._sessions.leases[session_id]
        return released

    async def _left_by_dead(self) -> list[str]:
        return [
            session_id
            for root in await self._log.dead_leases()
            for session_id in await self._log.unsettled(root)
        ]

    async def _recover(self, session_id: str, *, hold: bool) -> None:
        """Settle a session, if no live process runs it. `hold`: what waits was left by a dead one."""
        lease = await self._log.take(session_id)
        if lease is None:
            return
        self._hold(session_id, lease)
        if self.runs(session_id):
            self._wake(session_id)  # it may have given the lease back meanwhile: it looks, and gives it back
            return
        run = self._runs.setdefault(session_id, _Run())
        # A turn that ended meanwhile was no dead process's, and what waits is about to run.
        state = self._sessions.live(session_id)
        run.crashed = hold or (state is not None and state.turn is not None)
        self._wake(session_id)
        if run.over is not None:
            await asyncio.shield(run.over)

    def _owners_gone(self) -> None:
        if not self._closing:
            self._supervisor.spawn(self.recover(), name="recover")

    # ── What the log tells ───────────────────────────────────────────────────────────────────

    def _heard(self, state: SessionState, event: e.Event, ours: bool) -> None:
        """React to requests, whichever process logged them."""
        session_id = state.info.id
        run = self._runs.get(session_id)
        match event.payload:
            case e.InterruptRequested(turn_id=turn_id):
                if run is not None and run.control is not None and run.control.turn_id == turn_id:
                    run.control.recorded.set()
                    self._stop(run)
            case e.MessageReceived() | e.QueueReleased():
                # It stands under a lease of ours, or may under that of its root; a run that finds none does
                # nothing.
                leases = self._sessions.leases
                if not ours and (session_id in leases or (leases and state.info.parent_id is not None)):
                    self._wake(session_id)
            case e.TurnStarted(message_id=message_id) | e.MessageUnqueued(message_id=message_id):
                self._asked.discard((session_id, message_id))
            case e.SessionDeleted():
                self._asked = {
                    (session, message) for session, message in self._asked if session != session_id
                }
                if run is not None and run.control is not None:
                    self._stop(run)
                    run.control.recorded.set()  # the loop logs the interrupt
            case _:
                pass
