"""Walk a tree as git sees it: `.gitignore` of every level, never `.git`, never through a link out."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

from pathspec import GitIgnoreSpec

from deskmate_session.workspace.paths import inside

MAX_ENTRIES = 300_000
"""Entries that one walk looks at."""
_MAX_IGNORE_BYTES = 1_000_000
_MAX_DEPTH = 200

Level = tuple[int, GitIgnoreSpec]
"""Where paths relative to a `.gitignore` begin in an absolute path, and its rules."""


class Walk:
    """One walk over the files below `start`, a real path inside `roots`. Blocks; run it in a thread.

    Iterating gives paths relative to `start`, sorted name by name. Afterwards `stopped` says why the walk
    is not complete, if it isn't.
    """

    def __init__(
        self, start: str, roots: tuple[str, ...], *, deadline: float | None = None, limit: int = MAX_ENTRIES
    ) -> None:
        """`deadline` is a `time.monotonic()` in seconds."""
        self._start = start
        self._roots = roots
        self._deadline = deadline
        self._limit = limit
        self.stopped: str | None = None
        self.entries = 0
        self.unreadable = 0
        """Folders that could not be listed."""
        self.links_out = 0
        """Links that lead out of the roots, or to nothing."""

    def stop(self, why: str) -> None:
        """End it early, from any thread."""
        self.stopped = why

    def __iter__(self) -> Iterator[str]:
        yield from self._folder(self._start, "", _levels_above(self._start))

    def _folder(self, path: str, relative: str, levels: tuple[Level, ...]) -> Iterator[str]:
        levels = (*levels, *_level(path))
        if relative.count("/") > _MAX_DEPTH:
            self.stopped = f"below {_MAX_DEPTH} levels of folders"
            return
        try:
            with os.scandir(path) as found:
                entries = sorted(found, key=lambda entry: entry.name)
        except OSError:
            self.unreadable += 1
            return
        for entry in entries:
            if self._must_stop():
                return
            if entry.name == ".git" or not _is_utf8(entry.name):
                continue
            is_folder = entry.is_dir(follow_symlinks=False)
            if _ignored(entry.path, is_folder, levels):
                continue
            if is_folder:
                yield from self._folder(entry.path, f"{relative}{entry.name}/", levels)
            elif self._is_file(entry):
                yield relative + entry.name

    def _must_stop(self) -> bool:
        if self.stopped is None:
            self.entries += 1
            if self.entries > self._limit:
                self.stopped = f"after {self._limit:,} entries"
            elif self._deadline is not None and time.monotonic() > self._deadline:
                self.stopped = "at the time limit"
        return self.stopped is not None

    def _is_file(self, entry: os.DirEntry[str]) -> bool:
        if not entry.is_symlink():
            return entry.is_file()
        real = Path(os.path.realpath(entry.path))
        if inside(str(real), self._roots) and real.is_file():
            return True
        self.links_out += not real.is_dir()
        return False


def _levels_above(start: str) -> tuple[Level, ...]:
    """The rules above `start`, up to the top of its repository; none outside of one."""
    folders: list[Path] = []
    for folder in (Path(start), *Path(start).parents):
        if folder != Path(start):
            folders.append(folder)
        if (folder / ".git").exists():
            exclude = _read(folder / ".git" / "info" / "exclude", str(folder))
            return (*exclude, *(level for above in reversed(folders) for level in _level(str(above))))
    return ()


def _level(folder: str) -> tuple[Level, ...]:
    return _read(Path(folder) / ".gitignore", folder)


def _read(file: Path, folder: str) -> tuple[Level, ...]:
    try:
        if file.is_symlink() or not file.is_file() or file.stat().st_size > _MAX_IGNORE_BYTES:
            return ()  # git doesn't follow such a link either
        lines = file.read_bytes().decode("utf-8-sig", "replace").splitlines()
        return ((len(folder.rstrip("/")) + 1, GitIgnoreSpec.from_lines(lines)),)
    except (OSError, ValueError):
        return ()


def _ignored(path: str, is_folder: bool, levels: tuple[Level, ...]) -> bool:
    """The deepest `.gitignore` that says anything decides."""
    name = f"{path}/" if is_folder else path
    for start, spec in reversed(levels):
        verdict = spec.check_file(name[start:]).include
        if verdict is not None:
            return verdict
    return False


def _is_utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
