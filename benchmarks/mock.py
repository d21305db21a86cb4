"""`python -m benchmarks.mock`: a model server on loopback that answers as fast as it can.

It speaks both wires. `PUT /plan` tells what comes next and renders it ahead; `GET /records` tells when each
request was complete and when its first delta was written, on CLOCK_MONOTONIC, which all processes share.
The first line on stdout is the port.

A plan: `{"deltas": n, "gap": seconds between deltas, "calls": n, "path": "file"}`: `calls` answers that each
read the file, then one of text. Deltas are six random characters each, so that compression flatters no log.
"""

import asyncio
import json
import random
import string
import time
from typing import Any

_BATCH = 64
"""Deltas in one write at full speed, each its own HTTP chunk; about what one network packet carries."""

Json = Any


class Mock:
    """The plan, what is rendered, what was seen."""

    def __init__(self) -> None:
        self.plan: dict[str, Json] = {}
        self.records: list[dict[str, Json]] = []
        self._texts: dict[str, tuple[list[bytes], list[bytes], list[bytes]]] = {}
        self._calls_left = 0

    def take_plan(self, plan: dict[str, Json]) -> None:
        """Forget what was seen, and render."""
        self.plan, self.records, self._calls_left = plan, [], plan.get("calls", 0)
        words = _words(plan["deltas"])
        self._texts = {"messages": _anthropic(words), "completions": _openai(words)}

    async def answer(self, wire: str, size: int, received: float, writer: asyncio.StreamWriter) -> None:
        """Stream one answer and note it."""
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        )
        record: dict[str, Json] = {"received": received, "size": size, "writes": []}
        self.records.append(record)
        if self._calls_left:
            self._calls_left -= 1
            render = _anthropic_call if wire == "messages" else _openai_call
            head, deltas, tail = render(f"call{self._calls_left}", {"path": self.plan["path"]})
        else:
            head, deltas, tail = self._texts[wire]
        gap = self.plan.get("gap", 0)
        began = record["first"] = time.monotonic()
        if gap:
            writer.write(b"".join(head))
            for number, delta in enumerate(deltas):
                if (pause := began + number * gap - time.monotonic()) > 0:
                    await asyncio.sleep(pause)
                if writer.is_closing():  # a server that was killed reads no more
                    return
                record["writes"].append(time.monotonic())
                writer.write(delta)
            writer.write(b"".join(tail))
        else:
            pieces = [*head, *deltas, *tail]
            for number in range(0, len(pieces), _BATCH):
                writer.write(b"".join(pieces[number : number + _BATCH]))
                await writer.drain()
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    async def connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve requests until the client goes."""
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
                length = head.partition("content-length:")[2].split("\r\n")[0]
                body = await reader.readexactly(int(length or 0))
                received = time.monotonic()
                path = head.split(" ", 2)[1]
                if path == "/plan":
                    self.take_plan(json.loads(body))
                    _reply(writer, {})
                elif path == "/records":
                    _reply(writer, self.records)
                else:
                    await self.answer(path.rpartition("/")[2], length and int(length), received, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


def _reply(writer: asyncio.StreamWriter, value: Json) -> None:
    body = json.dumps(value).encode()
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))


def _words(count: int) -> list[str]:
    letters = random.Random(7)
    return ["".join(letters.choices(string.ascii_lowercase, k=5)) + " " for _ in range(count)]


def _event(data: Json, name: str | None = None) -> bytes:
    """One event as one HTTP chunk."""
    text = data if isinstance(data, str) else json.dumps(data, separators=(",", ":"))
    body = (f"event: {name}\n" if name else "") + f"data: {text}\n\n"
    return b"%x\r\n%b\r\n" % (len(body), body.encode())


def _anthropic(words: list[str]) -> tuple[list[bytes], list[bytes], list[bytes]]:
    deltas = [{"type": "text_delta", "text": word} for word in words]
    return _anthropic_block({"type": "text", "text": ""}, deltas, "end_turn")


def _anthropic_call(call_id: str, args: Json) -> tuple[list[bytes], list[bytes], list[bytes]]:
    block = {"type": "tool_use", "id": f"toolu_{call_id}", "name": "read", "input": {}}
    return _anthropic_block(
        block, [{"type": "input_json_delta", "partial_json": json.dumps(args)}], "tool_use"
    )


def _anthropic_block(
    block: Json, deltas: list[Json], stop: str
) -> tuple[list[bytes], list[bytes], list[bytes]]:
    def event(kind: str, **fields: Json) -> bytes:
        return _event({"type": kind, **fields}, kind)

    message = {
        "id": "msg_bench",
        "type": "message",
        "role": "assistant",
        "model": "test",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 10, "output_tokens": 1},
    }
    return (
        [
            event("message_start", message=message),
            event("content_block_start", index=0, content_block=block),
        ],
        [event("content_block_delta", index=0, delta=delta) for delta in deltas],
        [
            event("content_block_stop", index=0),
            event(
                "message_delta",
                delta={"stop_reason": stop, "stop_sequence": None},
                usage={"output_tokens": 9},
            ),
            event("message_stop"),
        ],
    )


def _openai(words: list[str]) -> tuple[list[bytes], list[bytes], list[bytes]]:
    return (
        [_choice({"role": "assistant", "content": ""})],
        [_choice({"content": word}) for word in words],
        [_choice({}, "stop"), _event("[DONE]")],
    )


def _openai_call(call_id: str, args: Json) -> tuple[list[bytes], list[bytes], list[bytes]]:
    call = {"name": "read", "arguments": json.dumps(args)}
    return (
        [],
        [_choice({"tool_calls": [{"index": 0, "id": call_id, "type": "function", "function": call}]})],
        [_choice({}, "tool_calls"), _event("[DONE]")],
    )


def _choice(delta: Json, finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return _event(
        {"id": "chatcmpl-bench", "object": "chat.completion.chunk", "created": 1, "choices": [choice]}
    )


async def _serve() -> None:
    server = await asyncio.start_server(Mock().connection, "127.0.0.1", 0, limit=1 << 22)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve())
