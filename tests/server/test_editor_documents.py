"""The document store: incremental sync, one document per file, and those who listen."""

import asyncio
from pathlib import Path

import pytest

from deskmate_server.editor import documents
from deskmate_server.editor.documents import Change, DocumentEvent, DocumentStore
from deskmate_server.editor.positions import Encoding, Position, Range


@pytest.fixture(autouse=True)
def logging_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """import-linter, run by the architecture tests, disables the loggers that it finds."""
    monkeypatch.setattr(documents.logger, "disabled", False)


def edit(line: int, start: int, end: int, text: str) -> Change:
    return Change(Range(Position(line, start), Position(line, end)), text)


@pytest.mark.parametrize(("encoding", "start"), [("utf-16", 12), ("utf-8", 16), ("utf-32", 11)])
def test_L03_an_edit_after_an_emoji_lands_where_the_client_meant(encoding: str, start: int) -> None:
    store = DocumentStore(Encoding(encoding))
    store.open("untitled:1", "python", 1, 'x = "😋漢" # TODO\n')
    document = store.change("untitled:1", 2, [edit(0, start, start + 4, "DONE")])
    assert document is not None
    assert document.text == 'x = "😋漢" # DONE\n'


def test_a_form_feed_shifts_no_line() -> None:
    store = DocumentStore()
    store.open("untitled:1", "c", 1, "a\x0cb\u2028c\nsecond\r\nthird")
    document = store.change("untitled:1", 2, [edit(1, 0, 6, "2nd"), edit(2, 0, 5, "3rd")])
    assert document is not None
    assert document.text == "a\x0cb\u2028c\n2nd\r\n3rd"


def test_an_unsaved_change_is_dirty_until_it_is_saved() -> None:
    store = DocumentStore()
    first = store.open("untitled:1", "c", 1, "a=1\n")
    assert (first.dirty, first.version, first.epoch) == (False, 1, 1)
    second = store.change("untitled:1", 5, [Change(None, "a=2\nb=3\n")])
    assert second is not None
    assert (second.dirty, second.version, second.text) == (True, 5, "a=2\nb=3\n")
    assert second.hash != first.hash
    assert first.text == "a=1\n"
    saved = store.save("untitled:1")
    assert saved is not None
    assert not saved.dirty
    store.mark("untitled:1", dirty=True)
    assert store.all()[0].dirty
    store.close("untitled:1")
    assert store.get("untitled:1") is None
    assert store.open("untitled:1", "c", 1, "").epoch == 2


def test_what_was_never_opened_is_ignored(caplog: pytest.LogCaptureFixture) -> None:
    store = DocumentStore()
    assert store.change("file:///nope", 2, [Change(None, "x")]) is None
    assert store.save("file:///nope") is None
    store.close("file:///nope")
    assert caplog.text.count("never opened") == 3
    assert store.all() == []


def test_L04_one_document_however_it_is_spelled(tmp_path: Path) -> None:
    path = tmp_path / "my proj#1" / "100%" / "é.py"
    path.parent.mkdir(parents=True)
    path.write_text("x\n")
    upper = path.as_uri()
    lower = upper.replace("%C3%A9", "%c3%a9")
    store = DocumentStore()
    store.open(lower, "python", 1, "x\n")
    assert store.change(upper, 2, [Change(None, "y\n")]) is not None
    document = store.get(path)
    assert document is store.get(upper) is store.get(lower)
    assert document is not None
    assert (document.uri, document.path, document.text) == (lower, path.resolve(), "y\n")
    assert store.uri_for(path) == lower
    store.close(upper)
    assert store.all() == []
    assert store.uri_for(path) == upper


def test_two_buffers_of_one_file_are_synced_apart(tmp_path: Path) -> None:
    real, link = tmp_path / "real.py", tmp_path / "link.py"
    real.write_text("x")
    link.symlink_to(real)
    store = DocumentStore()
    events: list[tuple[str, str]] = []
    store.subscribe(lambda event: events.append((event.kind, event.document.text)))
    store.open(real.as_uri(), "python", 1, "real")
    store.open(link.as_uri(), "python", 1, "link")
    store.change(real.as_uri(), 2, [edit(0, 4, 4, "!")])
    assert [document.text for document in store.all()] == ["real!"]
    store.close(real.as_uri())
    assert [document.text for document in store.all()] == ["link"]
    store.close(link.as_uri())
    assert events == [
        ("open", "real"),
        ("open", "link"),
        ("change", "real!"),
        ("change", "link"),
        ("close", "link"),
    ]


def test_a_path_below_a_folder_is_spelled_as_the_client_spells_the_folder(tmp_path: Path) -> None:
    (tmp_path / "real dir").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real dir")
    store = DocumentStore()
    store.add_root((tmp_path / "link").as_uri() + "/")
    new = tmp_path / "real dir" / "a b.py"
    assert store.uri_for(new) == (tmp_path / "link").as_uri() + "/a%20b.py"
    assert store.uri_for(tmp_path / "real dir") == (tmp_path / "link").as_uri()


async def test_waiting_until_the_text_holds_the_edit() -> None:
    store = DocumentStore()
    waiting = asyncio.create_task(
        store.until("untitled:1", lambda document: document is not None and "b=4" in document.text, 5)
    )
    await asyncio.sleep(0)
    store.open("untitled:1", "c", 1, "b=3")
    await asyncio.sleep(0)
    assert not waiting.done()
    store.change("untitled:1", 2, [Change(None, "b=4")])
    document = await waiting
    assert document is not None
    assert document.version == 2
    with pytest.raises(TimeoutError):
        await store.until("untitled:1", lambda document: document is None, 0.01)


def test_a_listener_that_fails_stops_nobody(caplog: pytest.LogCaptureFixture) -> None:
    store = DocumentStore()
    heard: list[str] = []

    def fail(event: DocumentEvent) -> None:
        raise RuntimeError("no")

    store.subscribe(fail)
    stop = store.subscribe(lambda event: heard.append(event.kind))
    store.open("untitled:1", "c", 1, "")
    stop()
    store.close("untitled:1")
    assert heard == ["open"]
    assert "a listener failed" in caplog.text
