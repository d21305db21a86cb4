"""`grep`: lines that match a regular expression."""

import asyncio
import os
import time
from pathlib import Path

from pydantic import Field

from deskmate_session.model.base import Wire
from deskmate_session.model.ports import Effect, Prepared, ToolContext, ToolLimits, ToolResult
from deskmate_session.tools.searching import Listing, list_files, named
from deskmate_session.tools.support import Ready, find_target, narrow, prompt, read_requests, still
from deskmate_session.workspace import paths
from deskmate_session.workspace.globs import compile_glob
from deskmate_session.workspace.search import Found, find_ripgrep, search

_MAX_MATCHES = 500


class GrepArgs(Wire):
    """What to search, where."""

    pattern: str = Field(min_length=1, description="Regular expression.")
    path: str | None = Field(default=None, description="File or folder; the session's folder without it.")
    glob: str | None = Field(default=None, description="Only files whose path matches, such as `*.py`.")


class GrepTool:
    """Searches the text of files."""

    name = "grep"
    description = prompt("grep")
    effect: Effect = "none"
    args = GrepArgs

    def __init__(self, ripgrep: str | None = None) -> None:
        """`ripgrep` is a configured path; otherwise it is looked for at the first search."""
        self._configured = ripgrep

    def summary(self, args: Wire) -> str:
        """Pattern and place."""
        wanted = narrow(args, GrepArgs)
        place = " ".join(part for part in (wanted.path, wanted.glob) if part)
        return f"{wanted.pattern} in {place}" if place else wanted.pattern

    async def prepare(self, args: Wire, context: ToolContext) -> Prepared:
        """Resolve the place; read the glob."""
        wanted = narrow(args, GrepArgs)
        glob = compile_glob(wanted.glob) if wanted.glob else None
        target = await find_target(wanted.path or ".", context)

        async def run() -> ToolResult:
            await still(target, context)
            began = time.monotonic()
            secrets: list[str] = []

            def keep(name: str) -> bool:
                if glob is not None and glob.fullmatch(name) is None:
                    return False
                # Permission was asked for the folder, which says nothing about each file in it.
                if not _may_search(f"{target.path}/{name}", context):
                    secrets.append(name)
                    return False
                return True

            listing = await list_files(target, context, keep)
            left = context.limits.search_timeout_ms / 1000 - (time.monotonic() - began)
            found = await search(
                wanted.pattern,
                listing.base,
                listing.files,
                max_matches=_MAX_MATCHES,
                timeout_s=max(left, 0.1),
                ripgrep=await asyncio.to_thread(find_ripgrep, self._configured),
            )
            return _result(listing, found, len(secrets), context)

        return Ready(read_requests(target, self.name, f"Search {target.name} for {wanted.pattern}"), run)


def _may_search(path: str, context: ToolContext) -> bool:
    """The rules let the file be read, and what it links to."""
    names = {path, os.path.realpath(path)} if Path(path).is_symlink() else {path}
    return all(context.may_read(paths.shown(name, context.folder)) == "allow" for name in names)


def _result(listing: Listing, found: Found, secrets: int, context: ToolContext) -> ToolResult:
    lines, cut = _lines(listing, found, context, context.limits)
    notes = list(listing.notes)
    if found.stopped:
        notes.append(f"the search stopped {found.stopped}; results are partial, narrow it")
    if cut:
        notes.append(f"{cut:,} more matches don't fit: narrow the search")
    skipped = (
        (secrets, "that no rule lets you read"),
        (found.binary, "binary"),
        (found.too_big, "over 10 MB"),
        (found.unreadable, "unreadable"),
    )
    told = ", ".join(f"{count:,} {what}" for count, what in skipped if count)
    searched = "files searched" if not found.stopped else "files were to be searched"
    notes.append(f"{len(listing.files):,} {searched}" + (f"; skipped: {told}" if told else ""))
    if not lines:
        notes.insert(0, "no match")
    count = len(found.matches)
    return ToolResult(
        "\n".join([*lines, *(f"[{note}]" for note in notes)]),
        f"{count} match{'' if count == 1 else 'es'}",
        truncated=bool(cut or found.stopped),
    )


def _lines(listing: Listing, found: Found, context: ToolContext, limits: ToolLimits) -> tuple[list[str], int]:
    lines: list[str] = []
    size = 0
    for match in found.matches:
        line = f"{named(listing, match.file, context)}:{match.line}:{match.text}"
        size += len(line.encode("utf-8", "replace")) + 1
        if size > limits.output_max_bytes or len(lines) >= limits.output_max_lines:
            break
        lines.append(line)
    return lines, len(found.matches) - len(lines)
