"""The documents that the client has open, as it last told us.

A `Document` is an immutable snapshot: a reader that awaits keeps a consistent text, and asks the store again
for the newest. The store's methods are plain functions that never fail on what a client sends.
"""

import asyncio
import contextlib
import hashlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Literal, NamedTuple

from lsprotocol import types

from deskmate_server.editor import positions, uris
from deskmate_server.editor.positions import Encoding, Position, Range
from deskmate_server.wire.server import WireServer

logger = logging.getLogger(__name__)

EventKind = Literal["open", "change", "save", "close"]


class Change(NamedTuple):
    """One content change: `range` replaced by `text`, or the whole text where `range` is None."""

    range: Range | None
    text: str


@dataclass(frozen=True, eq=False)
class Document:
    """An open document at one version."""

    uri: str
    """As the client spells it."""
    path: Path | None
    """The real path; None for `untitled:` and the like."""
    language_id: str
    version: int
    text: str
    encoding: Encoding
    epoch: int
    """Which opening this is; another number means that the document was closed and opened again."""
    dirty: bool = False
    """Changed since it was opened or saved. Whether an opened text differs from the disk is not known
    here."""

    @cached_property
    def hash(self) -> str:
        """SHA-256 of the text in UTF-8, in hex."""
        return hashlib.sha256(self.text.encode("utf-8", "surrogatepass")).hexdigest()

    @cached_property
    def line_starts(self) -> list[int]:
        """The offset of each line's first character."""
        return positions.line_starts(self.text)

    def offset_at(self, at: Position) -> int:
        """The code-point offset of a position; clamps."""
        return positions.offset_at(self.text, self.line_starts, at, self.encoding)

    def position_at(self, offset: int) -> Position:
        """The position of a code-point offset; clamps."""
        return positions.position_at(self.text, self.line_starts, offset, self.encoding)


@dataclass(frozen=True, slots=True)
class DocumentEvent:
    """Something happened to a document; `document` is its newest snapshot (at `close` the last one)."""

    kind: EventKind
    document: Document


Listener = Callable[[DocumentEvent], None]


class DocumentStore:
    """Open documents, one per real path.

    A client may hold one file under two spellings (a symbolic link, say) as two buffers. Each is synced on
    its own; the one touched last speaks for the file, and the file stays open until both are closed.
    """

    def __init__(self, encoding: Encoding = Encoding.UTF16) -> None:
        self.encoding = encoding
        """The negotiated encoding; set it before the first document is opened."""
        self._buffers: dict[str, Document] = {}
        self._keys: dict[str, str] = {}
        self._spellings: dict[str, list[str]] = {}
        self._roots: dict[Path, str] = {}
        self._listeners: list[Listener] = []
        self._epochs = 0

    # Questions.

    def get(self, where: str | Path) -> Document | None:
        """The open document of a URI in any spelling, or of a path; None if the client has not opened it."""
        key = str(uris.real_path(where)) if isinstance(where, Path) else self._key(where)
        spellings = self._spellings.get(key)
        return self._buffers[spellings[-1]] if spellings else None

    def all(self) -> list[Document]:
        """Every open document, one per file, in the order of opening."""
        return [self._buffers[spellings[-1]] for spellings in self._spellings.values()]

    def uri_for(self, path: Path) -> str:
        """The URI to send for a path: the client's own spelling where the document or a folder above it is
        known."""
        if (document := self.get(path)) is not None:
            return document.uri
        real = uris.real_path(path)
        for root in (real, *real.parents):
            if (spelling := self._roots.get(root)) is not None:
                tail = uris.to_uri(real).removeprefix(uris.to_uri(root)).lstrip("/")
                return f"{spelling}/{tail}" if tail else spelling
        return uris.to_uri(real)

    def add_root(self, uri: str) -> None:
        """Remember how the client spells a workspace folder, for `uri_for`."""
        if (path := uris.to_path(uri)) is not None:
            self._roots[uris.real_path(path)] = uri.rstrip("/")

    # Document sync.

    def open(self, uri: str, language_id: str, version: int, text: str, *, dirty: bool = False) -> Document:
        """The client opened a document; one already open is replaced."""
        key = self._keys[uri] = uris.key_of(uri)
        self._epochs += 1
        path = None if uris.to_path(uri) is None else Path(key)
        document = Document(uri, path, language_id, version, text, self.encoding, self._epochs, dirty)
        self._keep(document)
        self._tell("open", document)
        return document

    def change(self, uri: str, version: int, changes: Sequence[Change]) -> Document | None:
        """Apply changes in order; None (and a log line) if the document is not open."""
        if (document := self._buffer(uri, "didChange")) is None:
            return None
        if version <= document.version:
            logger.warning("%s went from version %d to %d", uri, document.version, version)
        for change in changes:
            document = replace(document, text=_apply(document, change))
        document = replace(document, version=version, dirty=True)
        self._keep(document)
        self._tell("change", document)
        return document

    def save(self, uri: str, text: str | None = None) -> Document | None:
        """The client wrote the document to disk; `text`, where given, is what it wrote and wins over ours."""
        if (document := self._buffer(uri, "didSave")) is None:
            return None
        if text is not None and text != document.text:
            logger.warning("the text of %s was out of step with the client's", uri)
            document = replace(document, text=text)
        document = replace(document, dirty=False)
        self._keep(document)
        self._tell("save", document)
        return document

    def close(self, uri: str) -> None:
        """The client closed the document; with another spelling still open that one takes over (a
        `change`)."""
        if (document := self._buffer(uri, "didClose")) is None:
            return
        del self._buffers[document.uri]
        key = self._keys.pop(document.uri)
        self._spellings[key].remove(document.uri)
        if left := self._spellings[key]:
            self._tell("change", self._buffers[left[-1]])
            return
        del self._spellings[key]
        self._tell("close", document)

    def mark(self, uri: str, *, dirty: bool) -> None:
        """Correct `dirty` by what a look at the disk showed; tells nobody."""
        if (document := self.get(uri)) is not None:
            self._buffers[document.uri] = replace(document, dirty=dirty)

    # Listening.

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` after each event, in order, on the loop; returns the function that ends it."""
        self._listeners.append(listener)

        def unsubscribe() -> None:
            with contextlib.suppress(ValueError):
                self._listeners.remove(listener)

        return unsubscribe

    async def until(
        self,
        where: str | Path,
        holds: Callable[[Document | None], bool],
        timeout: float,  # noqa: ASYNC109 -- the callers all have one
    ) -> Document | None:
        """Wait until the document satisfies `holds`, which sees None while it is not open.

        Returns the snapshot that did; raises TimeoutError after `timeout` seconds.
        """
        changed = asyncio.Event()
        unsubscribe = self.subscribe(lambda event: changed.set())
        try:
            async with asyncio.timeout(timeout):
                while not holds(document := self.get(where)):
                    changed.clear()
                    await changed.wait()
                return document
        finally:
            unsubscribe()

    # Wiring.

    def connect(self, server: WireServer) -> None:
        """Register the document-sync notifications. Plain functions: their order is the text's."""

        def did_open(params: types.DidOpenTextDocumentParams) -> None:
            item = params.text_document
            self.open(item.uri, str(item.language_id), item.version, item.text)

        def did_change(params: types.DidChangeTextDocumentParams) -> None:
            changes = [_from_lsp(change) for change in params.content_changes]
            self.change(params.text_document.uri, params.text_document.version, changes)

        def did_save(params: types.DidSaveTextDocumentParams) -> None:
            self.save(params.text_document.uri, params.text)

        def did_close(params: types.DidCloseTextDocumentParams) -> None:
            self.close(params.text_document.uri)

        server.feature(types.TEXT_DOCUMENT_DID_OPEN)(did_open)
        server.feature(types.TEXT_DOCUMENT_DID_CHANGE)(did_change)
        server.feature(types.TEXT_DOCUMENT_DID_SAVE, types.SaveOptions(include_text=False))(did_save)
        server.feature(types.TEXT_DOCUMENT_DID_CLOSE)(did_close)

    # Details.

    def _key(self, uri: str) -> str:
        return self._keys.get(uri) or uris.key_of(uri)

    def _buffer(self, uri: str, method: str) -> Document | None:
        """The buffer of exactly this spelling, or of the file it names."""
        document = self._buffers.get(uri) or self.get(uri)
        if document is None:
            logger.warning("ignoring %s of %s: it was never opened", method, uri)
        return document

    def _keep(self, document: Document) -> None:
        self._buffers[document.uri] = document
        spellings = self._spellings.setdefault(self._keys[document.uri], [])
        if document.uri in spellings:
            spellings.remove(document.uri)
        spellings.append(document.uri)

    def _tell(self, kind: EventKind, document: Document) -> None:
        for listener in list(self._listeners):
            try:
                listener(DocumentEvent(kind, document))
            except Exception:
                logger.exception("a listener failed at %s of %s", kind, document.uri)


def _apply(document: Document, change: Change) -> str:
    if change.range is None:
        return change.text
    start, end = sorted(document.offset_at(at) for at in change.range)
    return document.text[:start] + change.text + document.text[end:]


def _from_lsp(change: types.TextDocumentContentChangeEvent) -> Change:
    if isinstance(change, types.TextDocumentContentChangeWholeDocument):
        return Change(None, change.text)
    start, end = change.range.start, change.range.end
    return Change(
        Range(Position(start.line, start.character), Position(end.line, end.character)), change.text
    )
