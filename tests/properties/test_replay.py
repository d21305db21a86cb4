"""Whatever a model does, what is shown, what is stored and what a replay gives are the same."""

import asyncio
import tempfile
from pathlib import Path

from hypothesis import given, strategies as st

from deskmate_session.core.views.timeline import message_view
from deskmate_session.model import commands as c, queries as q
from deskmate_session.model.messages import TextInput
from deskmate_session.model.updates import Delta, PartUpdate
from tests.runtime.support import Seen, create, folded, kernel, prompt, read_log

STEPS = st.sampled_from(
    [
        "say: some words of text",
        "think: a thought",
        'call read {"path": "a.txt"}',
        'call read {"path": "missing"}',
        'call edit {"path": "a.txt", "old": "a", "new": "b"}',
        'call edit {"path": "a.txt", "old": "b", "new": "a"}',
        'call write {"path": "new.txt", "content": "new"}',
        'call glob {"pattern": "*"}',
        'call bash {"command": "exit 1"}',
        "call nonsense {}",
        'call read {"wrong": true}',
        "finish length",
        "finish stop",
        "fail badResponse: broke",
    ]
)
ANSWERS = st.lists(st.lists(STEPS, min_size=1, max_size=4), min_size=1, max_size=4)


def script(turns: list[list[list[str]]]) -> str:
    """A script whose turns are played in order; what follows an end of an answer is left out."""
    lines: list[str] = []
    for turn in turns:
        lines.append("# turn")
        for steps in turn:
            lines.append("## answer")
            for step in steps:
                lines.append(step)
                if step.startswith(("finish", "fail")):
                    break
        lines += ["## answer", "say: the end"]
    return "\n".join(lines)


@given(st.lists(ANSWERS, min_size=1, max_size=3))
def test_shown_stored_and_replayed_are_the_same(turns: list[list[list[str]]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_check(Path(folder), turns))


async def _check(tmp: Path, turns: list[list[list[str]]]) -> None:
    async with kernel(tmp, script(turns), files={"a.txt": "a\n"}) as opened:
        session, seen = await create(opened), Seen()
        await opened.subscribe(q.Subscribe(session_id=session, partial_result_token="t"), seen)
        for number in range(len(turns)):
            await prompt(opened, session, f"prompt {number}")
        page = await opened.query(q.ListMessages(session_id=session, limit=500))
        details = await opened.query(q.GetSession(session_id=session))
        verified = await opened.query(q.Verify(session_id=session))
        state_dir = opened.state_dir
    assert isinstance(page, q.MessagePage)
    assert isinstance(details, q.SessionDetails)
    assert isinstance(verified, c.Verified)
    assert verified.ok, verified
    events = await read_log(state_dir, session)
    state = folded(events)
    replayed = [message_view(session, message) for message in state.conversation.messages.values()]
    assert list(page.messages) == replayed
    assert details.work_context == state.work_context.view(state.info.folder)
    assert details.session == state.info
    assert all(call.settled for call in state.conversation.calls.values())
    seqs = [item.seq for item in seen.items if not isinstance(item, Delta) and item.seq is not None]
    assert seqs == [e.seq for e in events if e.type != "part.appended" and e.index > 0]
    _deltas_are_whole(seen)


def _deltas_are_whole(seen: Seen) -> None:
    texts: dict[tuple[str, str], int] = {}
    announced: set[str] = set()
    for item in seen.items:
        if isinstance(item, PartUpdate):
            announced.add(item.part.id)
        elif isinstance(item, Delta):
            assert item.part_id in announced
            assert texts.get((item.part_id, item.field), 0) == item.offset
            texts[item.part_id, item.field] = item.offset + len(item.text)


def test_prompts_of_any_text_come_back_as_they_were() -> None:
    @given(st.text(min_size=1, max_size=50).filter(lambda text: bool(text.strip())))
    def check(words: str) -> None:
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(_round_trip(Path(folder), words))

    check()


async def _round_trip(tmp: Path, words: str) -> None:
    async with kernel(tmp, "say: ok") as opened:
        session = await create(opened)
        turn = await opened.prompt(c.Prompt(session_id=session, parts=(TextInput(text=words),)))
        assert (await turn.result).finish == "stop"
        page = await opened.query(q.ListMessages(session_id=session))
    assert isinstance(page, q.MessagePage)
    part = page.messages[0].parts[0]
    assert part.type == "text"
    assert part.text == words.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
