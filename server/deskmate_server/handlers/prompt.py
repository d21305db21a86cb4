"""`session/prompt` and `resume`: the request waits for the turn, but the turn belongs to the kernel."""

import asyncio
from typing import TYPE_CHECKING

from lsprotocol import types

from deskmate_server.handlers.attachment import Attachment
from deskmate_server.stream.progress import ProgressStream
from deskmate_session.model import commands as c
from deskmate_session.model.messages import Accepted, TurnResult

if TYPE_CHECKING:
    from deskmate_session.kernel import Kernel, Turn


async def prompt(editor: Attachment, params: c.Prompt) -> TurnResult:
    """Run a prompt's turn and answer how it ended; its updates come under the params' token."""
    return await _run(editor, params, "deskmate/session/prompt")


async def resume(editor: Attachment, params: c.Resume) -> TurnResult:
    """Go on with what was interrupted, and answer as a prompt does."""
    return await _run(editor, params, "deskmate/session/resume")


async def accept(editor: Attachment, params: c.Prompt | c.Resume) -> Accepted:
    """Accept and answer at once; clients that send it as a command may block on the answer."""
    kernel = await editor.kernel_of(params.session_id)
    turn = await _start(kernel, params, None)
    turn.detach()
    return turn.accepted


async def _run(editor: Attachment, params: c.Prompt | c.Resume, method: str) -> TurnResult:
    kernel = await editor.kernel_of(params.session_id)
    token = params.partial_result_token
    stream = None if token is None else editor.stream(kernel, token, method)
    if stream is not None:
        stream.start(editor.spawn)
    away = editor.look(params.session_id)
    try:
        turn = await _start(kernel, params, stream)
        try:
            return await _result(editor, kernel, params, turn)
        finally:
            turn.detach()
            if stream is not None:
                await stream.finish()
    finally:
        away()
        if token is not None:
            editor.end_stream(token)


async def _start(kernel: "Kernel", params: c.Prompt | c.Resume, stream: ProgressStream | None) -> "Turn":
    if isinstance(params, c.Prompt):
        return await kernel.prompt(params, stream)
    return await kernel.resume(params, stream)


async def _result(
    editor: Attachment, kernel: "Kernel", params: c.Prompt | c.Resume, turn: "Turn"
) -> TurnResult:
    """Wait for the end. A cancelled request stops its running turn, or takes back a waiting prompt."""
    progress = params.work_done_token
    if progress is not None:
        _begin(editor, progress, params.session_id)
    try:
        return await asyncio.shield(turn.result)
    except asyncio.CancelledError:
        if turn.repeated or turn.result.cancelled():
            raise
        message_id = turn.accepted.message_id
        if await kernel.unqueue(params.session_id, message_id):
            raise
        if kernel.turn_of(params.session_id) == message_id:
            await kernel.submit(c.Interrupt(session_id=params.session_id))
        return await asyncio.shield(turn.result)
    finally:
        if progress is not None:
            _end(editor, progress)


def _begin(editor: Attachment, token: str | int, session_id: str) -> None:
    editor.working[token] = session_id
    value = types.WorkDoneProgressBegin(title="Deskmate", cancellable=True)
    editor.server.notify("$/progress", {"token": token, "value": value})


def _end(editor: Attachment, token: str | int) -> None:
    editor.working.pop(token, None)
    editor.server.notify("$/progress", {"token": token, "value": types.WorkDoneProgressEnd()})


def register_cancel(editor: Attachment) -> None:
    """`workDoneProgress/cancel` is an interrupt."""

    def cancel(params: types.WorkDoneProgressCancelParams) -> None:
        session_id = editor.working.get(params.token)
        if session_id is not None:
            editor.spawn(_interrupt(editor, session_id), f"interrupt {session_id}")

    editor.server.feature(types.WINDOW_WORK_DONE_PROGRESS_CANCEL)(cancel)


async def _interrupt(editor: Attachment, session_id: str) -> None:
    kernel = await editor.kernel_of(session_id)
    await kernel.submit(c.Interrupt(session_id=session_id))
