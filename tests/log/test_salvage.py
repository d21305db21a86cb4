"""Damage is survived: the log opens, what can be read goes on, and the damaged file is kept."""

import asyncio
import hashlib
import os
import random
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from deskmate_session.errors import LogCorrupt, LogReadOnly
from deskmate_session.log import database, examine, owners, pages, salvage
from deskmate_session.log.rows import COLUMNS, Row
from deskmate_session.log.store import EventLog
from deskmate_session.model import events as e
from tests.log import support
from tests.log.support import opened

PAGE = 8192


async def written(folder: Path, *, steps: int = 30) -> None:
    """Three sessions whose events stand between each other's, long payloads that take pages of their own."""
    noise = random.Random(7)
    async with opened(folder) as log:
        await log.append(None, [e.Draft(e.UnknownPayload(tag="folder.fact", data={"a": 1}))])
        for session in ("ses_1", "ses_2", "ses_3"):
            await log.append(session, [support.created(session)])
        for step in range(steps):
            session = f"ses_{noise.randrange(1, 4)}"
            message, part = f"m{step}", f"p{step}"
            size = noise.choice([20, 700, 9_000, 30_000]) if step % 5 == 0 else noise.choice([20, 300, 700])
            answer = support.appended(noise.randbytes(size).hex(), message=message, part=part)
            events = await log.append(
                session,
                [
                    support.received(f"q{step}"),
                    support.turn_started(f"t{step}", f"q{step}"),
                    support.constructed(message, f"q{step}"),
                    support.part_started(message, part),
                    answer,
                    support.part_ended(message, part),
                    support.responded(message),
                ],
            )
            await log.append(
                session, [e.Draft(support.turn_ended(f"t{step}", f"q{step}").payload, events[1].id)]
            )


def rows(path: Path) -> dict[int, Row]:
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as conn:
        return {row[0]: Row._make(row) for row in conn.execute(f"select {COLUMNS} from events e")}


def kept(folder: Path) -> list[Path]:
    return sorted(folder.glob("events.damaged-*.db"))


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a log that was closed in order."""

    folder = tmp_path_factory.mktemp("good")
    asyncio.run(written(folder))
    return folder


@pytest.fixture
def folder(good: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    shutil.copy(good / "events.db", tmp_path / "events.db")
    (tmp_path / "openingn0x").touch()
    return tmp_path


def overwrite(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


async def all_readable(log: EventLog) -> list[e.Event]:
    events = await log.read()
    for session in await log.list_sessions() and ["ses_1", "ses_2", "ses_3"]:
        await log.message_page(session)
    return events


async def reopened(folder: Path, before: dict[int, Row], touched: set[int]) -> None:
    """Open a damaged log, as often as it takes to notice; compare with what was written, but for the events
    that the damage touched."""
    for _ in range(2):
        async with opened(folder) as log:
            if log.read_only:  # the number of the schema itself: nothing is lost, nothing is written
                assert "newer" in log.read_only
                return
            try:
                await all_readable(log)
                verified = await log.verify()
            except LogCorrupt:
                assert examine.marked(log.path)
                continue
            if verified.ok:
                break
            examine.mark(log.path)  # as the look in the background does
    else:
        raise AssertionError("still damaged after two openings")
    async with opened(folder) as log:
        assert log.notices == ()
        assert (await log.verify()).problems == ()
        now = rows(log.path)
        assert {seq: now.get(seq) for seq in before if seq not in touched} == {
            seq: row for seq, row in before.items() if seq not in touched
        }
        [event] = await log.append("ses_9", [support.created()])
        assert event.seq > max(before)


def touched(path: Path, before: dict[int, Row], at: int, data: bytes) -> set[int]:
    """The events of which a byte lies in a range of the file, on whatever page: those that are not found in
    what is left of it."""
    content = bytearray(path.read_bytes())
    content[at : at + len(data)] = data
    hurt = pages._search(bytes(content), b"", PAGE).rows
    return {seq for seq in before if hurt.get(seq) != before[seq]}


@pytest.mark.parametrize("seed", range(40))
async def test_whatever_is_overwritten_the_rest_goes_on(folder: Path, seed: int):
    dice = random.Random(seed)
    path = folder / "events.db"
    before = rows(path)
    size = path.stat().st_size
    if seed % 2:
        at = dice.choice([dice.randrange(0, size - 4096), dice.randrange(0, size // 4096) * 4096])
        data = dice.choice([bytes(4096), dice.randbytes(4096)])
    else:
        at = dice.choice([dice.randrange(0, 200), dice.randrange(0, PAGE * 4), dice.randrange(0, size)])
        data = bytes([path.read_bytes()[at] ^ dice.randrange(1, 256)])
    lost = touched(path, before, at, data)
    overwrite(path, at, data)
    damaged = path.read_bytes()
    await reopened(folder, before, lost)
    if files := kept(folder):
        assert [file.read_bytes() for file in files] == [damaged]


async def test_a_good_log_is_left_as_it_is(folder: Path):
    async with opened(folder) as log:
        assert (log.notices, log.read_only) == ((), None)
    assert kept(folder) == []


async def test_the_fact_of_a_salvage_tells_what_is_gone_and_verify_knows_it(folder: Path):
    before = rows(folder / "events.db")
    with closing(sqlite3.connect(folder / "events.db")) as conn:
        pages_of = "select rootpage from sqlite_schema where name = 'events'"
        [(root,)] = conn.execute(pages_of).fetchall()
    # The tree's root: SQLite finds no event at all any more. And one leaf.
    overwrite(folder / "events.db", PAGE * (root - 1), b"\xa5" * PAGE)
    content = (folder / "events.db").read_bytes()
    victim = content.index(before[100].hash) // PAGE * PAGE
    overwrite(folder / "events.db", victim, b"\xa5" * PAGE)
    damaged = (folder / "events.db").read_bytes()
    async with opened(folder) as log:
        found = await log.read()
        assert found[-1].session is None
        fact = found[-1].payload
        assert isinstance(fact, e.LogSalvaged)
        there = {event.seq for event in found[:-1]}
        gone = {seq for lost in fact.lost for seq in range(lost.first, lost.last + 1)}
        assert 100 in gone
        assert there | gone == set(before)
        assert there & gone == set()
        assert fact.events == len(there)
        assert set(fact.sessions) == {before[seq].session for seq in gone} - {""}
        assert rows(log.path) | {seq: before[seq] for seq in gone} == before | {
            found[-1].seq: rows(log.path)[found[-1].seq]
        }
        assert [path.name for path in kept(folder)] == [fact.kept_as]
        assert (folder / fact.kept_as).read_bytes() == damaged
        [notice] = log.notices
        assert str(folder / fact.kept_as) in notice
        assert f"{len(there)} events are kept in a new one, {len(gone)} are lost" in notice
        assert (await log.verify()).problems == ()
        for session in fact.sessions:
            assert (await log.verify(session)).problems == ()
    # It is told by the opening that did it, not by the next.
    async with opened(folder) as log:
        assert log.notices == ()
    # A second loss is none of those that are known.
    support.tamper(folder, f"delete from events where seq = {max(there)}")
    async with opened(folder) as log:
        kinds = {(problem.seq, problem.kind) for problem in (await log.verify()).problems}
        assert (max(there), "gap") in kinds


async def test_garbage_is_set_aside_and_a_new_log_begins(tmp_path: Path):
    garbage = b"not a database at all, but long enough" * 400
    (tmp_path / "events.db").write_bytes(garbage)
    async with opened(tmp_path) as log:
        [notice] = log.notices
        assert "nothing of it can be read" in notice
        await log.append("ses_1", [support.created()])
        assert (await log.verify()).problems == ()
    assert [path.read_bytes() for path in kept(tmp_path)] == [garbage]


async def test_what_stood_in_the_write_ahead_log_alone_is_kept(tmp_path: Path):
    """A process that was killed leaves it behind; then the database is damaged as well."""
    live, dead = tmp_path / "live", tmp_path / "dead"
    async with opened(live) as log:
        await log.append("ses_1", [support.created(), *(support.appended("x" * 300) for _ in range(200))])
        with closing(sqlite3.connect(log.path, isolation_level=None)) as old:
            old.execute("pragma wal_checkpoint(truncate)").fetchall()
            old.execute("begin")
            old.execute("select count(*) from events").fetchone()  # what comes after this look stays there
            await log.append("ses_1", [support.appended("newest " * 2_000), support.received("newest")])
            before = rows(log.path)
            dead.mkdir()
            for name in ("events.db", "events.db-wal"):
                shutil.copy(live / name, dead / name)
    wal = (dead / "events.db-wal").read_bytes()
    assert len(pages.committed(wal, PAGE)) > 1
    overwrite(dead / "events.db", 0, b"\0" * 100)
    async with opened(dead) as log:
        assert len(log.notices) == 1
        events = await log.read()
        assert [(event.seq, event.hash) for event in events[:-1]] == [
            (row.seq, row.hash.hex()) for row in before.values()
        ]
        assert (await log.verify()).problems == ()
    [aside] = kept(dead)
    assert aside.with_name(f"{aside.name}-wal").read_bytes() == wal


async def test_a_database_that_was_emptied_gives_its_write_ahead_log_away(tmp_path: Path):
    """SQLite would remove it."""
    live, dead = tmp_path / "live", tmp_path / "dead"
    dead.mkdir()
    async with opened(live) as log:
        await log.append("ses_1", [support.created(), support.received()])
        shutil.copy(live / "events.db-wal", dead / "events.db-wal")
    (dead / "events.db").touch()
    async with opened(dead) as log:
        assert [event.type for event in await log.read()][:2] == ["session.created", "message.received"]
        assert len(log.notices) == 1


async def test_what_was_not_committed_is_not_salvaged(tmp_path: Path):
    async with opened(tmp_path) as log:
        await log.append("ses_1", [support.created()])
        await log.append("ses_1", [support.received()])
        wal = (tmp_path / "events.db-wal").read_bytes()
        whole = pages.search(log.path)
        assert sorted(whole.rows) == [1, 2]
    frame = 24 + PAGE
    count = (len(wal) - 32) // frame
    cut = tmp_path / "cut"
    cut.mkdir()
    (cut / "events.db").touch()
    (cut / "events.db-wal").write_bytes(wal[: 32 + frame * (count - 1)])  # the last commit has no end
    assert sorted(pages.search(cut / "events.db").rows) == [1]
    spoiled = bytearray(wal)
    spoiled[32 + frame * (count - 1) + 24] ^= 1  # nor a sum that fits
    (cut / "events.db-wal").write_bytes(spoiled)
    assert sorted(pages.search(cut / "events.db").rows) == [1]
    assert pages.committed(wal, 4096) == pages.committed(b"", PAGE) == {}


async def test_a_log_that_another_process_has_open_is_not_set_aside(folder: Path):
    overwrite(folder / "events.db", PAGE, b"\xa5" * PAGE)
    content = (folder / "events.db").read_bytes()
    owner = owners.Owner.claim(folder, "own_other")
    with pytest.raises(LogCorrupt, match="another process has it open"):
        await EventLog.open(folder, support.Ticks(), support.Counted())
    assert kept(folder) == []
    assert (folder / "events.db").read_bytes() == content
    owner.release()
    async with opened(folder) as log:
        assert len(log.notices) == 1


async def test_a_damaged_file_that_is_kept_is_never_written_over(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(support.Ticks, "now", lambda _: 1_700_000_000_000)
    contents: list[bytes] = []
    for number in range(3):
        overwrite(folder / "events.db", PAGE, bytes([number]) * PAGE)
        contents.append((folder / "events.db").read_bytes())
        async with opened(folder) as log:
            assert len(log.notices) == 1
    names = ["", "-2", "-3"]
    assert {path.name: path.read_bytes() for path in kept(folder)} == {
        f"events.damaged-20231114T221320Z{name}.db": content
        for name, content in zip(names, contents, strict=True)
    }
    async with opened(folder) as log:
        assert (await log.verify()).problems == ()


async def test_a_newer_log_is_not_touched(folder: Path):
    support.tamper(folder, "pragma user_version = 9999")
    digest = hashlib.sha256((folder / "events.db").read_bytes()).hexdigest()
    async with opened(folder) as log:
        assert log.read_only is not None
        assert log.notices == (log.read_only,)
        with pytest.raises(LogReadOnly, match="schema 9999"):
            await log.append("ses_1", [support.received()])
    assert hashlib.sha256((folder / "events.db").read_bytes()).hexdigest() == digest
    assert kept(folder) == []


async def test_damage_that_shows_in_use_is_mended_at_the_next_opening(folder: Path):
    support.tamper(folder, "update events set payload = x'7b' where seq = 20")
    async with opened(folder) as log:
        assert log.notices == ()
        with pytest.raises(LogCorrupt, match="event 20"):
            await log.read()
    async with opened(folder) as log:
        [notice] = log.notices
        assert "event 20 is not what was written" in notice
        assert 20 not in {event.seq for event in await log.read()}
        assert (await log.verify()).problems == ()
    assert not examine.marked(folder / "events.db")


async def test_a_mark_on_a_good_log_only_costs_a_look(folder: Path):
    examine.mark(folder / "events.db")
    async with opened(folder) as log:
        assert log.notices == ()
    assert not examine.marked(folder / "events.db")


async def test_the_look_in_the_background_tells_damage_once_and_marks_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):

    monkeypatch.setattr(examine, "DELAY", 0.0)
    monkeypatch.setattr(examine, "_REST", 0.0)
    support.tamper(folder, "update events set payload = x'7b7d' where seq = 20")
    told: list[str] = []
    seen = asyncio.Event()
    async with opened(folder) as log:
        log.on_fault(lambda fault: (told.append(fault.message if fault else "fine"), seen.set()))
        await asyncio.wait_for(seen.wait(), 10)
        with pytest.raises(LogCorrupt):
            await log.read()
    assert len(told) == 1
    assert "event 20 is not what was written" in told[0]
    assert examine.marked(folder / "events.db")


async def test_the_look_in_the_background_is_taken_once_a_day(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(examine, "DELAY", 0.0)
    done = folder / "events.db.examined"
    for age, again in ((None, True), (3600, False), (25 * 3600, True), (-3600, True)):
        done.unlink(missing_ok=True)
        if age is not None:
            done.touch()
            then = done.stat().st_mtime - age
            os.utime(done, (then, then))
        stamp = done.stat().st_mtime if done.exists() else None
        looker = examine.Background(
            folder / "events.db", database.open_for_reading, database.is_damage, lambda what: None
        )
        monkeypatch.setattr(examine, "_REST", 0.0)
        looker.start()
        looker._thread.join()
        assert (done.stat().st_mtime != stamp) == again


def test_a_number_that_does_not_fit_among_its_session_is_left_out(good: Path):
    before = rows(good / "events.db")
    chain = [row for row in before.values() if row.session == "ses_2"]
    wrong = chain[10]._replace(seq=3 if chain[10].seq != 3 else 4)
    there = {row.seq: row for row in before.values() if row.seq not in (chain[10].seq, wrong.seq)}
    assert salvage.in_order([*there.values(), wrong]) == sorted(there.values())
    assert salvage.in_order([]) == []


DIES = """
import os, signal, sys
from pathlib import Path
from deskmate_session.ids import RandomIds
from deskmate_session.log import database, salvage
from tests.log import support

left = int(sys.argv[2])

def dying(owner, name):
    real = getattr(owner, name)
    def step(*args, **options):
        global left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*args, **options)
    setattr(owner, name, step)

for name in ("hardlink_to", "replace", "unlink", "rename"):
    dying(Path, name)
for name in ("in_order", "_append", "_flush", "_lost", "_set_aside"):
    dying(salvage, name)
dying(salvage.verify, "verify")
dying(salvage.read_model, "rebuild")
dying(salvage.migrations.steps, "apply")
opened = database.open_both(Path(sys.argv[1]), support.Ticks(), RandomIds())
print(left)
"""


def killed(folder: Path, after: int) -> bool:
    process = support.child(DIES, str(folder), str(after))
    output, errors = process.communicate(timeout=60)
    assert process.returncode in (0, -9), errors
    return process.returncode == -9 or not output


async def test_a_kill_at_any_step_of_a_salvage_loses_nothing_more(folder: Path, tmp_path: Path):
    before = rows(folder / "events.db")
    content = (folder / "events.db").read_bytes()
    victim = content.index(before[100].hash) // PAGE * PAGE
    overwrite(folder / "events.db", victim, b"\xa5" * PAGE)
    damaged = (folder / "events.db").read_bytes()
    found = salvage.in_order(pages.search(folder / "events.db").rows.values())
    step, dies = 0, True
    while dies:
        one = tmp_path / f"step{step}"
        one.mkdir()
        (one / "events.db").write_bytes(damaged)
        dies = killed(one, step)
        if step % 3 == 2:  # twice in a row
            killed(one, 2)
        async with opened(one) as log:
            assert [Row(*row) for row in rows(log.path).values()][:-1] == found, f"killed at step {step}"
            assert (await log.verify()).problems == ()
        assert [path.read_bytes() for path in kept(one)] == [damaged], f"killed at step {step}"
        assert {path.name for path in one.glob("events.db*")} <= {"events.db", "events.db.lock"}
        step += 1
    assert step > 15


@pytest.mark.parametrize("linking", [True, False])
async def test_a_file_system_without_links_renames(
    folder: Path, monkeypatch: pytest.MonkeyPatch, linking: bool
):
    def refuse(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    if not linking:
        monkeypatch.setattr(Path, "hardlink_to", refuse)
    overwrite(folder / "events.db", PAGE, b"\xa5" * PAGE)
    damaged = (folder / "events.db").read_bytes()
    async with opened(folder) as log:
        assert (await log.verify()).problems == ()
    assert [path.read_bytes() for path in kept(folder)] == [damaged]


@pytest.mark.parametrize(
    ("at", "data"),
    [
        (18, b"\xc8"),  # a version of the format that may not be written
        (19, b"\xc8"),  # nor read
        (16, b"\x10"),  # pages of half the size
        (28, b"\0\0\xff\xff"),  # many more of them
        (60, b"\0\0\0\0"),  # an older schema
    ],
)
async def test_a_header_that_lies_costs_no_event(folder: Path, at: int, data: bytes):
    before = rows(folder / "events.db")
    overwrite(folder / "events.db", at, data)
    async with opened(folder) as log:
        assert log.read_only is None
        there = rows(log.path)
        assert {seq: there[seq] for seq in before} == before
        assert (await log.verify()).problems == ()
        await log.append("ses_9", [support.created()])


def test_a_row_that_can_be_no_row_of_ours_is_not_whole(good: Path):
    row = rows(good / "events.db")[20]
    assert pages.whole(row)
    wrong: list[dict[str, object]] = [
        *({"idx": None}, {"at": row.at + 1}, {"payload": "text"}, {"payload": b"x"}, {"id": b""}),
        *({"hash": bytes(32)}, {"digest": bytes(32)}, {"prev": None}, {"debug_tag": b""}, {"cause": "evt_0"}),
    ]
    for change in wrong:
        assert not pages.whole(row._replace(**change)), change  # pyright: ignore[reportArgumentType]


def test_a_write_ahead_log_of_a_machine_of_the_other_order_is_summed_too():
    data = bytes(range(64))
    swapped = b"".join(data[at : at + 4][::-1] for at in range(0, 64, 4))
    assert pages._sums(data, (1, 2), "big") == pages._sums(swapped, (1, 2), "little")


def test_what_lies_at_the_name_of_a_kept_file_stays(folder: Path):
    overwrite(folder / "events.db", PAGE, b"\xa5" * PAGE)
    damaged = (folder / "events.db").read_bytes()
    step = 0
    while not (folder / salvage.READY).exists():  # killed till the new log is complete
        assert killed(folder, step)
        step += 1
    name = f"events.damaged-{'19700101T000001Z'}.db"
    (folder / name).unlink(missing_ok=True)
    (folder / name).write_bytes(b"of the person")
    with pytest.raises(LogCorrupt, match="move it away"):
        salvage.finish(folder / "events.db")
    assert (folder / name).read_bytes() == b"of the person"
    assert (folder / "events.db").read_bytes() == damaged
    (folder / name).unlink()
    told = salvage.finish(folder / "events.db")
    assert told is not None
    assert name in told
    assert (folder / name).read_bytes() == damaged
    assert salvage.finish(folder / "events.db") is None


def test_a_look_at_everything_can_be_ended(good: Path):
    with closing(database.open_for_reading(good / "events.db")) as conn:
        assert examine.everything(conn) is True
        assert examine.everything(conn, lambda: True) is False
