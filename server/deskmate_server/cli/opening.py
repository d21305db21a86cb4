"""A kernel for a command of the command line: this folder, no editor."""

import logging
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from deskmate_server.cli.output import complain, harmless, stderr
from deskmate_server.editor.no_editor import NoEditor
from deskmate_session.errors import DeskmateError, Rejected
from deskmate_session.kernel import Kernel, KernelOptions, Notice, load_settings, state_dir_name, state_home
from deskmate_session.model import commands as c, queries as q
from deskmate_session.model.permissions import Rule
from deskmate_session.model.settings import Settings


def settings() -> Settings:
    """The person's settings; what can't be used of them is told on stderr. Sets up logging."""
    # What went wrong is told by the command itself; the kernel's own words are for those who ask for them.
    level = os.environ.get("DESKMATE_LOG", "CRITICAL").upper()
    logging.basicConfig(level=level if level in logging.getLevelNamesMapping() else "CRITICAL")
    loaded = load_settings({}, os.environ)
    for warning in loaded.warnings:
        stderr().line(f"deskmate: warning: {harmless(warning)}", "yellow")
    return loaded.settings


@asynccontextmanager
async def opened(
    using: Settings, home: Path | None = None, rules: tuple[Rule, ...] = ()
) -> AsyncGenerator[Kernel]:
    """Open this folder's kernel and close it in order. `home`: another state home than the person's."""
    options = KernelOptions(
        folder=str(here()),
        host=NoEditor(),
        settings=using,
        environment=dict(os.environ),
        state_home=home or state_home(os.environ),
        rules=rules,
        unattended=True,
    )
    kernel = await Kernel.open(options)
    kernel.on_notice(_tell)
    try:
        yield kernel
    finally:
        await kernel.close()


_told: set[str] = set()


def _tell(notice: Notice) -> None:
    if notice.message in _told:
        return  # a command may open the folder twice
    _told.add(notice.message)
    stderr().line(f"deskmate: {notice.level}: {harmless(notice.message)}", "yellow")


def here() -> Path:
    """This folder's real path."""
    return Path.cwd().resolve()


def has_log(folder: Path) -> bool:
    """The folder has a log; asking makes none."""
    return (state_home(os.environ) / state_dir_name(folder) / "events.db").exists()


async def newest(kernel: Kernel) -> str:
    """The session of this folder with the newest activity. Raises `Rejected`."""
    page = await kernel.query(q.ListSessions(limit=1))
    if not isinstance(page, c.SessionPage) or not page.sessions:
        raise Rejected("sessionNotFound", "there is no session in this folder yet")
    return page.sessions[0].id


def failed(error: DeskmateError) -> int:
    """Tell why a command can't be done; the exit code."""
    complain(str(error), error.hint if isinstance(error, Rejected) else None)
    return 1
