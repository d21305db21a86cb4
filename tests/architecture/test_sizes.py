"""A module is small enough to be read in one sitting."""

import warnings

from tests.architecture.source import ROOT, our_files

SOFT = 400
HARD = 600
GENERATED = ("vscode-extension/src/protocol.ts", "editors/nvim/lua/deskmate/protocol.lua")


def too_long(sizes: dict[str, int], limit: int) -> list[str]:
    """Paths above the limit, longest first, with their lines."""
    return [
        f"{path}: {lines} lines"
        for path, lines in sorted(sizes.items(), key=lambda s: -s[1])
        if lines > limit
    ]


def test_no_module_is_longer_than_six_hundred_lines() -> None:
    sizes = {
        path: (ROOT / path).read_bytes().count(b"\n")
        for path in our_files()
        if path.endswith((".py", ".lua", ".ts")) and path not in GENERATED
    }
    assert not too_long(sizes, HARD), "split by what changes together"
    if long := too_long(sizes, SOFT):
        warnings.warn("longer than 400 lines, think of splitting: " + "; ".join(long), stacklevel=1)


def test_a_long_module_is_found() -> None:
    assert too_long({"a": 601, "b": 600, "c": 900}, HARD) == ["c: 900 lines", "a: 601 lines"]
