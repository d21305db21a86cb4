"""Exceptions of the kernel. Each is translated once, at the boundary that is named beside it.

    DeskmateError
    ├── Rejected         a command that can't be done now → a JSON-RPC error (server), exit 1 (cli)
    ├── ToolFailure      a call that failed               → `call.failed`, data for the model (runtime)
    ├── ProviderError    a model request that failed      → `model.failed`, a failed turn (runtime)
    ├── ConfigError      configuration that can't be read → `noModel` or a warning, with the place
    └── LogError         the event log
        ├── LogCorrupt   damaged or not ours              → `logCorrupt`
        ├── LogReadOnly  a newer schema, no right, or a
        │                full disk                        → `logReadOnly`
        ├── Conflict     the fact contradicts the log     → a value for the caller, or `conflict`
        └── LeaseLost    another process runs the session → the run ends

Messages: lower case, names with `!r`, and what to do next.
"""

from typing import Literal

RejectedKind = Literal[
    "sessionNotFound",
    "messageNotFound",
    "sessionBusy",
    "noModel",
    "providerAuth",
    "untrusted",
    "logCorrupt",
    "logReadOnly",
    "conflict",
    "notSupported",
]

FailureKind = Literal[
    "badArguments",
    "unknownTool",
    "denied",
    "notFound",
    "permission",
    "conflict",
    "timeout",
    "interrupted",
    "failed",
]

ProviderErrorKind = Literal["providerAuth", "providerUnavailable", "contextOverflow", "badResponse"]


class DeskmateError(Exception):
    """The root: everything that the kernel raises on purpose."""


class Rejected(DeskmateError):
    """A command or query that can't be done; `kind` is the wire's, `hint` says what to do next."""

    def __init__(self, kind: RejectedKind, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.kind: RejectedKind = kind
        self.message = message
        self.hint = hint


class ToolFailure(DeskmateError):
    """A tool could not do what was asked; the message goes to the model as the call's result."""

    def __init__(self, kind: FailureKind, message: str, *, outcome_unknown: bool = False) -> None:
        super().__init__(message)
        self.kind: FailureKind = kind
        self.message = message
        self.outcome_unknown = outcome_unknown


class ProviderError(DeskmateError):
    """A model request failed. `retryable`: overload, rate limit, 5xx, network; `retry_after_ms` if told."""

    def __init__(
        self,
        kind: ProviderErrorKind,
        message: str,
        *,
        hint: str | None = None,
        retryable: bool = False,
        retry_after_ms: int | None = None,
    ) -> None:
        super().__init__(message)
        self.kind: ProviderErrorKind = kind
        self.message = message
        self.hint = hint
        self.retryable = retryable
        self.retry_after_ms = retry_after_ms


class ConfigError(DeskmateError):
    """Configuration that can't be used; the message names the file and the key."""


class LogError(DeskmateError):
    """The event log could not do what was asked."""


class LogCorrupt(LogError):
    """The database is damaged or not a Deskmate log."""


class LogReadOnly(LogError):
    """The database was written by a newer Deskmate, or may not be written."""


class Conflict(LogError):
    """The fact contradicts what the log holds: the session or prompt is there already, the ask is settled."""


class LeaseLost(LogError):
    """Another process runs the session now; what this one wanted to log is not in the log."""
