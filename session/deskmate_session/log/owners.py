"""Which kernel processes live: each holds a `flock` on a file of its own.

The system frees the lock within a millisecond of the process's end, SIGKILL too, and keeps it while the
process is stopped; no heartbeat, no clock, no process id that may be used again.
"""

import errno
import fcntl
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Self

_CAREFUL = os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW
"""Something else may stand at an owner's place: nothing waits for it, and no link is followed."""
_NO_LOCK_FILE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO)

_ID = re.compile(r"[A-Za-z0-9_-]{1,80}")


class Owner:
    """This process's sign of life. Held until `release`, or the end of the process."""

    def __init__(self, id: str, path: Path, fd: int) -> None:
        self.id = id
        self._path = path
        self._fd = fd

    @classmethod
    def claim(cls, state_dir: Path, id: str) -> Self:
        """Take the lock of `id`, a name that no other process uses. Raises `ValueError` for a bad name."""
        path = _path(state_dir, id)
        if path is None:
            raise ValueError(f"not an owner's id: {id!r}")
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        while True:
            # Close-on-exec (Python's default): a child that inherited the lock would keep a dead owner alive.
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            # Waits, since `alive` and `sweep` of others hold it for a moment.
            fcntl.flock(fd, fcntl.LOCK_EX)
            if _is_at(fd, path):
                return cls(id, path, fd)
            os.close(fd)  # a sweep removed the new file before it was locked

    def release(self) -> None:
        """Be dead to others, and leave no file."""
        self._path.unlink(missing_ok=True)
        os.close(self._fd)


def alive(state_dir: Path, id: str) -> bool:
    """Tell whether the process that claimed `id` still runs. Never takes a lock from a living one."""
    path = _path(state_dir, id)  # the id comes from a log, which may be imported: no path but ours
    if path is None:
        return False
    try:
        fd = os.open(path, os.O_RDONLY | _CAREFUL)
    except PermissionError:
        return True  # another user's: nobody here can tell, and a living one is never robbed
    except OSError as error:
        if error.errno in _NO_LOCK_FILE:
            return False
        raise  # no descriptor is left, say: that tells nothing of the owner
    try:
        # Shared: two that ask at once don't take each other for the owner.
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def living(state_dir: Path, *, but: str = "") -> set[str]:
    """Return the ids of all owners that live, `but` one, whose file is not opened."""
    ids = [path.stem for path in (state_dir / "owners").glob("*.lock")]
    return {id for id in ids if id != but and alive(state_dir, id)}


def sweep(state_dir: Path, *, but: str = "") -> list[str]:
    """Remove the files of dead owners; return their ids. `but`: an owner of this process, left alone."""
    dead: list[str] = []
    for path in sorted((state_dir / "owners").glob("*.lock")):
        if path.stem == but:
            continue
        with suppress(OSError):  # another sweep was faster, or it is no lock file of ours
            fd = os.open(path, os.O_RDWR | _CAREFUL)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
                dead.append(path.stem)
            except BlockingIOError:
                pass  # it lives
            finally:
                os.close(fd)
    return dead


def _path(state_dir: Path, id: str) -> Path | None:
    return state_dir / "owners" / f"{id}.lock" if _ID.fullmatch(id) else None


def _is_at(fd: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), path.stat())
    except FileNotFoundError:
        return False
