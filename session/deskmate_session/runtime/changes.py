"""File changes: through the editor where the document is open, else atomically on disk; the facts
around each write are in the log before and after it.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from deskmate_session.core import lines
from deskmate_session.core.edits import text_edits
from deskmate_session.core.views.changes import authored, file_diff
from deskmate_session.errors import ToolFailure
from deskmate_session.log.store import EventLog
from deskmate_session.model import events as e
from deskmate_session.model.edits import ApplyOutcome, FileText, Via, Written
from deskmate_session.model.messages import FileDiff
from deskmate_session.model.ports import Host
from deskmate_session.runtime.sessions import Sessions
from deskmate_session.workspace import encoding, files, paths
from deskmate_session.workspace.locks import FileLocks
from deskmate_session.workspace.objects import Objects


@dataclass(frozen=True, slots=True)
class Author:
    """Who changes a file."""

    session_id: str
    call_id: str
    tool: str
    folder: str
    title: str
    """The session's title."""


class Changes:
    """Makes changes and keeps their facts."""

    def __init__(
        self, log: EventLog, sessions: Sessions, objects: Objects, locks: FileLocks, host: Host
    ) -> None:
        self._log = log
        self._sessions = sessions
        self._objects = objects
        self._locks = locks
        self._host = host
        self._diffs: dict[tuple[str, str, str | None], FileDiff] = {}
        self._first: dict[tuple[str, str], str | None] = {}
        """Object hash of a file before the session first changed it, by session and URI."""
        sessions.diffs_of = self._diffs_of
        sessions.find_diffs = self._find_diffs

    async def write(
        self, author: Author, path: str, text: str, basis: FileText | None
    ) -> tuple[Written, e.WorkContextUpdated]:
        """Change or create a file. Raises `ToolFailure`; `conflict` if it is not as `basis` says any more."""
        async with self._locks.hold(path):
            current = await self._current(path)
            _check(path, current, basis)
            if current is not None and current.text == text:
                raise ToolFailure("failed", f"nothing would change in {path!r}")
            before = None if current is None else _encode(current.text, current)
            after = _encode(text, current)
            via = await self._way(path, current)
            uri = current.uri if current else paths.path_to_uri(path)
            before_hash = None if before is None else await asyncio.to_thread(self._objects.put, before)
            after_hash = await asyncio.to_thread(self._objects.put, after)
            started = e.ChangeStarted(
                call_id=author.call_id, uri=uri, before=before_hash, after=after_hash, via=via
            )
            await self._append(author, started, durable=True)
            written = await self._perform(author, path, uri, current, text, after, via)
            held = _encode(written.text or "", current)
            held_hash = after_hash if held == after else await asyncio.to_thread(self._objects.put, held)
            await self._applied(author, path, uri, before_hash, held_hash, written)
        update = e.WorkContextUpdated(
            uri=uri,
            change="created" if current is None else "modified",
            before=None if current is None else current.hash,
            after=encoding.text_hash(written.text or ""),
            by=author.call_id,
        )
        return written, update

    async def diffs(self, facts: Sequence[e.ChangeApplied], folder: str) -> tuple[FileDiff, ...]:
        """What these changes come to, one diff for each file."""
        return tuple(
            [
                await asyncio.to_thread(self._file_diff, uri, folder, before, after)
                for uri, (before, after) in authored(facts).items()
            ]
        )

    async def _current(self, path: str) -> FileText | None:
        try:
            return await files.read_text(path, self._host)
        except ToolFailure as failure:
            if failure.kind == "notFound":
                return None
            raise

    async def _way(self, path: str, current: FileText | None) -> Via:
        """Editors count lines differently in texts with mixed ends or a bare CR: those go to the disk.

        A clean document equals its file here: a stale one was read from the disk, as if it were not open.
        """
        if current is None or not current.is_open:
            return "disk"
        if self._host.can_apply() and lines.one_kind_of_end(current.text):
            return "applyEdit"
        if current.dirty:
            why = "mixed line ends" if self._host.can_apply() else "an editor that takes no edits"
            raise ToolFailure(
                "conflict",
                f"{path!r} has unsaved changes and {why}, so it can't be edited safely; "
                "ask the person to save it first",
            )
        return "disk"

    async def _perform(
        self,
        author: Author,
        path: str,
        uri: str,
        current: FileText | None,
        text: str,
        after: bytes,
        via: Via,
    ) -> Written:
        if via != "disk" and current is not None:
            label = f"Deskmate: {author.tool} {Path(path).name} ({author.title})"
            edits = text_edits(current.text, text)
            outcome = await self._host.apply(path, current.text, edits, text, label)
            if not outcome.applied:
                await self._refused(author, path, uri, via, outcome)
            return await self._seen(author, path, current, text, outcome)
        try:
            await asyncio.to_thread(files.write_atomic, path, after)
        except ToolFailure as failure:
            refused = e.ChangeRefused(call_id=author.call_id, uri=uri, via=via, reason=failure.message)
            await self._append(author, refused)
            raise
        return Written(uri, current.hash if current else None, None, text, via, saved=True)

    async def _seen(
        self, author: Author, path: str, current: FileText, after: str, outcome: ApplyOutcome
    ) -> Written:
        """What the document shows after an edit that the client calls applied: ours, or also the person's."""
        if outcome.text == after:
            return Written(current.uri, current.hash, None, outcome.saved_text, "applyEdit", outcome.saved)
        if outcome.text is None or not _holds(current.text, after, outcome.text):
            reason = f"the editor says that {path!r} was changed, but its buffer does not hold the change"
            refused = e.ChangeRefused(call_id=author.call_id, uri=current.uri, via="applyEdit", reason=reason)
            await self._append(author, refused)
            raise ToolFailure("conflict", f"{reason}; read the file again", outcome_unknown=True)
        note = "The person typed in the same file meanwhile; that stays theirs."
        return Written(current.uri, current.hash, None, after, "applyEdit", saved=False, note=note)

    async def _refused(self, author: Author, path: str, uri: str, via: Via, outcome: ApplyOutcome) -> None:
        if outcome.unknown:
            raise ToolFailure(
                "failed",
                f"the editor did not tell whether {path!r} was changed ({outcome.client_answer}); "
                "read it again",
                outcome_unknown=True,
            )
        reason = f"the editor did not apply the change to {path!r}: {outcome.client_answer}"
        await self._append(author, e.ChangeRefused(call_id=author.call_id, uri=uri, via=via, reason=reason))
        raise ToolFailure("conflict", f"{reason}; read the file again")

    async def _applied(
        self,
        author: Author,
        path: str,
        uri: str,
        before: str | None,
        after: str,
        written: Written,
    ) -> None:
        first = await self._first_before(author.session_id, uri, before)
        diff = await asyncio.to_thread(self._file_diff, uri, author.folder, first, after)
        self._diffs[author.call_id, uri, after] = diff
        fact = e.ChangeApplied(
            call_id=author.call_id,
            uri=uri,
            before=before,
            after=after,
            via=written.via,
            client_answer="applied" if written.via != "disk" else None,
            verified=True,
            saved=written.saved,
        )
        await self._append(author, fact)

    async def _first_before(self, session_id: str, uri: str, before: str | None) -> str | None:
        if (session_id, uri) not in self._first:
            earlier = await self._log.read(session=session_id, types=[e.ChangeApplied.type])
            spans = authored(ev.payload for ev in earlier if isinstance(ev.payload, e.ChangeApplied))
            self._first[session_id, uri] = spans[uri][0] if uri in spans else before
        return self._first[session_id, uri]

    def _file_diff(self, uri: str, folder: str, before: str | None, after: str | None) -> FileDiff:
        path = Path(paths.uri_to_path(uri))
        name = path.relative_to(folder).as_posix() if path.is_relative_to(folder) else path.as_posix()
        old = None if before is None else self._objects.get(before)
        new = None if after is None else self._objects.get(after)
        return file_diff(uri, name, old, new)

    def _diffs_of(self, event: e.Event) -> Sequence[FileDiff]:
        fact = event.payload
        if not isinstance(fact, e.ChangeApplied):
            return ()
        diff = self._diffs.pop((fact.call_id, fact.uri, fact.after), None)
        return () if diff is None else (diff,)

    async def _find_diffs(self, session_id: str, folder: str, fact: e.ChangeApplied) -> Sequence[FileDiff]:
        first = await self._first_before(session_id, fact.uri, fact.before)
        root = paths.uri_to_path(folder)
        return (await asyncio.to_thread(self._file_diff, fact.uri, root, first, fact.after),)

    async def _append(self, author: Author, fact: e.EventPayload, *, durable: bool = False) -> None:
        await self._sessions.append(author.session_id, fact, durable=durable)


def _holds(before: str, after: str, seen: str) -> bool:
    """`seen` holds every change from `before` to `after`; what else differs lies beside them."""
    shift, ours = 0, list[tuple[int, int]]()
    for edit in text_edits(before, after):
        ours.append((edit.start + shift, edit.start + shift + len(edit.text)))
        shift += len(edit.text) - (edit.end - edit.start)
    theirs = [(edit.start, edit.end) for edit in text_edits(after, seen)]
    return all(end < start or begin > stop for begin, end in theirs for start, stop in ours)


def _check(path: str, current: FileText | None, basis: FileText | None) -> None:
    if basis is None and current is not None:
        raise ToolFailure("conflict", f"{path!r} exists now; read it before you change it")
    if basis is not None and current is None:
        raise ToolFailure("conflict", f"{path!r} is gone since it was read")
    if basis is not None and current is not None and basis.hash != current.hash:
        raise ToolFailure("conflict", f"{path!r} changed since it was read; read it again")


def _encode(text: str, like: FileText | None) -> bytes:
    return encoding.encode(text) if like is None else encoding.encode(text, like.encoding, like.bom)
