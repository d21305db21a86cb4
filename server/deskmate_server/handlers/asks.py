"""Asks go to the person where the client can show them; the first answer settles them for everyone."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, cast

from pydantic import ValidationError

from deskmate_server.editor.host import EditorHost
from deskmate_server.wire.errors import ClientError, ClientGone
from deskmate_server.wire.server import WireServer
from deskmate_session.errors import LogError
from deskmate_session.model import queries as q
from deskmate_session.model.commands import AskAnswer, ReplyAsk
from deskmate_session.model.messages import Ask, CommandDetail, DiffDetail
from deskmate_session.model.updates import (
    AskResolvedUpdate,
    AskUpdate,
    Delta,
    SessionUpdate,
    StatusUpdate,
    Updated,
)

if TYPE_CHECKING:
    from deskmate_session.kernel import Kernel

Spawn = Callable[[Coroutine[Any, Any, None], str], "asyncio.Task[None]"]

_logger = logging.getLogger(__name__)

_ACTIONS: dict[str, str] = {"Allow once": "once", "Allow for this session": "session", "Reject": "reject"}
AGAIN_AFTER = (0.5, 1.0, 2.0, 4.0, *(8.0,) * 75)
"""Seconds until an answer that the log could not take is tried again: ten minutes in all."""
MAX_SHOWN = 600
"""Code points of a command or diff in a plain message box."""


class AskClient:
    """Watches every kernel: shows its asks, and tells the client when lists changed."""

    def __init__(
        self, server: WireServer, host: EditorHost, spawn: Spawn, looks_at: Callable[[str], bool]
    ) -> None:
        """`looks_at` tells whether the client prompts or follows a session."""
        self._server = server
        self._host = host
        self._spawn = spawn
        self._looks_at = looks_at
        self._shown: dict[str, asyncio.Task[None]] = {}

    async def watch(self, kernel: "Kernel") -> None:
        """Follow a kernel for its whole life."""
        sink = _KernelSink(self, kernel)
        await kernel.subscribe(q.Subscribe(partial_result_token=""), sink)

    def show(self, kernel: "Kernel", ask: Ask) -> None:
        """Ask the client, by `deskmate/ask` where it offers that, else by a message box.

        What another editor's turn asks is shown here only where the client looks at that session and offers
        `ask`: a message box stands at the editor that prompted.
        """
        session_id = ask.session_id or ""
        if ask.id in self._shown:
            return
        if kernel.runs_here(session_id) or (self._looks_at(session_id) and "ask" in self._host.client.offers):
            self._shown[ask.id] = self._spawn(self._ask(kernel, ask), f"ask {ask.id}")

    async def show_open(self, kernel: "Kernel", session_id: str | None) -> None:
        """Show what is being asked already, to a client that begins to look."""
        found = await kernel.query(q.ListAsks(session_id=session_id))
        for ask in found.asks if isinstance(found, q.AskList) else ():
            self.show(kernel, ask)

    def withdraw(self, ask_id: str) -> None:
        """The ask is settled: cancel the request that still stands at the client."""
        if (task := self._shown.pop(ask_id, None)) is not None:
            task.cancel()

    def changed(self, what: str) -> None:
        """Tell the client that a list should be read again."""
        self._server.notify("deskmate/changed", {"what": what})

    async def _ask(self, kernel: "Kernel", ask: Ask) -> None:
        answer = await self._offered(ask) if "ask" in self._host.client.offers else None
        if answer is None and kernel.runs_here(ask.session_id or ""):
            answer = await self._message_box(ask)
        if answer is None:
            return  # nobody to ask: the ask stays open for `ask/reply`
        self._shown.pop(ask.id, None)  # a reply must not cancel the task that brings it
        reply = ReplyAsk(ask_id=ask.id, reply=answer.reply, input=answer.input, message=answer.message)
        for wait in (*AGAIN_AFTER, None):
            try:
                await kernel.submit(reply)
            except LogError:
                # A full disk, say: the person was told, and has answered; the answer must not be lost.
                if wait is None:
                    raise
                await asyncio.sleep(wait)
            else:
                return

    async def _offered(self, ask: Ask) -> AskAnswer | None:
        try:
            raw = await self._server.request("deskmate/ask", {"ask": ask.dump()})
            return AskAnswer.parse(raw)
        except ClientGone:
            return None
        except (ClientError, ValidationError) as error:
            _logger.warning("the client could not answer ask %s: %s", ask.id, error)
            return None

    async def _message_box(self, ask: Ask) -> AskAnswer | None:
        params = {
            "type": 3,
            "message": _words(ask),
            "actions": [{"title": title} for title in _ACTIONS],
        }
        try:
            raw: Any = await self._server.request("window/showMessageRequest", params)
        except (ClientError, ClientGone) as error:
            _logger.warning("the client could not show ask %s: %s", ask.id, error)
            return None
        title = cast("dict[str, Any]", raw).get("title") if isinstance(raw, dict) else None
        return AskAnswer.parse({"reply": _ACTIONS.get(str(title), "reject")})


class _KernelSink:
    """Takes a kernel's updates and passes on the few that concern the client as a whole."""

    def __init__(self, asks: AskClient, kernel: "Kernel") -> None:
        self._asks = asks
        self._kernel = kernel

    def push(self, item: Updated | Delta) -> None:
        """Take one update."""
        match item:
            case AskUpdate():
                self._asks.changed("attention")
                self._asks.show(self._kernel, item.ask)
            case AskResolvedUpdate():
                self._asks.withdraw(item.ask_id)
                self._asks.changed("attention")
            case SessionUpdate():
                self._asks.changed("sessions")
            case StatusUpdate(status="idle"):
                self._asks.changed("attention")
            case _:
                pass


def _words(ask: Ask) -> str:
    match ask.detail:
        case CommandDetail():
            body = ask.detail.command
        case DiffDetail():
            body = ask.detail.diff
        case _:
            body = ""
    body = body if len(body) <= MAX_SHOWN else body[:MAX_SHOWN] + "\n…"
    return f"Deskmate: {ask.title}\n{body}".rstrip()
