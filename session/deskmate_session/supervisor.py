"""Where tasks are born. No task lives without a supervisor that waits for its end."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

from deskmate_session.errors import DeskmateError

T = TypeVar("T")

_logger = logging.getLogger(__name__)


class Supervisor:
    """Owns tasks: keeps them alive, reports what they raise, ends them all on `close`."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def spawn(self, work: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
        """Start a task. What it raises is logged, and raised again to whoever awaits it."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    async def close(self) -> None:
        """Cancel what still runs and wait for its end."""
        while self._tasks:
            tasks = tuple(self._tasks)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=5)
            self._tasks -= set(tasks)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        # Our own errors are answers to whoever waits for the task; anything else is a fault to look at.
        if error is not None and not isinstance(error, DeskmateError):
            _logger.error("task %s failed", task.get_name(), exc_info=error)
