"""The composition root: a server on stdio with one attached editor."""

from typing import Any

from deskmate_server.handlers.attachment import Attachment
from deskmate_server.handlers.register import register
from deskmate_server.wire.methods import PROTOCOL_VERSION
from deskmate_server.wire.server import WireServer
from deskmate_server.wire.transport import Stdio, serve
from deskmate_server.wire.version import VERSION


async def serve_stdio(stdio: Stdio | None = None) -> int:
    """Serve one editor on stdio until it goes; returns the exit code."""

    def experimental() -> dict[str, Any]:
        return {
            "protocolVersion": PROTOCOL_VERSION,
            "serverVersion": VERSION,
            "methods": server.methods,
        }

    server = WireServer("deskmate", VERSION, experimental=experimental)
    editor = Attachment(server)
    register(editor)
    return await serve(server, editor.close, stdio=stdio)
