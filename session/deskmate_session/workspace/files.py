"""Reading and writing text files: the editor's buffer first, writes that are whole or not at all."""

import asyncio
import contextlib
import hashlib
import os
import stat
from collections.abc import Generator
from pathlib import Path

from deskmate_session.core.lines import newline_of
from deskmate_session.errors import ToolFailure
from deskmate_session.model.edits import FileText
from deskmate_session.model.ports import Host
from deskmate_session.workspace.encoding import Decoded, decode, encode, text_hash
from deskmate_session.workspace.paths import path_to_uri

MAX_BYTES = 10 * 1024 * 1024
"""The largest text file that is read."""


async def read_text(path: str, host: Host) -> FileText:
    """The file of a real path as it stands: the open document, else the disk (in a thread).

    A clean document that differs from its file is out of date: then the disk counts.

    Encoding and byte-order mark of an open document are those of its file. Raises `ToolFailure`
    (`notFound`, `permission`, `failed`).
    """
    document = host.document(path)
    if document is None:
        return await asyncio.to_thread(read_disk, path)
    try:
        disk = await asyncio.to_thread(read_disk, path)
    except ToolFailure as failure:
        if failure.kind == "notFound" and not document.dirty:
            raise  # deleted meanwhile: an old buffer must not bring it back
        disk = None  # new and not saved yet, or not ours to read: the buffer is what counts
    if disk is not None and not document.dirty and disk.text != document.text:
        return disk  # another program wrote it, and the editor has not loaded that yet
    encoding, bom = (disk.encoding, disk.bom) if disk else ("utf-8", b"")
    return _file_text(
        path,
        Decoded(document.text, encoding, bom, newline_of(document.text)),
        uri=document.uri,
        is_open=True,
        dirty=document.dirty,
        version=document.version,
    )


def read_disk(path: str) -> FileText:
    """The file of a real path as it is on disk. Blocks. Raises as `read_text`."""
    with _as_failures(path):
        data = read_bytes(path)
    try:
        decoded = decode(data)
    except ToolFailure as failure:
        raise ToolFailure(failure.kind, f"{path!r} can't be shown: {failure.message}") from None
    return _file_text(path, decoded)


def write_text(path: str, text: str, basis: FileText | None) -> None:
    """Write a text in the encoding of `basis`, the file as it was read; None: it must not exist. Blocks.

    Hold the path's lock around it. Raises `ToolFailure`: `conflict` when the disk changed since `basis`, and
    as `write_atomic`.
    """
    if basis is None:
        if os.path.lexists(path):
            raise ToolFailure("conflict", f"{path!r} exists meanwhile: read it first")
        write_atomic(path, encode(text))
    elif read_disk(path).hash != basis.hash:
        raise ToolFailure("conflict", f"{path!r} changed since read: read it again")
    else:
        write_atomic(path, encode(text, basis.encoding, basis.bom))


def write_atomic(path: str, data: bytes, mode: int | None = None) -> None:
    """Replace or create a file so that a reader, or a crash, sees the old bytes or the new ones. Blocks.

    Links are followed and stay. Mode bits and, where we may, the owner are kept; a new file follows the
    umask, or takes `mode`. Hard links are parted on purpose: stores of packages are full of them.
    Missing parent folders are made. Hold the path's lock around it: what is written first has one name for
    each file, so that a write that was cut off leaves one known rest (`clear_rest`). Raises `ToolFailure`
    (`permission`, `failed`, `notFound`).
    """
    real = os.path.realpath(path)
    with _as_failures(real):
        old = _stat(real)
        if old is not None and not stat.S_ISREG(old.st_mode):
            raise ToolFailure("failed", f"{real!r} is {_kind(old.st_mode)}, not a file")
        if old is not None and not os.access(real, os.W_OK):
            raise ToolFailure("permission", f"{real!r} is read-only")
        folder = Path(real).parent
        folder.mkdir(parents=True, exist_ok=True)
        temp = _rest_of(real)
        temp.unlink(missing_ok=True)
        try:
            # A new file gets its bits from the kernel: reading the umask would change it for all threads.
            _write_new(temp, data, old, 0o666 if mode is None else mode)
            temp.replace(real)
        except BaseException:
            temp.unlink(missing_ok=True)
            raise
        _sync_folder(folder)


def clear_rest(path: str) -> None:
    """Remove what a write that was cut off left beside a file, if it did. Blocks. Hold the path's lock around
    it. Raises `OSError`."""
    _rest_of(os.path.realpath(path)).unlink(missing_ok=True)


def _rest_of(real: str) -> Path:
    name = hashlib.sha256(os.fsencode(real)).hexdigest()[:16]
    return Path(real).parent / f".deskmate-{name}.tmp"


def _write_new(temp: Path, data: bytes, old: os.stat_result | None, mode: int) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with os.fdopen(os.open(temp, flags, mode if old is None else 0o600), "wb") as file:
        file.write(data)
        file.flush()
        if old is not None:
            os.fchmod(file.fileno(), _keep_owner(file.fileno(), old))
        os.fsync(file.fileno())


def _keep_owner(descriptor: int, old: os.stat_result) -> int:
    """Give the file its owner back; return the mode bits it may have without reaching more people."""
    mode = stat.S_IMODE(old.st_mode)
    new = os.fstat(descriptor)
    if (new.st_uid, new.st_gid) != (old.st_uid, old.st_gid):
        try:
            os.fchown(descriptor, old.st_uid, old.st_gid)
        except PermissionError:
            mode &= ~(stat.S_ISUID | stat.S_ISGID)
            if new.st_gid != old.st_gid:
                mode &= ~stat.S_IRWXG
    return mode


def _sync_folder(folder: Path) -> None:
    with contextlib.suppress(OSError):  # some network file systems refuse; the rename itself is done
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def read_bytes(path: str) -> bytes:
    """A regular file of at most `MAX_BYTES`. Blocks. Raises `OSError`, `ToolFailure` (`failed`)."""
    _check_readable(path, Path(path).stat())
    # Not blocking and without following: the name may have become a pipe or a link since the look.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        _check_readable(path, os.fstat(descriptor))
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise _too_big(path, len(data))
    return data


def _check_readable(path: str, found: os.stat_result) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise ToolFailure("failed", f"{path!r} is a folder: list it with glob, pattern '*' and this path")
    if not stat.S_ISREG(found.st_mode):
        raise ToolFailure("failed", f"{path!r} is {_kind(found.st_mode)}, not a file")
    if found.st_size > MAX_BYTES:
        raise _too_big(path, found.st_size)


def _too_big(path: str, size: int) -> ToolFailure:
    return ToolFailure(
        "failed",
        f"{path!r} has {size:,} bytes, more than {MAX_BYTES:,}: look into it with bash (grep, head, sed -n)",
    )


def _stat(path: str) -> os.stat_result | None:
    try:
        return Path(path).stat()
    except FileNotFoundError:
        return None


def _kind(mode: int) -> str:
    kinds = (
        (stat.S_ISDIR, "a folder"),
        (stat.S_ISFIFO, "a pipe"),
        (stat.S_ISSOCK, "a socket"),
        (stat.S_ISCHR, "a device"),
        (stat.S_ISBLK, "a device"),
    )
    return next((name for test, name in kinds if test(mode)), "no regular file")


def _file_text(
    path: str,
    decoded: Decoded,
    *,
    uri: str | None = None,
    is_open: bool = False,
    dirty: bool = False,
    version: int | None = None,
) -> FileText:
    return FileText(
        path=path,
        uri=uri or path_to_uri(path),
        text=decoded.text,
        hash=text_hash(decoded.text),
        encoding=decoded.encoding,
        bom=decoded.bom,
        newline=decoded.newline,
        is_open=is_open,
        dirty=dirty,
        version=version,
    )


@contextlib.contextmanager
def _as_failures(path: str) -> Generator[None]:
    """Translate what the system says about a path, once."""
    try:
        yield
    except FileNotFoundError:
        raise ToolFailure("notFound", f"{path!r} does not exist") from None
    except NotADirectoryError:
        raise ToolFailure("notFound", f"{path!r} does not exist: a part of it is a file") from None
    except PermissionError:
        raise ToolFailure("permission", f"{path!r} may not be read or written by this user") from None
    except OSError as error:
        raise ToolFailure("failed", f"{path!r}: {error.strerror or error}") from None
