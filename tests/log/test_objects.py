"""Contents by hash."""

import hashlib
import os
import stat
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from deskmate_session.errors import LogCorrupt
from deskmate_session.workspace.objects import Objects


def place(folder: Path, hash: str) -> Path:
    return folder / "objects" / hash[:2] / hash[2:]


@given(st.binary() | st.binary(min_size=1).map(lambda data: data * 500))
def test_bytes_come_back_by_their_hash(tmp_path_factory: pytest.TempPathFactory, data: bytes):
    objects = Objects(tmp_path_factory.getbasetemp())
    assert objects.put(data) == hashlib.sha256(data).hexdigest()
    assert objects.get(hashlib.sha256(data).hexdigest()) == data


def test_an_object_is_private_packed_and_stored_once(tmp_path: Path):
    objects = Objects(tmp_path)
    hash = objects.put(b"line\n" * 1_000)
    path = place(tmp_path, hash)
    before = path.stat()
    assert stat.S_IMODE(before.st_mode) == 0o600
    assert before.st_size < 200
    for durable in (False, True):
        assert objects.put(b"line\n" * 1_000, durable=durable) == hash
    assert path.stat().st_ino == before.st_ino
    assert list(path.parent.iterdir()) == [path]


def test_a_durable_object_waits_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(str(Path(f"/proc/self/fd/{fd}").readlink())))
    objects = Objects(tmp_path)
    objects.put(b"fleeting")
    assert synced == []
    hash = objects.put(b"lasting", durable=True)
    path = place(tmp_path, hash)
    assert [Path(name).parent for name in synced] == [path.parent, path.parent.parent, tmp_path]


def test_what_is_not_there_is_missing(tmp_path: Path):
    objects = Objects(tmp_path)
    (tmp_path / "secret").write_bytes(b"\x00secret")
    for hash in ("0" * 64, "ab/../../secret", ""):
        assert objects.check(hash) == "missing"
        with pytest.raises(KeyError):
            objects.get(hash)


@pytest.mark.parametrize("body", [b"", b"\x00other", b"\x01no zlib"])
def test_a_damaged_object_is_told_and_mended_by_storing_it_again(tmp_path: Path, body: bytes):
    objects = Objects(tmp_path)
    hash = objects.put(b"whole")
    place(tmp_path, hash).write_bytes(body)
    assert objects.check(hash) == "damaged"
    with pytest.raises(LogCorrupt, match="damaged"):
        objects.get(hash)
    objects.put(b"whole")
    assert objects.get(hash) == b"whole"


def test_a_failed_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    objects = Objects(tmp_path)
    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space"):
        objects.put(b"data")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
