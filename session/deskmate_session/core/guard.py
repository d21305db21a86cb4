"""Files that are asked about whatever a mode allows: those that hold secrets, and those that run later."""

import re
from collections.abc import Iterable
from typing import Literal

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
        or any(path == folder or path.startswith(f"{folder.rstrip('/')}/") for folder in own)
    )
    return "runsLater" if runs else None


def is_secret(path: str) -> bool:
    """Does the file, by its name or folder, hold keys or passwords?"""
    *folders, name = path.split("/")
    return (
        _SECRET.fullmatch(name) is not None or not _SECRET_FOLDERS.isdisjoint(map(str.lower, folders))
    ) and not name.lower().endswith(".pub")
