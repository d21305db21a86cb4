"""Queries: answered from the read model and the live states."""

from collections.abc import Mapping, Sequence

from deskmate_session.core.processor import AnswerProcessor
from deskmate_session.core.views.session import queue_view, status_view
from deskmate_session.core.views.timeline import fold, message_view
from deskmate_session.errors import Rejected
from deskmate_session.log.rows import logged
from deskmate_session.log.store import ALL, EventLog
from deskmate_session.model import commands as c, events as e, queries as q
from deskmate_session.model.base import Wire
from deskmate_session.model.messages import Message
from deskmate_session.runtime.changes import Changes
from deskmate_session.runtime.sessions import Sessions
from deskmate_session.runtime.watch import overlay
from deskmate_session.workspace.objects import Objects


class Reads:
    """Answers queries."""

    def __init__(
        self,
        log: EventLog,
        sessions: Sessions,
        objects: Objects,
        changes: Changes,
        live: Mapping[str, AnswerProcessor],
        folder: str,
    ) -> None:
        self._log = log
        self._sessions = sessions
        self._objects = objects
        self._changes = changes
        self._live = live
        self._folder = folder

    async def query(self, query: Wire) -> Wire:
        """Answer a query; `TypeError` for what is none."""
        match query:
            case q.ListSessions():
                found = await self._log.list_sessions(
                    archived=bool(query.archived), query=query.query, cursor=query.cursor, limit=query.limit
                )
                return c.SessionPage(sessions=tuple(found.sessions), next_cursor=found.next_cursor)
            case q.GetSession():
                return await self._details(query)
            case q.ListMessages():
                return await self._messages(query)
            case q.ListEvents():
                return await self._events(query)
            case q.Diff():
                return await self._diff(query)
            case q.Verify():
                return await self._log.verify(query.session_id, self._objects.check)
            case _:
                raise TypeError(f"{type(query).__name__} is no query")

    async def _details(self, query: q.GetSession) -> q.SessionDetails:
        state = await self._sessions.get(query.session_id)
        return q.SessionDetails(
            session=state.info,
            status=status_view(state),
            queue=queue_view(state),
            asks=tuple(state.asks.values()),
            usage=state.usage,
            work_context=state.work_context.view(state.info.folder),
        )

    async def _messages(self, query: q.ListMessages) -> q.MessagePage:
        await self._exists(query.session_id)
        page = await self._log.message_page(
            query.session_id, before=query.before, after=query.after, limit=query.limit
        )
        return q.MessagePage(
            messages=tuple(
                self._message(query.session_id, message_id, events) for message_id, events in page.messages
            ),
            has_more=page.has_more,
        )

    def _message(self, session_id: str, message_id: str, events: Sequence[e.Event]) -> Message:
        message = message_view(session_id, fold(events).messages[message_id])
        processor = self._live.get(session_id)
        if processor is None or processor.message_id != message_id:
            return message
        return overlay(message, {part.id: part for part in processor.live_parts()})

    async def _events(self, query: q.ListEvents) -> q.EventPage:
        if query.session_id is not None:
            await self._exists(query.session_id)
        events = await self._log.read(
            session=ALL if query.session_id is None else query.session_id,
            after=query.after_seq,
            limit=query.limit + 1,
            types=query.types,
        )
        page = events[: query.limit]
        return q.EventPage(
            events=tuple(logged(event) for event in page),
            next_seq=page[-1].seq if len(events) > query.limit else None,
        )

    async def _diff(self, query: q.Diff) -> c.DiffResult:
        await self._exists(query.session_id)
        if query.message_id is not None and not await self._log.message_events(
            query.session_id, [query.message_id]
        ):
            raise Rejected(
                "messageNotFound",
                f"there is no message {query.message_id!r} in this session",
                "list its messages",
            )
        events = await self._log.change_events(
            query.session_id,
            from_seq=query.from_seq or 0,
            to_seq=query.to_seq,
            message=query.message_id,
        )
        facts = [event.payload for event in events if isinstance(event.payload, e.ChangeApplied)]
        return c.DiffResult(files=await self._changes.diffs(facts, self._folder))

    async def _exists(self, session_id: str) -> None:
        await self._sessions.get(session_id)
