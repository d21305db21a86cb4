"""From text changes to the LSP's `WorkspaceEdit`."""

from collections.abc import Sequence
from typing import Any

from deskmate_server.editor.documents import Document
from deskmate_session.model.edits import TextChange


def workspace_edit(
    document: Document, changes: Sequence[TextChange], label: str, *, versioned: bool
) -> dict[str, Any]:
    """An edit of one open document; with its version where the client takes `documentChanges`."""
    edits = [
        {
            "range": {
                "start": _position(document, change.start),
                "end": _position(document, change.end),
            },
            "newText": change.text,
        }
        for change in changes
    ]
    if not versioned:
        return {"changes": {document.uri: edits}}
    target = {"uri": document.uri, "version": document.version}
    return {"documentChanges": [{"textDocument": target, "edits": edits}]}


def _position(document: Document, offset: int) -> dict[str, int]:
    at = document.position_at(offset)
    return {"line": at.line, "character": at.character}
