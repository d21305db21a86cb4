"""What a kernel is opened with, and what a prompt gives back."""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from deskmate_session.ids import RandomIds
from deskmate_session.model.messages import Accepted, TurnResult
from deskmate_session.model.permissions import Rule
from deskmate_session.model.ports import Clock, Host, Ids
from deskmate_session.model.settings import Settings


class SystemClock:
    """The real `Clock` port."""

    def now(self) -> int:
        """Milliseconds since the epoch."""
        return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class KernelOptions:
    """What a kernel is opened with."""

    folder: str
    """Path of the workspace folder."""
    host: Host
    settings: Settings
    environment: Mapping[str, str]
    state_home: Path
    """Where state folders live, one a workspace."""
    folder_uri: str | None = None
    """The folder's URI as the client spells it."""
    roots: tuple[str, ...] = ()
    """Further folders that count as inside."""
    rules: tuple[Rule, ...] = ()
    """Rules of this run only, such as `deskmate run --allow`; they stand beside the configured ones."""
    unattended: bool = False
    """Nobody can be asked: every ask is settled as rejected at once."""
    ids: Ids = field(default_factory=RandomIds)
    clock: Clock = field(default_factory=SystemClock)


@dataclass(frozen=True, slots=True)
class Turn:
    """A prompt that was accepted; `result` ends with its turn."""

    accepted: Accepted
    result: "asyncio.Future[TurnResult]"
    repeated: bool
    """The prompt was accepted before; another request may wait for the same turn."""
    detach: Callable[[], None]
    """Stops showing the turn to the sink that was given."""
