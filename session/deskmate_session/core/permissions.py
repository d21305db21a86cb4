"""What the rules say about a request. Pure; the most specific matching pattern wins, so order never
matters: most literal characters, on a tie deny, then ask, then allow.
"""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

from pathspec import GitIgnoreSpec

from deskmate_session.core import shell
from deskmate_session.core.guard import guard
from deskmate_session.model.messages import Mode
from deskmate_session.model.permissions import Action, PermissionRequest, Rule, Verdict

_STRICTEST: dict[Action, int] = {"deny": 0, "ask": 1, "allow": 2}

PERMISSIONS = frozenset(
    {"*", "read", "edit", "bash", "webfetch", "task", "skill", "external_directory", "loop"}
)
"""The names that a rule can have; besides, an MCP tool's full name, which holds an underscore."""

DEFAULTS: dict[str, Action] = {"read": "allow", "task": "allow", "skill": "allow"}
"""The built-in actions, under a person's own rules; everything else is asked, and so are secret files."""


def rules_from(settings: dict[str, Action | dict[str, Action]]) -> tuple[Rule, ...]:
    """The rules of a `[permission]` table: `name = action`, or a table `pattern = action`."""
    rules: list[Rule] = []
    for permission, value in settings.items():
        table: dict[str, Action] = value if isinstance(value, dict) else {"*": value}
        rules += [Rule(permission, pattern, action) for pattern, action in table.items()]
    return tuple(rules)


def judge(request: PermissionRequest, person: Sequence[Rule], grants: Sequence[Rule], mode: Mode) -> Verdict:
    """What becomes of a request: the strictest verdict over its patterns.

    `person` are the rules of the person's configuration, `grants` what was allowed for this session.
    A person's deny is final in every mode.
    """
    verdicts = [_judge_one(request.permission, pattern, person, grants, mode) for pattern in request.patterns]
    return min(verdicts, key=lambda verdict: _STRICTEST[verdict.action], default=Verdict("ask"))


def _judge_one(
    permission: str, pattern: str, person: Sequence[Rule], grants: Sequence[Rule], mode: Mode
) -> Verdict:
    own = _best(permission, pattern, person)
    action = own.action if own else _default(permission)
    if action == "deny":
        return Verdict("deny", own)
    if mode == "plan" and permission in ("edit", "bash"):
        return Verdict("deny", Rule(permission, "*", "deny"))
    if _is_guarded(permission, pattern):
        # What runs later or holds secrets is asked in every mode, unless a rule names it.
        return Verdict(action if own and _is_guarded(permission, own.pattern) else "ask", own)
    if action == "ask" and (
        _best(permission, pattern, grants) is not None or permission in _ALLOWED_BY_MODE.get(mode, ())
    ):
        return Verdict("allow")
    return Verdict(action, own)


def _is_guarded(permission: str, pattern: str) -> bool:
    why = guard(pattern.strip("/"))
    return why is not None and (permission == "edit" or (permission == "read" and why == "secret"))


_ALLOWED_BY_MODE: dict[Mode, tuple[str, ...]] = {
    "acceptEdits": ("edit",),
    "auto": ("edit", "bash", "webfetch"),
}
"""What would be asked and a mode lets through."""


def _default(permission: str) -> Action:
    return DEFAULTS.get(permission, "ask")


def _best(permission: str, pattern: str, rules: Iterable[Rule]) -> Rule | None:
    found = [
        rule for rule in rules if rule.permission in (permission, "*") and _matches(rule, permission, pattern)
    ]
    return min(found, key=_rank, default=None)


def _rank(rule: Rule) -> tuple[int, int, int]:
    literal = len(re.sub(r"[*?]", "", rule.pattern))
    return (rule.permission == "*", -literal, _STRICTEST[rule.action])


def _matches(rule: Rule, permission: str, pattern: str) -> bool:
    if rule.pattern == "*":
        return True
    if permission == "bash":
        return _command_matches(rule, pattern)
    if permission in ("read", "edit", "external_directory"):
        return _path_matches((rule.pattern,), pattern)
    return _glob(rule.pattern).fullmatch(pattern) is not None


def _command_matches(rule: Rule, command: str) -> bool:
    glob = _glob(rule.pattern)
    if rule.action == "allow":
        words = shell.plain_words(command)
        return words is not None and glob.fullmatch(words) is not None
    return any(glob.fullmatch(piece) for piece in shell.pieces(command))


@lru_cache(maxsize=512)
def _glob(pattern: str) -> re.Pattern[str]:
    """`*` is any text; a trailing `*` after a letter ends at a word: `git status*` is not `git statusfoo`."""
    body = ".*".join(re.escape(piece) for piece in pattern.split("*"))
    if len(pattern) > 1 and pattern.endswith("*") and pattern[-2].isalnum():
        body = body[: -len(".*")] + r"(?!\w).*"
    return re.compile(body, re.DOTALL)


def _path_matches(patterns: Sequence[str], path: str) -> bool:
    return _spec(tuple(patterns)).match_file(path.lstrip("/"))


@lru_cache(maxsize=512)
def _spec(patterns: tuple[str, ...]) -> GitIgnoreSpec:
    return GitIgnoreSpec.from_lines(patterns)
