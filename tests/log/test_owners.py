"""Who lives: told by locks alone."""

import os
from pathlib import Path

import pytest

from deskmate_session.log import owners
from tests.log import support

HOLD = """
import signal, sys
from pathlib import Path
from deskmate_session.log.owners import Owner
owner = Owner.claim(Path(sys.argv[1]), sys.argv[2])
print("held", flush=True)
signal.pause()
"""


def test_an_owner_lives_until_it_is_killed(tmp_path: Path):
    process = support.child(HOLD, str(tmp_path), "own_child")
    assert process.stdout
    assert process.stdout.readline() == "held\n"
    assert owners.alive(tmp_path, "own_child")
    assert owners.alive(tmp_path, "own_child")  # asking robs it of nothing
    assert owners.sweep(tmp_path) == []
    process.kill()
    process.communicate()
    assert not owners.alive(tmp_path, "own_child")
    assert owners.sweep(tmp_path) == ["own_child"]
    assert owners.sweep(tmp_path) == []


def test_an_owner_of_this_process_lives_until_it_is_released(tmp_path: Path):
    owner = owners.Owner.claim(tmp_path, "own_1")
    assert owner.id == "own_1"
    assert owners.alive(tmp_path, "own_1")
    owner.release()
    assert not owners.alive(tmp_path, "own_1")
    assert list((tmp_path / "owners").iterdir()) == []


@pytest.mark.parametrize("id", ["../events", "", "a/b", "x" * 81, "own_unknown"])
def test_no_other_name_is_an_owner(tmp_path: Path, id: str):
    (tmp_path / "events.lock").touch()
    assert not owners.alive(tmp_path, id)


def test_a_bad_name_can_not_be_claimed(tmp_path: Path):
    with pytest.raises(ValueError, match="not an owner's id"):
        owners.Owner.claim(tmp_path, "../x")


def test_a_file_that_is_swept_while_it_is_claimed_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "owners" / "own_1.lock"
    swept = iter([path.unlink, lambda: (path.unlink(), path.touch())])
    lock = owners.fcntl.flock

    def sweep_first(fd: int, how: int) -> None:
        next(swept, lambda: None)()
        lock(fd, how)

    monkeypatch.setattr(owners.fcntl, "flock", sweep_first)
    owner = owners.Owner.claim(tmp_path, "own_1")
    monkeypatch.undo()
    assert owners.alive(tmp_path, "own_1")
    owner.release()


def test_another_sweep_may_be_faster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    owners.Owner.claim(tmp_path, "own_1")._path.unlink()
    (tmp_path / "owners" / "own_2.lock").touch()
    open_file = os.open

    def gone(path: Path, flags: int) -> int:
        path.unlink()
        return open_file(path, flags)

    monkeypatch.setattr(owners.os, "open", gone)
    assert owners.sweep(tmp_path) == []
