"""Opening a session: its state and the page that is shown, whatever its length."""

import asyncio
import time
from pathlib import Path

from benchmarks import history
from benchmarks.bench import Bench
from benchmarks.table import Row
from deskmate_server.editor.no_editor import NoEditor
from deskmate_session.config.layers import load
from deskmate_session.ids import RandomIds
from deskmate_session.kernel import Kernel, KernelOptions, state_dir_name
from deskmate_session.model import queries as q

SIZES = (100, 1_000, 10_000)
SESSION = "ses_bench"
PAGE = 50


def run(bench: Bench) -> list[Row]:
    """A new kernel for each opening, the sizes in turn; the first round warms up."""
    found: dict[int, list[float]] = {size: [] for size in SIZES}
    folders = {size: bench.scratch / f"opening{size}" for size in SIZES}
    for size, folder in folders.items():
        folder.mkdir()
        asyncio.run(history.build(folder / "state" / state_dir_name(folder), SESSION, size))
    for number in range(bench.rounds + 1):
        for size, folder in folders.items():
            took = asyncio.run(_open(folder))
            if number:
                found[size].append(took)
    least = found[SIZES[0]]
    rows = [Row(_name(SIZES[0]), "ms", least, limit=50)]
    return [*rows, *(Row(_name(size), "ms", found[size], least, "of 100", 50) for size in SIZES[1:])]


def _name(size: int) -> str:
    return f"opening a session of {size:,} messages"


async def _open(folder: Path) -> float:
    """Milliseconds for what an editor asks when it shows a session."""
    settings = load({"model": "mock/test"}, {"HOME": str(folder)}).settings
    options = KernelOptions(
        folder=str(folder),
        host=NoEditor(),
        settings=settings,
        environment={"PATH": "/usr/bin:/bin", "HOME": str(folder)},
        state_home=folder / "state",
        ids=RandomIds(),
        clock=history.Clock(),
    )
    kernel = await Kernel.open(options)
    try:
        began = time.perf_counter()
        await kernel.query(q.GetSession(session_id=SESSION))
        page = await kernel.query(q.ListMessages(session_id=SESSION, limit=PAGE))
        took = time.perf_counter() - began
    finally:
        await kernel.close()
    assert isinstance(page, q.MessagePage)
    assert len(page.messages) == PAGE
    return took * 1000
