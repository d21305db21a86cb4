"""The kernel's front door: one workspace folder, its log, its sessions.

It composes the adapters and routes commands and queries; what they mean stands below it.
"""

import asyncio
import hashlib
import platform
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from deskmate_session.config import agents, layers
from deskmate_session.config.layers import config_home, state_home
from deskmate_session.core import decide
from deskmate_session.core.context.system import Environment
from deskmate_session.core.permissions import rules_from
from deskmate_session.core.processor import AnswerProcessor
from deskmate_session.errors import Conflict, Rejected
from deskmate_session.log.store import EventLog, Fault
from deskmate_session.log.survey import FolderLog, sqlite_version, survey, verify_all
from deskmate_session.model import commands as c, events as e, queries as q
from deskmate_session.model.base import Wire
from deskmate_session.model.messages import Session
from deskmate_session.model.settings import Settings
from deskmate_session.providers.registry import KeySource, Registry
from deskmate_session.providers.transfer import is_local
from deskmate_session.runtime import catalog, place, watch
from deskmate_session.runtime.asks import Asks
from deskmate_session.runtime.bus import Bus, Sink
from deskmate_session.runtime.calls import Calls
from deskmate_session.runtime.changes import Changes
from deskmate_session.runtime.checkpointing import Checkpointing
from deskmate_session.runtime.coordinator import Coordinator
from deskmate_session.runtime.histories import Histories
from deskmate_session.runtime.infer import Inference
from deskmate_session.runtime.loop import Loop
from deskmate_session.runtime.notices import Notice, Notices
from deskmate_session.runtime.options import KernelOptions, Turn
from deskmate_session.runtime.prompts import Prompts
from deskmate_session.runtime.reads import Reads
from deskmate_session.runtime.recovery import Recovery
from deskmate_session.runtime.sessions import Sessions
from deskmate_session.supervisor import Supervisor
from deskmate_session.tools.registry import Registry as Tools, default_tools
from deskmate_session.workspace import paths
from deskmate_session.workspace.locks import FileLocks
from deskmate_session.workspace.objects import Objects

__all__ = [
    "FolderLog",
    "Kernel",
    "KernelOptions",
    "KeySource",
    "Notice",
    "Sink",
    "Supervisor",
    "Turn",
    "config_home",
    "is_local",
    "sqlite_version",
    "state_home",
    "survey",
    "verify_all",
]


class Kernel:
    """One workspace folder at work. Made by `open`, ended by `close`."""

    def __init__(self, options: KernelOptions, log: EventLog, state_dir: Path) -> None:
        self._options = options
        self._log = log
        self.folder = str(Path(options.folder).resolve())
        self.folder_uri = options.folder_uri or paths.path_to_uri(self.folder)
        self.state_dir = state_dir
        settings = options.settings
        self._bus = Bus()
        self._supervisor = Supervisor()
        self._notices = Notices()
        self._sessions = Sessions(log, self._bus, self._supervisor)
        self._asks = Asks(
            log,
            self._sessions,
            options.ids,
            options.clock,
            settings.ask_timeout_ms,
            unattended=options.unattended,
        )
        self._objects = Objects(state_dir)
        self._providers = Registry(settings, options.environment)
        self._live: dict[str, AnswerProcessor] = {}
        locks = FileLocks(str(options.state_home / "locks"))
        changes = Changes(log, self._sessions, self._objects, locks, options.host)
        self._reads = Reads(log, self._sessions, self._objects, changes, self._live, self.folder)
        self._histories = Histories(log, self._sessions, self._objects, changes, options.ids, self.folder_uri)
        tools = Tools(default_tools())
        self._tools = specs = tools.specs()
        version = hashlib.sha256(repr(specs).encode()).hexdigest()[:12]
        inference = Inference(
            sessions=self._sessions,
            bus=self._bus,
            ids=options.ids,
            clock=options.clock,
            supervisor=self._supervisor,
            environment=Environment(self.folder, platform.system(), (Path(self.folder) / ".git").exists()),
            tools=specs,
            tools_version=version,
            live=self._live,
            followed=lambda: log.others,
        )
        calls = Calls(
            sessions=self._sessions,
            bus=self._bus,
            asks=self._asks,
            changes=changes,
            host=options.host,
            tools=tools,
            rules=(*rules_from(settings.permission), *options.rules),
            place=place.of(options, self.folder, str(state_dir)),
            supervisor=self._supervisor,
        )
        loop = Loop(self._sessions, calls, inference, agents.agents(), self._providers.resolve, log.owner)
        recovery = Recovery(self._sessions, self._objects, locks, calls.effect, self._notices)
        self._coordinator = Coordinator(log, self._sessions, loop, recovery, self._supervisor, options.ids)
        self._prompts = Prompts(
            log, self._sessions, self._bus, self._coordinator, options.ids, self._live, self._check
        )
        Checkpointing(log, self._sessions, self._supervisor, settings.checkpoint.interval)
        for notice in log.notices:
            self._notices.tell("warning", notice)
        log.on_fault(self._fault)

    @classmethod
    async def open(cls, options: KernelOptions) -> "Kernel":
        """Open the folder's log, settle what dead processes left, and be ready.

        Raises `LogError` where the database can't be used.
        """
        folder = await asyncio.to_thread(Path(options.folder).resolve)
        state_dir = options.state_home / state_dir_name(folder)
        given = options.settings.log
        log = await EventLog.open(
            *(state_dir, options.clock, options.ids), debug_tags=given.debug_tags, journal=given.journal
        )
        kernel = cls(options, log, state_dir)
        if log.read_only is None:
            await kernel._coordinator.recover()
        return kernel

    async def close(self) -> None:
        """Settle running turns as interrupted, end every task and child, close the log."""
        await self._coordinator.close()
        await self._supervisor.close()
        await self._providers.close()
        await self._log.close()

    def on_notice(self, show: Callable[[Notice], None]) -> None:
        """Show notices: what the person is told once, such as a full disk or a turn that was cut off."""
        self._notices.follow(show)

    def _fault(self, fault: Fault | None) -> None:
        if fault is None:
            self._notices.tell("info", "the event log can be written again; sessions go on")
        else:
            self._notices.tell("error", fault.message)

    # ── Commands ─────────────────────────────────────────────────────────────────────────────

    async def submit(self, command: Wire) -> Wire:
        """Do what a command says. Raises `Rejected` with what to do next."""
        match command:
            case c.CreateSession():
                return await self._create(command)
            case c.UpdateSession():
                return await self._update(command)
            case c.DeleteSession():
                await self._delete(command)
                return c.Nothing()
            case c.ForkSession():
                return await self._fork(command)
            case c.ImportSession():
                return await self._import(command)
            case c.Interrupt():
                await self._sessions.get(command.session_id)
                return await self._coordinator.interrupt(command.session_id)
            case c.Unqueue():
                return c.Unqueued(removed=await self.unqueue(command.session_id, command.message_id))
            case c.ReplyAsk():
                return c.Replied(accepted=await self._asks.reply(command))
            case _:
                raise TypeError(f"{type(command).__name__} is no command")

    async def prompt(self, command: c.Prompt, sink: Sink | None = None) -> Turn:
        """Accept a prompt: durable in the log when this returns. `sink` is shown its turn.

        Raises `Rejected`: `sessionNotFound`, `noModel`, `conflict` (the id belongs to another prompt).
        """
        return await self._prompts.prompt(command, sink)

    async def resume(self, command: c.Resume, sink: Sink | None = None) -> Turn:
        """Go on with the interrupted turn, or let a held queue go on; a running turn is joined.

        Raises `Rejected` (`conflict`) when there is nothing to go on with.
        """
        return await self._prompts.resume(command, sink)

    async def unqueue(self, session_id: str, message_id: str) -> bool:
        """Take back a waiting prompt; False when it is not waiting any more."""
        return await self._prompts.unqueue(session_id, message_id)

    def turn_of(self, session_id: str) -> str | None:
        """The prompt whose turn is running."""
        state = self._sessions.live(session_id)
        return state.turn.message_id if state and state.turn else None

    def runs_here(self, session_id: str) -> bool:
        """A run of the session goes on in this process, not in another one."""
        return self._coordinator.runs(session_id)

    async def drained(self, session_id: str) -> None:
        """Wait until nothing of a session runs in this process; what waits here is run first."""
        await self._coordinator.drained(session_id)

    # ── Queries ──────────────────────────────────────────────────────────────────────────────

    async def query(self, query: Wire) -> Wire:
        """Tell what a query asks for. Raises `Rejected`."""
        match query:
            case q.ListAsks():
                return q.AskList(asks=await self._asks.open_asks(query.session_id))
            case q.StateAt():
                return await self._histories.state_at(query)
            case q.Export():
                return await self._histories.export(query)
            case q.GetCatalog():
                return catalog.view(agents.agents().values(), self._providers.models(), self._tools)
            case _:
                return await self._reads.query(query)

    async def subscribe(self, command: q.Subscribe, sink: Sink) -> tuple[int, Callable[[], None]]:
        """Show a session, or all of the folder, to a sink: replay after `fromSeq`, then live."""
        return await watch.subscribe(self._log, self._sessions, self._bus, self._live, command, sink)

    def live_part(self, session_id: str, part_id: str) -> Wire | None:
        """A part that streams now, whole; for a client that fell behind."""
        processor = self._live.get(session_id)
        return None if processor is None else processor.live_part(part_id)

    async def has_session(self, session_id: str) -> bool:
        """The session is in this folder."""
        try:
            await self._sessions.get(session_id)
        except Rejected:
            return False
        return True

    # ── Below the door ───────────────────────────────────────────────────────────────────────

    async def _create(self, command: c.CreateSession) -> Session:
        if command.id is not None and (known := await self._known(command.id)) is not None:
            return known
        if command.id is not None and await self._log.head(command.id) is not None:
            raise Rejected("conflict", f"session {command.id!r} was deleted", "use a new id")
        if command.parent_id is not None:
            await self._sessions.get(command.parent_id)
        resolved = self._check(command.agent or self._options.settings.agent, command.model)
        fact = decide.create(command, self.folder_uri, self._options.settings.agent, resolved)
        session_id = command.id or self._options.ids.new("ses")
        try:
            await self._coordinator.tell(session_id, fact)
        except Conflict:
            if command.id is None or (known := await self._known(command.id)) is None:
                raise
            return known  # the same request came twice at once
        return (await self._sessions.get(session_id)).info

    async def _known(self, session_id: str) -> Session | None:
        try:
            return (await self._sessions.get(session_id)).info
        except Rejected:
            return None

    async def _fork(self, command: c.ForkSession) -> Session:
        begun = await self._histories.fork(command)
        await self._coordinator.begin(begun.session_id, begun.drafts)
        return (await self._sessions.get(begun.session_id)).info

    async def _import(self, command: c.ImportSession) -> Session:
        begun = await self._histories.take_in(command)
        await self._coordinator.begin(begun.session_id, begun.drafts)
        return (await self._sessions.get(begun.session_id)).info

    async def _update(self, command: c.UpdateSession) -> Session:
        state = await self._sessions.get(command.session_id)
        if command.agent is not None or command.model is not None:
            self._check(command.agent, command.model or state.info.model)
        if (fact := decide.update(command)) is not None:
            await self._coordinator.tell(command.session_id, fact)
        return state.info

    async def _delete(self, command: c.DeleteSession) -> None:
        await self._sessions.get(command.session_id)
        await self._coordinator.interrupt(command.session_id)
        await self._coordinator.tell(command.session_id, e.SessionDeleted())

    def _check(self, agent: str | None, model: str | None) -> str:
        """The model's id, after both names were found; its provider starts to load meanwhile."""
        if agent is not None and agent not in agents.agents():
            known = ", ".join(agents.agents())
            raise Rejected("notSupported", f"there is no agent {agent!r}", f"the agents are: {known}")
        resolved = self._providers.resolve(model)
        self._supervisor.spawn(resolved.provider.load(), name=f"load {resolved.provider.name}")
        return f"{resolved.provider.name}/{resolved.model}"


def state_dir_name(folder: Path) -> str:
    """`<slug>-<hash>` of a folder's real path."""
    slug = re.sub(r"[^a-z0-9]+", "-", folder.name.lower()).strip("-")[:40] or "root"
    return f"{slug}-{hashlib.sha256(str(folder).encode('utf-8', 'surrogateescape')).hexdigest()[:16]}"


def load_settings(editor: Mapping[str, Any], environment: Mapping[str, str]) -> layers.Loaded:
    """The settings of the person's file and an editor's options, with warnings for what can't be used."""
    return layers.load(editor, environment)


def model_in_use(
    settings: Settings, environment: Mapping[str, str], model: str | None = None
) -> tuple[str, KeySource]:
    """The model that a session would get, as `provider/model`, and where its key comes from.

    Raises `Rejected` (`noModel`) with what to do next.
    """
    registry = Registry(settings, environment)
    resolved = registry.resolve(model)
    name = resolved.provider.name
    return f"{name}/{resolved.model}", registry.key_source(name)
