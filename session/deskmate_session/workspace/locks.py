"""One lock for each real path, between the tasks of this process and between processes.

The lock files stand in one folder for all workspaces; each lives only while somebody holds or wants it.
"""

import asyncio
import contextlib
import fcntl
import hashlib
import os
from collections import Counter
from collections.abc import AsyncGenerator
from pathlib import Path

from deskmate_session.errors import ToolFailure

_FIRST_WAIT_S = 0.002
_LONGEST_WAIT_S = 0.05


class FileLocks:
    """The locks of one process. `folder` is shared by all that may write the same files."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self._queues: dict[str, asyncio.Lock] = {}
        self._users: Counter[str] = Counter()

    @contextlib.asynccontextmanager
    async def hold(self, *paths: str, timeout_s: float = 10.0) -> AsyncGenerator[None]:
        """Hold the locks of real paths, all of them, in one order for everybody.

        Within the process first come, first served. Don't hold again inside. Raises `ToolFailure`
        (`conflict`) when another holder keeps one for `timeout_s` seconds; never blocks the loop.
        """
        names = sorted({hashlib.sha256(os.fsencode(path)).hexdigest()[:40] for path in paths})
        async with contextlib.AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(timeout_s):
                    for name in names:
                        await stack.enter_async_context(self._queue(name))
                        held = await self._take(name)
                        # In a thread, which a cancelled task does not stop: the lock is released either way.
                        stack.push_async_callback(asyncio.to_thread, _release, *held)
            except TimeoutError:
                message = (
                    f"{', '.join(map(repr, paths))}: another writer holds it for {timeout_s:g} s; try again"
                )
                raise ToolFailure("conflict", message) from None
            yield

    @contextlib.asynccontextmanager
    async def _queue(self, name: str) -> AsyncGenerator[None]:
        self._users[name] += 1
        try:
            async with self._queues.setdefault(name, asyncio.Lock()):
                yield
        finally:
            self._users[name] -= 1
            if not self._users[name]:
                del self._users[name], self._queues[name]

    async def _take(self, name: str) -> tuple[int, Path]:
        path, wait = self._folder / f"{name}.lock", _FIRST_WAIT_S
        await asyncio.to_thread(self._folder.mkdir, mode=0o700, parents=True, exist_ok=True)
        while (descriptor := _try_take(path)) is None:
            await asyncio.sleep(wait)
            wait = min(wait * 2, _LONGEST_WAIT_S)
        return descriptor, path


def _try_take(path: Path) -> int | None:
    """Take the lock if it is free. Three system calls that don't wait: short enough for the loop."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # The holder before us removes the file: a lock on a file that has lost its name is worth nothing.
        if os.fstat(descriptor).st_nlink:
            return descriptor
    except BlockingIOError:
        pass
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def _release(descriptor: int, path: Path) -> None:
    path.unlink(missing_ok=True)
    os.close(descriptor)
