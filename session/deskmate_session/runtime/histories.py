"""Sessions as they were, and elsewhere: states of the past, forks, exports, imports."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from deskmate_session.core import changed, forking
from deskmate_session.core.forking import Inherited
from deskmate_session.core.state import SessionState
from deskmate_session.core.views.markdown import markdown
from deskmate_session.core.views.timeline import fold, message_view
from deskmate_session.errors import Rejected, ToolFailure
from deskmate_session.log import portable
from deskmate_session.log.store import EventLog
from deskmate_session.model import commands as c, events as e, queries as q
from deskmate_session.model.messages import FileDiff
from deskmate_session.model.ports import Ids
from deskmate_session.runtime.changes import Changes
from deskmate_session.runtime.sessions import Sessions
from deskmate_session.workspace import files, paths
from deskmate_session.workspace.objects import Objects

MAX_ANSWER = 4 << 20
"""Bytes of an export that an answer may hold; a longer one goes to a file."""


@dataclass(frozen=True, slots=True)
class Beginning:
    """A session that is to be logged."""

    session_id: str
    drafts: tuple[e.Draft, ...]


class Histories:
    """Answers what was, and begins sessions from it."""

    def __init__(
        self, log: EventLog, sessions: Sessions, objects: Objects, changes: Changes, ids: Ids, folder_uri: str
    ) -> None:
        self._log = log
        self._sessions = sessions
        self._objects = objects
        self._changes = changes
        self._ids = ids
        self._folder_uri = folder_uri

    async def state_at(self, query: q.StateAt) -> q.SessionAt:
        """A session as it stood after an event. Raises `Rejected` (`sessionNotFound`)."""
        session_id = query.session_id
        await self._sessions.get(session_id)
        event = await self._log.event_at(session_id, seq=query.seq, at=query.at)
        if event is None:
            raise Rejected(
                "sessionNotFound",
                f"session {session_id!r} had not begun at that point",
                "ask for a later point",
            )
        state = SessionState() if event.index == 0 else await self._sessions.at(session_id, event.seq - 1)
        changed_by = changed.apply(state, event)
        before = event.seq + 1 if query.before is None else min(query.before, event.seq + 1)
        page = await self._log.message_page(session_id, before=before, limit=query.limit, upto=event.seq)
        messages = [
            message_view(session_id, message)
            for message_id, events in page.messages
            if (message := fold(events).messages.get(message_id))
            is not None  # else it was taken back by then
        ]
        return q.SessionAt(
            seq=event.seq,
            messages=tuple(messages),
            has_more=page.has_more,
            work_context=state.work_context.view(state.info.folder),
            changed_by=changed_by,
        )

    async def fork(self, command: c.ForkSession) -> Beginning:
        """A new session that goes on where another one stood; that one is untouched.

        Raises `Rejected`: `sessionNotFound`, `messageNotFound`, `sessionBusy` (the point lies in the running
        step).
        """
        state = await self._sessions.get(command.session_id)
        running = state.turn is not None
        events = await self._log.read(session=command.session_id, upto=state.seq)
        upto = command.at_seq
        if command.at_message_id is not None:
            upto = forking.cut_before(events, command.at_message_id)
            if upto is None:
                raise Rejected(
                    "messageNotFound",
                    f"there is no message {command.at_message_id!r} in this session",
                    "list its messages",
                )
        try:
            inherited = await asyncio.to_thread(forking.inherit, events, upto, "fork", running=running)
        except forking.Cut:
            raise Rejected(
                "sessionBusy",
                "the step at this point is still running",
                "wait for it, interrupt it, or fork from an earlier point",
            ) from None
        except LookupError:
            raise Rejected(
                "sessionNotFound", "the session had not begun at that point", "fork from a later point"
            ) from None
        return self._beginning(inherited, f"{inherited.created.title} (fork)")

    async def export(self, query: q.Export) -> q.Exported:
        """A session as text: in the answer, or in a file. Raises `Rejected`."""
        await self._sessions.get(query.session_id)
        if query.format == "markdown":
            text = await self._markdown(query.session_id)
        else:
            text = await self._lines(query.session_id, query.redact)
        data = text.encode()
        if query.to_uri is not None:
            path = _path(query.to_uri)
            try:
                # For nobody else's eyes: a session may hold anything.
                await asyncio.to_thread(files.write_atomic, str(path), data, 0o600)
            except ToolFailure as error:
                raise Rejected("notSupported", error.message, "name another file") from error
            return q.Exported(uri=query.to_uri, bytes=len(data))
        if len(data) > MAX_ANSWER:
            raise Rejected(
                "notSupported",
                f"the export has {len(data):,} bytes, more than an answer may hold ({MAX_ANSWER:,})",
                "name a file for it: `toUri`",
            )
        return q.Exported(data=text, bytes=len(data))

    async def take_in(self, command: c.ImportSession) -> Beginning:
        """A session from elsewhere, verified, under a new id. Raises `Rejected` (`logCorrupt`)."""
        text = command.data
        if text is None:
            text = await asyncio.to_thread(_read, _path(command.from_uri or ""))
        found = await asyncio.to_thread(portable.parse, text)
        try:
            inherited = await asyncio.to_thread(forking.inherit, found.events, None, "import")
        except LookupError as error:
            raise Rejected("logCorrupt", "the file holds no session", "export it once more") from error
        for data in found.objects.values():
            await asyncio.to_thread(self._objects.put, data)
        return self._beginning(inherited, inherited.created.title)

    def _beginning(self, inherited: Inherited, title: str) -> Beginning:
        session_id = self._ids.new("ses")
        created = inherited.created.model_copy(update={"title": title, "folder": self._folder_uri})
        drafts = [e.Draft(created)]
        renamed: dict[str, str] = {}
        for event in inherited.events:
            renamed[event.id] = self._ids.new("evt")
            cause = renamed.get(event.cause or "")
            drafts.append(e.Draft(event.payload, cause, id=renamed[event.id], at=event.at))
        drafts += [e.Draft(fact) for fact in inherited.closing]
        return Beginning(session_id, tuple(drafts))

    async def _lines(self, session_id: str, redact: Sequence[str]) -> str:
        rows = await self._log.stored(session_id)
        events = [row.event() for row in rows]

        def make() -> str:
            return "\n".join(portable.lines(rows, _objects(self._objects, events), redact)) + "\n"

        return await asyncio.to_thread(make)

    async def _markdown(self, session_id: str) -> str:
        state = await self._sessions.whole(session_id)
        messages = [message_view(session_id, message) for message in state.conversation.messages.values()]
        facts = await self._log.change_events(session_id)
        diffs: dict[str, list[FileDiff]] = {}
        for fact in facts:
            if isinstance(fact.payload, e.ChangeApplied):
                call = state.conversation.calls.get(fact.payload.call_id)
                if call is not None:
                    made = await self._changes.diffs([fact.payload], self._folder_uri)
                    diffs.setdefault(call.message_id, []).extend(made)
        return markdown(state.info, messages, _moment, diffs)


def _objects(objects: Objects, events: Sequence[e.Event]) -> list[tuple[str, bytes]]:
    """What files held before and after changes; what is missing here is missing there."""
    found: dict[str, bytes] = {}
    for event in events:
        fact = event.payload
        if isinstance(fact, e.ChangeStarted | e.ChangeApplied | e.ChangeObserved):
            for hash in (fact.before, fact.after):
                if hash is not None and hash not in found and objects.check(hash) is None:
                    found[hash] = objects.get(hash)
    return list(found.items())


def _path(uri: str) -> Path:
    try:
        return Path(paths.uri_to_path(uri))
    except ValueError as error:
        raise Rejected("notSupported", f"{uri!r} is no file", "give a file: URI") from error


def _read(path: Path) -> str:
    try:
        if not path.is_file():
            raise Rejected("notSupported", f"{str(path)!r} is no file", "name a file of JSON lines")
        if path.stat().st_size > portable.MAX_BYTES:
            raise Rejected(
                "notSupported",
                f"{str(path)!r} is larger than {portable.MAX_BYTES >> 20} MB",
                "import a smaller session",
            )
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Rejected(
            "notSupported", f"{str(path)!r} can't be read: {error}", "name another file"
        ) from error


def _moment(at: int) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")
