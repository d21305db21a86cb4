"""What the model answered."""

from typing import Any, ClassVar, Literal

from deskmate_session.model.base import Wire
from deskmate_session.model.messages import AnswerFinish, Part, TurnError, Usage
from deskmate_session.model.payloads.base import CONVERSATION, Fold, Payload


class PartStarted(Payload):
    """A part of an answer began; streamed parts are announced empty."""

    type: ClassVar[str] = "part.started"
    folds: ClassVar[frozenset[Fold]] = CONVERSATION

    message_id: str
    part: Part


class PartAppended(Payload):
    """A batch of streamed text."""

    type: ClassVar[str] = "part.appended"
    folds: ClassVar[frozenset[Fold]] = CONVERSATION

    message_id: str
    part_id: str
    offset: int
    """Where the text begins, in Unicode code points."""
    text: str


class PartEnded(Payload):
    """A streamed part is complete; its text stands in the batches."""

    type: ClassVar[str] = "part.ended"
    folds: ClassVar[frozenset[Fold]] = CONVERSATION

    message_id: str
    part_id: str
    length: int
    """Code points."""
    hash: str
    """SHA-256 of the text in UTF-8."""
    signature: str | None = None
    """The provider's signature of a reasoning part; goes back byte-identical to the same model."""
    redacted: str | None = None
    """Reasoning that the provider shows only encrypted."""


class CallRequested(Wire):
    """A call as the model asked for it."""

    call_id: str
    tool: str
    args: Any
    """The parsed object; the raw text where it was no JSON object."""
    provider_id: str | None = None
    """The provider's id of the call; it may repeat, ours does not."""


class ModelResponded(Payload):
    """An answer is complete; its calls are pending from here on."""

    type: ClassVar[str] = "model.responded"
    folds: ClassVar[frozenset[Fold]] = CONVERSATION

    message_id: str
    step: int
    kind: Literal["toolCalls", "text"]
    calls: tuple[CallRequested, ...]
    finish: AnswerFinish
    usage: Usage
    cost: int | None = None
    """Micro-dollars; absent when the price is unknown."""
    confidence: Literal["deterministic", "nonDeterministic"]
    """*deterministic*: it holds a call."""


class ModelFailed(Payload):
    """A request failed; its parts are voided and never sent again."""

    type: ClassVar[str] = "model.failed"
    folds: ClassVar[frozenset[Fold]] = CONVERSATION

    message_id: str
    step: int
    error: TurnError
