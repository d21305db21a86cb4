"""Methods that pass their params to the right kernel, and those that ask all of them."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from deskmate_server.handlers.attachment import Attachment
from deskmate_session.model import commands as c
from deskmate_session.model import queries as q
from deskmate_session.model.base import Wire

if TYPE_CHECKING:
    from deskmate_session.kernel import Kernel

_COMMANDS = (c.CreateSession, c.UpdateSession, c.DeleteSession, c.Interrupt, c.Unqueue)


def handler(method: str) -> Callable[[Attachment, Any], Awaitable[Wire]]:
    """The generic handler: find the kernel by session or folder, and pass the params on."""

    async def handle(editor: Attachment, params: Wire) -> Wire:
        kernel = await _kernel(editor, params, method)
        if isinstance(params, _COMMANDS):
            return await kernel.submit(params)
        return await kernel.query(params)

    return handle


async def _kernel(editor: Attachment, params: Any, method: str) -> "Kernel":
    session_id: str | None = getattr(params, "session_id", None)
    if session_id is not None:
        return await editor.kernel_of(session_id)
    return await editor.kernel(getattr(params, "folder", None), method)


async def list_sessions(editor: Attachment, params: q.ListSessions) -> Wire:
    """One folder's sessions, or those of all folders merged."""
    if params.folder is not None or len(editor.client.folders) < 2:
        kernel = await editor.kernel(params.folder, "deskmate/session/list")
        return await kernel.query(params)
    pages = [await kernel.query(params) for kernel in await editor.kernels()]
    sessions = [session for page in pages if isinstance(page, c.SessionPage) for session in page.sessions]
    sessions.sort(key=lambda session: session.updated_at, reverse=True)
    return c.SessionPage(sessions=tuple(sessions[: params.limit]))


async def list_asks(editor: Attachment, params: q.ListAsks) -> Wire:
    """The open asks of all folders."""
    lists = [await kernel.query(params) for kernel in await editor.kernels()]
    return q.AskList(asks=tuple(ask for found in lists if isinstance(found, q.AskList) for ask in found.asks))


async def reply_ask(editor: Attachment, params: c.ReplyAsk) -> Wire:
    """Settle an ask wherever it is open."""
    for kernel in await editor.kernels():
        replied = await kernel.submit(params)
        if isinstance(replied, c.Replied) and replied.accepted:
            return replied
    return c.Replied(accepted=False)
