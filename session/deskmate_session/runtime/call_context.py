"""What a running call gets from the host."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from deskmate_session.core import permissions
from deskmate_session.core.state import SessionState
from deskmate_session.model import events as e
from deskmate_session.model.edits import FileText, Written
from deskmate_session.model.messages import ToolDetail
from deskmate_session.model.permissions import Action, PermissionRequest, Rule
from deskmate_session.model.ports import Host, ToolLimits
from deskmate_session.runtime.changes import Author, Changes
from deskmate_session.runtime.place import Place
from deskmate_session.workspace import files

_KEPT_OUTPUT = 20_000
"""Code points of a cut call's output that are kept at each end."""


@dataclass(slots=True)
class CallContext:
    """The `ToolContext` of one call; it also gathers what the call changed and printed."""

    state: SessionState
    author: Author
    place: Place
    host: Host
    changes: Changes
    rules: Sequence[Rule]
    show: Callable[[int, str], None]
    """Shows output at an offset."""
    updates: list[e.WorkContextUpdated] = field(default_factory=list[e.WorkContextUpdated])
    printed: list[str] = field(default_factory=list[str])
    length: int = 0
    changed: dict[str, Any] | None = None
    """The arguments that run in place of the model's, where the person gave others."""

    @property
    def session_id(self) -> str:
        return self.author.session_id

    @property
    def call_id(self) -> str:
        return self.author.call_id

    @property
    def folder(self) -> str:
        return self.place.folder

    @property
    def roots(self) -> tuple[str, ...]:
        return self.place.roots

    @property
    def state_dir(self) -> str:
        return self.place.state_dir

    @property
    def limits(self) -> ToolLimits:
        return self.place.limits

    def environment(self) -> dict[str, str]:
        """What a child gets: the place's environment, and the mark by which it is found."""
        return {**self.place.environment, "DESKMATE_CALL": self.call_id}

    def seen(self, uri: str) -> str | None:
        entry = self.state.work_context.files.get(uri)
        return None if entry is None else entry.hash

    def may_read(self, path: str) -> Action:
        request = PermissionRequest("read", (path,), "", ToolDetail(tool="", input={}))
        return permissions.judge(request, self.rules, self.state.grants, self.state.info.mode).action

    def progress(self, text: str) -> None:
        self.show(self.length, text)
        self.length += len(text)
        self.printed.append(text)
        if len(self.printed) > 1_000:
            self.printed = [self.output()]

    def output(self) -> str:
        """What was printed so far, bounded at both ends."""
        text = "".join(self.printed)
        if len(text) <= 2 * _KEPT_OUTPUT:
            return text
        return f"{text[:_KEPT_OUTPUT]}\n[…]\n{text[-_KEPT_OUTPUT:]}"

    async def read(self, path: str) -> FileText:
        return await files.read_text(path, self.host)

    async def write(self, path: str, text: str, basis: FileText | None) -> Written:
        written, update = await self.changes.write(self.author, path, text, basis)
        self.updates.append(update)
        return written
