"""What is asked of the read model, and that it always equals a rebuild."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from deskmate_session.errors import Conflict
from deskmate_session.log.queries import OpenTurn
from deskmate_session.log.store import EventLog
from deskmate_session.model import events as e
from deskmate_session.model.messages import Session
from tests.log import support
from tests.log.support import opened


def shape(page: list[tuple[str, list[e.Event]]]) -> dict[str, list[str]]:
    return {id: [event.type for event in events] for id, events in page}


async def test_a_session_is_what_its_events_made_it(tmp_path: Path):
    async with opened(tmp_path) as log:
        await log.append("ses_1", [support.created("First")])
        await log.append("ses_1", [support.draft(e.SessionUpdated(title="Second", mode="plan"))])
        assert await log.session("ses_1") == Session(
            id="ses_1",
            folder="file:///w",
            title="Second",
            agent="build",
            model="mock/test",
            mode="plan",
            created_at=1000,
            updated_at=1001,
            seq=2,
        )
        await log.append("ses_1", [support.draft(e.SessionUpdated(archived=True))])
        archived = await log.session("ses_1")
        assert archived is not None
        assert archived.archived_at == 1002
        await log.append("ses_1", [support.draft(e.SessionUpdated(archived=False))])
        again = await log.session("ses_1")
        assert again is not None
        assert again.archived_at is None
        await log.append("ses_1", [support.draft(e.SessionDeleted())])
        assert await log.session("ses_1") is None
        assert await log.session("ses_none") is None


async def titles(log: EventLog, **options: Any) -> list[str]:
    return [session.title for session in (await log.list_sessions(**options)).sessions]


async def test_sessions_are_listed_newest_activity_first(tmp_path: Path):
    async with opened(tmp_path) as log:
        for name in ("Änderung", "beta", "gamma", "gone", "old"):
            await log.append(f"ses_{name}", [support.created(name)])
        await log.append("ses_gone", [support.draft(e.SessionDeleted())])
        await log.append("ses_old", [support.draft(e.SessionUpdated(archived=True))])
        await log.append("ses_beta", [support.received()])
        assert await titles(log) == ["beta", "gamma", "Änderung"]
        assert await titles(log, archived=True) == ["old"]
        assert await titles(log, archived=None) == ["beta", "old", "gamma", "Änderung"]
        assert await titles(log, query="äND") == ["Änderung"]
        assert await titles(log, query="%") == []
        first = await log.list_sessions(limit=1)
        # The session that was shown moves meanwhile: the next page neither repeats nor skips one.
        await log.append("ses_beta", [support.appended("x")])
        second = await log.list_sessions(limit=1, cursor=first.next_cursor)
        third = await log.list_sessions(limit=1, cursor=second.next_cursor)
        assert [s.title for s in first.sessions + second.sessions + third.sessions] == [
            "beta",
            "gamma",
            "Änderung",
        ]
        assert third.next_cursor is None
        assert await titles(log, cursor="nonsense", limit=1) == ["beta"]


async def test_a_page_of_messages_holds_the_events_that_made_them(tmp_path: Path):
    async with opened(tmp_path) as log:
        await log.append("ses_1", [support.created(), support.received("msg_1")])
        await log.append("ses_1", [support.turn_started(), support.constructed("msg_2")])
        await log.append("ses_1", [support.part_started(), support.appended("a"), support.part_ended()])
        await log.append("ses_1", [support.part_started(part="prt_3", call="call_1")])
        await log.append("ses_1", [support.responded("msg_2", "call_1", "call_2"), support.call_started()])
        await log.append("ses_1", [support.call_completed(), support.call_failed("call_2")])
        await log.append("ses_1", [support.call_failed("call_unknown")])
        await log.append("ses_1", [support.constructed("msg_3"), support.model_failed("msg_3")])
        await log.append("ses_1", [support.turn_ended(), support.received("msg_4")])
        await log.append("ses_2", [support.created(), support.received("msg_1")])
        page = await log.message_page("ses_1")
        assert shape(page.messages) == {
            "msg_1": ["message.received", "turn.started"],
            "msg_2": [
                "context.constructed",
                "part.started",
                "part.appended",
                "part.ended",
                "part.started",
                "model.responded",
                "call.started",
                "call.completed",
                "call.failed",
            ],
            "msg_3": ["context.constructed", "model.failed"],
            "msg_4": ["message.received"],
        }
        assert not page.has_more
        newest = await log.message_page("ses_1", limit=2)
        assert (list(shape(newest.messages)), newest.has_more) == (["msg_3", "msg_4"], True)
        before = await log.message_page("ses_1", before=newest.messages[0][1][0].seq, limit=2)
        assert (list(shape(before.messages)), before.has_more) == (["msg_1", "msg_2"], False)
        after = await log.message_page("ses_1", after=before.messages[0][1][0].seq, limit=2)
        assert (list(shape(after.messages)), after.has_more) == (["msg_2", "msg_3"], True)
        assert (await log.message_page("ses_none")).messages == []


async def test_a_prompt_that_was_taken_back_is_not_shown_and_not_forgotten(tmp_path: Path):
    async with opened(tmp_path) as log:
        await log.append("ses_1", [support.created(), support.received("msg_1"), support.received("msg_2")])
        await log.append("ses_1", [support.draft(e.MessageUnqueued(message_id="msg_1"))])
        assert list(shape((await log.message_page("ses_1")).messages)) == ["msg_2"]
        with pytest.raises(Conflict, match="messages"):
            await log.append("ses_1", [support.received("msg_1")])


async def test_changes_are_found_by_place_call_and_message(tmp_path: Path):
    async with opened(tmp_path) as log:
        await log.append(
            "ses_1", [support.created(), support.received("msg_1"), support.constructed("msg_2")]
        )
        await log.append("ses_1", [support.responded("msg_2", "call_1", "call_2")])
        await log.append("ses_1", [support.changed("call_1"), support.changed("call_2")])
        await log.append("ses_1", [support.changed("call_other")])
        every = await log.change_events("ses_1")
        assert [event.seq for event in every] == [5, 6, 7]
        assert await log.change_events("ses_1", message="msg_1") == every[:2]
        assert await log.change_events("ses_1", message="msg_2") == every[:2]
        assert await log.change_events("ses_1", calls=["call_2", "call_other"]) == every[1:]
        assert await log.change_events("ses_1", from_seq=6, to_seq=6) == every[1:2]
        assert await log.change_events("ses_2") == []


async def test_open_turns_are_those_that_did_not_end(tmp_path: Path):
    async with opened(tmp_path) as log:
        for session in ("ses_2", "ses_1"):
            await log.append(session, [support.created(), support.received(), support.turn_started()])
        assert [turn.session for turn in await log.open_turns()] == ["ses_2", "ses_1"]
        await log.append("ses_1", [support.turn_ended("turn_other")])
        await log.append("ses_2", [support.turn_ended()])
        assert await log.open_turns() == [OpenTurn("ses_1", "turn_1", "msg_1", "own_1", 6)]


def moves() -> st.SearchStrategy[list[tuple[str | None, e.Draft]]]:
    """Any facts in any order, sensible or not, but for prompts and sessions that come twice."""
    message = st.sampled_from(["msg_a", "msg_b", "msg_c"])
    call = st.sampled_from(["call_a", "call_b"])
    turn = st.sampled_from(["turn_a", "turn_b"])
    draft = st.one_of(
        st.builds(support.created, st.text(max_size=5)),
        st.builds(support.received, message),
        st.builds(support.turn_started, turn, message),
        st.builds(support.turn_ended, turn, message),
        st.builds(support.constructed, message, message),
        st.builds(support.part_started, message, st.just("prt_a"), st.none() | call),
        st.builds(support.appended, st.text(), st.just(0), message),
        st.builds(support.responded, message, call),
        st.builds(support.model_failed, message),
        st.builds(support.call_started, call),
        st.builds(support.call_completed, call, st.text()),
        st.builds(support.call_failed, call),
        st.builds(support.changed, call),
        st.builds(lambda id: support.draft(e.MessageUnqueued(message_id=id)), message),
        st.builds(lambda yes: support.draft(e.SessionUpdated(archived=yes)), st.booleans()),
        st.just(support.draft(e.SessionDeleted())),
        st.builds(lambda tag: support.draft(e.UnknownPayload(tag=f"?{tag}", data={"a": 1})), st.text()),
    )
    return st.lists(st.tuples(st.sampled_from([None, "ses_a", "ses_b"]), draft), max_size=25)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(moves())
async def test_the_read_model_equals_a_rebuild_after_any_facts(
    tmp_path_factory: pytest.TempPathFactory, moves: list[tuple[str | None, e.Draft]]
):
    folder = tmp_path_factory.mktemp("log")
    async with opened(folder) as log:
        futures = [log.append(session, [draft]) for session, draft in moves]
        refused = 0
        for future in futures:
            try:
                await future
            except Conflict:
                refused += 1
        verified = await log.verify()
        assert verified.problems == ()
        assert verified.events == len(moves) - refused
