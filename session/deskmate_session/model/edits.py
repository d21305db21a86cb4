"""Files as tools see them, and how a change ended. In memory only, except `Change` facts."""

from dataclasses import dataclass
from typing import Literal

Via = Literal["applyEdit", "strict", "disk"]
Newline = Literal["\n", "\r\n", "\r"]


@dataclass(frozen=True, slots=True)
class FileText:
    """A text file as it stands: the editor's buffer where it is open, else the disk.

    `text` has its line ends as they are and no byte-order mark.
    """

    path: str
    """Real path, links resolved."""
    uri: str
    text: str
    hash: str
    """SHA-256 (hex) of `text` in UTF-8."""
    encoding: str
    """Python codec name that gives the bytes back exactly."""
    bom: bytes
    """The byte-order mark that stood before the text; empty for none."""
    newline: Newline
    """The most frequent line end; `\\n` for a text without any."""
    is_open: bool = False
    dirty: bool = False
    version: int | None = None
    """The document's version where it is open."""


@dataclass(frozen=True, slots=True)
class Written:
    """How a file change ended, as the tool tells the model."""

    uri: str
    before: str | None
    after: str | None
    text: str | None
    """What the file or buffer holds now; absent: deleted."""
    via: Via
    saved: bool
    note: str | None = None
    """What the model should know, such as *the buffer has unsaved changes of the person*."""


@dataclass(frozen=True, slots=True)
class ApplyOutcome:
    """What became of an edit that was sent to an editor."""

    applied: bool
    text: str | None
    """The synced text of the document once it held the edit, or after 2 s; absent when unknown."""
    saved: bool
    saved_text: str | None
    """The text after the save, which may have added to it; `text` where nothing was saved."""
    client_answer: str
    """The client's own words: `applied`, `refused: …`, `no answer`."""
    unknown: bool = False
    """The edit was sent and it is not known whether it was applied."""


@dataclass(frozen=True, slots=True)
class OpenDocument:
    """A document that an editor has open."""

    path: str
    uri: str
    """In the client's own spelling."""
    text: str
    version: int
    dirty: bool


@dataclass(frozen=True, slots=True)
class TextChange:
    """`before[start:end]` becomes `text`; offsets in code points of the text before all changes."""

    start: int
    end: int
    text: str
