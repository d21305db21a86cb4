"""Edits through the editor: buffers first, versions, saving, odd text and odd names."""

from pathlib import Path

import pytest

from tests.support.editor import APPLY, Editor
from tests.support.fake_provider import answer, call, text
from tests.support.rig import ALLOW_ALL, Rig

DONE = answer(text("done"))
OFFERS = {"ask": True, "save": True}


def edit(path: str, old: str, new: str) -> object:
    return answer(call("edit", {"path": path, "old": old, "new": new}))


async def test_E10_an_unsaved_buffer_is_what_is_read_and_edited(tmp_path: Path) -> None:
    answers = [answer(call("read", {"path": "f.py"})), edit("f.py", "b=3", "b=4"), DONE]
    config = {"permission": ALLOW_ALL}
    async with Rig.open(
        tmp_path, answers, files={"f.py": "a=1\n"}, experimental=OFFERS, capabilities=APPLY, config=config
    ) as rig:
        editor = Editor(rig.client)
        buffer = editor.open(rig.folder / "f.py")
        editor.type(buffer, "a=2\nb=3\n")
        session = await rig.create()
        assert (await rig.prompt(session, "go"))["finish"] == "stop"
        read, edited = await rig.calls(session)
        assert "b=3" in read["state"]["output"]
        assert buffer.text == "a=2\nb=4\n"
        [sent] = editor.edits
        assert sent["edit"]["documentChanges"][0]["textDocument"] == {"uri": buffer.uri, "version": 2}
        assert (rig.folder / "f.py").read_text() == "a=1\n", "nothing is written behind a dirty buffer"
        assert "not saved" in edited["state"]["output"]
        facts = {e["type"]: e["payload"] for e in await rig.events(session)}
        assert (facts["change.applied"]["via"], facts["change.applied"]["saved"]) == ("applyEdit", False)


async def test_a_clean_buffer_is_saved_after_the_edit_and_what_the_save_adds_counts(tmp_path: Path) -> None:
    answers = [
        answer(call("read", {"path": "f.py"})),
        edit("f.py", "a = 1", "a = 2"),
        edit("f.py", "a = 2", "a = 3"),
        DONE,
    ]
    config = {"permission": ALLOW_ALL}
    async with Rig.open(
        tmp_path, answers, files={"f.py": "a = 1"}, experimental=OFFERS, capabilities=APPLY, config=config
    ) as rig:
        editor = Editor(rig.client)
        editor.on_save = lambda value: value if value.endswith("\n") else value + "\n"
        buffer = editor.open(rig.folder / "f.py")
        session = await rig.create()
        assert (await rig.prompt(session, "go"))["finish"] == "stop"
        assert (rig.folder / "f.py").read_text() == buffer.text == "a = 3\n"
        assert len(editor.edits) == 2
        diff = (await rig.call("session/diff", sessionId=session))["files"][0]["patch"]
        assert "+a = 3\n" in diff
        await rig.verified()


async def test_a_refused_edit_is_a_failed_call_and_changes_nothing(tmp_path: Path) -> None:
    answers = [edit("f.py", "a", "b"), DONE]
    config = {"permission": ALLOW_ALL}
    async with Rig.open(
        tmp_path, answers, files={"f.py": "a\n"}, experimental=OFFERS, capabilities=APPLY, config=config
    ) as rig:
        editor = Editor(rig.client)
        editor.refuse = True
        editor.open(rig.folder / "f.py")
        session = await rig.create()
        await rig.prompt(session, "go")
        [part] = await rig.calls(session)
        assert (part["state"]["status"], part["state"]["errorKind"]) == ("error", "conflict")
        assert "the test refuses" in part["state"]["error"]
        types = await rig.types(session)
        assert "change.started" in types and "change.refused" in types and "change.applied" not in types
        assert (rig.folder / "f.py").read_text() == "a\n"
        assert (await rig.call("session/diff", sessionId=session))["files"] == []


async def test_a_client_without_apply_edit_gets_the_disk_written_when_its_buffer_is_clean(
    tmp_path: Path,
) -> None:
    answers = [edit("f.py", "a", "b"), edit("g.py", "a", "b"), DONE]
    async with Rig.open(
        tmp_path, answers, files={"f.py": "a\n", "g.py": "a\n"}, config={"permission": ALLOW_ALL}
    ) as rig:
        editor = Editor(rig.client)
        editor.open(rig.folder / "f.py")
        dirty = editor.open(rig.folder / "g.py")
        editor.type(dirty, "a\nmine\n")
        session = await rig.create()
        await rig.prompt(session, "go")
        assert (rig.folder / "f.py").read_text() == "b\n"
        assert (rig.folder / "g.py").read_text() == "a\n"
        assert [part["state"]["status"] for part in await rig.calls(session)] == ["completed", "error"]


@pytest.mark.parametrize(("encoding", "start"), [("utf-16", 12), ("utf-8", 16), ("utf-32", 11)])
async def test_L03_columns_after_an_emoji_are_right_in_every_encoding(
    tmp_path: Path, encoding: str, start: int
) -> None:
    line = 'x = "😋漢" # TODO\n'
    answers = [edit("f.py", "TODO", "DONE"), DONE]
    config = {"permission": ALLOW_ALL}
    async with Rig.open(
        tmp_path,
        answers,
        files={"f.py": line},
        experimental=OFFERS,
        capabilities=APPLY,
        config=config,
        encodings=[encoding],
    ) as rig:
        assert rig.client.capabilities["positionEncoding"] == encoding
        editor = Editor(rig.client, encoding)
        buffer = editor.open(rig.folder / "f.py")
        session = await rig.create()
        await rig.prompt(session, "go")
        assert buffer.text == 'x = "😋漢" # DONE\n'
        [change] = editor.edits[0]["edit"]["documentChanges"][0]["edits"]
        first = change["range"]["start"]["character"]
        shared = 0 if change["newText"] == "DONE" else "DONE".index(change["newText"][0])
        assert first - shared == start


async def test_a_form_feed_or_line_separator_shifts_no_line(tmp_path: Path) -> None:
    odd = "one\x0cstill one\u2028still one\x85\ntwo\nthree\n"
    answers = [edit("f.txt", "three", "3"), DONE]
    config = {"permission": ALLOW_ALL}
    async with Rig.open(
        tmp_path, answers, files={"f.txt": odd}, experimental=OFFERS, capabilities=APPLY, config=config
    ) as rig:
        editor = Editor(rig.client)
        buffer = editor.open(rig.folder / "f.txt")
        session = await rig.create()
        await rig.prompt(session, "go")
        assert buffer.text == odd.replace("three", "3")


@pytest.mark.parametrize("spelling", ["my%20proj%231/100%25/%C3%A9.py", "my%20proj%231/100%25/%c3%a9.py"])
async def test_L04_a_document_is_one_however_its_uri_is_written(tmp_path: Path, spelling: str) -> None:
    folder = "my proj#1/100%"
    answers = [answer(call("read", {"path": "é.py"})), edit("é.py", "a = 1", "a = 2"), DONE]
    config = {"permission": ALLOW_ALL}
    async with Rig.open(
        tmp_path,
        answers,
        files={"é.py": "on disk\n"},
        folder=folder,
        experimental=OFFERS,
        capabilities=APPLY,
        config=config,
    ) as rig:
        editor = Editor(rig.client)
        uri = f"file://{tmp_path}/{spelling}"
        buffer = editor.open(rig.folder / "é.py", uri=uri, text="a = 1\n")
        session = await rig.create()
        assert (await rig.prompt(session, "go"))["finish"] == "stop"
        read = (await rig.calls(session))[0]
        assert "a = 1" in read["state"]["output"]
        assert editor.edits[0]["edit"]["documentChanges"][0]["textDocument"]["uri"] == uri
        assert buffer.text == "a = 2\n"
        context = (await rig.call("session/get", sessionId=session))["workContext"]
        assert [entry["uri"] for entry in context["files"]] == [uri]


async def test_mixed_line_ends_go_to_the_disk_when_clean_and_are_refused_when_dirty(tmp_path: Path) -> None:
    mixed = "a\r\nb\nc\r\n"
    answers = [edit("f.txt", "b", "B"), edit("g.txt", "b", "B"), DONE]
    config = {"permission": ALLOW_ALL}
    async with Rig.open(
        tmp_path,
        answers,
        files={"f.txt": mixed, "g.txt": mixed},
        experimental=OFFERS,
        capabilities=APPLY,
        config=config,
    ) as rig:
        editor = Editor(rig.client)
        editor.open(rig.folder / "f.txt")
        dirty = editor.open(rig.folder / "g.txt")
        editor.type(dirty, mixed + "mine\n")
        session = await rig.create()
        await rig.prompt(session, "go")
        assert (rig.folder / "f.txt").read_bytes() == b"a\r\nB\nc\r\n"
        assert (rig.folder / "g.txt").read_bytes() == mixed.encode()
        assert editor.edits == []
        states = [part["state"]["status"] for part in await rig.calls(session)]
        assert states == ["completed", "error"]
