"""`session/subscribe` and `unsubscribe`."""

import asyncio

from deskmate_server.handlers.attachment import Attachment
from deskmate_session.model import queries as q
from deskmate_session.model.commands import Nothing


async def subscribe(editor: Attachment, params: q.Subscribe) -> q.Subscribed:
    """Follow a session or a folder under the params' token until `unsubscribe`."""
    if params.session_id is not None:
        kernel = await editor.kernel_of(params.session_id)
    else:
        kernel = await editor.kernel(params.folder, "deskmate/session/subscribe")
    token = params.partial_result_token
    stream = editor.stream(kernel, token, "deskmate/session/subscribe")
    try:
        seq, detach = await kernel.subscribe(params, stream)
    except BaseException:
        editor.end_stream(token)
        raise
    editor.on_end(token, detach)
    editor.on_end(token, editor.look(params.session_id))
    editor.spawn(editor.asks.show_open(kernel, params.session_id), "show open asks")
    # The answer goes first: this runs after the loop has taken it.
    asyncio.get_running_loop().call_soon(stream.start, editor.spawn)
    return q.Subscribed(seq=seq)


async def unsubscribe(editor: Attachment, params: q.Unsubscribe) -> Nothing:
    """End a subscription; an unknown token is no error."""
    editor.end_stream(params.token)
    return Nothing()
