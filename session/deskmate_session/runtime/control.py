"""The switch of a running turn: how an interrupt reaches what is in flight."""

import asyncio
from typing import Any


class TurnControl:
    """One for each turn. Once interrupted it stays so."""

    def __init__(self, turn_id: str) -> None:
        self.turn_id = turn_id
        self._interrupted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._left: dict[str, asyncio.Task[Any]] = {}
        self.recorded = asyncio.Event()
        """The interrupt is logged (or could not be)."""
        self.ended = asyncio.Event()
        """The turn's end is logged."""

    @property
    def interrupted(self) -> bool:
        """Somebody stopped the turn."""
        return self._interrupted.done()

    def interrupt(self) -> None:
        """Stop the turn; what is in flight notices at once."""
        if not self._interrupted.done():
            self._interrupted.set_result(None)

    async def finished(self, work: asyncio.Task[Any]) -> bool:
        """Wait for the work or an interrupt; True when the work ended first."""
        try:
            await asyncio.wait({work, self._interrupted}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            work.cancel()
            raise
        return work.done()

    def leave(self, call_id: str, work: asyncio.Task[Any]) -> None:
        """Work that did not end in time; the interrupt waits for it before it answers."""
        self._left[call_id] = work

    async def clean(self, deadline: float) -> tuple[str, ...]:
        """Wait until the turn has ended and nothing is left; returns the calls still there at the deadline
        (seconds from now)."""
        loop = asyncio.get_running_loop()
        until = loop.time() + deadline
        try:
            await asyncio.wait_for(self.ended.wait(), deadline)
        except TimeoutError:
            return tuple(self._left) or (self.turn_id,)
        if self._left:
            await asyncio.wait(self._left.values(), timeout=max(0.0, until - loop.time()))
        return tuple(call_id for call_id, work in self._left.items() if not work.done())
