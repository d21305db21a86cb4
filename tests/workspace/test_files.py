"""Bytes come back exactly; writes are whole, keep bits and links, and leave nothing behind when they fail."""

import asyncio
import multiprocessing
import os
import stat
import time
from pathlib import Path

import pytest
from blockbuster import blockbuster_ctx
from hypothesis import given, strategies as st

from deskmate_session.errors import ToolFailure
from deskmate_session.workspace import files
from deskmate_session.workspace.encoding import decode, encode, text_hash
from deskmate_session.workspace.files import read_disk, read_text, write_atomic, write_text
from deskmate_session.workspace.locks import FileLocks
from tests.support.tool_context import FakeEditor


@given(st.binary(max_size=200) | st.text().map(lambda text: text.encode("utf-8", "ignore")))
def test_decoding_then_encoding_gives_the_bytes_back(data: bytes):
    try:
        decoded = decode(data)
    except ToolFailure as failure:
        assert "binary" in failure.message
        return
    assert encode(decoded.text, decoded.encoding, decoded.bom) == data
    assert not any(0xD800 <= ord(character) <= 0xDFFF for character in decoded.text)


@given(st.text(), st.sampled_from(["utf-8-sig", "utf-16-le", "utf-16-be"]))
def test_a_byte_order_mark_is_parted_from_the_text(text: str, encoding: str):
    data = text.encode(encoding, "ignore")
    text = data.decode(encoding)
    if encoding != "utf-8-sig":
        data = "\ufeff".encode(encoding) + data
    if "\0" in text:
        return
    decoded = decode(data)
    assert (decoded.text, len(decoded.bom) > 0) == (text, True)
    assert encode(decoded.text, decoded.encoding, decoded.bom) == data


@pytest.mark.parametrize(
    ("data", "encoding", "newline"),
    [
        (b"", "utf-8", "\n"),
        (b"a\r\nb\r\nc\n", "utf-8", "\r\n"),
        (b"a\rb", "utf-8", "\r"),
        (b"caf\xe9\n", "latin-1", "\n"),
    ],
)
def test_encoding_and_line_end_are_named(data: bytes, encoding: str, newline: str):
    decoded = decode(data)
    assert (decoded.encoding, decoded.newline) == (encoding, newline)


def test_bytes_that_are_no_text_are_refused():
    for data in (b"a\0b", bytes(range(1, 32)) * 9 + b"\xff", b"\xff\xfe\x00\x00"):
        with pytest.raises(ToolFailure, match="binary"):
            decode(data)


@pytest.mark.parametrize("mode", [0o755, 0o600, 0o640, 0o444 | 0o200])
def test_mode_bits_are_kept(tmp_path: Path, mode: int):
    file = tmp_path / "f"
    file.write_text("old")
    file.chmod(mode)
    write_atomic(str(file), b"new")
    assert (file.read_bytes(), stat.S_IMODE(file.stat().st_mode)) == (b"new", mode)


def test_a_link_stays_and_its_target_is_written(tmp_path: Path):
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to("there/new")
    write_atomic(str(tmp_path / "link"), b"x")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "there/new").read_bytes() == b"x"


def test_a_failed_write_leaves_the_old_bytes_and_no_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file = tmp_path / "f"
    file.write_text("old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(ToolFailure, match="No space left"):
        write_atomic(str(file), b"new")
    assert os.listdir(tmp_path) == ["f"]
    assert file.read_text() == "old"


def test_what_a_cut_off_write_left_is_cleared_or_written_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    file = tmp_path / "f"
    file.write_text("old")
    with monkeypatch.context() as killed:
        killed.setattr(files.Path, "replace", lambda *_: os._exit(0))
        if (child := os.fork()) == 0:
            write_atomic(str(file), b"half")
        os.waitpid(child, 0)
    assert len(os.listdir(tmp_path)) == 2
    files.clear_rest(str(file))
    assert (os.listdir(tmp_path), file.read_text()) == (["f"], "old")


def test_what_is_no_file_is_not_replaced(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(ToolFailure, match="not a file"):
            write_atomic(str(path), b"x")
    (tmp_path / "f").write_text("x")
    with pytest.raises(ToolFailure, match=r"."):
        write_atomic(str(tmp_path / "f" / "below"), b"x")


def test_a_text_is_written_only_over_what_was_read(tmp_path: Path):
    file = tmp_path / "f"
    write_text(str(file), "one\n", None)
    basis = read_disk(str(file))
    with pytest.raises(ToolFailure, match="exists meanwhile"):
        write_text(str(file), "two\n", None)
    file.write_text("other\n")
    with pytest.raises(ToolFailure, match="changed since read"):
        write_text(str(file), "two\n", basis)
    assert file.read_text() == "other\n"


async def test_an_open_document_wins_and_keeps_the_encoding_of_its_file(tmp_path: Path):
    file = tmp_path / "f"
    file.write_bytes(b"\xef\xbb\xbfdisk\n")
    editor = FakeEditor()
    editor.open(file, "buffer\n", version=4)
    editor.open(tmp_path / "new", "not saved yet")
    text = await read_text(str(file), editor)
    assert (text.text, text.bom, text.version, text.dirty) == ("buffer\n", b"\xef\xbb\xbf", 4, True)
    assert text.hash == text_hash("buffer\n")
    assert (await read_text(str(tmp_path / "new"), editor)).text == "not saved yet"


async def test_one_lock_a_path_first_come_first_served(tmp_path: Path):
    locks = FileLocks(str(tmp_path / "locks"))
    order: list[int] = []

    async def enter(number: int) -> None:
        async with locks.hold("/a", "/b"):
            order.append(number)
            await asyncio.sleep(0.001)
            order.append(number)

    with blockbuster_ctx("deskmate_session"):
        await asyncio.gather(*(enter(number) for number in range(8)))
    assert order == [number for number in range(8) for _ in range(2)]
    assert list((tmp_path / "locks").iterdir()) == []


async def test_a_lock_that_is_not_given_up_is_a_conflict(tmp_path: Path):
    one, other = FileLocks(str(tmp_path)), FileLocks(str(tmp_path))
    async with one.hold("/a"):
        with pytest.raises(ToolFailure, match="another writer holds it"):
            async with other.hold("/a", timeout_s=0.1):
                pass
        async with other.hold("/b", timeout_s=0.1):
            pass
    async with other.hold("/a", timeout_s=0.5):
        pass


def _count(folder: str, counter: str, times: int) -> None:
    async def work() -> None:
        locks = FileLocks(folder)
        for _ in range(times):
            async with locks.hold("/shared"):
                value = int(Path(counter).read_text())
                time.sleep(0.0005)
                Path(counter).write_text(str(value + 1))

    asyncio.run(work())


def test_processes_exclude_each_other(tmp_path: Path):
    counter = tmp_path / "counter"
    counter.write_text("0")
    context = multiprocessing.get_context("spawn")
    workers = [
        context.Process(target=_count, args=(str(tmp_path / "locks"), str(counter), 40)) for _ in range(4)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert counter.read_text() == "160"
