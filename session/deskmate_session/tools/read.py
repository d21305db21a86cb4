"""`read`: a text file with line numbers, the editor's buffer first."""

import asyncio

from pydantic import Field

from deskmate_session.core.lines import line_end, split_lines
from deskmate_session.errors import ToolFailure
from deskmate_session.model.base import Wire
from deskmate_session.model.edits import FileText
from deskmate_session.model.ports import Effect, Prepared, ToolContext, ToolLimits, ToolResult
from deskmate_session.tools.support import (
    Ready,
    as_read,
    find_target,
    narrow,
    prompt,
    read_in_time,
    read_requests,
    still,
)

_MAX_WIDTH = 2_000
_ENDS = {"\n": "LF", "\r\n": "CRLF", "\r": "CR"}


class ReadArgs(Wire):
    """Which lines of which file."""

    path: str = Field(min_length=1, description="File, relative to the folder or absolute.")
    offset: int = Field(default=1, ge=0, description="First line, counted from 1.")
    limit: int | None = Field(default=None, ge=1, description="Number of lines; as many as fit without it.")


class ReadTool:
    """Reads a file for the model."""

    name = "read"
    description = prompt("read")
    effect: Effect = "none"
    args = ReadArgs

    def summary(self, args: Wire) -> str:
        """The path, and the lines if only some are wanted."""
        wanted = narrow(args, ReadArgs)
        if wanted.offset <= 1 and wanted.limit is None:
            return wanted.path
        first = max(1, wanted.offset)
        return f"{wanted.path}:{first}" + (f"-{first + wanted.limit - 1}" if wanted.limit else "")

    async def prepare(self, args: Wire, context: ToolContext) -> Prepared:
        """Resolve the path."""
        wanted = narrow(args, ReadArgs)
        target = await find_target(wanted.path, context)

        async def run() -> ToolResult:
            await still(target, context)
            file = await read_in_time(target, context)
            output, truncated = await asyncio.to_thread(
                show_lines, file, wanted.offset, wanted.limit, context.limits
            )
            return ToolResult(output, target.name, truncated=truncated, reads=as_read(file))

        return Ready(read_requests(target, self.name, f"Read {target.name}"), run)


def show_lines(file: FileText, offset: int, limit: int | None, limits: ToolLimits) -> tuple[str, bool]:
    """Numbered lines from `offset` (1-based) and notes; whether lines that were wanted are missing."""
    lines = split_lines(file.text)
    first = max(1, offset)
    if first > max(1, len(lines)):
        raise ToolFailure(
            "badArguments", f"the file has {len(lines):,} lines; offset {offset} is past its end"
        )
    wanted = min(len(lines) - first + 1, limit or len(lines))
    shown: list[str] = []
    size = 0
    for number in range(first, first + min(wanted, limits.output_max_lines)):
        line = lines[number - 1]
        text = f"{number:>5}|{_cut(line.removesuffix(line_end(line)))}"
        size += len(text.encode("utf-8", "replace")) + 1
        if size > limits.output_max_bytes and shown:
            break
        shown.append(text)
    last = first + len(shown) - 1
    notes = _notes(file)
    if last < len(lines):
        notes.append(f"lines {first}–{last} of {len(lines):,}; go on with offset {last + 1}")
    elif not lines:
        notes.append("the file is empty")
    elif not line_end(lines[-1]):
        notes.append("no newline at the end of the file")
    return "\n".join([*shown, *(f"[{note}]" for note in notes)]), len(shown) < wanted


def _cut(line: str) -> str:
    if len(line) <= _MAX_WIDTH:
        return line
    return f"{line[:_MAX_WIDTH]} [… line cut here, it has {len(line):,} characters]"


def _notes(file: FileText) -> list[str]:
    notes: list[str] = []
    if file.dirty:
        notes.append("this is the editor's buffer with unsaved changes; the disk has an older text")
    ends = {"\r\n"} if "\r\n" in file.text else set[str]()
    if file.text.count("\n") > file.text.count("\r\n"):
        ends.add("\n")
    if len(ends) > 1:
        notes.append("line ends are mixed, CRLF and LF; edits keep those of the lines they replace")
    elif file.newline != "\n":
        notes.append(f"line ends are {_ENDS[file.newline]}; write \\n in edits, they are kept")
    if file.encoding != "utf-8":
        notes.append(f"encoding {file.encoding}" + (", a guess" if file.encoding == "latin-1" else ""))
    return notes
