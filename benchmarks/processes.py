"""What Linux tells of a process."""

import os
from pathlib import Path

MB = 1e6
_TICKS = os.sysconf("SC_CLK_TCK")


def resident(pid: int) -> float:
    """Resident memory, MB."""
    return _field(Path(f"/proc/{pid}/smaps_rollup"), "Rss")


def peak(pid: int) -> float:
    """The most that was resident since `reset_peak`, MB."""
    return _field(Path(f"/proc/{pid}/status"), "VmHWM")


def reset_peak(pid: int) -> None:
    """Begin to measure `peak` anew."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def cpu(pid: int) -> float:
    """User and system time of all threads, seconds, in steps of a clock tick."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _field(file: Path, name: str) -> float:
    for line in file.read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024 / MB
    raise LookupError(f"{file} has no {name!r}")
