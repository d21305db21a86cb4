"""What `glob` and `grep` share: the files of a folder that a search may look at."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from deskmate_session.errors import ToolFailure
from deskmate_session.model.ports import ToolContext
from deskmate_session.tools.support import Target
from deskmate_session.workspace import paths
from deskmate_session.workspace.ignore import Walk


@dataclass(frozen=True, slots=True)
class Listing:
    """Files below a folder."""

    base: str
    """Real path of the folder."""
    files: list[str]
    """Relative to it."""
    notes: tuple[str, ...]
    """What is missing, for the model."""


async def list_files(
    target: Target, context: ToolContext, keep: Callable[[str], bool], limit: int | None = None
) -> Listing:
    """Files below `target`, or itself, in half of the time for searches. Raises `ToolFailure`."""
    base = Path(target.path)
    if await asyncio.to_thread(base.is_file):
        return Listing(str(base.parent), [base.name], ())
    if not await asyncio.to_thread(base.is_dir):
        raise ToolFailure("notFound", f"{target.name!r} does not exist")
    roots = context.roots if paths.inside(target.path, context.roots) else (target.path,)
    deadline = time.monotonic() + context.limits.search_timeout_ms / 2000
    walk = Walk(target.path, roots, deadline=deadline)
    try:
        files, cut = await asyncio.to_thread(_collect, walk, keep, limit)
    except asyncio.CancelledError:
        walk.stop("cancelled")  # the thread goes on otherwise
        raise
    notes = [f"the listing stopped {walk.stopped}; it is not complete"] if walk.stopped else []
    if cut:
        notes.append(f"more than {limit:,} files match; these are the first: narrow the pattern")
    if walk.links_out:
        notes.append(f"{walk.links_out:,} links that lead out of the folder were not followed")
    if walk.unreadable:
        notes.append(f"{walk.unreadable:,} folders could not be read")
    return Listing(target.path, files, tuple(notes))


def _collect(walk: Walk, keep: Callable[[str], bool], limit: int | None) -> tuple[list[str], bool]:
    files: list[str] = []
    for name in walk:
        if keep(name):
            if limit is not None and len(files) >= limit:
                return files, True
            files.append(name)
    return files, False


def named(listing: Listing, file: str, context: ToolContext) -> str:
    """A file of the listing as the model should name it."""
    return paths.shown(f"{listing.base.rstrip('/')}/{file}", context.folder)
