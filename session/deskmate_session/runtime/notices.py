"""What a person is told once, whatever they are doing: faults of the log, turns that were cut off."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Notice:
    """One thing to tell."""

    level: Literal["error", "warning", "info"]
    message: str
    """What happened and what to do next."""


class Notices:
    """Keeps notices until somebody shows them, then passes each on as it comes."""

    def __init__(self) -> None:
        self._kept: list[Notice] = []
        self._show: Callable[[Notice], None] | None = None

    def tell(self, level: Literal["error", "warning", "info"], message: str) -> None:
        """Tell the person, or keep it until somebody shows notices."""
        notice = Notice(level, message)
        if self._show is None:
            self._kept.append(notice)
        else:
            self._show(notice)

    def follow(self, show: Callable[[Notice], None]) -> None:
        """Show what was kept, then everything that comes."""
        self._show = show
        kept, self._kept = self._kept, []
        for notice in kept:
            show(notice)
