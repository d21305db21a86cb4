"""Glob patterns as regular expressions over relative paths with `/`."""

import re
from functools import lru_cache

from deskmate_session.errors import ToolFailure

_MAX_ALTERNATIVES = 200
_MAGIC = re.compile(r"[*?\[{]")


def split_base(pattern: str) -> tuple[str, str]:
    """The leading folders without any magic, and the rest: `src/a/*.py` → `src/a`, `*.py`."""
    parts = pattern.split("/")
    fixed = 0
    while fixed < len(parts) - 1 and not _MAGIC.search(parts[fixed]):
        fixed += 1
    base = "/".join(parts[:fixed])
    return ("/" if fixed and not base else base), "/".join(parts[fixed:])


@lru_cache(maxsize=64)
def compile_glob(pattern: str) -> re.Pattern[str]:
    """`*` and `?` stay in one name, `**` crosses folders, `{a,b}` is either, `[a-z]` one of a set.

    A pattern without `/` matches the name in any folder. Names with a leading dot match too.
    Raises `ToolFailure` (`badArguments`).
    """
    pattern = pattern.removeprefix("./")
    if "/" not in pattern:
        pattern = f"**/{pattern}"
    try:
        return re.compile("|".join(_translate(one) for one in _braces(pattern)), re.DOTALL)
    except re.error as error:
        raise ToolFailure("badArguments", f"glob pattern {pattern!r} can't be read: {error}") from None


def _braces(pattern: str) -> list[str]:
    done: list[str] = []
    todo = [pattern]
    while todo:
        if len(todo) + len(done) > _MAX_ALTERNATIVES:
            raise ToolFailure("badArguments", f"glob pattern {pattern!r} has too many alternatives")
        one = todo.pop()
        found = re.search(r"\{([^{}]*,[^{}]*)\}", one)
        if found is None:
            done.append(one)
        else:
            todo += [one[: found.start()] + each + one[found.end() :] for each in found[1].split(",")]
    return done


def _translate(pattern: str) -> str:
    out: list[str] = []
    at = 0
    while at < len(pattern):
        if pattern.startswith("**/", at) and (at == 0 or pattern[at - 1] == "/"):
            out.append("(?:[^/]+/)*")
            at += 3
        elif pattern.startswith("**", at):
            out.append(".*")
            at += 2
        elif pattern[at] == "[" and (end := pattern.find("]", at + 2)) > 0:
            body = pattern[at + 1 : end].replace("\\", r"\\").replace("[", r"\[").replace("^", r"\^")
            out.append(f"(?!/)[^{body[1:]}]" if body.startswith("!") else f"(?!/)[{body}]")
            at = end + 1
        else:
            out.append({"*": "[^/]*", "?": "[^/]"}.get(pattern[at], re.escape(pattern[at])))
            at += 1
    return "".join(out)
