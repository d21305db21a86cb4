"""A folder to work in, and its context."""

from pathlib import Path

import pytest

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
