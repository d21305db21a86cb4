"""A small editor for a test: buffers that follow `workspace/applyEdit`, with versions, sync and saving.

Positions are in the encoding that was negotiated; the arithmetic is this file's own.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.lsp_client import LspClient, as_uri

APPLY = {
    "workspace": {"applyEdit": True, "workspaceEdit": {"documentChanges": True}},
    "textDocument": {"synchronization": {"didSave": True}},
}
"""Capabilities of a client that takes versioned edits."""


@dataclass
class Buffer:
    """An open document."""

    path: Path
    uri: str
    text: str
    version: int = 1


class Editor:
    """Opens files, types, applies the server's edits, saves on request."""

    def __init__(self, client: LspClient, encoding: str = "utf-16") -> None:
        self.client = client
        self.encoding = encoding
        self.buffers: dict[str, Buffer] = {}
        self.edits: list[Any] = []
        self.refuse = False
        self.on_save = lambda text: text
        """What saving makes of a text, such as a formatter."""
        client.on_request("workspace/applyEdit", self._apply)
        client.on_request("deskmate/document/save", self._save)

    def open(self, path: Path, *, uri: str | None = None, text: str | None = None) -> Buffer:
        """Open a file; `text` differs from the disk where a buffer is restored unsaved."""
        content = path.read_bytes().decode() if text is None else text
        buffer = Buffer(path, uri or as_uri(path), content)
        self.buffers[buffer.uri] = buffer
        self.client.did_open(buffer.uri, content, version=buffer.version)
        return buffer

    def type(self, buffer: Buffer, text: str) -> None:
        """Replace the whole text of a buffer, as a person would by typing."""
        buffer.text = text
        buffer.version += 1
        self.client.did_change(buffer.uri, buffer.version, {"text": text})

    def _apply(self, params: Any) -> Any:
        self.edits.append(params)
        if self.refuse:
            return {"applied": False, "failureReason": "the test refuses"}
        for change in params["edit"]["documentChanges"]:
            buffer = self.buffers[change["textDocument"]["uri"]]
            if change["textDocument"]["version"] != buffer.version:
                return {"applied": False}
            self._change(buffer, change["edits"])
        return {"applied": True}

    def _change(self, buffer: Buffer, edits: list[Any]) -> None:
        spans = sorted(
            (
                (self._at(buffer.text, e["range"]["start"]), self._at(buffer.text, e["range"]["end"]), e)
                for e in edits
            ),
            key=lambda span: span[0],
            reverse=True,
        )
        for start, end, edit in spans:
            buffer.text = buffer.text[:start] + edit["newText"] + buffer.text[end:]
        buffer.version += 1
        self.client.did_change(buffer.uri, buffer.version, {"text": buffer.text})

    def _save(self, params: Any) -> Any:
        for uri in params["uris"]:
            buffer = self.buffers[uri]
            if (formatted := self.on_save(buffer.text)) != buffer.text:
                self.type(buffer, formatted)
            buffer.path.write_bytes(buffer.text.encode())
            self.client.did_save(uri)
        return {"saved": params["uris"]}

    def _at(self, text: str, position: Any) -> int:
        """The code-point offset of a position."""
        offset = 0
        for _ in range(position["line"]):
            offset = text.index("\n", offset) + 1
        units, line = position["character"], text[offset:].split("\n", 1)[0]
        for index, character in enumerate(line):
            if units <= 0:
                return offset + index
            units -= self._units(character)
        return offset + len(line)

    def _units(self, character: str) -> int:
        match self.encoding:
            case "utf-8":
                return len(character.encode())
            case "utf-16":
                return len(character.encode("utf-16-le")) // 2
            case _:
                return 1
