"""Both adapters against the fake server: exact content, each finish, each fault."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from deskmate_session.errors import ProviderError
from deskmate_session.model.messages import Usage
from tests.providers.support import WIRES, Heard, hear, make, provider, request, user
from tests.support.fake_provider import (
    Answer,
    FakeProvider,
    Raw,
    Redacted,
    Request,
    answer,
    call,
    error,
    raw,
    text,
    thinking,
)

both_wires = pytest.mark.parametrize("wire", WIRES)


@pytest.fixture
async def fp() -> AsyncIterator[FakeProvider]:
    with FakeProvider() as server:
        yield server


async def failure(wire: str, fp: FakeProvider, heard: Heard | None = None, **options: Any) -> ProviderError:
    async with provider(wire, fp, **options) as made:
        with pytest.raises(ProviderError) as caught:
            await hear(made, into=heard)
    return caught.value


@both_wires
@pytest.mark.parametrize(
    "framing",
    [
        {"chunk_bytes": 1},
        {"chunk_bytes": 1, "crlf": True, "comments": True, "multiline": True, "bom": True},
        {"chunk_bytes": 3, "cr": True, "comments": True},
        {"multiline": True},
        {},
    ],
)
async def test_M03_framing_leaves_text_and_arguments_intact(
    wire: str, framing: dict[str, Any], fp: FakeProvider
) -> None:
    fp.add(answer(text("你好🦀", size=1), call("look", {"city": "杭州"}, id="c1"), **framing))
    async with provider(wire, fp) as made:
        heard = await hear(made)
    assert [(kind, body) for kind, body in heard.blocks if kind == "text"] == [("text", "你好🦀")]
    assert heard.blocks[1][0] == "tool look"
    assert json.loads(heard.blocks[1][1]) == {"city": "杭州"}
    assert heard.ids[1] == "c1"
    assert "\ufffd" not in str(heard)
    assert (heard.finish, heard.usage) == ("toolCalls", Usage(input=12, output=7, context_used=19))


@both_wires
async def test_a_pair_of_surrogates_that_deltas_tear_is_joined_and_a_lone_one_replaced(
    wire: str, fp: FakeProvider
) -> None:
    def escaped(value: str) -> bytes:
        events: list[dict[str, Any]]
        if wire == "openai":
            events = [{"choices": [{"delta": {"content": each}}]} for each in value]
            events.append({"choices": [{"delta": {}, "finish_reason": "stop"}]})
        else:
            events = [
                {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
            ]
            events += [
                {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": each}}
                for each in value
            ]
            events += [{"type": "content_block_stop", "index": 0}, {"type": "message_stop"}]
        return b"".join(b"data: %b\n\n" % json.dumps(event).encode() for event in events)

    whole = escaped("a\ud83e\udd80b\udd80c\ud83e")
    fp.add(raw(whole), raw(*(whole[at : at + 1] for at in range(len(whole)))))
    async with provider(wire, fp) as made:
        for _ in range(2):
            assert (await hear(made)).blocks == [("text", "a🦀b\ufffdc\ufffd")]


@pytest.mark.parametrize(
    ("wire", "word", "finish"),
    [
        ("anthropic", "end_turn", "stop"),
        ("anthropic", "stop_sequence", "stop"),
        ("anthropic", "tool_use", "toolCalls"),
        ("anthropic", "max_tokens", "length"),
        ("anthropic", "model_context_window_exceeded", "length"),
        ("anthropic", "refusal", "refusal"),
        ("anthropic", "pause_turn", "unknown"),
        ("anthropic", "something_new", "unknown"),
        ("openai", "stop", "stop"),
        ("openai", "eos", "stop"),
        ("openai", "length", "length"),
        ("openai", "content_filter", "refusal"),
        ("openai", "something_new", "unknown"),
    ],
)
async def test_each_finish_has_its_meaning(wire: str, word: str, finish: str, fp: FakeProvider) -> None:
    fp.add(answer(text("hi"), finish=word))
    async with provider(wire, fp) as made:
        heard = await hear(made)
    assert (heard.finish, heard.raw_finish, heard.blocks) == (finish, word, [("text", "hi")])


@both_wires
async def test_calls_with_a_wrong_stop_are_calls_and_reasoning_has_its_own_block(
    wire: str, fp: FakeProvider
) -> None:
    usage = {"input": 5, "output": 9, "cache_read": 100, "reasoning": 3}
    fp.add(
        answer(
            thinking("hm", "s1"), text("ok"), call("read", raw=""), call("read", {"path": "x"}), usage=usage
        )
    )
    async with provider(wire, fp) as made:
        heard = await hear(made)
    assert heard.blocks == [
        ("reasoning", "hm"),
        ("text", "ok"),
        ("tool read", ""),
        ("tool read", '{"path": "x"}'),
    ]
    assert heard.signatures[0] == ("s1" if wire == "anthropic" else None)
    assert heard.usage == Usage(input=5, output=9, cache_read=100, reasoning=3, context_used=114)


async def test_redacted_thinking_is_kept(fp: FakeProvider) -> None:
    fp.add(answer(Redacted("AbC=="), text("ok")))
    async with provider("anthropic", fp) as made:
        heard = await hear(made)
    assert (heard.blocks, heard.redacted) == ([("reasoning", ""), ("text", "ok")], ["AbC==", None])


def openai_stream(*choices: dict[str, Any] | str) -> Raw:
    lines = [each if isinstance(each, str) else json.dumps({"choices": [each]}) for each in choices]
    return raw("".join(f"data: {line}\n\n" for line in lines).encode())


def calls(*given: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {"delta": {"tool_calls": list(given)}, "finish_reason": finish}


F, G = {"name": "f", "arguments": '{"a":'}, {"name": "g", "arguments": "{}"}
G_BEGUN = {"name": "g"}


@pytest.mark.parametrize(
    "stream",
    [
        # M06: no index at all.
        [
            calls({"id": "x1", "function": F}),
            calls({"function": {"arguments": "1}"}}),
            calls({"id": "x2", "function": G}),
        ],
        # Ollama: both have index 0.
        [
            calls({"index": 0, "id": "x1", "function": F}),
            calls({"index": 0, "function": {"arguments": "1}"}}),
            calls({"index": 0, "id": "x2", "function": G}),
        ],
        # Interleaved, name repeated, arguments in one piece as an object.
        [
            calls({"index": 0, "id": "x1", "function": F}, {"index": 1, "id": "x2", "function": G_BEGUN}),
            calls({"index": 0, "id": "x1", "function": {"name": "f", "arguments": "1}"}}),
            calls({"index": 1, "function": {"arguments": {}}}),
        ],
    ],
)  # fmt: skip
async def test_M06_parallel_calls_stay_apart(stream: list[dict[str, Any]], fp: FakeProvider) -> None:
    fp.add(openai_stream(*stream, {"delta": {}, "finish_reason": "stop"}, "[DONE]"))
    async with provider("openai", fp) as made:
        heard = await hear(made)
    assert heard.blocks == [("tool f", '{"a":1}'), ("tool g", "{}")]
    assert (heard.ids, heard.finish) == (["x1", "x2"], "toolCalls")


async def test_M07_a_second_finish_and_absent_usage_change_nothing(fp: FakeProvider) -> None:
    one = calls({"index": 0, "id": "x", "function": G}, finish="tool_calls")
    again = json.dumps({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 1}})
    fp.add(
        openai_stream(one, {"delta": {}, "finish_reason": "tool_calls"}, again, "[DONE]"), openai_stream(one)
    )
    async with provider("openai", fp) as made:
        first, second = await hear(made), await hear(made)
    assert first.blocks == second.blocks == [("tool g", "{}")]
    assert first.usage == Usage(input=3, output=1, context_used=4)
    assert second.usage is None


async def test_usage_that_a_server_refuses_to_tell_is_asked_for_only_once(fp: FakeProvider) -> None:
    refusal = error(400, {"error": {"message": "unknown field stream_options", "code": 400}})
    fp.add(refusal, answer(text("a"), usage=None), answer(text("b"), usage=None))
    async with provider("openai", fp) as made:
        assert [(await hear(made)).blocks, (await hear(made)).blocks] == [[("text", "a")], [("text", "b")]]
    assert ["stream_options" in body for body in fp.bodies] == [True, False, False]
    assert fp.bodies[0] == {**fp.bodies[1], "stream_options": {"include_usage": True}}


ERRORS: list[tuple[int, dict[str, Any] | str | None, str, bool]] = [
    (400, None, "badResponse", False),
    (
        400,
        {"error": {"type": "invalid_request_error", "message": "prompt is too long: 9"}},
        "contextOverflow",
        False,
    ),
    (400, {"error": {"code": "context_length_exceeded", "message": "no"}}, "contextOverflow", False),
    (401, None, "providerAuth", False),
    (402, "pay", "providerAuth", False),
    (403, None, "providerAuth", False),
    (404, None, "badResponse", False),
    (408, "slow", "providerUnavailable", True),
    (409, "busy", "providerUnavailable", True),
    (413, None, "contextOverflow", False),
    (422, {"detail": "bad"}, "badResponse", False),
    (429, None, "providerUnavailable", True),
    (429, {"error": {"type": "insufficient_quota", "message": "no"}}, "providerAuth", False),
    (500, {"error": "oops"}, "providerUnavailable", True),
    (502, "<html>bad gateway</html>", "providerUnavailable", True),
    (503, "", "providerUnavailable", True),
    (529, None, "providerUnavailable", True),
    (307, "", "badResponse", False),
]


@both_wires
@pytest.mark.parametrize(("status", "body", "kind", "retryable"), ERRORS)
async def test_each_refusal_has_its_kind(
    wire: str, status: int, body: Any, kind: str, retryable: bool, fp: FakeProvider
) -> None:
    fp.add(error(status, body, location="http://127.0.0.1:9/"))
    found = await failure(wire, fp)
    assert (found.kind, found.retryable) == (kind, retryable), found.message
    assert str(status) in found.message
    assert len(fp.requests) == 1, "retrying is the runtime's"


@both_wires
@pytest.mark.parametrize(
    ("headers", "wait_ms"),
    [
        ({"retry_after": "2"}, 2000),
        ({"retry_after": "0.5"}, 500),
        ({"retry_after_ms": "1500", "retry_after": "9"}, 1500),
        ({"retry_after": "abc"}, None),
        ({"retry_after": "86400"}, 86_400_000),
        ({"retry_after": "inf"}, None),
        ({"retry_after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0),
        ({}, None),
    ],
)
async def test_retry_after_is_read(
    wire: str, headers: dict[str, str], wait_ms: int | None, fp: FakeProvider
) -> None:
    fp.add(error(429, **headers))
    assert (await failure(wire, fp)).retry_after_ms == wait_ms


@both_wires
async def test_a_key_that_a_server_echoes_is_masked(wire: str, fp: FakeProvider) -> None:
    def echo(asked: Request) -> Raw:
        return error(401, {"error": {"message": f"bad key: {asked.headers['authorization']}"}})

    fp.add(echo)
    found = await failure(wire, fp)
    assert fp.requests[0].headers["authorization"] == "Bearer sk-secret-12345"
    assert found.kind == "providerAuth"
    assert "[key]" in found.message
    seen: BaseException | None = found
    while seen is not None:
        assert "sk-secret" not in f"{seen!r} {seen} {vars(seen)}"
        seen = seen.__cause__ or seen.__context__


async def test_the_anthropic_key_goes_out_in_both_headers_and_base_url_may_lack_v1(fp: FakeProvider) -> None:
    fp.add(answer(text("a")), answer(text("b")))
    for base in (fp.base_url, fp.base_url.removesuffix("/v1") + "/"):
        made = make("anthropic", base)
        await hear(made)
        await made.close()
    assert [each.path for each in fp.requests] == ["/v1/messages"] * 2
    assert fp.requests[0].headers["x-api-key"] == "sk-secret-12345"
    assert fp.requests[0].headers["content-type"] == "application/json"


@both_wires
async def test_a_local_server_gets_no_key_of_the_person(
    wire: str, fp: FakeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-of-the-person")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-person")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    fp.add(answer(text("a")))
    async with provider(wire, fp, key=None) as made:
        await hear(made)
    assert "sk-of" not in str(fp.requests[0].headers)


@both_wires
async def test_an_error_inside_the_stream_comes_after_the_text_before_it(wire: str, fp: FakeProvider) -> None:
    overloaded = {"error": {"type": "overloaded_error", "message": "busy"}}
    fp.add(answer(text("abcdefghijklmnop", size=1), error_after=(8, overloaded)))
    heard = Heard()
    found = await failure(wire, fp, heard)
    assert (found.kind, found.retryable) == ("providerUnavailable", True)
    assert heard.blocks[0][1].startswith("abcde")
    assert "broke off its answer: busy" in found.message


@both_wires
@pytest.mark.parametrize("how", ["cut_after", "end_after"])
async def test_a_stream_without_its_end_is_a_bad_response(wire: str, how: str, fp: FakeProvider) -> None:
    for count in (0, 3):
        fp.add(answer(text("abc", size=1), **{how: count}))
        found = await failure(wire, fp)
        assert (found.kind, found.retryable) == ("badResponse", True)


async def test_a_missing_done_is_no_fault_when_the_finish_was_seen(fp: FakeProvider) -> None:
    fp.add(
        answer(text("ok"), no_end=True), answer(text("ok"), cut_after=3), answer(text("ok"), stall_after=3)
    )
    async with provider("openai", fp, idle_timeout_ms=100) as made:
        for _ in range(3):
            assert (await hear(made)).finish == "stop"


@both_wires
async def test_torn_json_is_a_bad_response(wire: str, fp: FakeProvider) -> None:
    for content in (
        b'data: {"type": "mess\n\n',
        b"data: [1]\n\n",
        b"<html>hello</html>",
        b'data: {"choices":[7]}\n\n',
    ):
        fp.add(raw(content))
        assert (await failure(wire, fp)).kind == "badResponse"


@both_wires
async def test_a_server_that_is_not_there_is_unavailable(wire: str) -> None:
    with FakeProvider() as gone:
        pass
    found = await failure(wire, gone)
    assert (found.kind, found.retryable) == ("providerUnavailable", True)
    assert str(gone.port) in found.message


@both_wires
@pytest.mark.parametrize(
    "stalled",
    [answer(text("abcdefgh", size=1), stall_after=4, ping_while_stalled_ms=20), answer(delay_ms=5000)],
)
async def test_a_stall_ends_in_time_though_pings_come(wire: str, stalled: Answer, fp: FakeProvider) -> None:
    fp.add(stalled)
    found = await failure(wire, fp, first_content_ms=100, idle_timeout_ms=100)
    assert (found.kind, found.retryable) == ("providerUnavailable", True)
    assert "100 ms" in found.message
    assert await asyncio.to_thread(fp.requests[0].left.wait, 2)


@both_wires
async def test_closing_the_iterator_or_cancelling_closes_the_connection(wire: str, fp: FakeProvider) -> None:
    fp.add(answer(text("abcdefgh", size=1), stall_after=4), answer(text("abcdefgh", size=1), stall_after=4))
    async with provider(wire, fp) as made:
        stream: Any = made.stream(made.encode(request()))
        await anext(stream)
        await stream.aclose()
        task = asyncio.create_task(hear(made))
        await asyncio.to_thread(fp.wait_for, 2)
        await asyncio.sleep(0.05)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled()
        for asked in fp.requests:
            assert await asyncio.to_thread(asked.left.wait, 2)


@both_wires
async def test_connections_are_used_again_and_requests_go_side_by_side(wire: str, fp: FakeProvider) -> None:
    fp.add(*(answer(text(str(number)), delay_ms=50) for number in range(4)))
    async with provider(wire, fp) as made:
        heard = await asyncio.gather(*(hear(made, request(user(str(number)))) for number in range(4)))
    assert sorted(each.blocks[0][1] for each in heard) == ["0", "1", "2", "3"]
