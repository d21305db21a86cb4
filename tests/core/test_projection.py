"""Messages as the model sees them: valid for every provider, and only ever growing at their end."""

import itertools
from typing import Any

from hypothesis import given, strategies as st

from deskmate_session.core.context.project import NO_OUTPUT, project
from deskmate_session.core.context.system import Environment, system_blocks
from deskmate_session.model import events as e
from deskmate_session.model.messages import FilePart, Position, Range, TextPart, TurnError
from deskmate_session.model.ports import ModelCall, ModelMessage, ModelReasoning, ModelResult, ModelText
from tests.core.support import (
    call_part,
    completed,
    constructed,
    ended,
    event,
    failed,
    fold,
    ran,
    received,
    responded,
    started,
    text_part,
)


def shown(*facts: e.EventPayload) -> list[tuple[str, tuple[Any, ...]]]:
    return [(message.role, message.blocks) for message in project(fold(*facts).conversation)]


def test_a_call_is_followed_directly_by_its_result() -> None:
    facts = [received(), started(), constructed(), *text_part("Looking."), call_part("c1"), call_part("c2")]
    facts += [responded(("c1", "read", {"path": "a"}), ("c2", "read", "not an object"))]
    facts += [ran("c1"), completed("c1", output="  "), failed("c2", error="bad", output="half")]
    assert shown(*facts) == [
        ("user", (ModelText("go"),)),
        (
            "assistant",
            (ModelText("Looking."), ModelCall("c1", "read", {"path": "a"}), ModelCall("c2", "read", {})),
        ),
        (
            "tool",
            (
                ModelResult("c1", "read", NO_OUTPUT, is_error=False),
                ModelResult("c2", "read", "bad\nOutput until then:\nhalf", is_error=True),
            ),
        ),
    ]


def test_blank_text_queued_prompts_and_failed_attempts_are_left_out() -> None:
    broken = TurnError(kind="badResponse", message="broke")
    facts = [received(), received("msg_q", "later"), started(), constructed(), *text_part(" \n ")]
    facts += [responded(), constructed("msg_b", 2), *text_part("half", "msg_b")]
    facts += [e.ModelFailed(message_id="msg_b", step=2, error=broken)]
    assert shown(*facts) == [("user", (ModelText("go"),))]


def test_an_open_call_is_told_as_not_run_until_it_is_settled() -> None:
    facts = [received(), started(), constructed(), call_part("c1"), responded(("c1", "bash", {}))]
    assert shown(*facts)[-1] == ("tool", (ModelResult("c1", "read", "the call was not run", is_error=True),))
    settled = shown(*facts, ran("c1"), completed("c1", output="now"))
    assert settled[-1] == ("tool", (ModelResult("c1", "read", "now", is_error=False),))


def test_reasoning_goes_back_only_with_its_signature() -> None:
    thinking = text_part("hm", part_id="prt_r", kind="reasoning")
    signed = [
        *thinking[:2],
        e.PartEnded(message_id="msg_a", part_id="prt_r", length=2, hash="0", signature="sig"),
    ]
    answer = [*text_part("ok"), responded()]
    begun = [received(), started(), constructed()]
    assert shown(*begun, *thinking, *answer)[-1] == ("assistant", (ModelText("ok"),))
    assert shown(*begun, *signed, *answer)[-1] == (
        "assistant",
        (ModelReasoning("hm", "mock/test", "sig", None), ModelText("ok")),
    )
    assert shown(*begun, *signed, responded()) == [("user", (ModelText("go"),))]


def test_a_file_that_was_pointed_to_is_named_with_its_lines() -> None:
    lines = Range(start=Position(line=4, character=0), end=Position(line=9, character=0))
    parts = (
        TextPart(id="p1", text="look"),
        FilePart(id="p2", uri="file:///w/a%20b.py"),
        FilePart(id="p3", uri="file:///w/c.py", range=lines),
    )
    [(role, blocks)] = shown(received("msg_p", "", *parts), started())
    assert role == "user"
    assert blocks == (
        ModelText("look"),
        ModelText("The user points to the file /w/a b.py."),
        ModelText("The user points to the file /w/c.py, lines 5 to 10."),
    )


def test_what_the_agent_knows_is_sent_with_the_next_prompt_and_stays() -> None:
    uri = "file:///w/my%20file"
    first = [received(), started(), constructed(), call_part("c1"), responded(("c1", "read", {}))]
    first += [ran("c1"), completed("c1", reads=(e.ReadFile(uri=uri, hash="h"),)), ended()]
    ran_command = [
        constructed("msg_b", 2),
        call_part("c2", message_id="msg_b"),
        responded(("c2", "bash", {}), message_id="msg_b"),
    ]
    ran_command += [ran("c2"), completed("c2", command="make\nall", exit_code=2)]
    changed = e.WorkContextUpdated(uri="file:///w/gone", change="deleted", by="c2")
    again = [received("msg_q", "more"), started("msg_q", "turn_2")]
    state = fold(*first[:-1], *ran_command, changed, ended(), *again)
    block = project(state.conversation)[-1].blocks[-1]
    assert block == ModelText(
        "<work-context>\n"
        "Files you have read or changed in this session (as you last saw them):\n"
        "- /w/my file (read)\n"
        "- /w/gone (deleted)\n"
        "Commands that ran last:\n"
        "- make (exit code 2)\n"
        "</work-context>"
    )
    before = project(state.conversation)
    state.apply(event(99, e.WorkContextUpdated(uri=uri, change="modified", after="h2", by="c9")))
    assert project(state.conversation) == before


def test_system_blocks_begin_with_what_never_varies() -> None:
    first, second = system_blocks("prompt", Environment("/w", "Linux", is_git=False))
    assert first == "prompt"
    assert second == "Workspace folder: /w (not a git repository)\nPlatform: Linux"


TURNS = st.lists(
    st.tuples(
        st.text(min_size=1, max_size=5).filter(str.strip),
        st.lists(st.sampled_from(["ok", "fail", "none"]), max_size=3),
        st.booleans(),
    ),
    min_size=1,
    max_size=6,
)


@given(TURNS)
def test_each_request_of_a_session_extends_the_one_before(turns: list[tuple[str, list[str], bool]]) -> None:
    state = fold()
    requests: list[tuple[ModelMessage, ...]] = []
    seq = 1

    def apply(payload: e.EventPayload) -> None:
        nonlocal seq
        seq += 1
        state.apply(event(seq, payload))

    for number, (words, calls, breaks) in enumerate(turns):
        prompt, answer = f"msg_p{number}", f"msg_a{number}"
        apply(received(prompt, words))
        apply(started(prompt, f"turn_{number}"))
        requests.append(project(state.conversation))
        apply(constructed(answer, parent_id=prompt))
        for fact in text_part(words, answer, f"prt_{number}"):
            apply(fact)
        if breaks:
            apply(e.ModelFailed(message_id=answer, step=1, error=TurnError(kind="badResponse", message="x")))
        else:
            ids = [f"c{number}_{n}" for n in range(len(calls))]
            for call_id in ids:
                apply(call_part(call_id, message_id=answer))
            apply(responded(*((i, "read", {}) for i in ids), message_id=answer))
            for call_id, outcome in zip(ids, calls, strict=True):
                if outcome != "none":
                    apply(ran(call_id))
                apply(completed(call_id) if outcome == "ok" else failed(call_id))
            requests.append(project(state.conversation))
        apply(ended(message_id=prompt, turn_id=f"turn_{number}"))
    for earlier, later in itertools.pairwise(requests):
        assert all(a is b for a, b in zip(earlier, later, strict=False)) and len(earlier) <= len(later)
        _is_valid(later)


def _is_valid(messages: tuple[ModelMessage, ...]) -> None:
    for at, message in enumerate(messages):
        calls = [block.call_id for block in message.blocks if isinstance(block, ModelCall)]
        if calls:
            following = messages[at + 1]
            assert following.role == "tool"
            assert [b.call_id for b in following.blocks if isinstance(b, ModelResult)] == calls
        for block in message.blocks:
            if isinstance(block, ModelText | ModelResult):
                assert (block.text if isinstance(block, ModelText) else block.output).strip()
