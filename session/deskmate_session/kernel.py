"""The kernel's front door: one workspace folder, its log, its sessions.

It composes the adapters and routes commands and queries; what they mean stands below it.
"""

import asyncio
import hashlib
import platform
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from deskmate_session.config import agents, layers
from deskmate_session.config.layers import config_home, state_home
from deskmate_session.core import decide
from deskmate_session.core.context.system import Environment
from deskmate_session.core.conversation import MessageState
from deskmate_session.core.permissions import rules_from
from deskmate_session.core.processor import AnswerProcessor
from deskmate_session.core.state import SessionState
from deskmate_session.core.views.timeline import fold
from deskmate_session.errors import Conflict, Rejected
from deskmate_session.log.store import EventLog, Fault
from deskmate_session.log.survey import FolderLog, sqlite_version, survey
from deskmate_session.model import commands as c
from deskmate_session.model import events as e
from deskmate_session.model import queries as q
from deskmate_session.model.base import Wire
from deskmate_session.model.messages import Accepted, Session
from deskmate_session.model.ports import ToolLimits
from deskmate_session.model.settings import Settings
from deskmate_session.model.updates import AcceptedUpdate
from deskmate_session.providers.registry import KeySource, Registry
from deskmate_session.providers.transfer import is_local
from deskmate_session.runtime import watch
from deskmate_session.runtime.asks import Asks
from deskmate_session.runtime.bus import Bus, Sink
from deskmate_session.runtime.call_context import Place
from deskmate_session.runtime.calls import Calls
from deskmate_session.runtime.changes import Changes
from deskmate_session.runtime.checkpointing import Checkpointing
from deskmate_session.runtime.coordinator import Coordinator
from deskmate_session.runtime.infer import Inference
from deskmate_session.runtime.loop import Loop
from deskmate_session.runtime.notices import Notice, Notices
from deskmate_session.runtime.options import KernelOptions, Turn
from deskmate_session.runtime.reads import Reads
from deskmate_session.runtime.recovery import Recovery
from deskmate_session.runtime.sessions import Sessions
from deskmate_session.supervisor import Supervisor
from deskmate_session.tools.registry import Registry as Tools
from deskmate_session.tools.registry import default_tools
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
]


_SHORTEST_SECRET = 8
"""Characters; a shorter value of the environment is no key, only a common word that stands in one."""


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
        changes = Changes(
            log, self._sessions, self._objects, FileLocks(str(options.state_home / "locks")), options.host
        )
        self._reads = Reads(log, self._sessions, self._objects, changes, self._live, self.folder)
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
            place=self._place(settings),
            supervisor=self._supervisor,
        )
        loop = Loop(self._sessions, calls, inference, agents.agents(), self._providers.resolve, log.owner)
        recovery = Recovery(self._sessions, self._objects, calls.effect, self._notices)
        self._coordinator = Coordinator(log, self._sessions, loop, recovery, self._supervisor, options.ids)
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
        debug_tags = options.settings.log.debug_tags
        log = await EventLog.open(state_dir, options.clock, options.ids, debug_tags=debug_tags)
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
        state = await self._sessions.get(command.session_id)
        if (known := await self._received(state, command)) is not None:
            return await self._again(state, known, sink)
        self._check(command.agent, command.model or state.info.model)
        if command.delivery == "interrupt":
            await self._coordinator.interrupt(command.session_id)
        message_id = command.message_id or self._options.ids.new("msg")
        facts = decide.receive(state, command, message_id, self._options.ids)
        try:
            return await self._begin(state, message_id, facts, sink)
        except Conflict:  # the same prompt came twice at once, maybe through another process
            if (known := await self._received(state, command)) is None:
                raise
            return await self._again(state, known, sink)

    async def resume(self, command: c.Resume, sink: Sink | None = None) -> Turn:
        """Go on with the interrupted turn, or let a held queue go on; a running turn is joined.

        Raises `Rejected` (`conflict`) when there is nothing to go on with.
        """
        state = await self._sessions.get(command.session_id)
        await self._coordinator.settle_dead(command.session_id)
        if state.turn is not None:
            prompt = state.conversation.messages[state.turn.message_id]
            return await self._again(state, prompt, sink)
        facts = decide.resume(state, self._options.ids)
        match facts[0]:
            case e.MessageReceived(message_id=message_id):
                return await self._begin(state, message_id, facts, sink)
            case _:
                await self._coordinator.request(command.session_id, facts)
                prompt = state.conversation.messages[state.queue[0] if state.queue else ""]
                return await self._again(state, prompt, sink)

    async def unqueue(self, session_id: str, message_id: str) -> bool:
        """Take back a waiting prompt; False when it is not waiting any more."""
        await self._sessions.get(session_id)
        try:
            await self._coordinator.tell(session_id, e.MessageUnqueued(message_id=message_id))
        except Conflict:
            return False
        return True

    def turn_of(self, session_id: str) -> str | None:
        """The prompt whose turn is running."""
        state = self._sessions.live(session_id)
        return state.turn.message_id if state and state.turn else None

    def runs_here(self, session_id: str) -> bool:
        """A run of the session goes on in this process, not in another one."""
        return self._coordinator.runs(session_id)

    # ── Queries ──────────────────────────────────────────────────────────────────────────────

    async def query(self, query: Wire) -> Wire:
        """Tell what a query asks for. Raises `Rejected`."""
        match query:
            case q.ListAsks():
                return q.AskList(asks=await self._asks.open_asks(query.session_id))
            case q.GetCatalog():
                return self._catalog()
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

    async def _received(self, state: SessionState, command: c.Prompt) -> MessageState | None:
        """The prompt that was received under this id before, or None. Raises `Rejected` (`conflict`) if it
        held other parts."""
        if command.message_id is None:
            return None
        known = state.conversation.messages.get(command.message_id)
        if known is None:  # it may be older than what is in memory, or another process logged it just now
            known = fold(await self._log.message_events(state.info.id, [command.message_id])).messages.get(
                command.message_id
            )
        return known and decide.repeated(known, command)

    async def _begin(
        self, state: SessionState, message_id: str, facts: Sequence[e.EventPayload], sink: Sink | None
    ) -> Turn:
        """Log a prompt and see that it runs."""
        session_id = state.info.id
        detach = self._show(state, message_id, sink)
        try:
            events = await self._coordinator.request(session_id, facts)
        except BaseException:
            detach()
            raise
        result = self._sessions.result(session_id, message_id)
        accepted = Accepted(session_id=session_id, message_id=message_id, seq=events[0].seq)
        return Turn(accepted, result, repeated=False, detach=detach)

    async def _again(self, state: SessionState, prompt: MessageState, sink: Sink | None) -> Turn:
        """A prompt once more: it runs once, and every request gets the one result."""
        session_id, message_id = state.info.id, prompt.id
        if sink is not None:
            sink.push(AcceptedUpdate(session_id=session_id, seq=prompt.seq, message_id=message_id))
            if state.turn is not None and state.turn.message_id == message_id:
                for item in watch.catch_up(state, self._live.get(session_id)):
                    sink.push(item)
        detach = self._show(state, message_id, sink)
        result = await self._sessions.result_of_old(session_id, message_id)
        if message_id in state.queue and state.held:
            # Who sends it again wants it to run.
            await self._coordinator.request(session_id, [e.QueueReleased()])
        else:
            self._coordinator.join(session_id)
        accepted = Accepted(session_id=session_id, message_id=message_id, seq=prompt.seq)
        return Turn(accepted, result, repeated=True, detach=detach)

    def _show(self, state: SessionState, message_id: str, sink: Sink | None) -> Callable[[], None]:
        if sink is None:
            return lambda: None
        return self._bus.attach(state.info.id, watch.PromptSink(sink, state, message_id))

    def _catalog(self) -> q.Catalog:
        return q.Catalog(
            agents=tuple(
                q.CatalogAgent(name=agent.name, description=agent.description)
                for agent in agents.agents().values()
            ),
            models=tuple(
                q.CatalogModel(id=choice.id, context_window=choice.info.context_window)
                for choice in self._providers.models()
            ),
            tools=tuple(
                q.CatalogTool(name=spec.name, description=spec.description.partition("\n")[0])
                for spec in self._tools
            ),
        )

    def _place(self, settings: Settings) -> Place:
        roots = (self.folder, *(str(Path(root).resolve()) for root in self._options.roots))
        limits = ToolLimits(
            file_timeout_ms=settings.tools.file_timeout_ms,
            command_timeout_ms=settings.tools.command_timeout_ms,
            output_max_lines=settings.tools.output_max_lines,
            output_max_bytes=settings.tools.output_max_bytes,
        )
        secrets = [provider.api_key or "" for provider in settings.providers.values()]
        secrets += [value for provider in settings.providers.values() for value in provider.headers.values()]
        environment = {
            name: value
            for name, value in self._options.environment.items()
            if not (len(value) >= _SHORTEST_SECRET and any(value in secret for secret in secrets))
        }
        return Place(self.folder, tuple(dict.fromkeys(roots)), str(self.state_dir), limits, environment)


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
