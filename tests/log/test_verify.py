"""Tampering is found, and its place is named."""

from pathlib import Path

import pytest

from deskmate_session.core.checkpoints import SCHEMA, dump
from deskmate_session.core.state import SessionState
from deskmate_session.model import events as e
from deskmate_session.model.payloads.log import LostEvents
from deskmate_session.workspace.objects import Objects
from tests.log import support
from tests.log.support import opened


async def written(folder: Path) -> None:
    async with opened(folder) as log:
        [first] = await log.append("ses_1", [support.created()])
        await log.append("ses_1", [support.received(), support.constructed(), support.part_started()])
        await log.append("ses_2", [support.created()])
        await log.append(
            "ses_1", [support.appended("x" * 1_000), e.Draft(support.part_ended().payload, first.id)]
        )
        await log.append("ses_1", [support.responded("msg_2", "call_1"), support.changed()])
        await log.append("ses_2", [support.received("msg_9")])


async def found(folder: Path, session: str | None = None) -> list[tuple[int, str]]:
    [problems] = await found_in(folder, session)
    return problems


async def found_in(folder: Path, *sessions: str | None) -> list[list[tuple[int, str]]]:
    """The problems of sessions, None: of the whole log, in one opening: the next one mends the read model."""
    told: list[list[tuple[int, str]]] = []
    async with opened(folder) as log:
        for session in sessions:
            verified = await log.verify(session)
            assert verified.ok == (not verified.problems)
            told.append([(problem.seq, problem.kind) for problem in verified.problems])
    return told


async def test_a_wrong_read_model_is_made_anew_at_the_next_opening(tmp_path: Path):
    await written(tmp_path)
    support.tamper(tmp_path, "update sessions set title = 'Other' where id = 'ses_1'")
    assert [kind for _, kind in await found(tmp_path)] == ["readModel", "readModel"]
    assert await found(tmp_path) == []


async def test_a_good_log_has_no_problems(tmp_path: Path):
    await written(tmp_path)
    async with opened(tmp_path) as log:
        assert (await log.verify()).model_dump() == {"ok": True, "events": 10, "problems": ()}
        assert (await log.verify("ses_2")).events == 2
        assert (await log.verify("ses_none")).events == 0


async def test_an_empty_log_has_no_problems(tmp_path: Path):
    assert await found(tmp_path) == []


def one_byte(place: int) -> str:
    """The SQL for a payload with one byte changed."""
    return f"cast(substr(payload, 1, {place - 1}) || x'00' || substr(payload, {place + 1}) as blob)"


@pytest.mark.parametrize(
    ("seq", "column", "value", "expected"),
    [
        (2, "payload", "cast(replace(cast(payload as text), 'hello', 'hallo') as blob)", "digest"),
        (6, "payload", one_byte(10), "payload"),
        (6, "payload", "x'7b7d'", "payload"),
        (4, "at", "at + 1", "link"),
        (8, "hash", one_byte(1).replace("payload", "hash"), "link"),
        (7, "cause", "'evt_none'", "orphan"),
        (9, "id", "'evt_other'", "link"),
    ],
)
async def test_a_changed_event_is_named(tmp_path: Path, seq: int, column: str, value: str, expected: str):
    await written(tmp_path)
    support.tamper(tmp_path, f"update events set {column} = {value} where seq = {seq}")
    problems = await found(tmp_path)
    assert (seq, expected) in problems
    assert {place for place, _ in problems} <= {seq, seq + 1}


async def test_one_byte_of_any_payload_is_noticed(tmp_path: Path):
    await written(tmp_path)
    for seq in range(1, 11):
        async with opened(tmp_path / f"copy{seq}"):
            pass
        target = tmp_path / f"copy{seq}" / "events.db"
        target.write_bytes((tmp_path / "events.db").read_bytes())
        support.tamper(
            target.parent,
            f"update events set payload = {one_byte(12)} where seq = {seq}",
        )
        assert seq in {place for place, _ in await found(target.parent)}


async def test_a_removed_event_is_named(tmp_path: Path):
    await written(tmp_path)
    support.tamper(tmp_path, "delete from events where seq = 4")
    problems, of_session = await found_in(tmp_path, None, "ses_1")
    assert (4, "gap") in problems  # the hole itself
    assert (6, "gap") in problems  # where its session goes on
    assert (4, "readModel") in problems
    assert {(6, "gap"), (4, "readModel")} <= set(of_session)


async def test_a_tail_that_was_cut_off_is_named(tmp_path: Path):
    await written(tmp_path)
    support.tamper(tmp_path, "delete from events where seq >= 9")
    whole, of_session = await found_in(tmp_path, None, "ses_2")
    assert [problem for problem in whole if problem[1] == "gap"] == [(9, "gap")]
    assert (10, "readModel") in of_session
    async with opened(tmp_path) as log:
        [gap] = [problem for problem in (await log.verify()).problems if problem.kind == "gap"]
        assert gap.detail == "events 9 to 10 are gone"


async def test_a_forged_chain_does_not_follow(tmp_path: Path):
    await written(tmp_path)
    support.tamper(tmp_path, "update events set prev = zeroblob(32) where seq = 3")
    assert (3, "link") in await found(tmp_path)


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("update sessions set title = 'Other' where id = 'ses_1'", [(0, "readModel"), (0, "readModel")]),
        ("delete from entries where seq = 6", [(6, "readModel")]),
        ("insert into calls values ('ses_2', 'call_9', 'msg_9')", [(0, "readModel")]),
    ],
)
async def test_a_wrong_read_model_is_found(tmp_path: Path, statement: str, expected: list[tuple[int, str]]):
    await written(tmp_path)
    support.tamper(tmp_path, statement)
    whole, of_session = await found_in(tmp_path, None, "ses_2")
    assert whole == expected
    assert of_session == (expected if "ses_2" in statement else [])


async def test_events_that_contradict_each_other_are_found(tmp_path: Path):
    await written(tmp_path)
    async with opened(tmp_path) as log:
        await log.append("ses_3", [support.created()])
    columns = "id || 'x', session, idx + 1, type, version, at, payload, digest, cause, hash, hash"
    support.tamper(
        tmp_path,
        "insert into events (id, session, idx, type, version, at, payload, digest, cause, prev, hash)"
        f" select {columns} from events where session = 'ses_3'",
    )
    async with opened(tmp_path) as log:
        problems = (await log.verify()).problems
    assert [(problem.seq, problem.kind) for problem in problems] == [(12, "link"), (0, "readModel")]
    assert "event 12 contradicts an earlier one" in problems[-1].detail


async def test_objects_that_changes_name_must_be_whole(tmp_path: Path):
    objects = Objects(tmp_path)
    good, bad, missing = objects.put(b"good"), objects.put(b"bad"), "0" * 64
    (tmp_path / "objects" / bad[:2] / bad[2:]).write_bytes(b"\x00not so")
    async with opened(tmp_path) as log:
        await log.append("ses_1", [support.created(), support.changed(before=good, after=bad)])
        await log.append("ses_1", [support.changed(before=bad, after=missing), support.changed()])
        assert (await log.verify()).ok
        verified = await log.verify(check=objects.check)
    assert [(problem.seq, problem.kind, problem.detail) for problem in verified.problems] == [
        (2, "object", f"object {bad} is damaged"),
        (3, "object", f"object {bad} is damaged"),
        (3, "object", f"object {missing} is missing"),
    ]


def replayed(events: list[e.Event]) -> SessionState:
    state = SessionState()
    for event in events:
        state.apply(event)
    return state


async def with_checkpoints(folder: Path) -> None:
    """Two sessions; the first has a good checkpoint in an open turn, and one of an older schema."""
    async with opened(folder) as log:
        await log.append("ses_1", [support.created(), support.received(), support.turn_started()])
        await log.append("ses_2", [support.created()])
        await log.append("ses_1", [support.constructed(), support.part_started(), support.appended("a")])
        events = await log.read("ses_1")
        await log.checkpoint("ses_1", 3, dump(replayed(events[:3])))
        await log.checkpoint("ses_2", 4, b"of another build", schema=SCHEMA - 1)
        await log.checkpoint("ses_1", 7, dump(replayed(events)))


async def test_a_checkpoint_that_replay_gives_too_is_good(tmp_path: Path):
    await with_checkpoints(tmp_path)
    assert await found(tmp_path) == []
    assert await found(tmp_path, "ses_1") == []


@pytest.mark.parametrize(
    ("statement", "detail"),
    [
        ("update checkpoints set body = cast(body || x'20' as blob) where seq = 7", "not what was written"),
        ("update checkpoints set hash = zeroblob(32) where seq = 7", "not what was written"),
        ("update checkpoints set seq = 5 where seq = 7", "not what was written"),
        ("update checkpoints set seq = 4 where seq = 7", "no event of session 'ses_1' is its last"),
    ],
)
async def test_a_checkpoint_that_was_changed_is_named(tmp_path: Path, statement: str, detail: str):
    await with_checkpoints(tmp_path)
    support.tamper(tmp_path, statement)
    async with opened(tmp_path) as log:
        [problem] = (await log.verify()).problems
        assert (problem.kind, problem.seq in (4, 5, 7)) == ("checkpoint", True)
        assert detail in problem.detail
        assert (await log.verify("ses_2")).ok


async def test_a_checkpoint_that_is_whole_and_wrong_is_named(tmp_path: Path):
    await with_checkpoints(tmp_path)
    async with opened(tmp_path) as log:
        events = await log.read("ses_1")
        await log.checkpoint("ses_1", 7, dump(replayed(events[:3])))
        assert [(problem.seq, problem.kind, problem.detail) for problem in (await log.verify()).problems] == [
            (7, "checkpoint", "it is not what the events give")
        ]


def salvaged(*lost: tuple[int, int]) -> e.Draft:
    ranges = tuple(LostEvents(first=first, last=last) for first, last in lost)
    return e.Draft(e.LogSalvaged(kept_as="events.damaged-x.db", events=1, lost=ranges, sessions=("ses_1",)))


async def test_what_is_known_to_be_lost_is_no_problem(tmp_path: Path):
    """Event 1 caused event 7, events 4 and 10 stood at a gap and at an end."""
    await written(tmp_path)
    for seq in (1, 4, 10):
        support.tamper(tmp_path, f"delete from events where seq = {seq}")
    support.tamper(tmp_path, "delete from sessions")
    async with opened(tmp_path) as log:
        before = {(problem.seq, problem.kind) for problem in (await log.verify()).problems}
        assert {(1, "gap"), (4, "gap"), (10, "gap"), (7, "orphan"), (2, "gap"), (6, "gap")} <= before
        # Two that overlap: the log was salvaged twice.
        await log.append(None, [salvaged((1, 1), (4, 4)), salvaged((1, 1), (4, 4), (10, 10))])
        kinds = {problem.kind for problem in (await log.verify()).problems}
        assert kinds == {"readModel"}  # that was not made anew here
        assert {problem.kind for problem in (await log.verify("ses_1")).problems} == {"readModel"}


async def test_more_is_lost_than_is_known(tmp_path: Path):
    await written(tmp_path)
    for seq in (3, 4):
        support.tamper(tmp_path, f"delete from events where seq = {seq}")
    async with opened(tmp_path) as log:
        await log.append(None, [salvaged((4, 4))])
        places = {(problem.seq, problem.kind) for problem in (await log.verify()).problems}
        assert {(3, "gap"), (6, "gap")} <= places


async def test_a_fact_of_loss_that_can_not_be_read_explains_nothing(tmp_path: Path):
    await written(tmp_path)
    async with opened(tmp_path) as log:
        await log.append(None, [salvaged((4, 4))])
    support.tamper(tmp_path, "delete from events where seq = 4")
    support.tamper(tmp_path, "update events set payload = x'7b' where seq = 11")
    assert {(4, "gap"), (11, "payload")} <= set(await found(tmp_path))
