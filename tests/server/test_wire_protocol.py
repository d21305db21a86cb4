"""Answers: every request gets one, with the right code, and no traceback."""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pygls.protocol import LanguageServerProtocol

from tests.support.lsp_client import LspClient, LspError

REPO = Path(__file__).parents[2]
FAKE = [sys.executable, "-m", "tests.support.wire_fake"]
ENV = {"PYTHONPATH": "server:session:."}
GOOD_PART = {"type": "text", "text": "a"}


@pytest.fixture
async def raw() -> AsyncIterator[LspClient]:
    """A server that has not been initialized."""
    async with await LspClient.start(FAKE, cwd=REPO, env=ENV) as client:
        yield client


@pytest.fixture
async def client(raw: LspClient, tmp_path: Path) -> LspClient:
    await raw.initialize(tmp_path)
    return raw


async def fault(answer: Any) -> LspError:
    with pytest.raises(LspError) as caught:
        await answer
    return caught.value


def errors(client: LspClient) -> list[tuple[Any, int]]:
    """Id and code of every error answer."""
    answers = [logged.message for logged in client.frames if logged.way == "<"]
    return [(answer["id"], answer["error"]["code"]) for answer in answers if "error" in answer]


async def test_the_handshake_advertises_us_and_shows_the_app_its_params(
    raw: LspClient, tmp_path: Path
) -> None:
    error = await fault(raw.request("fake/nothing"))
    assert error.code == -32002
    error = await fault(raw.initialize(tmp_path, options={"refuse": True}))
    assert (error.code, error.data) == (-32803, {"kind": "untrusted", "hint": "trust the folder"})
    result: Any = await raw.initialize(tmp_path, encodings=["utf-7", "utf-8", "utf-16"])
    capabilities = result["capabilities"]
    assert capabilities["positionEncoding"] == "utf-8"
    assert capabilities["experimental"]["deskmate"]["protocolVersion"] == 1
    assert "fake/echo" in capabilities["experimental"]["deskmate"]["methods"]
    assert capabilities["textDocumentSync"]["openClose"] is True
    assert capabilities["textDocumentSync"]["change"] == 2
    assert (await fault(raw.request("initialize", {"capabilities": {}}))).code == -32600


async def test_a_client_of_a_newer_lsp_is_welcome(raw: LspClient, tmp_path: Path) -> None:
    future = {
        "workspace": {"applyEdit": True, "symbol": {"symbolKind": {"valueSet": [1, 999]}}},
        "textDocument": {"completion": {"completionItem": {"tagSupport": {"valueSet": [99]}}}},
        "general": {"positionEncodings": ["utf-32"]},
    }
    result = await raw.initialize(tmp_path, capabilities=future)
    assert result["capabilities"]["positionEncoding"] == "utf-32"


@pytest.mark.parametrize(
    ("method", "params", "path"),
    [
        ("fake/echo", {"parts": [{"type": "text", "text": 3}]}, "parts[0].text"),
        ("fake/echo", {"sessionId": 5}, "sessionId"),
        ("fake/tagged", {"parts": [{"part": GOOD_PART}, {"part": {"type": "text"}}]}, "parts[1].part.text"),
        ("fake/tagged", {"parts": [{"part": {"type": "zip"}}]}, "parts[0].part.type"),
        ("fake/tagged", None, "parts"),
        ("fake/echo", [1], ""),
        ("fake/echo", "text", ""),
        ("workspace/executeCommand", {"command": "nope"}, "command"),
        ("workspace/executeCommand", {}, "command"),
        ("workspace/executeCommand", {"command": "fake.op.note", "arguments": [{"number": "x"}]}, "number"),
    ],
)
async def test_bad_params_name_the_field(client: LspClient, method: str, params: Any, path: str) -> None:
    error = await fault(client.request(method, params))
    assert error.code == -32602
    data: Any = error.data
    assert (data["kind"], data["path"]) == ("invalidParams", path)
    assert data["errors"][0]["path"] == path


def test_the_private_names_of_pygls_that_we_override_are_there() -> None:
    for name in (
        "_execute_handler",
        "_send_data",
        "_send_handler_result",
        "_serialize_message",
        "lsp_initialize",
        "lsp_shutdown",
        "lsp_workspace__execute_command",
        "send_request",
        "send_request_async",
    ):
        assert callable(getattr(LanguageServerProtocol, name))


async def test_null_and_absent_params_are_an_empty_object(client: LspClient) -> None:
    assert await client.request("fake/echo") == {"sessionId": "", "parts": [], "count": 0}
    client.send_message({"jsonrpc": "2.0", "id": "null", "method": "fake/echo", "params": None})
    answer: Any = {"jsonrpc": "2.0", "id": "null", "result": {"sessionId": "", "parts": [], "count": 0}}
    await client.wait_until(lambda: client.frames[-1].message == answer)


async def test_ids_come_back_as_they_were(client: LspClient) -> None:
    answers = [client.send("fake/note", {"number": 1}, id=number) for number in (0, "0", "", "x", -3)]
    assert await asyncio.gather(*answers) == [{"number": 1}] * 5


async def test_failures_are_told_without_their_inside(client: LspClient) -> None:
    error = await fault(client.request("fake/fail", {"number": 0}))
    assert error.code == -32603
    assert "secret" not in str(error)
    assert error.data is None
    await client.wait_until(lambda: b"secret /home/me/path" in client.stderr)
    error = await fault(client.request("fake/fail", {"number": 1}))
    assert (error.code, error.message) == (-32803, "no such session")
    assert error.data == {"kind": "sessionNotFound", "hint": "list them", "sessionId": "ses_1"}
    assert (await fault(client.request("fake/unserializable"))).code == -32603
    assert (await fault(client.request("no/such"))).code == -32601
    assert (await fault(client.request("textDocument/didRename"))).code == -32601
    assert client.received("window/showMessage") == []


async def test_messages_that_are_no_requests_are_refused_and_survived(client: LspClient) -> None:
    client.send_raw(b"Content-Length: 1\r\n\r\n{")
    client.send_raw(b"Content-Length: none\r\n\r\n")
    client.send_message([])
    client.send_message({"jsonrpc": "1.0", "id": 70, "method": "fake/nothing"})
    client.send_message({"jsonrpc": "2.0", "id": 71, "method": 5})
    client.send_message({"jsonrpc": "2.0", "id": {"a": 1}, "method": "fake/nothing"})
    client.send_message({"jsonrpc": "2.0", "id": None, "method": "fake/nothing"})
    client.send_message({"jsonrpc": "2.0", "params": {"jsonrpc": "2.0"}})
    client.send_message({"jsonrpc": "2.0", "id": 72, "result": "nobody asked"})
    client.send_message({"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": "you"}})
    client.notify("no/such", {})
    client.notify("$/cancelRequest", {"id": 4711})
    client.notify("$/cancelRequest")
    client.notify("textDocument/didOpen", {"textDocument": 5})
    client.notify(
        "textDocument/didChange",
        {"textDocument": {"uri": "file:///x", "version": 2}, "contentChanges": [{"text": ""}]},
    )
    # A nested object with a "jsonrpc" key is data like any other.
    assert await client.request("fake/echo", {"note": "x", "jsonrpc": {"jsonrpc": "2.0", "id": 1}})
    assert errors(client) == [
        (None, -32700),
        (None, -32700),
        (None, -32600),
        (70, -32600),
        (71, -32600),
        (None, -32600),
        (None, -32600),
        (None, -32600),
    ]
    assert client.received("window/showMessage") == []


async def test_lower_case_headers_do(client: LspClient) -> None:
    body = b'{"jsonrpc":"2.0","id":"low","method":"fake/nothing"}'
    client.send_raw(b"content-type: x\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
    await client.wait_until(
        lambda: client.frames[-1].message == {"jsonrpc": "2.0", "id": "low", "result": None}
    )


async def test_a_request_over_the_size_limit_is_answered_too(client: LspClient) -> None:
    head = b'{"jsonrpc":"2.0","id":99,"method":"fake/echo","params":{"note":"'
    client.send_raw(b"Content-Length: %d\r\n\r\n" % ((64 << 20) + 1) + head)
    rest = (64 << 20) + 1 - len(head)
    client.send_raw(b"x" * rest)
    await client.wait_until(lambda: errors(client) == [(99, -32600)])
    assert await client.request("fake/nothing") is None


async def test_documents_reach_our_store_only(client: LspClient, tmp_path: Path) -> None:
    uri = tmp_path.as_uri() + "/%c3%a9.py"
    client.did_open(uri, "a\x0cb\nc\n")
    client.did_change(
        uri,
        2,
        {"range": {"start": {"line": 1, "character": 0}, "end": {"line": 1, "character": 1}}, "text": "😋"},
        {"range": {"start": {"line": 1, "character": 2}, "end": {"line": 1, "character": 2}}, "text": "!"},
    )
    state = await client.request("fake/document", {"uri": uri.replace("%c3%a9", "é")})
    assert state == {
        "open": True,
        "uri": uri,
        "path": str(tmp_path.resolve() / "é.py"),
        "text": "a\x0cb\n😋!\n",
        "version": 2,
        "dirty": True,
        "count": 1,
    }
    client.did_save(uri)
    assert (await client.request("fake/document", {"uri": uri}))["dirty"] is False
    client.did_close(uri)
    assert await client.request("fake/document", {"uri": uri}) == {"open": False}


async def test_a_cancel_stops_a_running_request(client: LspClient) -> None:
    command = {"command": "fake.op.forever"}
    requests = [("fake/forever", None), ("workspace/executeCommand", command)]
    for number, (method, params) in enumerate(requests):
        answer = client.send(method, params)
        await client.wait_for("fake/started", skip=number)
        client.cancel(answer)
        assert (await fault(answer)).code == -32800


async def test_L05_a_cancel_overtakes_what_waits_behind_a_slow_request(client: LspClient) -> None:
    slow = client.send("fake/block", {"seconds": 0.5})
    answers = [client.send("fake/note", {"number": number}) for number in range(50)]
    for answer in answers[:49]:
        client.cancel(answer)
    await slow
    for answer in answers[:49]:
        assert (await fault(answer)).code == -32800
    assert await answers[49] == {"number": 49}
    assert await client.request("fake/ran") == {"ran": [49]}


async def test_asking_the_client(client: LspClient) -> None:
    client.on_request("x/sum", lambda params: sum(params["numbers"]))
    question = {"method": "x/sum", "params": {"numbers": [1, 2]}}
    assert await client.request("fake/ask", question) == {"result": 3}
    refused = await client.request("fake/ask", {"method": "x/unknown"})
    assert refused["error"] == "ClientError"


async def test_a_question_nobody_answers_ends_and_is_taken_back(client: LspClient) -> None:
    cancelled = asyncio.Event()

    async def never(params: Any) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    client.on_request("x/never", never)
    late = await client.request("fake/ask", {"method": "x/never", "timeout": 0.05})
    assert late["error"] == "TimeoutError"
    await asyncio.wait_for(cancelled.wait(), 5)
    # The test client's -32800 comes late and is dropped.
    asking = client.send("fake/ask", {"method": "x/never"})
    await client.wait_for("x/never", skip=1)
    client.cancel(asking)
    assert (await fault(asking)).code == -32800
    await client.wait_for("$/cancelRequest", skip=1)
    assert await client.request("fake/nothing") is None


async def test_requests_after_shutdown_are_answered(client: LspClient) -> None:
    hanging = client.send("fake/forever")
    await client.wait_for("fake/started")
    await client.request("shutdown")
    assert (await fault(hanging)).code == -32800
    assert (await fault(client.request("fake/nothing"))).code == -32600
    client.notify("exit")
    assert await client.wait_exit() == 0
