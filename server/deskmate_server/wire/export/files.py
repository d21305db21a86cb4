"""Which files are generated, and what stands in them."""

import json
from pathlib import Path
from typing import Any

from deskmate_server.wire.export import lua, markdown, typescript
from deskmate_server.wire.export.shapes import Shapes, collect
from deskmate_server.wire.methods import (
    CLIENT_NOTIFICATIONS,
    CLIENT_REQUESTS,
    METHODS,
    PROTOCOL_VERSION,
    Method,
)
from deskmate_session.model.events import EVENT_TYPES

ROOT = Path(__file__).resolve().parents[4]
"""The repository; the exporter is of no use outside it."""


def render() -> dict[str, str]:
    """Path in the repository → text, for every generated file. Always the same for the same model."""
    shapes = collect()
    return {
        "docs/protocol.md": markdown.protocol(shapes),
        "docs/events.md": markdown.events(shapes),
        "editors/protocol/schema.json": _json(_schema(shapes)),
        "editors/protocol/methods.json": _json(_methods()),
        "vscode-extension/src/protocol.ts": typescript.render(shapes),
        "editors/nvim/lua/deskmate/protocol.lua": lua.render(shapes),
    }


def stale(root: Path = ROOT) -> list[str]:
    """Paths whose file is missing or says something else than the model does."""
    return [path for path, text in render().items() if _read(root / path) != text]


def write(root: Path = ROOT) -> list[str]:
    """Write what is stale; returns the paths that changed."""
    changed: list[str] = []
    for path, text in render().items():
        if _read(root / path) != text:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text, encoding="utf-8", newline="\n")
            changed.append(path)
    return changed


def _schema(shapes: Shapes) -> dict[str, Any]:
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Shapes of the Deskmate wire",
        "protocolVersion": PROTOCOL_VERSION,
        "events": {tag: _ref(cls) for tag, cls in EVENT_TYPES.items()},
        "$defs": shapes.defs,
    }


def _methods() -> dict[str, Any]:
    def requests(methods: dict[str, Method]) -> dict[str, Any]:
        return {
            name: {
                "params": _ref(method.params),
                "result": _ref(method.result),
                "streams": method.streams,
                "summary": method.summary,
            }
            for name, method in methods.items()
        }

    return {
        "protocolVersion": PROTOCOL_VERSION,
        "requests": requests(METHODS),
        "clientRequests": requests(CLIENT_REQUESTS),
        "clientNotifications": {
            name: {"params": _ref(note.params), "summary": note.summary}
            for name, note in CLIENT_NOTIFICATIONS.items()
        },
    }


def _ref(cls: type) -> str:
    return f"schema.json#/$defs/{cls.__name__}"


def _json(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
