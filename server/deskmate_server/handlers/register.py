"""Binds every method of the table, as a request and as an `executeCommand`."""

from collections.abc import Awaitable, Callable
from typing import Any

from deskmate_server.handlers import generic, prompt, subscriptions
from deskmate_server.handlers.attachment import Attachment
from deskmate_server.handlers.guard import guard
from deskmate_server.wire.methods import METHODS

Handler = Callable[[Attachment, Any], Awaitable[Any]]

_OWN: dict[str, Handler] = {
    "deskmate/session/prompt": prompt.prompt,
    "deskmate/session/resume": prompt.resume,
    "deskmate/session/subscribe": subscriptions.subscribe,
    "deskmate/session/unsubscribe": subscriptions.unsubscribe,
    "deskmate/session/list": generic.list_sessions,
    "deskmate/ask/list": generic.list_asks,
    "deskmate/ask/reply": generic.reply_ask,
}
"""Methods that do more than pass their params to the kernel."""

_COMMANDS: dict[str, Handler] = {
    "deskmate/session/prompt": prompt.accept,
    "deskmate/session/resume": prompt.accept,
}
"""Methods that answer at acceptance when they come as a command, since some clients block on one."""


def register(editor: Attachment) -> None:
    """Register all methods with the server."""
    prompt.register_cancel(editor)
    for name, method in METHODS.items():
        handler = _OWN.get(name, generic.handler(name))
        editor.server.rpc(name, method.params, _guarded(editor, handler))
        editor.server.rpc_command(
            name.replace("deskmate/", "deskmate.op.", 1).replace("/", "."),
            method.params,
            _guarded(editor, _COMMANDS.get(name, handler)),
        )


def _guarded(editor: Attachment, handler: Handler) -> Callable[[Any], Awaitable[Any]]:
    async def guarded(params: Any) -> Any:
        async with guard():
            return await handler(editor, params)

    return guarded
