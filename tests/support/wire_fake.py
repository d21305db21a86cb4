"""A tiny server on the real wire, for tests of the wire: run it with `python -m tests.support.wire_fake`."""

import asyncio
import os
import subprocess
import sys
import time
from typing import Any, Literal, cast

from lsprotocol import types
from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from deskmate_server.editor.documents import DocumentStore
from deskmate_server.editor.positions import Encoding
from deskmate_server.wire.errors import RequestFailed
from deskmate_server.wire.server import WireServer
from deskmate_server.wire.transport import claim_stdio, leave, serve


class Shape(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True, defer_build=True)


class Nothing(Shape):
    pass


class Text(Shape):
    type: Literal["text"]
    text: str


class File(Shape):
    type: Literal["file"]
    file_uri: str


class Parts(Shape):
    session_id: str = ""
    parts: list[Text | File] = Field(default_factory=list[Text | File])
    count: int = 0
    note: str | None = None


class Tagged(Shape):
    parts: list["TaggedPart"]


class TaggedPart(Shape):
    part: Text | File = Field(discriminator="type")


class Numbered(Shape):
    number: int = 0
    seconds: float = 0.0


class Ask(Shape):
    method: str
    params: Any = None
    timeout: float | None = None


class Uri(Shape):
    uri: str


def build() -> WireServer:
    server = WireServer("fake", "0", experimental=lambda: {"protocolVersion": 1, "methods": server.methods})
    store = DocumentStore()
    ran: list[int] = []
    ticking: list[asyncio.Task[None]] = []

    def initialized(params: types.InitializeParams) -> None:
        store.encoding = Encoding(server.position_encoding)
        options = cast("dict[str, Any]", params.initialization_options or {})
        if options.get("deskmate", {}).get("refuse"):
            raise RequestFailed("untrusted", "not here", "trust the folder")

    server.on_initialize(initialized)
    store.connect(server)

    async def echo(params: Parts) -> Parts:
        return params

    async def tagged(params: Tagged) -> Tagged:
        return params

    async def nothing(params: Nothing) -> None:
        return None

    async def block(params: Numbered) -> None:
        time.sleep(params.seconds)  # It holds the loop on purpose.

    async def note(params: Numbered) -> dict[str, int]:
        ran.append(params.number)
        return {"number": params.number}

    async def who_ran(params: Nothing) -> dict[str, list[int]]:
        return {"ran": ran}

    async def forever(params: Nothing) -> None:
        server.notify("fake/started")
        await asyncio.Event().wait()

    async def fail(params: Numbered) -> None:
        match params.number:
            case 0:
                raise ValueError("secret /home/me/path")
            case 1:
                raise RequestFailed("sessionNotFound", "no such session", "list them", sessionId="ses_1")
            case _:
                raise KeyError("x")

    async def unserializable(params: Nothing) -> dict[str, Any]:
        return {"value": float("nan")}

    async def ask(params: Ask) -> dict[str, Any]:
        try:
            return {"result": await server.request(params.method, params.params, params.timeout)}
        except Exception as error:
            return {"error": type(error).__name__, "text": str(error)}

    async def stray(params: Nothing) -> None:
        print("stray print")
        os.write(1, b"stray write\n")
        subprocess.run(["sh", "-c", "echo stray child; read x; echo got:[$x]"], check=False)

    async def flood(params: Numbered) -> dict[str, int]:
        for number in range(params.number):
            server.notify("fake/flood", {"number": number, "text": "x" * 10_000})
        return {"sent": params.number}

    async def tick(params: Nothing) -> None:
        async def ticks() -> None:
            while True:
                sys.stderr.write("tick\n")
                sys.stderr.flush()
                await asyncio.sleep(0.01)

        ticking.append(asyncio.create_task(ticks()))

    async def document(params: Uri) -> dict[str, Any]:
        found = store.get(params.uri)
        if found is None:
            return {"open": False}
        return {
            "open": True,
            "uri": found.uri,
            "path": str(found.path),
            "text": found.text,
            "version": found.version,
            "dirty": found.dirty,
            "count": len(store.all()),
        }

    for method, model, fn in (
        ("fake/echo", Parts, echo),
        ("fake/tagged", Tagged, tagged),
        ("fake/nothing", Nothing, nothing),
        ("fake/block", Numbered, block),
        ("fake/note", Numbered, note),
        ("fake/ran", Nothing, who_ran),
        ("fake/forever", Nothing, forever),
        ("fake/fail", Numbered, fail),
        ("fake/unserializable", Nothing, unserializable),
        ("fake/ask", Ask, ask),
        ("fake/stray", Nothing, stray),
        ("fake/flood", Numbered, flood),
        ("fake/tick", Nothing, tick),
        ("fake/document", Uri, document),
    ):
        server.rpc(method, model, fn)  # type: ignore[arg-type]
    server.rpc_command("fake.op.note", Numbered, note)
    server.rpc_command("fake.op.forever", Nothing, forever)
    return server


def main() -> None:
    stdio = claim_stdio()
    server = build()

    async def on_stop() -> None:
        sys.stderr.write("stopped in order\n")
        server.notify("fake/goodbye")
        if "--hang" in sys.argv:
            await asyncio.Event().wait()

    deadline = float(os.environ.get("FAKE_DEADLINE", "5"))
    leave(asyncio.run(serve(server, on_stop, stdio=stdio, stop_deadline=deadline)))


if __name__ == "__main__":
    main()
