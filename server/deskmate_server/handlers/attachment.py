"""One attached editor: its documents, its streams, and a kernel for each workspace folder.

The kernel's packages load after `initialize` is answered, in a thread, so that an editor starts fast.
"""

import asyncio
import importlib
import os
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lsprotocol import types

from deskmate_server.editor import uris
from deskmate_server.editor.capabilities import Client
from deskmate_server.editor.documents import DocumentEvent, DocumentStore
from deskmate_server.editor.host import EditorHost
from deskmate_server.editor.positions import Encoding
from deskmate_server.handlers.asks import AskClient
from deskmate_server.stream.progress import ProgressStream
from deskmate_server.wire.errors import RequestFailed, invalid_params
from deskmate_server.wire.server import WireServer
from deskmate_session.errors import LogError
from deskmate_session.supervisor import Supervisor

if TYPE_CHECKING:
    from deskmate_session.kernel import Kernel, Notice
    from deskmate_session.model.settings import Settings


class Attachment:
    """One attached editor."""

    def __init__(self, server: WireServer) -> None:
        self.server = server
        self.documents = DocumentStore()
        self.host = EditorHost(server, self.documents)
        self.client = Client()
        self.asks = AskClient(server, self.host, self.spawn, self.looks_at)
        self._kernels: dict[str, asyncio.Task[Kernel]] = {}
        self._homes: dict[str, Kernel] = {}
        """Where sessions were found."""
        self._looking = asyncio.Lock()
        self._lookups = 0
        """Requests that look for a session's home now."""
        self._settings: Settings | None = None
        self._supervisor = Supervisor()
        self.working: dict[str | int, str] = {}
        """Sessions by the work-done token under which they work."""
        self._ready: asyncio.Task[None] | None = None
        self._streams: dict[str | int, Callable[[], None]] = {}
        self._interest: Counter[str | None] = Counter()
        """How many prompts and subscriptions of this client look at a session; None: at a whole folder."""
        self.documents.connect(self.server)
        self.documents.subscribe(self._document_changed)
        self.server.on_initialize(self._initialize)

        def initialized(_params: types.InitializedParams) -> None:
            self._begin_loading()

        # A function of its own: pygls marks what it registers, and a bound method takes no marks.
        self.server.feature(types.INITIALIZED)(initialized)

        def folders_changed(params: types.DidChangeWorkspaceFoldersParams) -> None:
            self._change_folders(params.event)

        self.server.feature(types.WORKSPACE_DID_CHANGE_WORKSPACE_FOLDERS)(folders_changed)

    # ── Kernels ──────────────────────────────────────────────────────────────────────────────

    async def kernel(self, folder: str | None, method: str) -> "Kernel":
        """The kernel of a folder; without one, of the client's only folder."""
        folders = self.client.folders
        if folder is None:
            if len(folders) != 1:
                why = "has several folders" if folders else "has no folder open"
                raise invalid_params(method, "folder", f"name a folder: the client {why}")
            folder = folders[0]
        path = uris.to_path(folder)
        if path is None or not await asyncio.to_thread(path.is_dir):
            raise invalid_params(method, "folder", f"{folder!r} is no folder of this machine")
        real = await asyncio.to_thread(uris.real_path, path)
        known = {uris.real_path(p) for uri in folders if (p := uris.to_path(uri)) is not None}
        if known and real not in known:
            raise invalid_params(method, "folder", f"{folder!r} is not open in the editor")
        return await self._open(real)

    async def kernel_of(self, session_id: str) -> "Kernel":
        """The kernel that holds a session. Requests that ask get their answers in the order of asking,
        since prompts must keep theirs."""
        home = self._homes.get(session_id)
        if home is not None and self._lookups == 0:
            return home
        self._lookups += 1
        try:
            async with self._looking:
                return self._homes.get(session_id) or await self._find(session_id)
        finally:
            self._lookups -= 1

    async def _find(self, session_id: str) -> "Kernel":
        kernels, faults = await self._open_all()
        for kernel in kernels:
            if await kernel.has_session(session_id):
                self._homes[session_id] = kernel
                return kernel
        if faults:
            raise faults[0]  # it may be in there
        raise RequestFailed(
            "sessionNotFound", f"there is no session {session_id!r}", "list sessions, or create a new one"
        )

    async def kernels(self) -> list["Kernel"]:
        """The kernels of all the client's folders that can be opened; raises if none can."""
        kernels, faults = await self._open_all()
        if faults and not kernels:
            raise faults[0]
        return kernels

    async def _open_all(self) -> tuple[list["Kernel"], list[LogError]]:
        """Every kernel, and what kept folders from being opened: one damaged log must not stop the others."""
        kernels: list[Kernel] = []
        faults: list[LogError] = []
        for uri in self.client.folders:
            path = uris.to_path(uri)
            if path is None or not await asyncio.to_thread(path.is_dir):
                continue
            try:
                kernels.append(await self._open(await asyncio.to_thread(uris.real_path, path)))
            except LogError as error:
                faults.append(error)
        for task in self._kernels.values():  # of folders that were closed, whose work goes on
            if task.done() and not task.cancelled() and task.exception() is None:
                kernel = task.result()
                if kernel not in kernels:
                    kernels.append(kernel)
        return kernels, faults

    async def _open(self, folder: Path) -> "Kernel":
        await self._loaded()
        key = str(folder)
        task = self._kernels.get(key)
        if task is None or (task.done() and (task.cancelled() or task.exception() is not None)):
            task = self._kernels[key] = self._supervisor.spawn(self._make(key), name=f"open {key}")
        return await asyncio.shield(task)

    async def _make(self, folder: str) -> "Kernel":
        kernels = importlib.import_module("deskmate_session.kernel")
        state = self.client.options.get("stateDir")
        options = kernels.KernelOptions(
            folder=folder,
            folder_uri=self.documents.uri_for(Path(folder)),
            host=self.host,
            settings=self._settings,
            environment=dict(os.environ),
            state_home=Path(state) if isinstance(state, str) and state else kernels.state_home(os.environ),
            roots=tuple(str(path) for uri in self.client.folders if (path := uris.to_path(uri))),
        )
        kernel: Kernel = await kernels.Kernel.open(options)
        kernel.on_notice(self._tell)
        await self.asks.watch(kernel)
        return kernel

    # ── Streams ──────────────────────────────────────────────────────────────────────────────

    def stream(self, kernel: "Kernel", token: str | int, method: str) -> ProgressStream:
        """A stream under a token; it sends once it is started, and until `end_stream`.

        Raises -32602 for a token that is in use: its reader could not tell the two apart.
        """
        if token in self._streams:
            raise invalid_params(method, "partialResultToken", f"token {token!r} is in use; choose a new one")
        chunk_size = self._settings.streaming.chunk_size if self._settings else 32
        stream = ProgressStream(self.server, token, chunk_size, kernel.live_part)
        self._streams[token] = stream.stop
        return stream

    def end_stream(self, token: str | int) -> None:
        """Stop a token's pump, if there is one."""
        if (stop := self._streams.pop(token, None)) is not None:
            stop()

    def on_end(self, token: str | int, then: Callable[[], None]) -> None:
        """Do something more when a token's stream ends."""
        stop = self._streams.get(token)

        def both() -> None:
            if stop is not None:
                stop()
            then()

        self._streams[token] = both

    def look(self, session_id: str | None) -> Callable[[], None]:
        """Begin to look at a session, or at all of a folder: the client is asked what it asks. Returns what
        ends that."""
        self._interest[session_id] += 1

        def away() -> None:
            self._interest[session_id] -= 1

        return away

    def looks_at(self, session_id: str) -> bool:
        """This client prompts or follows the session, so it is asked."""
        return self._interest[session_id] > 0 or self._interest[None] > 0

    def _tell(self, notice: "Notice") -> None:
        kind = {
            "error": types.MessageType.Error,
            "warning": types.MessageType.Warning,
            "info": types.MessageType.Info,
        }[notice.level]
        self.server.window_show_message(types.ShowMessageParams(kind, f"Deskmate: {notice.message}"))

    # ── Life ─────────────────────────────────────────────────────────────────────────────────

    def _initialize(self, params: types.InitializeParams) -> None:
        self.client = self.host.client = Client.of(params)
        self.documents.encoding = Encoding(self.server.position_encoding)
        for folder in self.client.folders:
            self.documents.add_root(folder)

    def _change_folders(self, event: types.WorkspaceFoldersChangeEvent) -> None:
        """Folders that came or went; the kernel of one that went stays open for what still runs in it."""
        gone = {folder.uri for folder in event.removed}
        kept = [uri for uri in self.client.folders if uri not in gone]
        folders = tuple(dict.fromkeys([*kept, *(folder.uri for folder in event.added)]))
        self.client = self.host.client = replace(self.client, folders=folders)
        for uri in folders:
            self.documents.add_root(uri)

    def _begin_loading(self) -> "asyncio.Task[None]":
        if self._ready is None:
            self._ready = self._supervisor.spawn(self._load(), name="load the kernel")
        return self._ready

    async def _loaded(self) -> None:
        await asyncio.shield(self._begin_loading())

    async def _load(self) -> None:
        kernels = await asyncio.to_thread(importlib.import_module, "deskmate_session.kernel")
        config = self.client.options.get("config")
        loaded = await asyncio.to_thread(
            kernels.load_settings, config if isinstance(config, dict) else {}, os.environ
        )
        self._settings = loaded.settings
        for note in loaded.unknown:
            self.server.window_log_message(types.LogMessageParams(types.MessageType.Warning, note))
        for warning in (w for w in loaded.warnings if w not in loaded.unknown):
            self.server.window_show_message(
                types.ShowMessageParams(types.MessageType.Warning, f"Deskmate: {warning}")
            )

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> "asyncio.Task[None]":
        """Start work of the server's own."""
        return self._supervisor.spawn(work, name=name)

    def _document_changed(self, event: DocumentEvent) -> None:
        if event.kind == "open":
            self.spawn(self.host.settle_dirty(event.document), "compare with disk")

    async def close(self) -> None:
        """Stop in order: every kernel settles its turns."""
        for task in self._kernels.values():
            with suppress(Exception):
                await (await task).close()
        await self._supervisor.close()
