"""Contents by hash: `objects/ab/cdef…` holds what the log names but folding never reads.

A file is one tag byte and the bytes, compressed where that pays. Written under another name and renamed, so
an object is whole or absent; the name is the SHA-256 of the plain bytes, so it can be checked. All of it
blocks: call it in a thread.
"""

import hashlib
import os
import re
import tempfile
import zlib
from pathlib import Path

from deskmate_session.errors import LogCorrupt

_PLAIN, _PACKED = b"\x00", b"\x01"
_NAME = re.compile(r"[0-9a-f]{64}")


class Objects:
    """The object store of one state folder. Any number of processes may use it."""

    def __init__(self, state_dir: Path) -> None:
        self._root = state_dir / "objects"

    def put(self, data: bytes, *, durable: bool = False) -> str:
        """Store `data`; return its hash (hex). `durable`: on disk before this returns.

        Storing again is harmless, and mends a damaged object. Raises `OSError` (a full disk).
        """
        hash = hashlib.sha256(data).hexdigest()
        path = self._path(hash)
        if self.check(hash) is None:
            if durable:  # whoever stored it may not have waited for the disk
                _sync(path)
                _sync(path.parent)
            return hash
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        packed = zlib.compress(data, 1)
        body = _PACKED + packed if len(packed) < len(data) else _PLAIN + data
        fd, temporary = tempfile.mkstemp(dir=path.parent, prefix=".new-")  # mode 0600
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(body)
                if durable:
                    file.flush()
                    os.fsync(file.fileno())
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
        if durable:
            _sync(path.parent)
            _sync(self._root)
        return hash

    def get(self, hash: str) -> bytes:
        """Return the bytes. Raises `KeyError` when it is not there, `LogCorrupt` when damaged."""
        if not _NAME.fullmatch(hash):  # it may come from an imported log: no path but ours
            raise KeyError(hash)
        try:
            body = self._path(hash).read_bytes()
        except FileNotFoundError:
            raise KeyError(hash) from None
        try:
            data = zlib.decompress(body[1:]) if body[:1] == _PACKED else body[1:]
        except zlib.error as error:
            raise LogCorrupt(f"object {hash} is damaged: {error}") from error
        if hashlib.sha256(data).hexdigest() != hash:
            raise LogCorrupt(f"object {hash} is damaged: its bytes have another hash")
        return data

    def check(self, hash: str) -> str | None:
        """Return None for a whole object, else `missing` or `damaged`."""
        try:
            self.get(hash)
        except KeyError:
            return "missing"
        except LogCorrupt:
            return "damaged"
        return None

    def _path(self, hash: str) -> Path:
        return self._root / hash[:2] / hash[2:]


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
