"""What the rules say about a request. Pure; the most specific matching pattern wins, so order never
matters: most literal characters, on a tie deny, then ask, then allow.
"""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

from pathspec import GitIgnoreSpec

from deskmate_session.core import shell
from deskmate_session.model.messages import Mode
from deskmate_session.model.permissions import Action, PermissionRequest, Rule, Verdict

_STRICTEST: dict[Action, int] = {"deny": 0, "ask": 1, "allow": 2}

DEFAULTS: tuple[Rule, ...] = (
    Rule("*", "*", "ask"),
    Rule("read", "*", "allow"),
    Rule("read", ".env", "ask"),
    Rule("read", ".env.*", "ask"),
    Rule("read", ".env.example", "allow"),
    Rule("read", "*.pem", "ask"),
    Rule("read", "*.key", "ask"),
    Rule("read", "id_rsa*", "ask"),
    Rule("read", "id_ed25519*", "ask"),
    Rule("edit", "*", "ask"),
    Rule("bash", "*", "ask"),
    Rule("external_directory", "*", "ask"),
    Rule("task", "*", "allow"),
    Rule("skill", "*", "allow"),
)
"""The built-in rules; a person's own rule stands above them."""

ALWAYS_ASK: tuple[str, ...] = (
    ".git/",
    ".vscode/",
    ".envrc",
    ".deskmate/",
    "deskmate.toml",
    ".mcp.json",
    ".bashrc",
    ".profile",
    ".zshrc",
)
"""Files that run later: changing them is asked in every mode, whatever the defaults of a mode say."""


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
    verdict = Verdict(own.action, own) if own else _default(permission, pattern)
    if verdict.action == "deny":
        return verdict
    if mode == "plan" and permission in ("edit", "bash"):
        return Verdict("deny", Rule(permission, "*", "deny"))
    if permission == "edit" and _path_matches(ALWAYS_ASK, pattern):
        return verdict if own and own.pattern != "*" else Verdict("ask")
    if verdict.action == "ask":
        if _best(permission, pattern, grants) is not None:
            return Verdict("allow")
        if (mode == "acceptEdits" and permission == "edit") or (
            mode == "auto" and permission in ("edit", "bash", "webfetch")
        ):
            return Verdict("allow")
    return verdict


def _default(permission: str, pattern: str) -> Verdict:
    rule = _best(permission, pattern, DEFAULTS)
    return Verdict(rule.action if rule else "ask")


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
