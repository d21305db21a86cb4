"""The log on disk, under a process that dies at any statement, is a list: what was acknowledged is in it, in
order; what was not is in it as a whole or not at all."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import closing
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import Phase, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from deskmate_session.log import codec, rows
from deskmate_session.log.database import file, open_for_reading
from deskmate_session.log.verify import verify
from tests.log import support

Json = Any

SESSIONS = ("ses_1", "ses_2", "ses_3")
TEXTS = ("", "ü\n", "the quick brown fox " * 40, "…".join(map(str, range(3_000))))
"""Packed or not, on one page or several."""
TEXT = st.integers(min_value=0, max_value=3).map(TEXTS.__getitem__)


def fact(kind: str, *args: st.SearchStrategy[str]) -> st.SearchStrategy[tuple[str, tuple[str, ...]]]:
    """A draft of `tests.log.support`, by name."""
    return st.tuples(st.just(kind), st.tuples(*args))


def name(prefix: str, few: int = 3) -> st.SearchStrategy[str]:
    """Of few, so that facts meet: a prompt received twice, an ask answered again."""
    return st.sampled_from([f"{prefix}_{n}" for n in range(few)])


FACTS = st.one_of(
    fact("updated", TEXT),
    fact("received", name("msg", 9)),
    fact("unqueued", name("msg")),
    fact("turn_started", name("turn"), name("msg")),
    fact("interrupted", name("turn")),
    fact("turn_ended", name("turn"), name("msg")),
    fact("asked", name("ask")),
    fact("replied", name("ask")),
    fact("constructed", name("answer")),
    fact("appended", TEXT),
    fact("call_completed", name("call"), TEXT),
    fact("held"),
    fact("released"),
    fact("created"),
)
APPENDS = st.fixed_dictionaries(
    {
        "session": st.sampled_from(SESSIONS),
        "facts": st.lists(FACTS, min_size=1, max_size=4),
        "durable": st.booleans(),
        "leased": st.booleans(),
        "asks": st.booleans(),  # for the lease, where it has none
    }
)
BATCHES = st.lists(APPENDS, min_size=1, max_size=5)
MOMENTS = st.integers(min_value=0, max_value=90)


@dataclass
class Session:
    """What decides whether a fact is let in."""

    received: set[str] = field(default_factory=set[str])
    waiting: set[str] = field(default_factory=set[str])
    asks: set[str] = field(default_factory=set[str])
    turn: str | None = None

    def admits(self, kind: str, args: list[str]) -> bool:
        """Take a fact; False where it contradicts what is there."""
        what = args[0] if args else ""
        match kind:
            case "created":
                return False
            case "received":
                if what in self.received:
                    return False
                self.received.add(what)
                self.waiting.add(what)
            case "unqueued":
                if what not in self.waiting:
                    return False
                self.waiting.remove(what)
            case "turn_started":
                if self.turn is not None or args[1] not in self.waiting:
                    return False
                self.turn = what
                self.waiting.remove(args[1])
            case "interrupted":
                return what == self.turn
            case "turn_ended":
                self.turn = None if what == self.turn else self.turn
                self.asks.clear()
            case "asked":
                self.asks.add(what)
            case "replied":
                if what not in self.asks:
                    return False
                self.asks.remove(what)
            case _:
                pass
        return True


class Mortals:
    """The process that opens logs and dies; one for all examples."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.log.mortal"],
            cwd=support.ROOT,
            env={**os.environ, "PYTHONPATH": f"{support.ROOT / 'session'}:{support.ROOT}"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def say(self, order: Json) -> None:
        assert self.process.stdin
        body = json.dumps(order).encode()
        self.process.stdin.write(b"%08d%b" % (len(body), body))
        self.process.stdin.flush()

    def hear(self) -> Json:
        assert self.process.stdout
        return json.loads(self.process.stdout.readline())

    def end(self) -> None:
        self.process.communicate()


class LogMachine(RuleBasedStateMachine):
    mortals: Mortals

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory(prefix="deskmate-log-")
        self.path = Path(self.folder.name, "state")
        self.pid: int | None = None
        self.since = 0
        """Events that were there when it was opened."""
        self.model: list[tuple[str, str, bytes]] = []
        """(session, type, payload) of each event."""
        self.told: dict[int, Json] = {}
        """`seq` → what was acknowledged about it."""
        self.sessions = {session: Session() for session in SESSIONS}
        self.epochs = dict.fromkeys(SESSIONS, 0)

    @initialize(die=st.none() | MOMENTS)
    def begin(self, die: int | None) -> None:
        self.open(die)
        created: Json = [
            {"session": session, "facts": [("created", [])], "durable": True, "leased": False, "asks": True}
            for session in SESSIONS
        ]
        self.send(created, None)
        acks, died = self.hear_acks()
        assert (len(acks), died) == (3, False)
        for append, ack in zip(created, acks, strict=True):
            self.remember(append, ack)

    @rule(batch=BATCHES)
    def append(self, batch: Json) -> None:
        self.send(batch, None)
        acks, died = self.hear_acks()
        assert not died
        self.settle(batch, acks)

    @rule(batch=BATCHES, moment=MOMENTS)
    def crash_at_a_statement(self, batch: Json, moment: int) -> None:
        self.send(batch, moment)
        acks, died = self.hear_acks()
        if not died:  # it had fewer statements
            self.settle(batch, acks)
            self.kill()
            self.hear_the_end()
        self.open(None)
        if died:
            self.survive(batch, acks)
        self.compare()

    @rule(batch=BATCHES, after=st.integers(min_value=0, max_value=4))
    def crash_from_outside(self, batch: Json, after: int) -> None:
        """Killed in the midst of anything, once so many appends are acknowledged."""
        self.send(batch, None)
        acks, died = self.hear_acks(upto=min(after, len(batch) - 1))
        assert not died
        self.kill()
        acks += self.hear_the_end()
        self.open(None)
        self.survive(batch, acks)
        self.compare()

    @rule(die=st.none() | MOMENTS)
    def reopen(self, die: int | None) -> None:
        self.mortals.say({"close": True})
        self.hear_the_end()
        self.open(die)
        self.compare()

    def teardown(self) -> None:
        if self.pid is not None:
            self.kill()
            self.hear_the_end()
        self.folder.cleanup()

    # The child.

    def hear(self) -> Json:
        told = self.mortals.hear()
        if "died" in told:
            self.pid = None
            assert not told["fault"], "the child failed; its stderr says how"
        return told

    def open(self, die: int | None) -> None:
        """Open the log, again where the first opening dies."""
        self.mortals.say({"open": str(self.path), "die": die})
        told = self.hear()
        if "died" in told:
            assert die is not None
            self.mortals.say({"open": str(self.path), "die": None})
            told = self.hear()
        self.pid = told["pid"]
        with closing(open_for_reading(file(self.path))) as conn:
            self.since = conn.execute("select count(*) from events").fetchone()[0]

    def send(self, batch: Json, die: int | None) -> None:
        self.mortals.say({"appends": batch, "die": die})
        assert "taken" in self.hear()  # else a kill would leave the order to the next child

    def hear_acks(self, upto: int | None = None) -> tuple[list[Json], bool]:
        """What came of the appends, in order, and whether the child died over them."""
        acks: list[Json] = []
        while upto is None or len(acks) < upto:
            told = self.hear()
            if "died" in told:
                return acks, True
            if "heard" in told:
                assert told["heard"] == [*range(self.since + 1, self.since + len(told["heard"]) + 1)]
                return acks, False
            assert told["of"] == len(acks)
            acks.append(told)
        return acks, False

    def hear_the_end(self) -> list[Json]:
        acks: list[Json] = []
        while "died" not in (told := self.hear()):
            if "of" in told:
                acks.append(told)
        return acks

    def kill(self) -> None:
        assert self.pid is not None
        os.kill(self.pid, signal.SIGKILL)

    # The model.

    def settle(self, batch: Json, acks: list[Json]) -> None:
        """Each append came out as the model says."""
        assert len(acks) == len(batch)
        for append, ack in zip(batch, acks, strict=True):
            assert self.admits(append) == ("events" in ack)
            self.remember(append, ack)

    def survive(self, batch: Json, acks: list[Json]) -> None:
        """What was acknowledged is there; of the rest, in order, as many whole appends as there are rows."""
        self.settle(batch[: len(acks)], acks)
        for append in batch[len(acks) :]:
            if len(self.model) >= self.since:
                break
            if self.admits(append):
                self.remember(append, None)

    def admits(self, append: Json) -> bool:
        session = deepcopy(self.sessions[append["session"]])
        if all(session.admits(kind, args) for kind, args in append["facts"]):
            self.sessions[append["session"]] = session
            return True
        return False

    def remember(self, append: Json, ack: Json | None) -> None:
        """An append is in the log; `ack` says where."""
        if ack is not None and "events" not in ack:
            return
        first, session = len(self.model) + 1, append["session"]
        for kind, args in append["facts"]:
            payload = getattr(support, kind)(*args).payload
            self.model.append((session, payload.type, codec.encode(payload)))
        if ack is None:
            return
        assert [event[0] for event in ack["events"]] == [*range(first, len(self.model) + 1)]
        self.told |= {event[0]: event for event in ack["events"]}
        if ack["epoch"] is not None:
            assert ack["epoch"] >= self.epochs[session]
            self.epochs[session] = ack["epoch"]

    def compare(self) -> None:
        """The log is the model, and whole."""
        path = file(self.path)
        with closing(open_for_reading(path)) as conn:
            events = rows.select(conn, "order by e.seq")
        assert [event.seq for event in events] == [*range(1, len(self.model) + 1)]
        assert [(event.session, event.type, codec.encode(event.payload)) for event in events] == self.model
        found = {event.seq: [event.seq, event.id, event.index, event.hash] for event in events}
        assert {seq: found[seq] for seq in self.told} == self.told
        assert verify(path).problems == ()


class TestALogThatDiesIsStillTheListOfWhatItAcknowledged(LogMachine.TestCase):
    # Each step is a process or two; a log of more of them shows no more. A failure is told as it was found:
    # to shrink it takes minutes, and twelve steps can be read.
    settings = settings(
        max_examples=settings().max_examples // 2,
        stateful_step_count=12,
        phases=(Phase.explicit, Phase.reuse, Phase.generate),
    )

    def runTest(self) -> None:
        LogMachine.mortals = Mortals()
        try:
            super().runTest()
        finally:
            LogMachine.mortals.end()
