"""The editor as the kernel sees it: open documents, and edits that are believed only once they are seen."""

import asyncio
import codecs
import logging
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from deskmate_server.editor.capabilities import Client
from deskmate_server.editor.documents import Document, DocumentStore
from deskmate_server.editor.workspace_edits import workspace_edit
from deskmate_server.wire.errors import ClientError, ClientGone
from deskmate_server.wire.server import WireServer
from deskmate_session.model.edits import ApplyOutcome, OpenDocument, TextChange

APPLY_TIMEOUT = 60.0
SAVE_TIMEOUT = 10.0
SEEN_TIMEOUT = 2.0
"""Seconds that the synced text gets to hold an edit that the client calls applied."""

MAX_COMPARED = 10 << 20
"""Bytes of a file that is compared with its buffer when it is opened."""

_logger = logging.getLogger(__name__)


class EditorHost:
    """The `Host` of an attached editor."""

    def __init__(self, server: WireServer, documents: DocumentStore) -> None:
        self._server = server
        self._documents = documents
        self.client = Client()

    def document(self, path: str) -> OpenDocument | None:
        """The open document of a real path."""
        document = self._documents.get(Path(path))
        return None if document is None else _open(document)

    def can_apply(self) -> bool:
        """The editor offers `workspace/applyEdit`."""
        return self.client.apply_edit

    async def apply(
        self, path: str, before: str, changes: Sequence[TextChange], after: str, label: str
    ) -> ApplyOutcome:
        """Send a versioned edit, wait until the synced text holds it, save what was clean."""
        document = self._documents.get(Path(path))
        if document is None or document.text != before:
            return ApplyOutcome(False, None, False, None, "the document changed before the edit was sent")
        edit = workspace_edit(
            document,
            changes,
            versioned=self.client.document_changes,
            annotation=label if self.client.change_annotations else None,
        )
        answer = await self._send(edit, label)
        if answer is not None:
            return answer
        seen = await self._see(path, document, after)
        if seen is None:
            return ApplyOutcome(
                False, None, False, None, "applied, but the document was closed", unknown=True
            )
        if seen.text == before:
            return ApplyOutcome(False, seen.text, False, None, "applied, but the text did not change")
        # What the person typed meanwhile is theirs to save.
        saved = seen.text == after and not document.dirty and await self._save(seen)
        now = self._documents.get(Path(path)) if saved else None
        return ApplyOutcome(True, seen.text, saved, (now or seen).text, "applied")

    async def _send(self, edit: dict[str, Any], label: str) -> ApplyOutcome | None:
        """Send the edit; None when the client calls it applied."""
        try:
            answer = await self._server.request(
                "workspace/applyEdit", {"label": label, "edit": edit}, APPLY_TIMEOUT
            )
        except TimeoutError:
            return ApplyOutcome(False, None, False, None, "no answer", unknown=True)
        except ClientGone:
            return ApplyOutcome(False, None, False, None, "the editor is gone", unknown=True)
        except ClientError as error:
            return ApplyOutcome(False, None, False, None, f"refused: {error.message}")
        result = cast("dict[str, Any]", answer) if isinstance(answer, dict) else {}
        if result.get("applied") is True:
            return None
        reason = result.get("failureReason")
        return ApplyOutcome(False, None, False, None, f"refused: {reason}" if reason else "refused")

    async def _see(self, path: str, sent: Document, after: str) -> Document | None:
        """The document once it holds the edit, or as it is after 2 s."""

        def holds(document: Document | None) -> bool:
            return document is None or document.epoch != sent.epoch or document.text == after

        try:
            return await self._documents.until(Path(path), holds, SEEN_TIMEOUT)
        except TimeoutError:
            return self._documents.get(Path(path))

    async def _save(self, document: Document) -> bool:
        if "save" not in self.client.offers:
            return False
        try:
            answer = await self._server.request(
                "deskmate/document/save", {"uris": [document.uri]}, SAVE_TIMEOUT
            )
        except (TimeoutError, ClientError, ClientGone) as error:
            _logger.warning("%s was not saved: %s", document.uri, error)
            return False
        saved: Any = cast("dict[str, Any]", answer).get("saved") if isinstance(answer, dict) else None
        if not isinstance(saved, list) or document.uri not in saved:
            return False
        try:  # the save's own changes (final newline, formatter) belong to the edit
            await self._documents.until(document.uri, lambda now: now is None or not now.dirty, SEEN_TIMEOUT)
        except TimeoutError:
            _logger.info("no didSave for %s", document.uri)
        return True

    async def settle_dirty(self, document: Document) -> None:
        """After `didOpen`: a text that differs from the disk is dirty."""
        path = document.path
        if path is None:
            return
        on_disk = await asyncio.to_thread(_read, path)
        # Editors may show a final newline that the file lacks.
        same = on_disk is not None and document.text in (on_disk, f"{on_disk}\n")
        now = self._documents.get(path)
        if not same and now is not None and (now.epoch, now.version) == (document.epoch, document.version):
            self._documents.mark(document.uri, dirty=True)


def _read(path: Path) -> str | None:
    """A regular file's text as an editor shows it, at most 10 MB; None for anything else."""
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode) or found.st_size > MAX_COMPARED:
            return None
        data = path.read_bytes()
    except OSError:
        return None
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16", "replace")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _open(document: Document) -> OpenDocument:
    return OpenDocument(
        path=str(document.path),
        uri=document.uri,
        text=document.text,
        version=document.version,
        dirty=document.dirty,
    )
