"""The demo's editor: open documents with versions, edits that are checked, saving. Positions are utf-32."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from deskmate_server.cli.lsp_client import LspClient, Params


@dataclass(slots=True)
class Buffer:
    """An open document."""

    text: str
    version: int


class DemoEditor:
    """Keeps buffers in step with the server, as every editor does."""

    def __init__(self, client: LspClient) -> None:
        self._client = client
        self.buffers: dict[str, Buffer] = {}
        client.on_request("workspace/applyEdit", self._apply)
        client.on_request("deskmate/document/save", self._save)

    def open(self, path: Path) -> str:
        """Open a file; returns its URI."""
        uri = path.as_uri()
        buffer = self.buffers[uri] = Buffer(path.read_text(encoding="utf-8"), 1)
        item = {"uri": uri, "languageId": "python", "version": buffer.version, "text": buffer.text}
        self._client.notify("textDocument/didOpen", {"textDocument": item})
        return uri

    async def _apply(self, params: Params) -> Any:
        """All or nothing: an edit of another version than ours is refused."""
        changes: list[Params] = params["edit"].get("documentChanges", [])
        for change in changes:
            target = change["textDocument"]
            buffer = self.buffers.get(target["uri"])
            if buffer is None or target["version"] not in (None, buffer.version):
                return {"applied": False, "failureReason": f"{target['uri']} is not open at this version"}
        for change in changes:
            uri: str = change["textDocument"]["uri"]
            buffer = self.buffers[uri]
            buffer.text = apply_edits(buffer.text, change["edits"])
            buffer.version += 1
            document = {"uri": uri, "version": buffer.version}
            self._client.notify(
                "textDocument/didChange",
                {"textDocument": document, "contentChanges": [{"text": buffer.text}]},
            )
        return {"applied": True}

    async def _save(self, params: Params) -> Any:
        saved: list[str] = []
        uris: list[str] = params["uris"]
        for uri in uris:
            if (buffer := self.buffers.get(uri)) is not None:
                Path(unquote(urlsplit(uri).path)).write_text(buffer.text, encoding="utf-8")  # noqa: ASYNC240
                self._client.notify("textDocument/didSave", {"textDocument": {"uri": uri}})
                saved.append(uri)
        return {"saved": saved}


def apply_edits(text: str, edits: list[Params]) -> str:
    """A text with LSP edits applied; ranges refer to the text before all of them."""
    starts = [0]
    for line in text.split("\n"):
        starts.append(starts[-1] + len(line) + 1)

    def offset(position: Params) -> int:
        line: int = min(int(position["line"]), len(starts) - 2)
        end: int = min(starts[line + 1] - 1, len(text))
        return min(starts[line] + int(position["character"]), end)

    spans = [(offset(e["range"]["start"]), offset(e["range"]["end"]), e["newText"]) for e in edits]
    for start, end, new in sorted(spans, key=lambda span: span[:2], reverse=True):
        text = text[:start] + new + text[end:]
    return text
