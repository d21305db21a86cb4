"""`edit`: exact replacements in a file, all or nothing."""

import asyncio
from typing import Self

from pydantic import Field, model_validator

from deskmate_session.core.diffs import diff
from deskmate_session.core.edits import Edit, Replacement, apply_edits
from deskmate_session.errors import ToolFailure
from deskmate_session.model.base import Wire
from deskmate_session.model.edits import FileText
from deskmate_session.model.ports import Effect, Prepared, ToolContext, ToolResult
from deskmate_session.tools.support import (
    Ready,
    Target,
    find_target,
    narrow,
    prompt,
    read_if_there,
    still,
    write_notes,
)
from deskmate_session.tools.write import edit_requests

_TRIES = 3
_SHOWN_LINES = 10


class EditItem(Wire):
    """One replacement."""

    old: str = Field(description="Text to replace, exactly as in the file.")
    new: str = Field(description="Text to put in its place.")
    all: bool = Field(default=False, description="Replace every occurrence.")


class EditArgs(Wire):
    """A file and one replacement, or several."""

    path: str = Field(min_length=1, description="File, relative to the folder or absolute.")
    old: str | None = Field(default=None, description="Text to replace, exactly as in the file.")
    new: str | None = Field(default=None, description="Text to put in its place.")
    all: bool = Field(default=False, description="Replace every occurrence of `old`.")
    edits: tuple[EditItem, ...] | None = Field(
        default=None, description="Several replacements in order, instead of `old` and `new`."
    )

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if self.edits:
            if self.old or self.new:
                raise ValueError("give either `old` and `new`, or `edits`")
        elif self.old is None or self.new is None:
            raise ValueError("`old` and `new` are needed, or `edits`")
        return self

    def items(self) -> tuple[Edit, ...]:
        """The replacements, in order."""
        if self.edits:
            return tuple(Edit(item.old, item.new, item.all) for item in self.edits)
        return (Edit(self.old or "", self.new or "", self.all),)


class EditTool:
    """Changes a file, or creates one from nothing."""

    name = "edit"
    description = prompt("edit")
    effect: Effect = "effect"
    args = EditArgs

    def summary(self, args: Wire) -> str:
        """The path."""
        return narrow(args, EditArgs).path

    async def prepare(self, args: Wire, context: ToolContext) -> Prepared:
        """Work out the change on the file as it stands."""
        wanted = narrow(args, EditArgs)
        edits = wanted.items()
        target = await find_target(wanted.path, context)
        file = await read_if_there(target, context)
        # Diffs of long texts take their time: off the loop.
        change = await asyncio.to_thread(_changed, target, file, edits)
        requests = await asyncio.to_thread(edit_requests, target, file, change.text, self.name, "Edit")
        basis = file.hash if file else None

        async def run() -> ToolResult:
            await still(target, context)
            return await _run(target, edits, basis, change, context)

        return Ready(requests, run)


async def _run(
    target: Target, edits: tuple[Edit, ...], basis: str | None, change: Replacement, context: ToolContext
) -> ToolResult:
    """Write the change; if the file moved on, apply the same edits to what it is now."""
    for left in reversed(range(_TRIES)):
        file = await read_if_there(target, context)
        if (file.hash if file else None) != basis:
            change = await asyncio.to_thread(_changed, target, file, edits)
            basis = file.hash if file else None
        try:
            written = await context.write(target.path, change.text, file)
        except ToolFailure as failure:
            if failure.kind != "conflict" or not left:
                raise
        else:
            break
    else:
        raise AssertionError("the last try returns or raises")
    shown = await asyncio.to_thread(diff, target.name, file.text if file else None, change.text)
    return ToolResult(
        _say(target, file, change) + write_notes(written, change.text),
        target.name,
        metadata={"additions": shown.additions, "deletions": shown.deletions, "replacements": change.count},
    )


def _changed(target: Target, file: FileText | None, edits: tuple[Edit, ...]) -> Replacement:
    try:
        if file is not None:
            return apply_edits(file.text, edits)
        if edits[0].old:
            raise ToolFailure("notFound", 'does not exist; `old: ""` would create it')
        if len(edits) == 1:
            return Replacement(edits[0].new, 1, ((0, len(edits[0].new)),))
        rest = apply_edits(edits[0].new, edits[1:])
        return Replacement(rest.text, rest.count + 1, rest.ranges)
    except ToolFailure as failure:
        raise ToolFailure(failure.kind, f"{target.name!r}: {failure.message}") from None


def _say(target: Target, file: FileText | None, change: Replacement) -> str:
    if file is None:
        return f"created {target.name}"
    lines = [change.text.count("\n", 0, start) + 1 for start, _ in change.ranges[:_SHOWN_LINES]]
    more = ", …" if len(change.ranges) > _SHOWN_LINES else ""
    places = "1 replacement" if change.count == 1 else f"{change.count} replacements"
    return f"edited {target.name}: {places}, at line {', '.join(map(str, lines))}{more}"
