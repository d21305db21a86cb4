"""`read`, `write` and `edit` on real files: the acceptance cases of editing, at the tools' level."""

import os
import stat
from pathlib import Path

import pytest

from deskmate_session.model.messages import DiffDetail
from deskmate_session.model.ports import ToolLimits
from deskmate_session.workspace.paths import path_to_uri
from tests.support.tool_context import ScriptedContext, asked


async def test_E01_a_crlf_file_keeps_its_line_ends(folder: Path, context: ScriptedContext):
    file = folder / "f.txt"
    file.write_bytes(b"a\r\nb\r\nc\r\n")
    prepared = await context.prepare("edit", path="f.txt", old="a\nb\n", new="a\nB1\nB2\n")
    detail = prepared.requests[0].detail
    assert isinstance(detail, DiffDetail)
    lines = detail.diff.split("\n")[2:]
    assert [sum(line.startswith(mark) for line in lines) for mark in "-+"] == [1, 2]
    result = await prepared.run()
    assert file.read_bytes() == b"a\r\nB1\r\nB2\r\nc\r\n"
    assert (result.metadata["deletions"], result.metadata["additions"]) == (1, 2)


async def test_E01_a_whole_file_write_keeps_them_too(folder: Path, context: ScriptedContext):
    (folder / "f.txt").write_bytes(b"a\r\nb\r\n")
    await context.call("read", path="f.txt")
    await context.call("write", path="f.txt", content="a\nnew\nb\n")
    assert (folder / "f.txt").read_bytes() == b"a\r\nnew\r\nb\r\n"


async def test_E02_a_line_ending_only_edit_is_an_error(folder: Path, context: ScriptedContext):
    file = folder / "f.txt"
    file.write_bytes(b"a\r\nb")
    before = file.stat()
    said = await context.refused("edit", path="f.txt", old="a\r\nb", new="a\nb")
    assert "nothing would change" in said.message
    assert file.read_bytes() == b"a\r\nb"
    assert file.stat().st_mtime_ns == before.st_mtime_ns
    assert context.writes == 0


async def test_E03_a_byte_order_mark_stays_once_and_unseen(folder: Path, context: ScriptedContext):
    file = folder / "f.txt"
    file.write_bytes(b"\xef\xbb\xbfhello\n\xc3\xa9\n")
    assert (await context.call("read", path="f.txt")).output == "    1|hello\n    2|é"
    await context.call("edit", path="f.txt", old="hello", new="hello2")
    assert file.read_bytes() == b"\xef\xbb\xbfhello2\n\xc3\xa9\n"
    await context.call("write", path="f.txt", content="\ufeffwhole é\n")
    assert file.read_bytes() == b"\xef\xbb\xbfwhole \xc3\xa9\n"


@pytest.mark.parametrize("every", [False, True])
@pytest.mark.parametrize("new", ["$& ok", r"\1", r"\g<0>", r"a\nb", "\\\\"])
async def test_E04_replacement_is_literal(folder: Path, context: ScriptedContext, new: str, every: bool):
    file = folder / "f.js"
    file.write_text('log("done")\n')
    await context.call("edit", path="f.js", old="done", new=new, all=every)
    assert file.read_text() == f'log("{new}")\n'


@pytest.mark.parametrize(("before", "after"), [("x\ny", "x\nz"), ("x\ny\n", "x\nz\n")])
async def test_E05_the_final_newline_is_left_alone(
    folder: Path, context: ScriptedContext, before: str, after: str
):
    (folder / "f").write_text(before)
    await context.call("edit", path="f", old="y", new="z")
    assert (folder / "f").read_text() == after


@pytest.mark.parametrize(("name", "mode"), [("run.sh", 0o755), ("key.pem", 0o600)])
async def test_E06_mode_bits_are_kept(folder: Path, context: ScriptedContext, name: str, mode: int):
    file = folder / name
    file.write_text("one\n")
    file.chmod(mode)
    await context.call("edit", path=name, old="one", new="two")
    assert (file.read_text(), stat.S_IMODE(file.stat().st_mode)) == ("two\n", mode)
    await context.call("read", path=name)
    await context.call("write", path=name, content="three\n")
    assert (file.read_text(), stat.S_IMODE(file.stat().st_mode)) == ("three\n", mode)


async def test_E06_a_new_file_follows_the_umask(folder: Path, context: ScriptedContext):
    old = os.umask(0o027)
    try:
        await context.call("write", path="a/b/new.txt", content="x")
        await context.call("edit", path="made.txt", old="", new="y")
    finally:
        os.umask(old)
    assert stat.S_IMODE((folder / "a/b/new.txt").stat().st_mode) == 0o640
    assert stat.S_IMODE((folder / "made.txt").stat().st_mode) == 0o640


async def test_E07_several_matches_change_nothing_or_all(folder: Path, context: ScriptedContext):
    file = folder / "f"
    file.write_text("foo( )\nx\nfoo( )\nfoo( )\n")
    for old in ("foo( )", "foo()"):
        said = await context.refused("edit", path="f", old=old, new="bar()")
        assert "3 times, at lines 1, 3, 4" in said.message or "not in the file" in said.message
    assert file.read_text() == "foo( )\nx\nfoo( )\nfoo( )\n"
    await context.call("edit", path="f", old="foo( )", new="bar()", all=True)
    assert file.read_text() == "bar()\nx\nbar()\nbar()\n"


@pytest.mark.parametrize("every", [False, True])
async def test_E08_an_empty_old_on_a_file_is_an_error(folder: Path, context: ScriptedContext, every: bool):
    (folder / "f").write_text("abc")
    said = await context.refused("edit", path="f", old="", new="X", all=every)
    assert "`old` is empty" in said.message
    assert (folder / "f").read_text() == "abc"
    assert (await context.call("edit", path="made/new", old="", new="X")).output == "created made/new"
    assert (folder / "made/new").read_text() == "X"


async def test_E09_tabs_are_shown_and_spaces_do_not_match_them(folder: Path, context: ScriptedContext):
    (folder / "f.py").write_text("\tif x:\n\t\ty\n")
    assert (await context.call("read", path="f.py")).output == "    1|\tif x:\n    2|\t\ty"
    said = await context.refused("edit", path="f.py", old="    if x:\n        y", new="    if z:\n        y")
    assert "white space only" in said.message
    assert (folder / "f.py").read_text() == "\tif x:\n\t\ty\n"


async def test_E10_the_unsaved_buffer_is_read_and_edited(folder: Path, context: ScriptedContext):
    file = folder / "f"
    file.write_text("a=1\n")
    context.editor.open(file, "a=2\nb=3\n", version=7)
    shown = (await context.call("read", path="f")).output
    assert shown.startswith("    1|a=2\n    2|b=3")
    assert "unsaved changes" in shown
    result = await context.call("edit", path="f", old="b=3", new="b=4")
    assert context.editor.applied == [(str(file), 7)]
    assert context.editor.documents[str(file)].text == "a=2\nb=4\n"
    assert file.read_text() == "a=1\n"
    assert "not saved" in result.output


async def test_E11_a_write_over_a_change_is_refused_an_edit_keeps_it(folder: Path, context: ScriptedContext):
    file = folder / "f"
    file.write_text("one\n")
    assert "read it first" in (await context.refused("write", path="f", content="mine\n")).message
    await context.call("read", path="f")
    file.write_text("one\nthe person's\n")
    said = await context.refused("write", path="f", content="mine\n")
    assert (said.kind, "changed since read" in said.message) == ("conflict", True)
    await context.call("edit", path="f", old="one", new="two")
    assert file.read_text() == "two\nthe person's\n"


async def test_an_edit_is_applied_anew_when_the_file_changed_while_it_was_asked(
    folder: Path, context: ScriptedContext
):
    file = folder / "f"
    file.write_text("one\n")
    prepared = await context.prepare("edit", path="f", old="one", new="two")
    file.write_text("zero\none\n")
    await prepared.run()
    assert file.read_text() == "zero\ntwo\n"


async def test_a_write_that_was_done_already_reports_unchanged(folder: Path, context: ScriptedContext):
    await context.call("write", path="f", content="same\n")
    before = (folder / "f").stat().st_mtime_ns
    result = await context.call("write", path="f", content="same\n")
    assert result.output.startswith("unchanged")
    assert (folder / "f").stat().st_mtime_ns == before


async def test_a_failed_list_of_edits_leaves_the_file(folder: Path, context: ScriptedContext):
    (folder / "f").write_text("a b\n")
    edits = [{"old": "a", "new": "x"}, {"old": "nowhere", "new": "y"}]
    assert "edit 2 of 2" in (await context.refused("edit", path="f", edits=edits)).message
    assert (folder / "f").read_text() == "a b\n"


async def test_a_write_through_a_link_changes_its_target(folder: Path, context: ScriptedContext):
    (folder / "real").write_text("one\n")
    (folder / "link").symlink_to("real")
    await context.call("edit", path="link", old="one", new="two")
    assert (folder / "link").is_symlink()
    assert (folder / "real").read_text() == "two\n"


async def test_a_link_out_of_the_folder_is_asked_as_what_it_is(folder: Path, context: ScriptedContext):
    outside = folder.parent / "outside"
    outside.mkdir()
    (folder / "outbox").symlink_to(outside)
    prepared = await context.prepare("write", path="outbox/p", content="x")
    path = str(outside / "p")
    assert asked(prepared) == [("external_directory", (path,)), ("edit", (path,))]
    assert prepared.requests[1].always == ()


async def test_a_link_that_moved_after_the_answer_is_refused(folder: Path, context: ScriptedContext):
    (folder / "a").write_text("a\n")
    (folder / "link").symlink_to("a")
    prepared = await context.prepare("read", path="link")
    (folder / "link").unlink()
    (folder / "link").symlink_to("/etc/hosts")
    with pytest.raises(Exception, match="leads to '/etc/hosts' now"):
        await prepared.run()


async def test_secrets_and_files_that_run_later_offer_no_always(folder: Path, context: ScriptedContext):
    for name in (".env", "notes"):
        (folder / name).write_text("K=1\n") if name == ".env" else (folder / name).symlink_to(".env")
        request = (await context.prepare("read", path=name)).requests[0]
        assert (request.patterns, request.always) == ((".env",), ())
    request = (await context.prepare("write", path=".git/hooks/pre-commit", content="x")).requests[0]
    assert (request.patterns, request.always) == ((".git/hooks/pre-commit",), ())
    request = (await context.prepare("write", path="src/a.py", content="x")).requests[0]
    assert (request.patterns, request.always) == (("src/a.py",), ("*",))


async def test_a_long_file_is_read_in_pages(folder: Path):
    context = ScriptedContext(folder, ToolLimits(output_max_lines=10))
    (folder / "f").write_text("".join(f"line {n}\n" for n in range(1, 26)))
    first = await context.call("read", path="f")
    assert first.truncated
    assert first.output.endswith("   10|line 10\n[lines 1–10 of 25; go on with offset 11]")
    last = await context.call("read", path="f", offset=21)
    assert last.output.split("\n")[0] == "   21|line 21"
    assert not last.truncated
    assert "past its end" in (await context.refused("read", path="f", offset=26)).message


async def test_a_read_is_bounded_in_bytes_and_width(folder: Path):
    context = ScriptedContext(folder, ToolLimits(output_max_bytes=5_000))
    (folder / "f").write_text("x" * 1_000_000 + "\n" + "y\n" * 10_000)
    output = (await context.call("read", path="f")).output
    assert len(output) < 5_400
    assert "it has 1,000,000 characters" in output


@pytest.mark.parametrize(
    ("name", "kind", "said"),
    [("missing", "notFound", "does not exist"), ("dir", "failed", "glob"), ("fifo", "failed", "a pipe")],
)
async def test_what_is_no_text_file_is_refused(
    folder: Path, context: ScriptedContext, name: str, kind: str, said: str
):
    (folder / "dir").mkdir()
    os.mkfifo(folder / "fifo")
    failure = await context.refused("read", path=name)
    assert failure.kind == kind
    assert said in failure.message


async def test_binary_and_big_files_are_refused(folder: Path, context: ScriptedContext):
    (folder / "bin").write_bytes(b"ab\0cd")
    with (folder / "big").open("wb") as big:
        big.truncate(20_000_000)
    assert "binary" in (await context.refused("read", path="bin")).message
    assert "20,000,000 bytes" in (await context.refused("read", path="big")).message
    assert "binary" in (await context.refused("edit", path="bin", old="a", new="b")).message


async def test_a_latin_1_file_comes_back_byte_by_byte(folder: Path, context: ScriptedContext):
    file = folder / "f"
    file.write_bytes(b"caf\xe9\nx\n")
    assert "latin-1, a guess" in (await context.call("read", path="f")).output
    await context.call("edit", path="f", old="x", new="y")
    assert file.read_bytes() == b"caf\xe9\ny\n"
    assert "latin-1" in (await context.refused("edit", path="f", old="y", new="€")).message


async def test_a_read_tells_what_the_session_knows_now(folder: Path, context: ScriptedContext):
    (folder / "é #1.txt").write_text("x\n")
    result = await context.call("read", path="é #1.txt")
    assert [read.uri for read in result.reads] == [path_to_uri(str(folder / "é #1.txt"))]
