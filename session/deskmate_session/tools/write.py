"""`write`: a whole text file, new or known to the session as it stands."""

import asyncio

from pydantic import Field

from deskmate_session.core.diffs import diff
from deskmate_session.core.edits import with_line_ends_of
from deskmate_session.core.lines import split_lines
from deskmate_session.errors import ToolFailure
from deskmate_session.model.base import Wire
from deskmate_session.model.edits import FileText
from deskmate_session.model.messages import DiffDetail
from deskmate_session.model.permissions import PermissionRequest
from deskmate_session.model.ports import Effect, Prepared, ToolContext, ToolResult
from deskmate_session.tools.support import (
    Ready,
    Target,
    always_all,
    find_target,
    narrow,
    outside_requests,
    prompt,
    read_if_there,
    read_requests,
    still,
    write_notes,
)


class WriteArgs(Wire):
    """A file and all of its content."""

    path: str = Field(min_length=1, description="File, relative to the folder or absolute.")
    content: str = Field(description="The complete text of the file.")


class WriteTool:
    """Creates or replaces a file."""

    name = "write"
    description = prompt("write")
    effect: Effect = "idempotent"
    args = WriteArgs

    def summary(self, args: Wire) -> str:
        """The path."""
        return narrow(args, WriteArgs).path

    async def prepare(self, args: Wire, context: ToolContext) -> Prepared:
        """Compare with what is there."""
        wanted = narrow(args, WriteArgs)
        target = await find_target(wanted.path, context)
        file = await read_if_there(target, context)
        after = await asyncio.to_thread(text_for, file, wanted.content)

        async def run() -> ToolResult:
            await still(target, context)
            current = await read_if_there(target, context)
            now = await asyncio.to_thread(text_for, current, wanted.content)
            return await _write(target, current, now, context)

        if file is not None and file.text == after:
            return Ready(read_requests(target, self.name, f"Write {target.name}"), run)
        _check_seen(target, file, context)
        requests = await asyncio.to_thread(edit_requests, target, file, after, self.name, "Write")
        return Ready(requests, run)


def text_for(file: FileText | None, content: str) -> str:
    """The content as the file would hold it: with its line ends and without a second byte-order mark."""
    if file is None:
        return content
    if file.bom:
        content = content.removeprefix("\ufeff")
    return content if "\r" in content else with_line_ends_of(file.text, content, file.newline)


def edit_requests(
    target: Target, file: FileText | None, after: str, tool: str, verb: str
) -> tuple[PermissionRequest, ...]:
    """What changing a file needs; the detail shows the whole difference."""
    change = diff(target.name, file.text if file else None, after)
    title = f"{verb if file else 'Create'} {target.name}"
    detail = DiffDetail(uri=file.uri if file else target.uri, diff=change.patch)
    edit = PermissionRequest("edit", (target.name,), title, detail, always_all(target))
    return (*outside_requests(target, tool, title), edit)


async def _write(target: Target, file: FileText | None, after: str, context: ToolContext) -> ToolResult:
    if file is not None and file.text == after:
        return ToolResult(
            f"unchanged: {target.name} holds exactly this text already",
            target.name,
            metadata={"unchanged": True},
        )
    _check_seen(target, file, context)
    written = await context.write(target.path, after, file)
    change = await asyncio.to_thread(diff, target.name, file.text if file else None, after)
    done = "wrote" if file else "created"
    return ToolResult(
        f"{done} {target.name} ({len(split_lines(after)):,} lines){write_notes(written, after)}",
        target.name,
        metadata={"additions": change.additions, "deletions": change.deletions},
    )


def _check_seen(target: Target, file: FileText | None, context: ToolContext) -> None:
    if file is None:
        return
    seen = context.seen(file.uri)
    if seen is None:
        raise ToolFailure(
            "conflict", f"{target.name!r} exists and was not read in this session: read it first, or use edit"
        )
    if seen != file.hash:
        raise ToolFailure(
            "conflict", f"{target.name!r} changed since read: read it again, then write, or use edit"
        )
