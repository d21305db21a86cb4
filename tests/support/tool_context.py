"""A `ToolContext` over a folder on disk, with documents that an editor would have open."""

import asyncio
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from deskmate_session.core.guard import is_secret
from deskmate_session.errors import ToolFailure
from deskmate_session.ids import RandomIds
from deskmate_session.model.edits import ApplyOutcome, FileText, OpenDocument, Written
from deskmate_session.model.permissions import Action
from deskmate_session.model.ports import Prepared, Tool, ToolLimits, ToolResult
from deskmate_session.tools.registry import Registry, default_tools, parse_args
from deskmate_session.workspace.encoding import text_hash
from deskmate_session.workspace.files import read_text, write_text
from deskmate_session.workspace.locks import FileLocks
from deskmate_session.workspace.paths import path_to_uri

TOOLS = Registry(default_tools())


class FakeEditor:
    """The `Host` port over a dict; an edit raises the version and leaves the document dirty."""

    def __init__(self) -> None:
        self.documents: dict[str, OpenDocument] = {}
        self.applied: list[tuple[str, int]] = []
        """Paths and the versions that edits were made for."""

    def open(self, path: Path, text: str, version: int = 1, dirty: bool = True) -> None:
        real = os.path.realpath(path)
        self.documents[real] = OpenDocument(real, path_to_uri(real), text, version, dirty)

    def document(self, path: str) -> OpenDocument | None:
        return self.documents.get(path)

    def open_documents(self) -> tuple[OpenDocument, ...]:
        return tuple(self.documents.values())

    async def apply(self, path: str, before: str, after: str, label: str) -> ApplyOutcome:
        document = self.documents[path]
        if document.text != before:
            return ApplyOutcome(False, document.text, False, None, "refused: changed meanwhile")
        self.applied.append((path, document.version))
        self.documents[path] = replace(document, text=after, version=document.version + 1)
        return ApplyOutcome(True, after, not document.dirty, after, "applied")


class ScriptedContext:
    """Writes through the editor where a document is open, else to disk; knows what was read."""

    def __init__(self, folder: Path, limits: ToolLimits | None = None) -> None:
        self.folder = os.path.realpath(folder)
        self.roots = (self.folder,)
        self.state_dir = os.path.realpath(folder.parent / "state")
        self.session_id = "ses_test"
        self.call_id = RandomIds().new("call")  # unique: what a command leaves is ended by this mark
        self.limits = limits or ToolLimits()
        self.editor = FakeEditor()
        self.shown: list[str] = []
        self.writes = 0
        self._known: dict[str, str] = {}
        self._locks = FileLocks(f"{self.state_dir}/locks")

    def environment(self) -> dict[str, str]:
        return {**os.environ, "DESKMATE_CALL": self.call_id}

    def seen(self, uri: str) -> str | None:
        return self._known.get(uri)

    def may_read(self, path: str) -> Action:
        return "ask" if is_secret(path) else "allow"

    def progress(self, text: str) -> None:
        self.shown.append(text)

    async def read(self, path: str) -> FileText:
        return await read_text(path, self.editor)

    async def write(self, path: str, text: str, basis: FileText | None) -> Written:
        self.writes += 1
        uri = path_to_uri(path)
        before = basis.text if basis else None
        if basis is not None and basis.is_open:
            outcome = await self.editor.apply(path, basis.text, text, "edit")
            if not outcome.applied:
                raise ToolFailure("conflict", outcome.client_answer)
            self._known[uri] = text_hash(text)
            return Written(uri, before, text, outcome.text, "applyEdit", outcome.saved)
        async with self._locks.hold(path):
            await asyncio.to_thread(write_text, path, text, basis)
        self._known[uri] = text_hash(text)
        return Written(uri, before, text, text, "disk", True)

    async def prepare(self, name: str, **args: Any) -> Prepared:
        tool: Tool = TOOLS.find(name)
        return await tool.prepare(parse_args(tool, args), self)

    async def call(self, name: str, **args: Any) -> ToolResult:
        """Prepare and run, as if every permission were given."""
        result = await (await self.prepare(name, **args)).run()
        self._known.update({read.uri: read.hash for read in result.reads})
        return result

    async def refused(self, name: str, **args: Any) -> ToolFailure:
        """The failure that a call ends with."""
        try:
            result = await self.call(name, **args)
        except ToolFailure as failure:
            return failure
        raise AssertionError(f"{name} should have failed and gave: {result.output}")


def asked(prepared: Prepared) -> Sequence[tuple[str, tuple[str, ...]]]:
    """Permissions and patterns of a call, in order."""
    return [(request.permission, request.patterns) for request in prepared.requests]
