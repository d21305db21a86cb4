"""Rules and what a call asks for."""

from dataclasses import dataclass
from typing import Literal

from deskmate_session.model.messages import AskDetail

Action = Literal["allow", "ask", "deny"]
Reply = Literal["once", "session", "always", "reject"]


@dataclass(frozen=True, slots=True)
class Rule:
    """`permission` is a name or `*`; `pattern` is matched as `docs/configuration.md` says."""

    permission: str
    pattern: str
    action: Action


@dataclass(frozen=True, slots=True)
class PermissionRequest:
    """One thing that a call wants to do; a call may ask for several."""

    permission: str
    patterns: tuple[str, ...]
    """What the rules are matched against: paths relative to the folder, or commands."""
    title: str
    detail: AskDetail
    always: tuple[str, ...] = ()
    """Patterns that *session* or *always* would allow from then on; empty: only *once* makes sense."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the rules say, and the rule that said it (absent: the built-in default)."""

    action: Action
    rule: Rule | None = None
