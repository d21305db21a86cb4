"""Rows and how they are printed."""

import os
import platform
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True, slots=True)
class Row:
    """One figure: samples of ours and of a reference, and what it should be."""

    name: str
    unit: str
    ours: Sequence[float]
    reference: Sequence[float] = ()
    beside: str = ""
    """What the reference is."""
    limit: float | None = None
    limit_on: Literal["value", "ratio"] = "value"

    @property
    def ratio(self) -> float | None:
        """Ours over the reference, median over median."""
        if not self.reference or not (below := statistics.median(self.reference)):
            return None
        return statistics.median(self.ours) / below

    @property
    def verdict(self) -> str:
        """`ok`, `MISS`, or nothing where no limit is set."""
        if self.limit is None:
            return ""
        value = self.ratio if self.limit_on == "ratio" else statistics.median(self.ours)
        return "ok" if value is not None and value <= self.limit else "MISS"


def render(rows: Sequence[Row]) -> str:
    """A Markdown table."""
    cells = [["", "ours", "reference", "ratio", "target", ""]]
    for row in rows:
        ratio, limit = row.ratio, row.limit
        reference = f"{_spread(row.reference, row.unit)} {row.beside}" if row.reference else row.beside or "–"
        target = "–" if limit is None else f"≤ {limit:g} {'×' if row.limit_on == 'ratio' else row.unit}"
        cells.append(
            [
                row.name,
                _spread(row.ours, row.unit),
                reference,
                "–" if ratio is None else f"{ratio:.2f} ×",
                target,
                row.verdict,
            ]
        )
    widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |"
        for line in cells
    ]
    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join([lines[0], rule, *lines[1:]])


def machine(load_before: float) -> str:
    """Where this ran, and what else ran there."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        "unknown processor",
    )
    return (
        f"{os.cpu_count()} cores ({model}), Python {platform.python_version()}, {platform.system()} "
        f"{platform.release()}, load {load_before:.1f} before and {os.getloadavg()[0]:.1f} after."
    )


def _spread(samples: Sequence[float], unit: str) -> str:
    low, middle, high = min(samples), statistics.median(samples), max(samples)
    digits = 0 if middle >= 100 else 1 if middle >= 10 else 2
    return f"{middle:.{digits}f} {unit} ({low:.{digits}f}–{high:.{digits}f})"
