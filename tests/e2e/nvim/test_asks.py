"""Questions in the chat, answered by real key presses."""

import pytest

from tests.support.fake_provider import FakeProvider, answer, call, text
from tests.support.nvim import Nvim

EDIT = {"path": "a.txt", "old": "two", "new": "2"}


@pytest.fixture
def asked(nvim: Nvim, fp: FakeProvider) -> Nvim:
    """The agent wants to edit `a.txt` and waits."""
    fp.add(answer(call("edit", EDIT)), answer(text("Done.")))
    nvim.prompt("Change two")
    nvim.wait_chat("[y] once")
    return nvim


def test_a_key_allows_an_edit_that_is_shown_as_a_diff(asked: Nvim) -> None:
    assert "  -two\n  +2\n" in asked.chat()
    assert asked.chat().endswith(
        "\n  [y] once  [s] this session  [n] reject  [r] reject with a remark"
        "\n  session allows every edit of this session"
    )
    assert asked.text("a.txt") == "one\ntwo\nthree", "nothing happens before the answer"
    asked.keys("y")
    shown = asked.wait_chat("Done.")
    assert asked.text("a.txt") == "one\n2\nthree"
    assert "[y] once" not in shown
    assert "✓ edit a.txt" in shown


def test_a_key_rejects(asked: Nvim) -> None:
    asked.keys("n")
    shown = asked.wait_chat("— stopped, since you said no")
    assert "✗ edit a.txt — rejected" in shown
    assert asked.text("a.txt") == "one\ntwo\nthree"


def test_a_remark_goes_to_the_model_and_the_turn_goes_on(asked: Nvim, fp: FakeProvider) -> None:
    asked.keys("r")
    asked.wait(lambda: asked.mode() == "c", "the remark's prompt")
    asked.keys("use 22<CR>")
    asked.wait_chat("✗ edit a.txt — rejected: use 22")
    asked.wait_chat("Done.")
    assert "use 22" in str(fp.bodies[1]["messages"])


def test_leaving_the_remark_leaves_the_question_open(asked: Nvim) -> None:
    asked.keys("r")
    asked.wait(lambda: asked.mode() == "c", "the remark's prompt")
    asked.keys("<Esc>")
    asked.wait(lambda: asked.mode() == "n", "normal mode")
    assert "[y] once" in asked.chat()
    asked.keys("y")
    asked.wait_chat("Done.")


def test_for_this_session_is_not_asked_again(asked: Nvim, fp: FakeProvider) -> None:
    asked.keys("s")
    asked.wait_chat("Done.")
    asked.wait_idle()
    fp.add(answer(call("edit", {**EDIT, "old": "one", "new": "1"})), answer(text("Again.")))
    asked.prompt("And one")
    asked.wait_chat("Again.")
    assert asked.text("a.txt") == "1\n2\nthree"


def test_away_from_the_question_keys_do_what_they_always_do(asked: Nvim) -> None:
    asked.keys("ggyyj")
    asked.wait(lambda: asked.lua("return vim.fn.getreg('\"')").startswith("Deskmate in"), "a line copied")
    assert "[y] once" in asked.chat()
    asked.keys("Gy")
    asked.wait_chat("Done.")


def test_a_key_that_was_on_its_way_when_the_question_came_answers_nothing(
    nvim: Nvim, fp: FakeProvider
) -> None:
    nvim.lua("require('deskmate.config').get().ask_grace_ms = 3600000")
    fp.add(answer(call("edit", EDIT)))
    nvim.prompt("Change two")
    nvim.wait_chat("[y] once")
    nvim.keys("y")
    nvim.wait(lambda: any("press the key again" in told for told in nvim.told()), "a word about it")
    assert "[y] once" in nvim.chat()


def test_a_command_is_shown_and_answered_from_another_window(nvim: Nvim, fp: FakeProvider) -> None:
    fp.add(answer(call("bash", {"command": "touch made"})), answer(text("Made.")))
    nvim.command("Deskmate Make it")
    nvim.wait_chat("$ touch made")
    nvim.command("DeskmateReply once")
    nvim.wait_chat("Made.")
    assert (nvim.folder / "made").exists()


def test_another_answer_is_told_which_ones_there_are(asked: Nvim) -> None:
    asked.command("DeskmateReply foo")
    assert asked.told()[-1] == 'Deskmate: "foo" is no answer here; say one of: once, session, reject'
    asked.command("DeskmateReply always")
    assert "no answer here" in asked.told()[-1]
    assert asked.lua("return vim.fn.getcompletion('DeskmateReply ', 'cmdline')") == [
        "once",
        "session",
        "reject",
    ]
    asked.keys("a")
    asked.wait(lambda: "not offered here" in asked.told()[-1], "a word about the key")
    assert "[y] once" in asked.chat()
    asked.command("DeskmateReply reject use 22")
    asked.wait_chat("✗ edit a.txt — rejected: use 22")


def test_always_is_offered_where_the_server_keeps_it(nvim: Nvim) -> None:
    shown, replies = nvim.lua(
        """
        local ask = require('deskmate.ask')
        local always = { { pattern = 'make*', stored = true }, { pattern = 'cd*', stored = false } }
        local one = { id = 'ask_1', kind = 'permission', permission = 'bash', title = 'Run', always = always,
          detail = { command = 'cd x', workdir = '/' } }
        local lines = require('deskmate.render').ask(one, ask.offers(one))
        ask.show(one)
        return { vim.tbl_map(function(line) return line.text end, lines), ask.replies() }
        """
    )
    assert shown[-3:] == [
        "  [y] once  [s] this session  [a] always  [n] reject  [r] reject with a remark",
        "  session allows every command like make*, cd* of this session",
        "  always allows every command like make* of later sessions too",
    ]
    assert replies == ["once", "session", "always", "reject"]


def test_a_question_opens_the_chat_but_does_not_take_the_cursor(nvim: Nvim, fp: FakeProvider) -> None:
    fp.add(answer(call("edit", EDIT)), answer(text("Done.")))
    nvim.command("Deskmate Change two")
    nvim.command("DeskmateToggle")
    nvim.focus("a.txt")
    nvim.wait_chat("[y] once")
    nvim.wait(lambda: nvim.lua("return #vim.api.nvim_list_wins()") == 3, "the chat's two windows")
    assert nvim.lua("return vim.api.nvim_get_current_buf()") == nvim.buffer("a.txt")


def test_an_answer_given_elsewhere_takes_the_question_away(asked: Nvim) -> None:
    asked.lua(
        """
        local client = vim.lsp.get_clients({ name = 'deskmate' })[1]
        local id = require('deskmate.ask').list()[1]
        client:request('deskmate/ask/reply', { askId = id, reply = 'once' }, function() end)
        """
    )
    assert "[y] once" not in asked.wait_chat("Done.")
    assert asked.lua("return #require('deskmate.ask').list()") == 0


def test_an_interrupt_takes_the_question_away(asked: Nvim) -> None:
    asked.keys("<C-c>")
    assert "[y] once" not in asked.wait_chat("— interrupted")
    assert asked.lua("return #require('deskmate.ask').list()") == 0
    assert asked.text("a.txt") == "one\ntwo\nthree"
