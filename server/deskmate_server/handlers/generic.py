"""Methods that pass their params to the right kernel, and those that ask all of them."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from deskmate_server.handlers.attachment import Attachment
from deskmate_server.wire.errors import invalid_params
from deskmate_session.model import commands as c, queries as q
from deskmate_session.model.base import Wire

if TYPE_CHECKING:
    from deskmate_session.kernel import Kernel

_COMMANDS = (
    c.CreateSession,
    c.UpdateSession,
    c.DeleteSession,
    c.ForkSession,
    c.ImportSession,
    c.Interrupt,
    c.Unqueue,
)


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
    # One cursor for each folder, in their order; `x` where a folder has no more.
    kernels = await editor.kernels()
    cursors = params.cursor.split(".") if params.cursor else [None] * len(kernels)
    if len(cursors) != len(kernels):
        raise invalid_params("deskmate/session/list", "cursor", "the folders changed: begin without a cursor")
    pages = [
        await kernel.query(params.model_copy(update={"cursor": cursor}))
        for kernel, cursor in zip(kernels, cursors, strict=True)
        if cursor != "x"
    ]
    return _merge(pages, cursors, params.limit)


def _merge(pages: list[Wire], cursors: Sequence[str | None], limit: int) -> c.SessionPage:
    """The newest `limit` sessions of all pages, and the cursor behind the last one taken of each."""
    reading = [at for at, cursor in enumerate(cursors) if cursor != "x"]
    found = [
        (session, at)
        for at, page in zip(reading, pages, strict=True)
        if isinstance(page, c.SessionPage)
        for session in page.sessions
    ]
    found.sort(key=lambda entry: entry[0].updated_at, reverse=True)
    after = ["x" if cursor == "x" else cursor for cursor in cursors]
    for session, at in found[:limit]:
        after[at] = str(session.seq)
    for at, page in zip(reading, pages, strict=True):
        taken = sum(1 for _, where in found[:limit] if where == at)
        if isinstance(page, c.SessionPage) and page.next_cursor is None and taken == len(page.sessions):
            after[at] = "x"
    more = any(cursor != "x" for cursor in after)
    last = str(2**53)
    return c.SessionPage(
        sessions=tuple(session for session, _ in found[:limit]),
        next_cursor=".".join(cursor or last for cursor in after) if more else None,
    )


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
