"""File URIs and paths, POSIX only. Pure but for `real_path`.

Clients spell one file in many ways (`%C3%A9`, `%c3%a9`, `é`), so a URI identifies nothing until it is a path.
"""

import os
from pathlib import Path
from urllib.parse import quote_from_bytes, unquote_to_bytes

_SCHEME = "file:"


def to_path(uri: str) -> Path | None:
    """The absolute path of a `file:` URI; None for other schemes, for other hosts and for a relative path.

    Everything after the host is path: a client that forgets to escape `#` or `?` means a file name, since no
    file URI in LSP has a fragment or a query. A `%` without two hex digits stands for itself.
    """
    if uri[: len(_SCHEME)].lower() != _SCHEME:
        return None
    rest = uri[len(_SCHEME) :]
    if rest.startswith("//"):
        host, slash, rest = rest[2:].partition("/")
        rest = slash + rest
        if host.lower() not in ("", "localhost"):
            return None
    decoded = os.fsdecode(unquote_to_bytes(rest))
    return Path(decoded) if decoded.startswith("/") and "\0" not in decoded else None


def to_uri(path: Path) -> str:
    """The canonical `file:` URI of an absolute path: all but unreserved characters and `/` escaped."""
    return f"file://{quote_from_bytes(os.fsencode(path))}"


def real_path(path: Path) -> Path:
    """The path without symbolic links and `..`; what does not exist is kept as it is. Touches the disk."""
    return Path(os.path.realpath(path))


def key_of(uri: str) -> str:
    """What two spellings of one document share: the real path, or the URI itself where it is no file."""
    path = to_path(uri)
    return uri if path is None else str(real_path(path))
