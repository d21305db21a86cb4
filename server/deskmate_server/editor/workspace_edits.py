"""From text changes to the LSP's `WorkspaceEdit`."""

from collections.abc import Sequence
from typing import Any

from deskmate_server.editor.documents import Document
from deskmate_session.model.edits import TextChange

_ANNOTATION = "deskmate"


def workspace_edit(
    document: Document, changes: Sequence[TextChange], *, versioned: bool, annotation: str | None
) -> dict[str, Any]:
    """An edit of one open document; with its version where the client takes `documentChanges`, and marked
    as ours by `annotation` where it takes change annotations too."""
    edits: list[dict[str, Any]] = [
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
    edit: dict[str, Any] = {"documentChanges": [{"textDocument": target, "edits": edits}]}
    if annotation is not None:
        for change in edits:
            change["annotationId"] = _ANNOTATION
        edit["changeAnnotations"] = {_ANNOTATION: {"label": annotation, "needsConfirmation": False}}
    return edit


def _position(document: Document, offset: int) -> dict[str, int]:
    at = document.position_at(offset)
    return {"line": at.line, "character": at.character}
