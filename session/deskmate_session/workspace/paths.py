"""Paths: where a name really leads, whether that is inside, what kind of file it is, and file URIs."""

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Literal
from urllib.parse import quote, unquote_to_bytes, urlsplit

from deskmate_session.errors import ToolFailure

Guard = Literal["secret", "runsLater"]

_SECRET = re.compile(
    r"""\.env | \.env\.(?!example$).+ | \.envrc\.local | .*\.(pem|key|p12|pfx|jks|keystore|kdbx|ppk)
    | id_(rsa|dsa|ecdsa|ed25519)(_sk)? | \.netrc | _netrc | \.pgpass | \.npmrc | \.pypirc | \.git-credentials
    | \.htpasswd | credentials(\.json|\.toml|\.yaml|\.yml)? | secrets?\.(json|toml|yaml|yml)""",
    re.VERBOSE | re.IGNORECASE,
)
_SECRET_FOLDERS = frozenset({".ssh", ".gnupg", ".aws", ".kube"})

_RUNS_LATER = re.compile(
    r"""\.envrc | deskmate\.toml | \.mcp\.json | \.gitconfig | \.gitmodules | crontab | sitecustomize\.py
    | \.(bash|zsh|k?sh|c|tc)rc | \.profile | \.(bash|z)_?(profile|login|logout|env|aliases) | \.zshenv
    | \.inputrc | \.xprofile | \.xinitrc | \.xsessionrc | \.vimrc | \.exrc | \.nvim\.lua | \.nvimrc
    | \.pre-commit-config\.yaml""",
    re.VERBOSE | re.IGNORECASE,
)
_RUNS_LATER_FOLDERS = frozenset({".git", ".deskmate", ".husky", ".vscode", ".idea", ".ssh"})
_RUNS_LATER_ENDS = ("/.config/fish/", "/.config/deskmate/", "/.config/nvim/", "/.config/autostart/")


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


def guard(path: str, own: Iterable[str] = ()) -> Guard | None:
    """Why a path is asked about in every mode: it holds a secret, or it is run later without a question.

    Judged by name, letter case ignored (a file system may ignore it too). `own` are folders of ours, such
    as the user configuration where `XDG_CONFIG_HOME` moved it.
    """
    if is_secret(path):
        return "secret"
    *folders, name = path.lower().split("/")
    runs = (
        _RUNS_LATER.fullmatch(name) is not None
        or not _RUNS_LATER_FOLDERS.isdisjoint((*folders, name))
        or any(end in f"/{path.lower()}" for end in _RUNS_LATER_ENDS)
        or inside(path, own)
    )
    return "runsLater" if runs else None


def is_secret(path: str) -> bool:
    """Does the file, by its name or folder, hold keys or passwords?"""
    *folders, name = path.split("/")
    return (
        _SECRET.fullmatch(name) is not None or not _SECRET_FOLDERS.isdisjoint(map(str.lower, folders))
    ) and not name.lower().endswith(".pub")


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
