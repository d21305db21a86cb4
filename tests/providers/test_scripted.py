"""The scripted provider: its language, its choice of an answer, its errors."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from deskmate_session.errors import ConfigError, ProviderError
from deskmate_session.model.ports import ModelCall, ModelMessage, ModelResult, ModelText
from deskmate_session.providers.script import (
    Call,
    Fail,
    Say,
    Script,
    ScriptedAnswer,
    ScriptedTurn,
    ScriptError,
    Think,
    Wait,
)
from deskmate_session.providers.scripted import ScriptedProvider
from tests.providers.support import Heard, hear, request, user

SCRIPT = """\
// The model reads, changes and answers.
pace: 0ms

# turn
when: Timeout
## answer
think: I should look first.
call read {"path": "config.py"}
## answer
call write {"path": "config.py",
  "content": "timeout = 30\\n"}
wait 1ms
## answer
say: The timeout
    is 30 s

  now.

# turn
say: First of the rest.
# turn
say: Second of the rest.
finish length
"""


def step(number: int) -> list[ModelMessage]:
    answer = ModelMessage("assistant", (ModelCall(f"call_{number}", "read", {}),))
    return [answer, ModelMessage("tool", (ModelResult(f"call_{number}", "read", "ok", False),))]


async def play(*messages: ModelMessage, script: str = SCRIPT) -> Heard:
    return await hear(ScriptedProvider.from_text(script), request(*messages))


async def test_the_request_alone_decides_which_answer_comes() -> None:
    asked = user("set the timeout to 30 s")
    first = await play(asked)
    assert first.blocks == [("reasoning", "I should look first."), ("tool read", '{"path": "config.py"}')]
    assert first.finish == "toolCalls"
    second = await play(asked, *step(1))
    assert json.loads(second.blocks[0][1]) == {"path": "config.py", "content": "timeout = 30\n"}
    note = user("<work-context>timeout</work-context>")
    third = await play(user("old"), note, asked, *step(1), note, *step(2), note)
    assert (third.blocks, third.finish) == ([("text", "The timeout\n  is 30 s\n\nnow.")], "stop")


async def test_turns_without_a_condition_come_in_order() -> None:
    said = ModelMessage("assistant", (ModelText("yes"),))
    assert (await play(user("a"))).blocks == [("text", "First of the rest.")]
    second = await play(user("a"), said, user("the timeout"), said, user("b"))
    assert (second.blocks, second.finish) == ([("text", "Second of the rest.")], "length")
    with pytest.raises(ProviderError, match="has no turn for the prompt 'c'") as caught:
        await play(user("a"), said, user("b"), said, user("c"))
    assert not caught.value.retryable
    with pytest.raises(ProviderError, match="has no answer 2"):
        await play(user("a"), *step(1))


async def test_words_come_one_by_one_and_a_line_is_a_whole_script() -> None:
    heard = await play(script="say: one two  three")
    assert heard.blocks == [("text", "one two  three")]
    assert heard.batches == 4
    assert heard.usage is not None


async def test_a_script_can_fail() -> None:
    with pytest.raises(ProviderError, match="too busy") as caught:
        await play(script="say: so\nfail providerUnavailable: too busy")
    assert (caught.value.kind, caught.value.retryable) == ("providerUnavailable", True)


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("say: a\nshout: b", "2:1", "expected one of"),
        ("  say: a", "1:1", "there is none"),
        ('call read {"path": x}', "1:20", "no JSON"),
        ('call read {"path": 1,\n  "b": x}', "2:8", "no JSON"),
        ("call read [1]", "1:11", "must be a JSON object"),
        ("call", "1:5", "name of a tool"),
        ("wait soon", "1:6", "200ms"),
        ("finish never", "1:8", "stop, toolCalls"),
        ("fail badly: x", "1:6", "KIND: MESSAGE"),
        ("say: a\nwhen: b", "2:1", "before a turn's first answer"),
        ("# turn\npace: 1ms", "2:1", "before the first turn"),
    ],
)
def test_an_error_names_its_place(text: str, place: str, message: str) -> None:
    with pytest.raises(ScriptError, match=message) as caught:
        Script.parse(text, "demo.txt")
    assert str(caught.value).startswith(f"demo.txt:{place}: ")


line = st.text(st.characters(categories=["L", "N", "P", "S"], include_characters=" "), max_size=12)
texts = st.lists(line, min_size=1, max_size=3).map(
    lambda lines: "\n".join(each.strip() for each in lines).strip()
)
actions = st.one_of(
    texts.map(Say),
    texts.map(Think),
    st.builds(Wait, st.integers(0, 9999)),
    st.builds(
        Call, st.sampled_from(["read", "mcp_x-1"]), st.dictionaries(st.text(), st.text() | st.integers())
    ),
    st.builds(Fail, st.just("badResponse"), line.map(str.strip).filter(bool)),
)
answers = st.builds(
    ScriptedAnswer, st.lists(actions, max_size=4).map(tuple), st.sampled_from(["stop", "length"])
)
turns = st.builds(
    ScriptedTurn, st.none() | line.map(str.strip).filter(bool), st.lists(answers, max_size=3).map(tuple)
)


@given(st.builds(Script, st.just("script"), st.integers(0, 50), st.lists(turns, max_size=3).map(tuple)))
def test_what_is_dumped_is_parsed_again(script: Script) -> None:
    assert Script.parse(script.dump()) == script


async def test_a_script_comes_from_a_path_or_a_file_uri(tmp_path: Path) -> None:
    path = tmp_path / "my script.txt"
    path.write_text("say: hello\r\n")
    for address in (str(path), path.as_uri()):
        heard: Any = await hear(ScriptedProvider.from_address(address, "demo"))
        assert heard.blocks == [("text", "hello")]
    with pytest.raises(ConfigError, match=r"can't read the script .*set base_url"):
        await ScriptedProvider.from_address(str(tmp_path / "none"), "demo").load()
