"""The coordinator against its table: whatever is asked for in whatever order, one session runs one turn at a
time, and each prompt is answered once, held, or taken back.

Everything is real but the model, which the machine plays by hand. After each rule the machine waits until
nothing moves any more: then either a request is being answered, or nothing runs.
"""

import asyncio
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from deskmate_session.core import lifecycle
from deskmate_session.core.decide import RESUME
from deskmate_session.errors import Rejected
from deskmate_session.model import commands as c, events as e, queries as q
from deskmate_session.runtime.options import Turn
from tests.runtime.support import by_hand, coordinator, create, send, until

_T = TypeVar("_T")
RESUMED = "resumed:"
"""Begins the machine's name of a prompt that `resume` made."""


class Runs(RuleBasedStateMachine):
    """One session of one kernel. `run` is what the table says of it; `waiting` and `held` its queue."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self._runner = asyncio.Runner()
        self._opening = by_hand(Path(self._folder.name))
        self.opened, self.hand = self._do(self._opening.__aenter__())
        self._watch_moves()
        self._sessions = 0
        self._new_session()

    def teardown(self) -> None:
        self._do(self._ends())
        self._runner.close()
        self._folder.cleanup()

    def _do(self, work: Coroutine[Any, Any, _T]) -> _T:
        return self._runner.run(work)

    def _new_session(self) -> None:
        self._sessions += 1
        self.session = self._do(create(self.opened, f"ses_{self._sessions:04}"))
        self.run: lifecycle.RunState = "idle"
        self.running: str | None = None
        self.waiting: list[str] = []
        self.held = False
        self.finish: str | None = None
        self.turns: dict[str, Turn] = {}
        self.answers: dict[str, str] = {}
        """How each turn ended, by prompt."""
        self.taken_back: set[str] = set()
        self._words = 0

    def _watch_moves(self) -> None:
        """Every move that a run makes is the table's."""
        mine = coordinator(self.opened)
        real = mine._move

        def move(run: Any, by: lifecycle.RunMove) -> lifecycle.RunEffect:
            before = run.state
            effect = real(run, by)
            assert (run.state, effect) == lifecycle.RUN_MOVES[before, by]
            return effect

        mine._move = move  # type: ignore[method-assign]

    # ── The model ────────────────────────────────────────────────────────────────────────────

    def _move(self, by: lifecycle.RunMove) -> None:
        self.run, _ = lifecycle.run_move(self.run, by)

    def _accept(self, words: str) -> None:
        self.waiting.insert(0 if self.held else len(self.waiting), words)
        self.held = False
        self._move("wake")

    def _stop(self) -> None:
        self._move("interrupt")
        self.held = bool(self.waiting)

    def _end(self, finish: str) -> None:
        """The running turn ends; the next begins, in the same pass or in a further one."""
        assert self.running is not None
        self.answers[self.running] = self.finish = finish
        self.running = None
        if self.waiting and finish == "error":
            self.held = True
        self._go_on()

    def _go_on(self) -> None:
        while self.run != "idle":
            stopped = self.run in ("stopping", "succeeding")
            if not stopped and self.waiting and not self.held:
                self.running = self.waiting.pop(0)
                return
            if self.waiting and not self.held:
                self._move("wake")  # the lease is not given back
            self._move("ended")

    def _begin(self) -> None:
        if self.running is None:
            self._go_on()

    # ── Rules ────────────────────────────────────────────────────────────────────────────────

    @rule(count=st.integers(1, 3))
    def prompt(self, count: int) -> None:
        """Prompts that come at once: one wakes, the others coalesce."""
        words = [self._new_words() for _ in range(count)]
        sent = self._do(self._all(*(send(self.opened, self.session, each) for each in words)))
        for each, turn in zip(words, sent, strict=True):
            self.turns[each] = turn
            self._accept(each)
        self._begin()
        self._settle()

    @precondition(lambda self: self.turns)
    @rule(data=st.data())
    def prompt_again(self, data: st.DataObject) -> None:
        """A prompt that came before joins its turn, and lets a queue that holds it go on."""
        theirs = [
            words for words in self.turns if words not in self.taken_back and not words.startswith(RESUMED)
        ]
        if not theirs:
            return
        words = data.draw(st.sampled_from(theirs))
        message_id = self.turns[words].accepted.message_id
        again = self._do(send(self.opened, self.session, words, message_id=message_id))
        assert again.repeated
        if words in self.waiting and self.held:
            self.held = False
        self._move("wake")
        self._begin()
        self._settle()

    @rule()
    def join(self) -> None:
        """A wake for nothing new gives one further pass."""
        self._do(self._wake())
        self._move("wake")
        self._begin()
        self._settle()

    @rule(times=st.integers(1, 3))
    def interrupt(self, times: int) -> None:
        """It returns after clean-up: the turn's end is logged, and nothing is asked any more."""
        ran = self.running is not None
        stopped = self._do(self._interrupts(times))
        assert stopped == [c.Interrupted(interrupted=ran)] * times
        if ran:
            self._stop()
            self._end("interrupted")
        self._settle()

    @precondition(lambda self: self.running is not None)
    @rule(count=st.integers(1, 2))
    def wake_during_clean_up(self, count: int) -> None:
        """What is asked for after an interrupt is the successor's."""
        words = [self._new_words() for _ in range(count)]
        stopped, *sent = self._do(
            self._all(
                self.opened.submit(c.Interrupt(session_id=self.session)),
                *(send(self.opened, self.session, each) for each in words),
            )
        )
        assert stopped == c.Interrupted(interrupted=True)
        self._stop()
        for each, turn in zip(words, sent, strict=True):
            self.turns[each] = turn
            self._accept(each)
        self._end("interrupted")
        self._settle()

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def unqueue(self, data: st.DataObject) -> None:
        """A prompt that waits is taken back once."""
        words = data.draw(st.sampled_from(self.waiting))
        message_id = self.turns[words].accepted.message_id
        assert self._do(self.opened.unqueue(self.session, message_id))
        assert not self._do(self.opened.unqueue(self.session, message_id))
        self.waiting.remove(words)
        self.taken_back.add(words)
        self._settle()

    @precondition(lambda self: self.running is not None)
    @rule()
    def unqueue_too_late(self) -> None:
        """The prompt of the running turn does not wait any more."""
        message_id = self.turns[self.running or ""].accepted.message_id
        assert not self._do(self.opened.unqueue(self.session, message_id))

    @rule()
    def resume(self) -> None:
        """Joins what runs, goes on with what was cut off, or lets a held queue go on."""
        goes_on = self.finish in ("interrupted", "error")
        turn = self._do(self._resumed())
        if self.running is not None:
            assert turn is not None and turn.repeated
            self._move("wake")
        elif goes_on:
            assert turn is not None and not turn.repeated
            words = f"{RESUMED} {self._new_words()}"
            self.turns[words] = turn
            self._accept(words)
            self._begin()
        elif self.waiting:
            assert turn is not None
            self.held = False
            self._move("wake")
            self._begin()
        else:
            assert turn is None, "there was nothing to resume"
        self._settle()

    @precondition(lambda self: self.running is not None)
    @rule(text=st.sampled_from(["", "some words"]))
    def release_inference(self, text: str) -> None:
        """The model answers to the end."""
        answering = self._do(self.hand.next(_said(self.running)))
        if text:
            answering.say(text)
        answering.end()
        self._do(self._gone(answering))
        self._end("stop")
        self._settle()

    @precondition(lambda self: self.running is not None)
    @rule()
    def fail_inference(self) -> None:
        """The stream breaks: the turn fails, and what waits is held."""
        answering = self._do(self.hand.next(_said(self.running)))
        answering.fail()
        self._do(self._gone(answering))
        self._end("error")
        self._settle()

    @rule()
    def delete(self) -> None:
        """What ran is stopped; prompts that waited are told; the machine goes on with a new session."""
        waiting = [self.turns[words].result for words in self.waiting]
        self._do(self._deleted())
        for result in waiting:
            assert isinstance(result.exception(), Rejected)
        self._do(until(lambda: not self.hand.answering))
        self._do(self._is_idle())
        self._new_session()

    # ── What holds ───────────────────────────────────────────────────────────────────────────

    @invariant()
    def one_turn_at_a_time(self) -> None:
        """Neither now nor ever."""
        assert self.hand.most <= 1
        kinds = [event.type for event in self._events() if event.type in ("turn.started", "turn.ended")]
        pairs = len(self.answers)
        assert kinds == ["turn.started", "turn.ended"] * pairs + ["turn.started"] * bool(self.running)

    @invariant()
    def the_run_is_where_the_table_says(self) -> None:
        """Once nothing moves."""
        run = coordinator(self.opened)._runs.get(self.session)
        assert (run.state if run else "idle") == self.run
        assert self.opened.runs_here(self.session) == (self.running is not None)

    @invariant()
    def an_idle_session_has_no_lease(self) -> None:
        """And no process would have to be asked."""
        assert (self.session in self.opened._sessions.leases) == (self.running is not None)
        assert self._do(self.opened._log.dead_leases()) == []

    @invariant()
    def every_prompt_is_somewhere(self) -> None:
        """Answered once, running, waiting in a queue that goes on or is held, or taken back."""
        details = self._do(self.opened.query(q.GetSession(session_id=self.session)))
        assert isinstance(details, q.SessionDetails)
        ids = {turn.accepted.message_id: words for words, turn in self.turns.items()}
        assert [ids[each.message_id] for each in details.queue.prompts] == self.waiting
        assert details.queue.held == self.held
        answered = [
            (ids[event.payload.message_id], event.payload.finish)
            for event in self._events()
            if isinstance(event.payload, e.TurnEnded)
        ]
        assert answered == list(self.answers.items())
        for words, turn in self.turns.items():
            if words in self.answers:
                assert turn.result.result().finish == self.answers[words]
            elif words in self.taken_back:
                assert turn.result.cancelled()
            else:
                assert not turn.result.done()
                assert (words == self.running) != (words in self.waiting)
        if self.waiting and self.running is None:
            assert self.held, "a prompt waits and nobody will run it"

    # ── Below ────────────────────────────────────────────────────────────────────────────────

    def _new_words(self) -> str:
        self._words += 1
        return f"prompt {self._sessions}.{self._words}"

    def _events(self) -> list[e.Event]:
        return self._do(self.opened._log.read(session=self.session))

    async def _all(self, *work: Coroutine[Any, Any, Any]) -> list[Any]:
        return list(await asyncio.gather(*work))

    async def _wake(self) -> None:
        coordinator(self.opened).join(self.session)

    async def _interrupts(self, times: int) -> list[Any]:
        stopping = [self.opened.submit(c.Interrupt(session_id=self.session)) for _ in range(times)]
        stopped = await asyncio.gather(*stopping)
        state = self.opened._sessions.live(self.session)
        assert state is not None and state.turn is None, "it returned before the turn's end was logged"
        assert not self.hand.answering
        return list(stopped)

    async def _resumed(self) -> Turn | None:
        try:
            return await self.opened.resume(c.Resume(session_id=self.session))
        except Rejected as error:
            assert error.kind == "conflict"
            return None

    async def _deleted(self) -> None:
        await self.opened.submit(c.DeleteSession(session_id=self.session))

    async def _gone(self, answering: Any) -> None:
        await until(lambda: answering not in self.hand.answering)

    async def _is_idle(self) -> None:
        leases = self.opened._sessions.leases
        await until(lambda: not self.opened.runs_here(self.session) and self.session not in leases)

    def _settle(self) -> None:
        """Wait until what the model says has come about; the invariants then say whether it stays so."""
        if self.running is not None:
            self._do(self.hand.next(_said(self.running)))
        else:
            self._do(self._is_idle())

    async def _ends(self) -> None:
        running = self.turns[self.running].result if self.running is not None else None
        await self._opening.__aexit__(None, None, None)
        if running is not None:
            assert running.result().finish == "interrupted"
        assert not self.hand.answering


def _said(words: str | None) -> str | None:
    """What the model is told for a prompt."""
    return RESUME if words is not None and words.startswith(RESUMED) else words


class TestRuns(Runs.TestCase):
    """A whole kernel a case, so a soak tries a tenth of what it tries of pure functions."""

    settings = settings(max_examples=min(500, settings().max_examples))
