"""Paths: where a name really leads, whether that is inside, what kind of file it is, and file URIs."""

import os
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import quote, unquote_to_bytes, urlsplit

from deskmate_session.errors import ToolFailure


def resolve(path: str, folder: str) -> str:
    """The real path of what a model names, relative to `folder` or absolute, through all links.

    `~` is a name like any other. The path need not exist. Call it at the moment of use: links change.
    Raises `ToolFailure` (`badArguments`).
    """
    if not path or "\0" in path:
        raise ToolFailure("badArguments", f"path {path!r} is not a path: give one relative to the folder")
    try:
        return os.path.realpath(Path(folder) / path)
    except (OSError, ValueError) as error:
        raise ToolFailure("badArguments", f"path {path!r} can't be resolved: {error}") from None


def inside(path: str, roots: Iterable[str]) -> bool:
    """Is a real path one of the roots (real paths) or below one?"""
    return any(path == root or path.startswith(root.rstrip("/") + "/") for root in roots)


def shown(path: str, folder: str) -> str:
    """How people, models and rules name a real path: relative inside the folder, else absolute."""
    if path == folder:
        return "."
    return path[len(folder.rstrip("/")) + 1 :] if inside(path, (folder,)) else path


def path_to_uri(path: str) -> str:
    """The `file:` URI of an absolute path. Everything but letters, digits, `-._~` and `/` is quoted."""
    return "file://" + quote(os.fsencode(path), safe="/")


def uri_to_path(uri: str) -> str:
    """The path of a `file:` URI, however it was quoted. Raises `ValueError` for any other URI."""
    parts = urlsplit(uri)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
        raise ValueError(f"{uri!r} is not the uri of a local file")
    path = os.fsdecode(unquote_to_bytes(parts.path))
    if "\0" in path:
        raise ValueError(f"{uri!r} holds a NUL character")
    return path
