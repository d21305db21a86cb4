"""What kind of file system holds the log, and whether it can be trusted with shared memory and locks.

A write-ahead log needs memory that all processes share, which no network file system gives
(https://sqlite.org/wal.html, "All processes using a database must be on the same host computer"); a FUSE
file system may give it or not. There the log is kept with a rollback journal.
"""

import re
from dataclasses import dataclass
from pathlib import Path

MOUNTS = Path("/proc/self/mountinfo")

_REMOTE = frozenset(
    (
        *("9p", "afs", "beegfs", "ceph", "cifs", "coda", "drvfs", "fuse", "fuseblk", "gfs2", "glusterfs"),
        *("gpfs", "lustre", "ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "prl_fs", "pvfs2", "smb3", "smbfs"),
        *("vboxsf", "virtiofs", "vmhgfs"),
    )
)
"""Types whose memory maps or locks may not be seen by everybody who has the file open; `fuse.*` too."""

_OCTAL = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Mount:
    """One mounted file system."""

    point: str
    """Where it is mounted, absolute."""
    kind: str
    """Its type, such as `ext4`."""
    upper: str | None = None
    """Of an overlay: the folder that takes what is written."""


def parse(text: str) -> list[Mount]:
    """Return the mounts of a `mountinfo`, in its order. Lines that are none are left out.

    See proc(5): six fields, optional ones up to a `-`, then type, source and the options of the file system;
    space, tab, newline and backslash are written as three octal digits.
    """
    mounts: list[Mount] = []
    for line in text.splitlines():
        before, found, after = line.partition(" - ")
        left, right = before.split(" "), after.split(" ")
        if found and len(left) >= 6 and right[0]:
            mounts.append(Mount(_plain(left[4]), right[0], _upper(right[0], right[2:])))
    return mounts


def at(path: str, mounts: list[Mount]) -> Mount | None:
    """Return the mount that an absolute path without links lies in; of two at one point the later one."""
    best = None
    for mount in mounts:
        inside = path == mount.point or path.startswith(mount.point.rstrip("/") + "/")
        if inside and (best is None or len(mount.point) >= len(best.point)):
            best = mount
    return best


def distrusted(path: str, mounts: list[Mount]) -> str | None:
    """Return the type of the file system that holds a path, if it is not to be trusted; an overlay is
    what it writes to. None: it is, or nothing is known."""
    found = at(path, mounts)
    seen: set[str] = set()
    while found is not None and found.upper is not None and found.upper not in seen:
        seen.add(found.upper)
        found = at(found.upper, mounts)
    if found is None:
        return None
    return found.kind if found.kind in _REMOTE or found.kind.startswith("fuse.") else None


def look(folder: Path) -> str | None:
    """Return the type of the file system of a folder, if it is not to be trusted. None where the system
    tells nothing, as it is anywhere but on Linux."""
    try:
        return distrusted(str(folder.resolve()), parse(MOUNTS.read_text(errors="surrogateescape")))
    except OSError:
        return None


def _plain(field: str) -> str:
    return _OCTAL.sub(lambda found: chr(int(found[1], 8)), field)


def _upper(kind: str, options: list[str]) -> str | None:
    if kind != "overlay":
        return None
    for option in ",".join(options).split(","):
        name, _, value = option.partition("=")
        if name == "upperdir":
            return _plain(value)
    return None
