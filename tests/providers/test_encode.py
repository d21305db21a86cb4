"""Bodies: a longer history extends the same prefix, and only what is new is encoded."""

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from deskmate_session.model.ports import (
    ModelBlock,
    ModelCall,
    ModelMessage,
    ModelReasoning,
    ModelRequest,
    ModelResult,
    ModelText,
    Provider,
)
from deskmate_session.providers import fragments
from deskmate_session.providers.scripted import ScriptedProvider
from tests.providers.support import READ, WIRES, make, request, user

ADDRESS = "http://127.0.0.1:9/v1"
words = st.text(max_size=12)
reasoning = st.builds(
    ModelReasoning,
    words,
    st.sampled_from(["mock/test", "mock/other"]),
    st.none() | st.just("sig"),
    st.none() | st.just("red"),
)


@st.composite
def steps(draw: st.DrawFn) -> list[ModelMessage]:
    """A prompt, or an answer with its results."""
    if draw(st.booleans()):
        return [ModelMessage("user", (ModelText(draw(words)),))]
    count = draw(st.integers(0, 2))
    calls: list[ModelBlock] = [ModelCall(f"call_{n}", "read", {"path": draw(words)}) for n in range(count)]
    prose: list[ModelBlock] = draw(st.lists(st.builds(ModelText, words) | reasoning, max_size=2))
    answer = ModelMessage("assistant", (*prose, *calls))
    results = tuple(
        ModelResult(f"call_{n}", "read", draw(words) or "-", draw(st.booleans())) for n in range(count)
    )
    return [answer, ModelMessage("tool", results)] if count else [answer]


def all_kinds() -> list[Provider]:
    return [*(make(wire, ADDRESS) for wire in WIRES), ScriptedProvider.from_text("say: x")]


@given(st.lists(steps(), min_size=1, max_size=8))
def test_each_request_is_a_byte_prefix_of_the_next_one(history: list[list[ModelMessage]]) -> None:
    for made in all_kinds():
        messages: list[ModelMessage] = [user("begin")]
        before = b""
        for step in history:
            messages += step
            body = made.encode(request(*messages))
            json.loads(body)
            assert body.endswith(b"]}")
            assert body.startswith(before)
            before = body[:-2]


@pytest.mark.parametrize("wire", WIRES)
def test_a_message_is_encoded_once_though_conversations_take_turns(
    wire: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded: list[object] = []
    real = fragments.to_json
    for module in ("anthropic", "openai_compatible"):
        monkeypatch.setattr(
            f"deskmate_session.providers.{module}.to_json", lambda value: encoded.append(value) or real(value)
        )
    made = make(wire, ADDRESS)
    one, two = [user("one")], [user("two")]
    made.encode(request(*one))
    made.encode(request(*two))
    encoded.clear()
    for history in (one, two):
        history.append(ModelMessage("assistant", (ModelText("yes"),)))
        made.encode(request(*history))
    messages: list[Any] = [each for each in encoded if "role" in str(each) and "model" not in str(each)]
    assert [each["role"] for each in messages if each["role"] != "system"] == ["assistant", "assistant"]


def test_a_message_that_left_the_history_is_let_go() -> None:
    made: Any = make("anthropic", ADDRESS)
    first, second = user("a"), user("b")
    made.encode(request(first, second))
    made.encode(request(first))
    assert [list(kept) for kept in made._fragments._kept.values()] == [[id(first)]]


def history() -> tuple[ModelMessage, ...]:
    return (
        user("do it"),
        ModelMessage(
            "assistant",
            (
                ModelReasoning("mine", "mock/test", "sig1", None),
                ModelReasoning("theirs", "mock/other", "sig2", None),
                ModelReasoning("", "mock/test", None, "RED"),
                ModelText(" \n"),
                ModelCall("call_1", "read", {}),
            ),
        ),
        ModelMessage("tool", (ModelResult("call_1", "read", "no such file", True),)),
        ModelMessage("assistant", (ModelReasoning("theirs", "mock/other", "sig2", None),)),
        user("and \ud83e now 🦀"),
    )


def test_the_anthropic_body_is_what_the_api_wants() -> None:
    body = json.loads(make("anthropic", ADDRESS).encode(request(*history())))
    assert body == {
        "model": "test",
        "max_tokens": 1024,
        "stream": True,
        "cache_control": {"type": "ephemeral"},
        "tools": [{"name": "read", "description": "Reads a file.", "input_schema": READ.schema}],
        "system": [{"type": "text", "text": "You are Deskmate.", "cache_control": {"type": "ephemeral"}}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "do it"}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "mine", "signature": "sig1"},
                    {"type": "redacted_thinking", "data": "RED"},
                    {"type": "tool_use", "id": "call_1", "name": "read", "input": {}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "call_1",
                        "content": "no such file",
                        "is_error": True,
                    }
                ],
            },
            {"role": "user", "content": [{"type": "text", "text": "and \ufffd now 🦀"}]},
        ],
    }


def test_the_openai_body_is_what_the_api_wants() -> None:
    body = json.loads(make("openai", ADDRESS).encode(request(*history())))
    function = {"name": "read", "description": "Reads a file.", "parameters": READ.schema}
    call = {"id": "call_1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    assert body == {
        "stream_options": {"include_usage": True},
        "model": "test",
        "max_tokens": 1024,
        "stream": True,
        "tools": [{"type": "function", "function": function}],
        "messages": [
            {"role": "system", "content": "You are Deskmate."},
            {"role": "user", "content": "do it"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "call_1", "content": "no such file"},
            {"role": "user", "content": "and \ufffd now 🦀"},
        ],
    }


def test_openai_itself_gets_the_new_name_of_the_limit() -> None:
    made = make("openai", "https://api.openai.com/v1")
    assert json.loads(made.encode(request()))["max_completion_tokens"] == 1024


def test_a_request_without_messages_tools_and_system_is_still_json() -> None:
    for made in all_kinds():
        assert json.loads(made.encode(ModelRequest("m", (), (), (), 1)))["messages"] == []
