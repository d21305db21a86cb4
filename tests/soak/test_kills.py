"""The crash matrix at length: 200 kills at any moment, and kills at chosen writes by strace's injection."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.crash import SPAN, Crashes
from tests.support.rig import SERVER

pytestmark = pytest.mark.soak

KILLS = 25
GROUPS = 8


@pytest.mark.parametrize("group", range(GROUPS))
async def test_a_kill_at_any_of_200_moments_loses_nothing_that_was_acknowledged(
    tmp_path: Path, group: int
) -> None:
    async with Crashes.open(tmp_path, seed=1_000 + group) as crashes:
        moments = [(kill * GROUPS + group) * SPAN // (KILLS * GROUPS) for kill in range(KILLS)]
        crashes.chance.shuffle(moments)
        for after in moments:
            await crashes.round(after)
        assert len(crashes.where) >= 5, f"the kills met too few kinds of moments: {crashes.where}"


def without_strace() -> str | None:
    """Why strace can't be used here, or None."""
    if shutil.which("strace") is None:
        return "no strace: scripts/apt-packages.sh installs it"
    tried = subprocess.run(
        ["strace", "-D", "-qq", "-o", "/dev/null", "true"], capture_output=True, check=False
    )
    return None if tried.returncode == 0 else f"strace may not trace here: {tried.stderr.decode().strip()}"


@pytest.mark.skipif(without_strace() is not None, reason=str(without_strace()))
@pytest.mark.parametrize(
    ("call", "counts"),
    [
        # Counted by thread. The log's writer thread makes the `pwrite64` and `fdatasync`: pages of its
        # journal and of the database. `write` is the main thread's to the editor and a worker's to files;
        # `fsync` and `rename` are workers' when they replace files and keep contents.
        ("pwrite64", (20, 33, 47, 60, 81, 102)),
        ("fdatasync", (2, 3, 4, 6, 8, 10)),
        ("fsync", (1, 2, 3)),
        ("rename", (1, 2, 3)),
        ("write", (20, 35, 50, 70, 90)),
    ],
)
async def test_a_kill_at_a_chosen_write_loses_nothing_that_was_acknowledged(
    tmp_path: Path, call: str, counts: tuple[int, ...]
) -> None:
    async with Crashes.open(tmp_path, seed=len(call)) as crashes:
        hit = 0
        for count in counts:
            inject = ("-e", f"trace={call}", "-e", f"inject={call}:signal=KILL:when={count}")
            # -D: the server stays the test's own child, the tracer is nobody's.
            hit += await crashes.round(
                command=("strace", "-D", "-f", "-qq", "-o", "/dev/null", *inject, *SERVER)
            )
        assert hit >= len(counts) - 1, f"{hit} of {counts} were reached"
