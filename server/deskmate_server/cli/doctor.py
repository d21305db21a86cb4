"""`deskmate doctor`: what is configured, what is missing and how to mend it."""

import asyncio
import os
import platform
import re
import shutil
import subprocess
import sysconfig
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from deskmate_server.cli.opening import has_log, here, opened
from deskmate_server.cli.output import Output, Style, harmless, stdout, wrap
from deskmate_server.wire.version import VERSION
from deskmate_session.errors import DeskmateError, Rejected
from deskmate_session.kernel import (
    KeySource,
    config_home,
    is_local,
    load_settings,
    model_in_use,
    sqlite_version,
    state_dir_name,
    state_home,
)
from deskmate_session.model import commands as c, queries as q
from deskmate_session.model.settings import Settings

_ENV = re.compile(r"\{env:([A-Za-z_][A-Za-z0-9_]*)\}")


def run() -> int:
    """Look at everything; 1 when something that is needed is missing."""
    doctor = _Doctor(stdout())
    doctor.programs()
    doctor.configuration()
    doctor.model()
    doctor.state()
    doctor.permissions()
    doctor.editors()
    return doctor.end()


class _Doctor:
    def __init__(self, out: Output) -> None:
        self._out = out
        # In a pipe each finding stays on its line, for `grep`.
        self._width = out.width if out.terminal else 10_000
        self._missing: list[str] = []
        self._noted = False
        self._in_use: KeySource | None = None
        self._loaded = load_settings({}, os.environ)
        self._settings: Settings = self._loaded.settings
        self._file = config_home(os.environ) / "config.toml"

    def programs(self) -> None:
        """Versions of what Deskmate stands on."""
        self._heading("Programs")
        self._good(f"Deskmate {VERSION}, Python {platform.python_version()}, {_system()}")
        self._good(f"SQLite {sqlite_version()}")
        rg = Path(sysconfig.get_path("scripts")) / "rg"
        for name, program, without in (
            ("git", shutil.which("git"), "not needed, but a project without it has no other undo"),
            ("ripgrep", str(rg) if rg.is_file() else shutil.which("rg"), "searching is slower without it"),
        ):
            if (found := _version(program)) is not None:
                self._good(found)
            else:
                self._note(f"{name} is not found: {without}")

    def configuration(self) -> None:
        """The person's file, and what of it can't be used."""
        self._heading("Configuration")
        unreadable = f"{self._file}: can't be read"
        if any(warning.startswith(unreadable) for warning in self._loaded.warnings):
            pass  # said below
        elif self._file.is_file():
            self._good(f"{self._file}")
        else:
            self._note(f"{self._file} does not exist; defaults are used")
        for warning in self._loaded.warnings:
            if warning.startswith(unreadable):
                self._bad(warning, f"mend {self._file}: nothing in it counts until it can be read")
            else:
                self._note(warning)
        self._agent()

    def _agent(self) -> None:
        try:
            known = asyncio.run(_agents(self._settings))
        except (DeskmateError, OSError) as error:
            self._bad(f"no session can be opened: {error}", "see that the temporary folder can be written")
            return
        agent, names = self._settings.agent, ", ".join(known)
        if agent in known:
            self._good(f"agent {agent}")
        else:
            self._bad(f"there is no agent {agent!r}", f"set agent in the configuration to one of: {names}")

    def model(self) -> None:
        """The model that a new session would get."""
        self._heading("Model")
        try:
            model, source = model_in_use(self._settings, os.environ)
        except Rejected as rejected:
            self._bad(rejected.message, rejected.hint or "see docs/configuration.md")
        else:
            self._in_use = source
            if source.problem is not None:
                self._bad(source.problem, f"mend the script of {model}; docs/scripts.md tells its language")
            else:
                self._good(f"{model}: {self._key(source)}")
        for name, provider in self._settings.providers.items():
            if provider.base_url and provider.kind != "scripted" and is_local(provider.base_url):
                self._good(f"local server {name!r} ({provider.kind}) at {provider.base_url}")

    def state(self) -> None:
        """Where logs live, and this folder's own."""
        self._heading("State")
        home = state_home(os.environ)
        try:
            home.mkdir(mode=0o700, parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=home) as probe:
                probe.write(b"deskmate")
        except OSError as error:
            self._bad(
                f"{home} can't be written: {error.strerror}",
                "give it to your user, or set XDG_STATE_HOME to a folder that can be written",
            )
            return
        self._good(f"{home} can be written")
        folder = here()
        if not has_log(folder):
            self._good(f"{folder} has no log yet; the first session makes it")
            return
        try:
            events, problems = asyncio.run(self._verify())
        except DeskmateError as error:
            self._bad(f"the log of {folder}: {error}", "move the database away to begin a new one")
            return
        for problem in problems[:5]:
            self._bad(
                f"the log of {folder}: #{problem.seq} {problem.kind}: {problem.detail}",
                "it stays readable; `deskmate sessions show` tells what is there",
            )
        if not problems:
            self._good(f"the log of {folder}: {events:,} events, verified")
        for kept in sorted((home / state_dir_name(folder)).glob("events.damaged-*.db")):
            self._note(f"{kept} is a damaged log that was set aside; what could be read of it goes on")

    async def _verify(self) -> tuple[int, tuple[c.Problem, ...]]:
        async with opened(self._settings) as kernel:
            verified = await kernel.query(q.Verify())
        assert isinstance(verified, c.Verified)
        return verified.events, verified.problems

    def permissions(self) -> None:
        """Rules in force, the person's above the built-in ones."""
        self._heading("Permissions")
        for name, value in self._settings.permission.items():
            rules = value if isinstance(value, dict) else {"*": value}
            for pattern, action in rules.items():
                self._good(f"{name} {pattern}: {action} (yours)")
        self._good("built in: read allow (secrets ask), edit ask, bash ask, all else ask")

    def editors(self) -> None:
        """How an editor comes to it."""
        self._heading("Editors")
        plugin = Path(__file__).parents[3] / "editors" / "nvim"
        if plugin.is_dir():
            self._good(f"Neovim plugin: {plugin} (add it to runtimepath: vim.opt.rtp:append('{plugin}'))")
        else:
            self._note("the Neovim plugin is in the folder editors/nvim of Deskmate's source")
        self._good("any LSP client: start `deskmate lsp` (stdio)")

    def end(self) -> int:
        """The verdict."""
        self._out.line()
        if not self._missing:
            untried = self._in_use is not None and self._in_use.kind != "script"
            more = " The model's service was not asked; the first prompt shows whether it answers."
            for line in wrap(f"All that is needed is there.{more if untried else ''}", self._width):
                self._out.line(line, "green")
            if self._noted:
                self._out.line("What is marked ! is worth a look.", "yellow")
            return 0
        self._out.line("To do:", "bold")
        for step in self._missing:
            for line in wrap(f"→ {harmless(step)}", self._width, "  "):
                self._out.line(line, "yellow")
        return 1

    def _key(self, source: KeySource) -> str:
        """Where the key comes from, never the key."""
        match source.kind:
            case "environment":
                return f"key from the environment variable {source.name}"
            case "configuration":
                named = _named_variable(self._file, source.name)
                if named:
                    return f"key from the environment variable {named}, named in {source.name}"
                return f"key from {source.name} in {self._file}"
            case "header":
                return f"key from the configured header {source.name!r}"
            case "script":
                return f"plays the script {source.name}; no key needed"
            case "none":
                return "a local server; no key needed"

    def _heading(self, text: str) -> None:
        self._out.line()
        self._out.line(text, "bold")

    def _good(self, text: str) -> None:
        self._item("✓", text, "green")

    def _note(self, text: str) -> None:
        self._noted = True
        self._item("!", text, "yellow")

    def _bad(self, text: str, step: str) -> None:
        self._item("✗", text, "red")
        self._missing.append(step)

    def _item(self, mark: str, text: str, style: Style) -> None:
        first, *rest = wrap(harmless(text), self._width - 4)
        self._out.line(f"  {self._out.paint(mark, style)} {first}")
        for line in rest:
            self._out.line(f"    {line}")


async def _agents(using: Settings) -> list[str]:
    """The agents that a session can have, asked of a kernel that leaves nothing behind."""
    with tempfile.TemporaryDirectory(prefix="deskmate-doctor-", ignore_cleanup_errors=True) as home:
        async with opened(using, Path(home)) as kernel:
            catalog = await kernel.query(q.GetCatalog())
    assert isinstance(catalog, q.Catalog)
    return [agent.name for agent in catalog.agents]


def _system() -> str:
    return f"{platform.system()} {platform.release()}"


def _version(program: str | None) -> str | None:
    if program is None:
        return None
    try:
        ran = subprocess.run([program, "--version"], capture_output=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    first = ran.stdout.decode("utf-8", "replace").partition("\n")[0].strip()
    return first if ran.returncode == 0 and first else None


def _named_variable(file: Path, table: str) -> str | None:
    """The variable that `api_key = "{env:NAME}"` of a provider's table names."""
    name = table.removeprefix("[providers.").removesuffix("]")
    try:
        config: Any = tomllib.loads(file.read_text(encoding="utf-8"))
        provider = config["providers"][name]
        found = _ENV.search(str(provider.get("api_key", provider.get("apiKey", ""))))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return found[1] if found else None
