"""A real Neovim with the plugin and the real server, driven by key presses, for end-to-end tests.

    with Nvim.start(folder, state=tmp / "state", fp=provider) as nvim:
        nvim.edit("a.py")
        nvim.prompt("Set the timeout to 30")
        nvim.wait_chat("[y] once")
        nvim.keys("y")

It runs headless and sees nothing of the machine's own configuration. Waits have a deadline and are on what
can be seen (a buffer's text, a file, a value); when one fails it says what the chat held, what Neovim told,
and the end of the language server's log.
"""

import contextlib
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pynvim

from tests.support.fake_provider import FakeProvider

ROOT = Path(__file__).parents[2]
PLUGIN = ROOT / "editors" / "nvim"
DEADLINE = 15.0
"""Seconds that a wait may take; generous, since a passing test never spends them."""

_TELL = """
_G.told = {}
vim.notify = function(text) table.insert(_G.told, text) end
"""


class Blocked(AssertionError):
    """Neovim asks something (a hit-enter prompt, a dialog), so that everything stands still."""


@dataclass
class Nvim:
    """A running Neovim. Make it with `start`."""

    rpc: Any
    folder: Path
    home: Path
    """Where its configuration, state and logs lie."""
    is_over: bool = False

    # Life.

    @classmethod
    def start(
        cls,
        folder: Path,
        *,
        home: Path,
        fp: FakeProvider | None = None,
        config: Mapping[str, Any] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Self:
        """Start Neovim in `folder` with the plugin set up.

        `fp` is the model server; `config` is merged over the person's layer of configuration; `options` over
        what `require("deskmate").setup` is given.
        """
        home.mkdir(parents=True, exist_ok=True)
        dirs = {f"XDG_{name}_HOME": str(home / name.lower()) for name in ("CONFIG", "STATE", "DATA", "CACHE")}
        unset = [word for name in os.environ if _is_key(name) for word in ("-u", name)]
        found = shutil.which("nvim", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
        assert found, "no nvim: install the dev extra"
        command = ["env", *unset, *(f"{name}={value}" for name, value in dirs.items()), found]
        command += ["--embed", "--headless", "--clean", "-n", "--cmd", f"cd {folder}"]
        self = cls(pynvim.attach("child", argv=command), folder, home)
        self.lua(_TELL)
        self.lua("vim.opt.runtimepath:prepend(...)", str(PLUGIN))
        self.rpc.command("runtime plugin/deskmate.lua")
        server: dict[str, Any] = {"stateDir": str(home / "deskmate")}
        if fp is not None:
            provider = {"kind": "anthropic", "base_url": fp.base_url, "api_key": "k"}
            server["config"] = {"model": "mock/test", "providers": {"mock": provider}}
        server.setdefault("config", {}).update(config or {})
        setup = {
            "cmd": [sys.executable, "-m", "deskmate_server", "lsp"],
            "server": server,
            "ask_grace_ms": 0,
            **(options or {}),
        }
        self.lua("require('deskmate').setup(...)", setup)
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Leave Neovim as a person does, without saving."""
        if self.is_over:
            return
        self.is_over = True
        with contextlib.suppress(OSError, EOFError, pynvim.NvimError):
            self.rpc.command("qall!")
        with contextlib.suppress(Exception):
            self.rpc.close()

    # What a person does.

    def keys(self, keys: str) -> None:
        """Press keys, in Neovim's notation (`<CR>`, `<Esc>`)."""
        rest = keys
        while rest:
            rest = rest[self.rpc.api.input(rest) :]

    def command(self, line: str) -> None:
        """Run an Ex command."""
        self.rpc.command(line)

    def edit(self, name: str) -> None:
        """Open a file, and wait until the server was told of it."""
        self.rpc.command(f"edit {name}")
        self.wait(lambda: self.is_attached(name), f"{name} attached to the server")

    def prompt(self, text: str) -> None:
        """Open the chat, write a prompt and send it, all by keys; the cursor is then in the conversation."""
        self.rpc.command("Deskmate")
        self.wait(lambda: self.mode() == "i", "insert mode in the chat's input")
        self.keys(text.replace("<", "<lt>") + "<CR>")
        self.wait(lambda: self.mode() == "n", "normal mode after sending")

    def focus(self, name: str) -> None:
        """Put the cursor into the window that shows a file."""
        self.lua("vim.api.nvim_set_current_win(vim.fn.bufwinid(...))", self.buffer(name))

    # What a person sees.

    def lua(self, code: str, *args: Any) -> Any:
        """Run Lua in Neovim."""
        return self.rpc.exec_lua(code, *args)

    def mode(self) -> str:
        """The mode's letter. Raises `Blocked` where Neovim waits for an answer of its own."""
        mode = self.rpc.api.get_mode()
        if mode["blocking"]:
            raise Blocked(f"Neovim stands still in mode {mode['mode']!r}")
        return mode["mode"]

    def chat(self) -> str:
        """The conversation as it is shown; empty before it was opened."""
        return self.lua(
            """
            for _, buf in ipairs(vim.api.nvim_list_bufs()) do
              if vim.bo[buf].filetype == 'deskmate' then
                return table.concat(vim.api.nvim_buf_get_lines(buf, 0, -1, false), '\\n')
              end
            end
            return ''
            """
        )

    def input_text(self) -> str:
        """What stands in the chat's input."""
        return self.lua(
            """
            local buf = vim.fn.bufnr('deskmate://input')
            return table.concat(vim.api.nvim_buf_get_lines(buf, 0, -1, false), '\\n')
            """
        )

    def status(self) -> str:
        """What the plugin tells a status line."""
        return self.lua("return require('deskmate').status()")

    def buffer(self, name: str) -> int:
        """The number of a file's buffer; -1 without one."""
        return self.lua("return vim.fn.bufnr(...)", str(self.folder / name))

    def text(self, name: str) -> str:
        """The lines of a file's buffer."""
        return "\n".join(self.rpc.api.buf_get_lines(self.buffer(name), 0, -1, False))

    def is_modified(self, name: str) -> bool:
        """Whether a file's buffer holds unsaved text."""
        return self.lua("return vim.bo[...].modified", self.buffer(name))

    def is_attached(self, name: str) -> bool:
        """Whether the server was told of a file's buffer."""
        return self.lua(
            """
            local client = vim.lsp.get_clients({ name = 'deskmate' })[1]
            return client and client.initialized and vim.lsp.buf_is_attached(..., client.id) or false
            """,
            self.buffer(name),
        )

    def told(self) -> list[str]:
        """The notifications so far."""
        return self.lua("return _G.told")

    def server_pid(self) -> int:
        """The process of the language server."""
        pids = [
            int(entry.name)
            for entry in Path("/proc").iterdir()
            if entry.name.isdigit() and _is_our_server(entry, self.home)
        ]
        assert len(pids) == 1, f"one server expected: {pids}"
        return pids[0]

    # Waits.

    def wait(self, ready: Callable[[], Any], what: str, timeout: float = DEADLINE) -> Any:
        """Wait until `ready` gives something true, and return it."""
        end = time.monotonic() + timeout
        while True:
            if not self.is_over:
                self.mode()
            if found := ready():
                return found
            if time.monotonic() > end:
                raise AssertionError(f"waited {timeout} s for {what}\n{self._picture()}")
            time.sleep(0.01)

    def wait_chat(self, text: str, timeout: float = DEADLINE) -> str:
        """Wait until the conversation shows `text`; return all of it."""
        self.wait(lambda: text in self.chat(), f"{text!r} in the chat", timeout)
        return self.chat()

    def wait_idle(self) -> None:
        """Wait until no turn runs."""
        self.wait(lambda: self.status() == "idle", "an idle session")

    def _picture(self) -> str:
        if self.is_over:
            return "Neovim was left"
        log = self.home / "state" / "nvim" / "lsp.log"
        tail = log.read_text(errors="replace")[-3000:] if log.exists() else ""
        told = json.dumps(self.told())
        return f"--- chat ({self.status()}):\n{self.chat()}\n--- told: {told}\n--- lsp.log:\n{tail}"


def _is_key(name: str) -> bool:
    return name.startswith(("ANTHROPIC_", "OPENAI_", "DESKMATE_", "NVIM"))


def _is_our_server(entry: Path, home: Path) -> bool:
    with contextlib.suppress(OSError):
        line = (entry / "cmdline").read_bytes()
        return b"deskmate_server\0lsp" in line and str(home).encode() in (entry / "environ").read_bytes()
    return False
