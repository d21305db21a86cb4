"""What the tools share: a prepared call, the file that a path means, the permissions for it, prompts."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from deskmate_session.core.guard import Guard, guard
from deskmate_session.errors import ToolFailure
from deskmate_session.model.base import Wire
from deskmate_session.model.edits import FileText, Written
from deskmate_session.model.events import ReadFile
from deskmate_session.model.messages import ToolDetail
from deskmate_session.model.permissions import PermissionRequest
from deskmate_session.model.ports import ToolContext, ToolResult
from deskmate_session.workspace import paths

A = TypeVar("A", bound=Wire)


@dataclass(frozen=True, slots=True)
class Ready:
    """A call that can run: the `Prepared` port for all tools here."""

    requests: tuple[PermissionRequest, ...]
    action: Callable[[], Awaitable[ToolResult]]

    async def run(self) -> ToolResult:
        """Do it. Raises `ToolFailure`."""
        return await self.action()


@dataclass(frozen=True, slots=True)
class Target:
    """The file that a path of the model means."""

    given: str
    path: str
    """Real path."""
    name: str
    """As rules and people see it: relative inside the folder, else absolute."""
    outside: bool
    is_folder: bool
    guard: Guard | None

    @property
    def uri(self) -> str:
        """File URI of the real path."""
        return paths.path_to_uri(self.path)


def narrow(args: Wire, kind: type[A]) -> A:
    """The arguments as the tool's own model; the registry parsed them with it."""
    if not isinstance(args, kind):
        raise TypeError(f"{type(args).__name__} are not the arguments of {kind.__name__}")
    return args


async def find_target(given: str, context: ToolContext) -> Target:
    """Resolve a path through links. Raises `ToolFailure` (`badArguments`)."""
    path = await asyncio.to_thread(paths.resolve, given, context.folder)
    return Target(
        given=given,
        path=path,
        name=paths.shown(path, context.folder),
        outside=not paths.inside(path, context.roots),
        is_folder=await asyncio.to_thread(Path(path).is_dir),
        guard=guard(path),
    )


async def still(target: Target, context: ToolContext) -> None:
    """Refuse when a link moved after the permission was given. Raises `ToolFailure` (`conflict`)."""
    now = await find_target(target.given, context)
    if now.path != target.path:
        raise ToolFailure(
            "conflict", f"{target.given!r} leads to {now.path!r} now, not to {target.path!r}; call again"
        )


def read_requests(target: Target, tool: str, title: str) -> tuple[PermissionRequest, ...]:
    """What reading a file or searching a folder needs."""
    detail = ToolDetail(tool=tool, input={"path": target.name})
    read = PermissionRequest("read", (target.name,), title, detail, _always(target))
    return (*outside_requests(target, tool, title), read)


def outside_requests(target: Target, tool: str, title: str) -> tuple[PermissionRequest, ...]:
    """What reaching out of the session's folders needs; nothing inside."""
    if not target.outside:
        return ()
    detail = ToolDetail(tool=tool, input={"path": target.path})
    return (PermissionRequest("external_directory", (target.path,), title, detail, _below(target)),)


def always_all(target: Target) -> tuple[str, ...]:
    """`*` for an ordinary file inside; nothing where only *once* makes sense."""
    return () if target.guard or target.outside else ("*",)


def _always(target: Target) -> tuple[str, ...]:
    if target.guard == "secret":
        return ()
    return _below(target) if target.outside else ("*",)


def _below(target: Target) -> tuple[str, ...]:
    """What is below the folder that was meant, never beside it; nothing for the root of the disk."""
    folder = target.path if target.is_folder else str(Path(target.path).parent)
    return () if folder == "/" else (f"{folder}/",)


async def read_in_time(target: Target, context: ToolContext) -> FileText:
    """The file as it stands, within the limit for file work. Raises `ToolFailure`."""
    seconds = context.limits.file_timeout_ms / 1000
    try:
        async with asyncio.timeout(seconds):
            return await context.read(target.path)
    except TimeoutError:
        raise ToolFailure("timeout", f"reading {target.name!r} took longer than {seconds:g} s") from None


async def read_if_there(target: Target, context: ToolContext) -> FileText | None:
    """As `read_in_time`; None for a file that does not exist."""
    try:
        return await read_in_time(target, context)
    except ToolFailure as failure:
        if failure.kind == "notFound":
            return None
        raise


def as_read(file: FileText) -> tuple[ReadFile, ...]:
    """The fact that the model knows this state of the file."""
    return (ReadFile(uri=file.uri, hash=file.hash),)


def write_notes(written: Written, wanted: str) -> str:
    """What the model should know of a write beside its success; empty for nothing."""
    notes = [written.note] if written.note else []
    if written.text is not None and written.text != wanted:
        notes.append(
            "The file was changed further when it was saved (a formatter?): read it before you go on."
        )
    if not written.saved:
        notes.append("The change is in the editor's buffer, which is not saved.")
    return "".join(f"\n[{note}]" for note in notes)


def prompt(tool: str) -> str:
    """The tool's description from the `.md` beside it. Reads the disk: for import time, before any loop."""
    return Path(__file__).with_name(f"{tool}.md").read_text(encoding="utf-8").strip()
