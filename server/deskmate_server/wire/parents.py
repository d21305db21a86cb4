"""Noticing that the editor died without a word.

The client's `processId` decides where it names a live process. It may not (null, or a number from another PID
namespace); then the process that started us decides, by our own parent changing.
"""

import asyncio
import contextlib
import logging
import os
import select
import sys
from collections.abc import Callable

logger = logging.getLogger(__name__)

INTERVAL = 1.0
"""Seconds between two looks."""


class ParentWatch:
    """Calls `on_death(why)` once when the client's process, or else our parent, is gone."""

    def __init__(self, on_death: Callable[[str], None]) -> None:
        self._on_death = on_death
        self._parent = os.getppid()
        self._client: int | None = None

    def client(self, pid: int | None) -> None:
        """The client's `processId`; looked at now, so that a later absence is a death."""
        if pid is not None and not is_alive(pid):
            logger.warning("the client's process %d is not to be seen from here; not watching it", pid)
            pid = None
        self._client = pid

    async def run(self) -> None:
        """Look every `INTERVAL` seconds; return after `on_death`."""
        while not (why := self._death()):  # noqa: ASYNC110 -- nothing signals the death of a stranger
            await asyncio.sleep(INTERVAL)
        self._on_death(why)

    def _death(self) -> str | None:
        if self._client is not None:
            return None if is_alive(self._client) else f"the client's process {self._client} has died"
        return None if os.getppid() == self._parent else f"our parent {self._parent} has died"


def is_alive(pid: int) -> bool:
    """Whether a process exists; on Linux a zombie (dead, not yet reaped) counts as dead."""
    if pid <= 0:
        return False
    try:
        if sys.platform == "linux":
            with contextlib.closing(_PidFd(pid)) as process:
                return not process.has_ended()
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


class _PidFd:
    """A descriptor that becomes readable when its process ends."""

    def __init__(self, pid: int) -> None:
        self._fd = os.pidfd_open(pid)

    def has_ended(self) -> bool:
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        return bool(poll.poll(0))

    def close(self) -> None:
        os.close(self._fd)
