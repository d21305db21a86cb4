"""The repository as text and as syntax, for tests about how it is built."""

import ast
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("session/deskmate_session", "server/deskmate_server")


@dataclass(frozen=True, slots=True)
class Source:
    """A Python file: its path in the repository, its text, its syntax tree."""

    path: str
    text: str
    tree: ast.Module

    @classmethod
    def parse(cls, path: str, text: str) -> "Source":
        """From text, as a test writes it."""
        return cls(path, text, ast.parse(text))


@cache
def our_files() -> tuple[str, ...]:
    """All files that are committed or would be: tracked, and new ones that git does not ignore."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    return tuple(sorted(path for path in set(listed.stdout.split("\0")) if path and (ROOT / path).is_file()))


@cache
def our_modules() -> tuple[Source, ...]:
    """The modules of both packages."""
    paths = [path for path in our_files() if path.startswith(PACKAGES) and path.endswith(".py")]
    return tuple(Source.parse(path, (ROOT / path).read_text(encoding="utf-8")) for path in paths)
