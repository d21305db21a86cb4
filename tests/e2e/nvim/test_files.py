"""The person's buffers in a real Neovim: edits, saves, undo, and files that change on disk."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.fake_provider import FakeProvider, answer, call, text
from tests.support.nvim import Nvim

ALLOW = {"permission": {"edit": "allow", "bash": "allow"}}
EDIT = {"path": "a.txt", "old": "two", "new": "2"}


@pytest.fixture
def free(folder: Path, tmp_path: Path, fp: FakeProvider) -> Any:
    """Neovim with a server that asks nothing."""
    with Nvim.start(folder, home=tmp_path / "home", fp=fp, config=ALLOW) as nvim:
        nvim.edit("a.txt")
        yield nvim


def test_an_edit_arrives_in_the_open_buffer_and_is_saved(free: Nvim, fp: FakeProvider) -> None:
    fp.add(answer(call("edit", EDIT)), answer(text("Done.")))
    free.command("Deskmate Change two")
    free.wait_chat("Done.")
    assert free.text("a.txt") == "one\n2\nthree"
    assert not free.is_modified("a.txt")
    assert (free.folder / "a.txt").read_text() == "one\n2\nthree\n"
    via = free.lua("return vim.fn.undotree(vim.fn.bufnr('a.txt')).seq_last")
    assert via == 1, "it came as an edit of the buffer, not by reading the file anew"


def test_u_takes_back_the_edit_and_nothing_else(free: Nvim, fp: FakeProvider) -> None:
    fp.add(answer(call("edit", EDIT)), answer(text("Done.")))
    free.keys("A!<Esc>")
    free.wait(lambda: free.text("a.txt").startswith("one!"), "the person's own text")
    free.command("Deskmate Change two")
    free.wait_chat("Done.")
    assert free.text("a.txt") == "one!\n2\nthree"
    free.keys("u")
    free.wait(lambda: free.text("a.txt") == "one!\ntwo\nthree", "the edit undone")


def test_an_edit_in_the_midst_of_typing_is_an_undo_step_of_its_own(free: Nvim, fp: FakeProvider) -> None:
    fp.add(answer(call("edit", EDIT)), answer(text("Done.")))
    free.keys("Oabc")
    free.wait(lambda: free.text("a.txt").startswith("abc"), "the person's own text")
    free.lua("require('deskmate').open('Change two')")
    free.wait(lambda: free.text("a.txt") == "abc\none\n2\nthree", "the edit")
    free.keys("def<Esc>")
    free.wait(lambda: free.text("a.txt").startswith("abcdef"), "more typing")
    free.keys("u")
    free.wait(lambda: free.text("a.txt") == "abc\none\n2\nthree", "the last typing undone")
    free.keys("u")
    free.wait(lambda: free.text("a.txt") == "abc\none\ntwo\nthree", "the edit undone")


def test_E10_unsaved_text_is_what_the_agent_reads_and_it_stays(free: Nvim, fp: FakeProvider) -> None:
    fp.add(answer(call("read", {"path": "a.txt"})))
    fp.add(answer(call("edit", {"path": "a.txt", "old": "unsaved", "new": "typed"})), answer(text("Done.")))
    free.lua("vim.api.nvim_buf_set_lines(0, 0, 2, false, { 'ONE', 'unsaved' })")
    free.command("Deskmate Look")
    free.wait_chat("Done.")
    assert "unsaved" in str(fp.bodies[1]["messages"])
    assert free.text("a.txt") == "ONE\ntyped\nthree"


def test_a_save_runs_no_formatter_but_tells_those_who_listen(free: Nvim, fp: FakeProvider) -> None:
    fp.add(answer(call("edit", EDIT)), answer(text("Done.")))
    free.command("autocmd BufWritePre * call append('$', 'formatted')")
    free.command("autocmd BufWritePost * let g:written = get(g:, 'written', 0) + 1")
    free.command("Deskmate Change two")
    free.wait_chat("Done.")
    assert (free.folder / "a.txt").read_text() == "one\n2\nthree\n"
    assert free.lua("return vim.g.written") == 1
    assert free.lua("return vim.o.eventignore") == ""


def test_a_file_that_changed_on_disk_is_not_overwritten(nvim: Nvim) -> None:
    path = nvim.folder / "a.txt"
    path.write_text("from elsewhere\n")
    nvim.lua("vim.api.nvim_buf_set_lines(0, 0, 1, false, { 'mine' })")
    saved = nvim.lua("return require('deskmate.files').save(nil, { uris = { ... } }).saved", path.as_uri())
    assert not saved
    assert path.read_text() == "from elsewhere\n"
    assert any("was not saved" in told for told in nvim.told())


@pytest.mark.parametrize("version", [0, 1])
def test_an_edit_made_for_an_older_text_is_refused(nvim: Nvim, version: int) -> None:
    nvim.lua("vim.api.nvim_buf_set_lines(0, 0, 1, false, { 'mine' })")
    result = nvim.lua(
        """
        local uri, version = ...
        local place = { line = 0, character = 0 }
        local change = { textDocument = { uri = uri, version = version },
          edits = { { range = { start = place, ['end'] = place }, newText = 'stale ' } } }
        local client = vim.lsp.get_clients({ name = 'deskmate' })[1]
        return require('deskmate.files').apply_edit(nil, { edit = { documentChanges = { change } } },
          { client_id = client.id, method = 'workspace/applyEdit' })
        """,
        (nvim.folder / "a.txt").as_uri(),
        version,
    )
    assert result["applied"] is False
    assert "is at version" in result["failureReason"]
    assert nvim.text("a.txt") == "mine\ntwo\nthree"


def test_L06_a_clean_buffer_shows_what_a_command_made_of_its_file(free: Nvim, fp: FakeProvider) -> None:
    fp.add(answer(call("bash", {"command": "sed -i s/two/2/ a.txt"})), answer(text("Done.")))
    free.command("set noautoread")
    free.command("Deskmate Change two")
    free.wait_chat("Done.")
    free.wait(lambda: free.text("a.txt") == "one\n2\nthree", "the new text")
    assert not free.is_modified("a.txt")


def test_L06_a_dirty_buffer_keeps_its_text_and_the_person_is_warned(free: Nvim, fp: FakeProvider) -> None:
    fp.add(answer(call("bash", {"command": "sed -i s/two/2/ a.txt"})), answer(text("Done.")))
    free.lua("vim.api.nvim_buf_set_lines(0, 0, 1, false, { 'mine' })")
    free.command("Deskmate Change two")
    free.wait_chat("Done.")
    free.wait(lambda: any("unsaved text is kept" in told for told in free.told()), "a warning")
    assert free.text("a.txt") == "mine\ntwo\nthree"
    assert free.is_modified("a.txt")
    assert (free.folder / "a.txt").read_text() == "one\n2\nthree\n"


def test_a_file_without_a_type_is_known_to_the_server(nvim: Nvim) -> None:
    (nvim.folder / "noted").write_text("x\n")
    nvim.edit("noted")
    assert nvim.lua("return vim.bo.filetype") == ""
