"""A folder with a file, a model server and a Neovim, for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.fake_provider import FakeProvider
from tests.support.nvim import Nvim


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The workspace: `a.txt` with three lines."""
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "a.txt").write_text("one\ntwo\nthree\n")
    return folder


@pytest.fixture
def fp() -> Iterator[FakeProvider]:
    """A model server; the test adds its answers."""
    with FakeProvider() as provider:
        yield provider


@pytest.fixture
def nvim(folder: Path, tmp_path: Path, fp: FakeProvider) -> Iterator[Nvim]:
    """Neovim with `a.txt` open and the server attached to it."""
    with Nvim.start(folder, home=tmp_path / "home", fp=fp) as nvim:
        nvim.edit("a.txt")
        yield nvim
