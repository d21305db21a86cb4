"""The chat in a real Neovim, against the real server: prompts, streams, sessions, and what can go wrong."""

import os
import shutil
import signal
from pathlib import Path

from tests.support.fake_provider import FakeProvider, answer, call, text, thinking
from tests.support.nvim import PLUGIN, Nvim


def test_a_prompt_is_answered_in_the_chat(nvim: Nvim, fp: FakeProvider) -> None:
    fp.add(answer(text("The answer,\nover two lines: 漢 😋 %d.", size=3)))
    nvim.prompt("What is <it>?")
    nvim.wait_chat("%d.")
    nvim.wait_idle()
    assert nvim.chat().splitlines()[1:] == [
        "",
        "# You",
        "What is <it>?",
        "",
        "# Deskmate",
        "The answer,",
        "over two lines: 漢 😋 %d.",
    ]
    assert nvim.input_text() == ""


def test_text_is_shown_while_it_comes_and_an_interrupt_keeps_it(nvim: Nvim, fp: FakeProvider) -> None:
    fp.add(answer(text("It begins like this and never ends", size=10), stall_after=5), answer(text("Again.")))
    nvim.prompt("Go")
    nvim.wait_chat("It begins like this")
    assert nvim.status() == "busy"
    nvim.keys("<C-c>")
    shown = nvim.wait_chat("— interrupted")
    assert "It begins like this" in shown
    nvim.wait_idle()
    nvim.prompt("And now?")
    nvim.wait_chat("Again.")


def test_a_second_prompt_goes_on_with_the_session(nvim: Nvim, fp: FakeProvider) -> None:
    fp.add(answer(text("First.")), answer(text("Second.")))
    nvim.prompt("One")
    nvim.wait_chat("First.")
    nvim.wait_idle()
    nvim.command("Deskmate Two")
    nvim.wait_chat("Second.")
    assert [m["role"] for m in fp.bodies[1]["messages"]] == ["user", "assistant", "user"]


def test_a_prompt_waits_in_the_queue_while_a_turn_runs(nvim: Nvim, fp: FakeProvider) -> None:
    fp.add(answer(call("edit", {"path": "a.txt", "old": "two", "new": "2"})))
    fp.add(answer(text("First.")), answer(text("Second.")))
    nvim.prompt("One")
    nvim.wait_chat("[y] once")
    nvim.prompt("Two")
    nvim.wait_chat("↳ queued: Two")
    assert nvim.chat().count("# You") == 1
    nvim.command("DeskmateReply once")
    shown = nvim.wait_chat("Second.")
    assert shown.index("First.") < shown.index("# You\nTwo") < shown.index("Second.")
    assert "↳" not in shown


def test_reasoning_folds_to_a_line_and_opens_again(nvim: Nvim, fp: FakeProvider) -> None:
    fp.add(answer(thinking("Hm.\nLet me see."), text("Seen.")))
    nvim.prompt("Look")
    nvim.wait_chat("▸ thought: Hm. (2 lines)")
    nvim.wait_idle()
    nvim.lua("vim.fn.search('▸', 'bw')")
    nvim.keys("<Tab>")
    assert "Hm.\nLet me see.\n\nSeen." in nvim.wait_chat("Let me see.")
    nvim.keys("<Tab>")
    nvim.wait_chat("▸ thought")


def test_a_call_is_one_line_with_its_output_behind_it(nvim: Nvim, fp: FakeProvider) -> None:
    fp.add(answer(call("read", {"path": "a.txt"})), answer(text("Read.")))
    nvim.prompt("Read it")
    nvim.wait_chat("Read.")
    nvim.wait_idle()
    assert "\n✓ read a.txt" in nvim.chat()
    assert "three" not in nvim.chat()
    nvim.lua("vim.fn.search('✓', 'bw')")
    nvim.keys("<Tab>")
    nvim.wait_chat("three")


def test_lines_of_a_buffer_go_with_the_prompt(nvim: Nvim, fp: FakeProvider) -> None:
    fp.add(answer(text("Fine.")))
    nvim.command("2,3Deskmate Explain this")
    assert "@a.txt:2-3" in nvim.wait_chat("Fine.")
    assert "a.txt" in str(fp.bodies[0]["messages"])


def test_several_lines_can_be_written(nvim: Nvim, fp: FakeProvider) -> None:
    fp.add(answer(text("Both.")))
    nvim.command("Deskmate")
    nvim.wait(lambda: nvim.mode() == "i", "insert mode")
    nvim.keys("one<C-j>two<CR>")
    assert "# You\none\ntwo\n" in nvim.wait_chat("Both.")


def test_an_old_session_is_chosen_and_shown(nvim: Nvim, fp: FakeProvider) -> None:
    fp.add(answer(text("First.")), answer(text("Second.")), answer(text("Third.")))
    nvim.prompt("One")
    nvim.wait_chat("First.")
    nvim.wait_idle()
    nvim.command("DeskmateNew")
    nvim.keys("<Esc>")
    assert "First." not in nvim.chat()
    nvim.prompt("Other")
    nvim.wait_chat("Second.")
    nvim.wait_idle()
    nvim.lua("vim.ui.select = function(items, _, choose) choose(items[2]) end")
    nvim.command("DeskmateSessions")
    assert "Second." not in nvim.wait_chat("First.")
    nvim.prompt("More")
    nvim.wait_chat("Third.")
    assert "First." in str(fp.bodies[2]["messages"])


def test_without_a_model_the_chat_says_what_to_do(folder: Path, tmp_path: Path) -> None:
    with Nvim.start(folder, home=tmp_path / "home") as nvim:
        nvim.prompt("Hello")
        nvim.wait_chat("✗ ")
        assert nvim.input_text() == "Hello", "the prompt is given back"
        assert len(nvim.chat().splitlines()) > 3, "a hint stands below"


def test_without_a_server_the_chat_says_what_to_do(folder: Path, tmp_path: Path) -> None:
    with Nvim.start(folder, home=tmp_path / "home", options={"cmd": ["no-such-deskmate"]}) as nvim:
        nvim.prompt("Hello")
        assert ":checkhealth deskmate" in nvim.wait_chat("✗ the server could not be started")
        assert nvim.input_text() == "Hello"


def test_a_failed_turn_tells_why(nvim: Nvim) -> None:
    nvim.prompt("Hello")
    shown = nvim.wait_chat("✗ ")
    nvim.wait_idle()
    assert nvim.chat().count("✗ ") == 1, shown


def test_the_session_goes_on_after_the_server_was_killed(nvim: Nvim, fp: FakeProvider) -> None:
    fp.add(answer(text("Before.")), answer(text("After.")))
    nvim.prompt("One")
    nvim.wait_chat("Before.")
    nvim.wait_idle()
    os.kill(nvim.server_pid(), signal.SIGKILL)
    nvim.wait(lambda: nvim.status() == "stopped", "the end of the server seen")
    nvim.prompt("Two")
    shown = nvim.wait_chat("After.")
    assert shown.count("Before.") == 1
    assert "Before." in str(fp.bodies[1]["messages"])


def test_a_turn_that_a_kill_cut_off_is_told_and_resumed(nvim: Nvim, fp: FakeProvider) -> None:
    fp.add(answer(text("It begins like this and then stops", size=10), stall_after=5))
    nvim.prompt("Go")
    nvim.wait_chat("It begins like this")
    os.kill(nvim.server_pid(), signal.SIGKILL)
    nvim.wait_chat("— interrupted: the server stopped; :DeskmateResume goes on")
    assert nvim.status() == "stopped"
    fp.add(answer(text("And it ends.")))
    nvim.command("DeskmateResume")
    shown = nvim.wait_chat("And it ends.")
    nvim.wait_idle()
    assert shown.count("It begins like this") == 1
    assert shown.index("It begins") < shown.index("— interrupted") < shown.index("And it ends.")
    assert "cut off" in str(fp.bodies[1]["messages"][-1])


def test_the_server_ends_with_the_editor(nvim: Nvim) -> None:
    server = Path(f"/proc/{nvim.server_pid()}")
    nvim.stop()
    nvim.wait(lambda: not server.exists(), "the server's end")


def test_another_plugin_sees_nothing_of_our_updates(nvim: Nvim, fp: FakeProvider) -> None:
    fp.add(answer(text("Fine.")))
    nvim.lua(
        """
        _G.kinds = {}
        vim.api.nvim_create_autocmd('LspProgress', { callback = function(args)
          table.insert(_G.kinds, args.data.params.value.kind)
        end })
        """
    )
    nvim.prompt("Hello")
    nvim.wait_chat("Fine.")
    nvim.wait_idle()
    assert set(nvim.lua("return _G.kinds")) <= {"begin", "report", "end"}


def test_at_80_columns_names_and_status_can_be_read(nvim: Nvim, fp: FakeProvider) -> None:
    nvim.lua("vim.o.columns, vim.o.lines = 80, 24")
    fp.add(answer(text("Fine.")))
    nvim.prompt("A prompt that is so long that its title has no room beside the word for what goes on")
    nvim.wait_chat("Fine.")
    nvim.wait_idle()
    nvim.command("redraw")
    rows = nvim.lua(
        """
        local rows = {}
        for row = 1, vim.o.lines do
          local cells = {}
          for column = 1, vim.o.columns do cells[column] = vim.fn.screenstring(row, column) end
          rows[row] = table.concat(cells)
        end
        return rows
        """
    )
    right = [row[-32:].rstrip() for row in rows]
    assert any(row.startswith(" idle │ A prompt that") for row in right), rows
    assert any(row.startswith(" <CR> sends, <C-c> interrupts") for row in right), rows
    assert any(row.startswith("deskmate://chat") for row in right), "\n".join(rows)
    assert any(row.startswith("deskmate://input") for row in right), rows


def test_help_is_found_when_set_up_as_the_readme_says(nvim: Nvim, tmp_path: Path) -> None:
    plugin = tmp_path / "plugin"
    shutil.copytree(PLUGIN, plugin)
    lines = (PLUGIN / "README.md").read_text().partition("Without a plugin manager")[2].split("```")[1]
    code = lines.removeprefix("lua\n").replace("/path/to/deskmate/editors/nvim", str(plugin))
    nvim.lua("vim.opt.runtimepath:remove(...)", str(PLUGIN))
    nvim.lua(code)
    for tag in ("deskmate", "deskmate-options", ":DeskmateReply"):
        nvim.command(f"help {tag}")
        assert nvim.lua("return vim.api.nvim_buf_get_name(0)") == str(plugin / "doc" / "deskmate.txt")
        assert f"*{tag}*" in nvim.lua("return vim.fn.getline('.')")


def test_the_checkup_says_how_to_install_the_server(folder: Path, tmp_path: Path) -> None:
    with Nvim.start(folder, home=tmp_path / "home", options={"cmd": ["no-such-deskmate"]}) as nvim:
        nvim.command("checkhealth deskmate")
        shown = nvim.lua("return table.concat(vim.api.nvim_buf_get_lines(0, 0, -1, false), '\\n')")
        assert "clone of Deskmate: pip install ." in shown


def test_repeated_and_missing_pieces_of_a_stream_are_noticed(nvim: Nvim) -> None:
    """Offsets count code points: what is repeated is left out, and after a gap the whole is asked for."""
    seen, asked = nvim.lua(
        """
        local seen, asked = {}, 0
        local view = { message = function() end, part = function() end, state = function() end,
          text = function(_, _, text) table.insert(seen, text) end }
        local session = require('deskmate.session').new('/', nil, view)
        session.catch_up = function() asked = asked + 1 end
        local part = { id = 'prt_1', type = 'text', text = '' }
        session:apply({ kind = 'message', message = { id = 'msg_1', role = 'assistant', parts = { part } } })
        local function delta(offset, text)
          session:apply({ kind = 'delta', messageId = 'msg_1', partId = 'prt_1', field = 'text',
            offset = offset, text = text })
        end
        delta(0, '漢😋')
        delta(1, '😋e')
        delta(0, '漢')
        delta(9, 'far')
        delta(3, 'f')
        return { seen, asked }
        """
    )
    assert (seen, asked) == (["漢😋", "e", "f"], 1)
