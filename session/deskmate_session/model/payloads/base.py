"""What all payloads share: past tense, frozen, a stable tag (`type`), a version.

`folds` names the kernels that read the fact: `conversation`, `workContext`, both or none. Our own fields hold
no floats.
"""

from typing import Any, ClassVar, Literal

from deskmate_session.model.base import Wire

Fold = Literal["conversation", "workContext"]
CONVERSATION: frozenset[Fold] = frozenset({"conversation"})
WORK_CONTEXT: frozenset[Fold] = frozenset({"workContext"})
BOTH: frozenset[Fold] = CONVERSATION | WORK_CONTEXT
NONE: frozenset[Fold] = frozenset()


class Payload(Wire):
    """The base of every event's payload."""

    type: ClassVar[str]
    version: ClassVar[int] = 1
    folds: ClassVar[frozenset[Fold]] = NONE


class UnknownPayload(Payload):
    """An event of a newer version, kept whole."""

    type: ClassVar[str] = ""

    tag: str
    data: dict[str, Any]


class ErasedPayload(Payload):
    """An event whose payload was erased; what stays of it is its header and digest."""

    type: ClassVar[str] = ""

    tag: str
    """The event's type."""
