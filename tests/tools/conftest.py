"""A folder to work in, and its context."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from blockbuster import blockbuster_ctx

from deskmate_session.model.messages import CommandDetail
from tests.support.tool_context import ScriptedContext


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The session's folder."""
    made = tmp_path / "work"
    made.mkdir()
    return made


@pytest.fixture
def context(folder: Path) -> ScriptedContext:
    """A context over the folder."""
    return ScriptedContext(folder)


@pytest.fixture(autouse=True)
def no_blocking() -> Iterator[None]:
    """Nothing of the session may block the loop."""
    CommandDetail.model_rebuild()  # pydantic looks for plugins on disk when it builds its first model
    with blockbuster_ctx("deskmate_session"):
        yield
