"""Who belongs to a command: its process group, and every process that carries its mark."""

import contextlib
import os
import signal
import time
from collections.abc import Callable

import psutil

MARK = "DESKMATE_CALL"
_ROUNDS = 3
"""Looks for newcomers after KILL: a process may have forked meanwhile."""


class Descendants:
    """The family of one command whose shell leads the group `leader`. Blocks; for a command's thread."""

    def __init__(self, leader: int | None, call_id: str, *, since: float | None = None) -> None:
        """`leader` None: only the mark counts. `since`: seconds since the epoch; by default about now."""
        self._leader = leader
        self._call_id = call_id
        # Start times are counted from boot in hundredths of a second; allow for their rounding.
        self._since = time.time() - 2 if since is None else since

    def end(self, kill_after_s: float, wait: Callable[[], object]) -> tuple[str, ...]:
        """TERM all that live, KILL those that still do after `kill_after_s`; returns the names.

        `wait` is called while waiting and must return within about 20 ms.
        """
        living = self._living()
        names = tuple(dict.fromkeys(_name(process) for process in living))
        if not living:
            return ()
        _send(living, signal.SIGTERM)
        until = time.monotonic() + kill_after_s
        while time.monotonic() < until and any(_lives(process) for process in living):
            wait()
        for _ in range(_ROUNDS):
            living = self._living()
            if not living:
                break
            _send(living, signal.SIGKILL)
            wait()
        return names

    def _living(self) -> list[psutil.Process]:
        return [process for process in psutil.process_iter() if self._is_ours(process)]

    def _is_ours(self, process: psutil.Process) -> bool:
        try:
            if process.create_time() < self._since or process.status() == psutil.STATUS_ZOMBIE:
                return False
            if os.getpgid(process.pid) == self._leader:
                return True
            return process.environ().get(MARK) == self._call_id
        except (psutil.Error, OSError):
            return False  # gone meanwhile, or another user's


def end_children(call_id: str) -> tuple[str, ...]:
    """End what a call left behind whose server is gone; returns the names. Blocks for up to 0.4 s."""
    return Descendants(None, call_id, since=0).end(0.25, lambda: time.sleep(0.02))


def _send(processes: list[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        with contextlib.suppress(psutil.Error, OSError):
            process.send_signal(number)


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _name(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())[:80] or process.name()
    except psutil.Error:
        return f"process {process.pid}"
