"""What a dead process left open is settled by facts: no turn stays open, no call running, no change unknown
that the disk can tell. Its children are ended first.
"""

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress

from deskmate_session.core import recovery
from deskmate_session.core.state import SessionState
from deskmate_session.errors import LogCorrupt, ToolFailure
from deskmate_session.model import events as e
from deskmate_session.model.ports import Effect
from deskmate_session.runtime.notices import Notices
from deskmate_session.runtime.sessions import Sessions
from deskmate_session.workspace import encoding, files, paths
from deskmate_session.workspace.descendants import end_children
from deskmate_session.workspace.locks import FileLocks
from deskmate_session.workspace.objects import Objects


class Recovery:
    """Settles sessions. Used by the coordinator alone, under the session's lease."""

    def __init__(
        self,
        sessions: Sessions,
        objects: Objects,
        locks: FileLocks,
        effect: Callable[[str], Effect],
        notices: Notices,
    ) -> None:
        self._sessions = sessions
        self._objects = objects
        self._locks = locks
        self._effect = effect
        self._notices = notices

    async def settle(self, state: SessionState, *, crashed: bool) -> None:
        """End the open turn as interrupted, if there is one. `crashed`: another process left it, so what
        waits is held and the person is told. Raises `LogError`."""
        cut = state.turn is not None
        for call in state.unsettled_calls():
            if call.status == "running":
                await asyncio.to_thread(end_children, call.call_id)
        changes = [
            change
            for kept in (state.open_changes, state.made_changes)
            for of_call in kept.values()
            for change in of_call
        ]
        for opened in state.open_changes.values():
            for change in opened:
                await self._clear(change)
        seen = {
            (change.call_id, change.uri): await asyncio.to_thread(self._look, change) for change in changes
        }
        facts = recovery.settling_facts(state, self._effect, seen, hold=crashed)
        if facts:
            await self._sessions.append(state.info.id, *facts, durable=True)
        if crashed and cut:
            self._notices.tell(
                "warning",
                f"the turn of {state.info.title!r} was cut off when its process ended; what it had done is "
                f"kept. Resume it (:DeskmateResume; deskmate run --session {state.info.id}), or send another "
                "prompt",
            )

    async def _clear(self, change: e.ChangeStarted) -> None:
        """Remove the half of a file that the write left, had it not come to its end."""
        with suppress(OSError, ValueError, ToolFailure):  # it does no harm where it can't be removed
            path = await asyncio.to_thread(os.path.realpath, paths.uri_to_path(change.uri))
            async with self._locks.hold(path, timeout_s=1.0):
                await asyncio.to_thread(files.clear_rest, path)

    def _look(self, change: e.ChangeStarted | e.ChangeApplied) -> recovery.Seen:
        """What the disk tells of a change: it is there, it is not, or the file is a third thing by now."""
        try:
            found = files.read_bytes(paths.uri_to_path(change.uri))
        except ToolFailure as failure:
            if failure.kind != "notFound":
                return recovery.Seen("unknown")  # no file any more, or one that nobody would read
            found = None
        except (OSError, ValueError):
            return recovery.Seen("unknown")
        if self._is(found, change.after):
            return recovery.Seen("applied", None if found is None else _text_hash(found))
        return recovery.Seen("refused" if self._is(found, change.before) else "unknown")

    def _is(self, found: bytes | None, object_hash: str | None) -> bool:
        if object_hash is None or found is None:
            return found is None and object_hash is None
        try:
            return self._objects.get(object_hash) == found
        except (KeyError, LogCorrupt):
            return False


def _text_hash(content: bytes) -> str | None:
    try:
        return encoding.text_hash(encoding.decode(content).text)
    except ToolFailure:
        return None
