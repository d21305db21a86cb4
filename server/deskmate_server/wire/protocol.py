"""JSON-RPC over pygls: every request gets exactly one answer, and no answer shows a traceback.

pygls keeps the feature registry, the capabilities and the lsprotocol converter. Reading, answering and asking
are ours, because the stock ones lose requests and talk to the person about our faults. The overridden names
with a leading underscore are private to pygls 2.1, which is why its version is pinned.
"""

import asyncio
import contextvars
import itertools
import logging
import re
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from lsprotocol import types
from pydantic import BaseModel
from pygls.exceptions import (
    JsonRpcException,
    JsonRpcInternalError,
    JsonRpcInvalidRequest,
    JsonRpcMethodNotFound,
    JsonRpcParseError,
    JsonRpcRequestCancelled,
    JsonRpcServerNotInitialized,
)
from pygls.protocol import LanguageServerProtocol, lsp_method

from deskmate_server.wire import params as wire_params
from deskmate_server.wire.errors import ClientError, ClientGone, invalid_params
from deskmate_server.wire.frames import Frame, NoLength, Oversize, encode_frame
from deskmate_server.wire.jsontext import dumps, loads

if TYPE_CHECKING:
    from deskmate_server.wire.server import WireServer

logger = logging.getLogger(__name__)
# At INFO pygls formats every body that it sends.
logging.getLogger("pygls").setLevel(logging.WARNING)

MessageId = str | int | float
Handler = Callable[[Any], Any]

_ID_IN_HEAD = re.compile(rb'"id"\s*:\s*("[^"\\]*"|-?\d+)\s*[,}]')
# `exit` and `$/cancelRequest` never reach the registry. Document sync belongs to the editor ring alone: with
# the built-ins gone pygls keeps no second copy of the text, and no `splitlines` decides where a line ends.
_NOT_BUILT_IN = (
    types.EXIT,
    types.TEXT_DOCUMENT_DID_OPEN,
    types.TEXT_DOCUMENT_DID_CHANGE,
    types.TEXT_DOCUMENT_DID_CLOSE,
    types.NOTEBOOK_DOCUMENT_DID_OPEN,
    types.NOTEBOOK_DOCUMENT_DID_CHANGE,
    types.NOTEBOOK_DOCUMENT_DID_CLOSE,
)


@dataclass(frozen=True, slots=True)
class Message:
    """One inbound message with a sound envelope: a request has `id` and `method`, a response no `method`."""

    id: MessageId | None
    method: str | None
    body: Mapping[str, Any]


class DeskmateProtocol(LanguageServerProtocol):
    """Reads, dispatches and answers messages; made by `WireServer`, driven by `transport.serve`."""

    _server: "WireServer"  # pyright: ignore[reportIncompatibleVariableOverride] -- set once, by us

    def __init__(self, server: "WireServer", converter: Any) -> None:
        super().__init__(server, converter)
        for method in _NOT_BUILT_IN:
            cast("dict[str, Handler]", self.fm.builtin_features).pop(method, None)
        self.on_exit: Callable[[int], None] = lambda code: None
        """Called with the process's exit code when the client sends `exit`."""
        self.on_client_pid: Callable[[int | None], None] = lambda pid: None
        """Called with the client's `processId` at `initialize`."""
        self._initialized = False
        self._closed = False
        self._ids = itertools.count(1)
        self._outgoing: dict[MessageId, asyncio.Future[Any]] = {}

    # Inbound: decode (envelope), then dispatch (meaning). The transport may look between the two.

    def decode(self, frame: Frame) -> Message | None:
        """Parse one frame; what has no sound envelope is answered here and gives None."""
        match frame:
            case NoLength(line):
                self._refuse(None, JsonRpcParseError(f"no Content-Length in the header at {line[:80]!r}"))
            case Oversize(length, head):
                fault = f"a message of {length} bytes is over the limit; send less at once"
                self._refuse(_id_in(head), JsonRpcInvalidRequest(fault))
            case bytes(body):
                try:
                    return self._open_envelope(loads(body))
                except ValueError as error:
                    self._refuse(None, JsonRpcParseError(f"not JSON: {error}"))
        return None

    def dispatch(self, message: Message) -> None:
        """Run the message's handler: plain functions at once, coroutines as a task that starts next."""
        # A context for each message: handlers find their request's id in it (`msg_id`).
        context = contextvars.copy_context()
        if message.method is None:
            self._take_response(message)
        elif message.id is None:
            context.run(self._run_notification, message.method, message.body.get("params"))
        else:
            context.run(self._run_request, message.id, message.method, message.body.get("params"))

    def cancel(self, msg_id: MessageId) -> None:
        """Cancel a running request; its answer is -32800 unless the handler decides otherwise."""
        if (future := self._request_futures.get(cast("int", msg_id))) is not None:
            future.cancel()

    def refuse_cancelled(self, msg_id: MessageId) -> None:
        """Answer a request that was cancelled before it ran."""
        self._refuse(msg_id, JsonRpcRequestCancelled(f"request {msg_id!r} was cancelled"))

    # Outbound.

    def notify(self, method: str, params: Any | None = None) -> None:
        """Queue a notification; one that JSON can't hold is logged and dropped."""
        self._post({"jsonrpc": "2.0", "method": method} | _optional(params))

    async def request(self, method: str, params: Any | None = None, timeout: float | None = None) -> Any:  # noqa: ASYNC109 -- expiry tells the client
        """Ask the client and return its raw JSON result.

        Raises TimeoutError after `timeout` seconds, ClientError for an error answer, ClientGone when no
        answer can come any more. On timeout and on cancellation the client gets `$/cancelRequest`; a late
        reply is dropped.
        """
        if self._closed or self._shutdown:
            raise ClientGone(f"can't ask {method!r}: the client is gone")
        msg_id = f"dm{next(self._ids)}"
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._outgoing[msg_id] = answer
        try:
            self._send_data({"jsonrpc": "2.0", "id": msg_id, "method": method} | _optional(params))
            async with asyncio.timeout(timeout):
                return await answer
        except TimeoutError:
            self.notify(types.CANCEL_REQUEST, {"id": msg_id})
            raise TimeoutError(f"the client did not answer {method!r} within {timeout} s") from None
        except asyncio.CancelledError:
            self.notify(types.CANCEL_REQUEST, {"id": msg_id})
            raise
        finally:
            self._outgoing.pop(msg_id, None)

    async def send_request_async(  # pyright: ignore[reportIncompatibleMethodOverride] -- callers only await it
        self, method: str, params: Any | None = None, msg_id: MessageId | None = None
    ) -> Any:
        """`request` for pygls' typed helpers (`window_show_document_async` and its like)."""
        result = await self.request(method, params)
        return wire_params.structure_result(self._converter, method, result)

    def send_request(self, *args: Any, **kwargs: Any) -> Future[Any]:
        """Not offered: nobody would notice that the client never answers."""
        raise NotImplementedError("await request(), or a helper whose name ends in _async")

    def close(self) -> None:
        """Cancel running requests and fail those to the client with ClientGone."""
        self._closed = True
        self._settle()

    # Lifecycle.

    @lsp_method(types.INITIALIZE)
    def lsp_initialize(self, params: types.InitializeParams) -> Generator[Any, Any, types.InitializeResult]:
        """Answer with pygls' capabilities and our own under `experimental.deskmate`."""
        self.on_client_pid(params.process_id)
        result = yield from super().lsp_initialize(params)
        result.capabilities.experimental = {"deskmate": dict(self._server.experimental())}
        self._initialized = True
        return result

    @lsp_method(types.SHUTDOWN)
    def lsp_shutdown(self, *args: Any) -> None:  # pyright: ignore[reportIncompatibleMethodOverride] -- a plain function is a handler too
        """Refuse requests from now on, cancel the running ones."""
        self._shutdown = True
        self._settle(self.msg_id)

    @lsp_method(types.WORKSPACE_EXECUTE_COMMAND)
    async def lsp_workspace__execute_command(self, params: types.ExecuteCommandParams) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride] -- a coroutine, so that a cancel reaches the command
        """Run a command registered by `rpc_command` with its first argument."""
        handler = cast("dict[str, Handler]", self.fm.commands).get(params.command)
        if handler is None:
            raise invalid_params("workspace/executeCommand", "command", f"unknown command {params.command!r}")
        return await handler(params.arguments[0] if params.arguments else None)

    # Details of inbound.

    def _open_envelope(self, raw: Any) -> Message | None:
        if not isinstance(raw, dict):
            self._refuse(None, JsonRpcInvalidRequest("a message is one JSON object"))
            return None
        body = cast("dict[str, Any]", raw)
        msg_id, method = body.get("id"), body.get("method")
        sound_id = isinstance(msg_id, str | int | float) and not isinstance(msg_id, bool)
        if body.get("jsonrpc") != "2.0":
            fault = "`jsonrpc` must be '2.0'"
        elif "id" in body and not sound_id:
            if method is None:
                logger.warning("the client could not read a message of ours: %s", body.get("error"))
                return None
            fault = "`id` must be a string or a number"
        elif ("method" in body and not isinstance(method, str)) or not ("id" in body or "method" in body):
            fault = "`method` must be a string"
        else:
            return Message(msg_id if sound_id else None, method, body)
        # An error to a response would itself be a response to nothing.
        self._refuse(msg_id if sound_id and "method" in body else None, JsonRpcInvalidRequest(fault))
        return None

    def _run_request(self, msg_id: MessageId, method: str, params: Any) -> None:
        try:
            if self._shutdown or self._closed:
                raise JsonRpcInvalidRequest("the server is shutting down")
            if self._initialized and method == types.INITIALIZE:
                raise JsonRpcInvalidRequest("already initialized")
            if not self._initialized and method != types.INITIALIZE:
                raise JsonRpcServerNotInitialized("send `initialize` first")
            if (handler := self._find_handler(method)) is None:
                raise JsonRpcMethodNotFound(f"unknown method {method!r}")
            structured = wire_params.structure_params(self._converter, method, params)
        except JsonRpcException as error:
            self._refuse(msg_id, error)
            return
        pygls_id = cast("int", msg_id)
        self._ctx_msg_id.set(pygls_id)
        done = partial(self._send_handler_result, msg_id=pygls_id)
        self._execute_handler(pygls_id, handler, done, (structured,))

    def _run_notification(self, method: str, params: Any) -> None:
        if method == types.EXIT:
            self.on_exit(0 if self._shutdown else 1)
            return
        if self._shutdown or not self._initialized or (handler := self._find_handler(method)) is None:
            logger.debug("ignoring the notification %r", method)
            return
        try:
            structured = wire_params.structure_params(self._converter, method, params)
        except JsonRpcException as error:
            logger.warning("ignoring the notification %r: %s", method, error)
            return
        done = partial(_log_failure, method)
        self._execute_handler(f"notification {next(self._ids)}", handler, done, (structured,))

    def _take_response(self, message: Message) -> None:
        answer = self._outgoing.get(message.id or 0)
        if answer is None or answer.done():
            logger.debug("dropping the late or unknown response %r", message.id)
        elif (error := message.body.get("error")) is None:
            answer.set_result(message.body.get("result"))
        else:
            answer.set_exception(_client_error(error))

    def _find_handler(self, method: str) -> Handler | None:
        builtin = cast("dict[str, Handler]", self.fm.builtin_features)
        return builtin.get(method) or cast("dict[str, Handler]", self.fm.features).get(method)

    def _settle(self, except_id: MessageId | None = None) -> None:
        for msg_id, future in list(self._request_futures.items()):
            if msg_id != except_id:
                future.cancel()
        for answer in self._outgoing.values():
            if not answer.done():
                answer.set_exception(ClientGone("the client is gone"))

    # Details of outbound.

    def _send_handler_result(self, future: "Future[Any] | asyncio.Future[Any]", *, msg_id: Any) -> None:
        self._request_futures.pop(msg_id, None)
        if future.cancelled():
            self.refuse_cancelled(msg_id)
        elif (error := future.exception()) is not None:
            self._refuse(msg_id, _as_error(msg_id, error))
        else:
            try:
                self._send_data({"jsonrpc": "2.0", "id": msg_id, "result": future.result()})
            except Exception as error:
                self._refuse(msg_id, _as_error(msg_id, error))

    def _refuse(self, msg_id: MessageId | None, error: JsonRpcException) -> None:
        body = {"code": error.code, "message": error.message}
        if error.data is not None:
            body["data"] = error.data
        logger.debug("request %r fails: %s", msg_id, error)
        self._post({"jsonrpc": "2.0", "id": msg_id, "error": body})

    def _post(self, message: dict[str, Any]) -> None:
        try:
            self._send_data(message)
        except Exception:
            logger.exception("can't send %r", message.get("method", message.get("id")))

    def _send_data(self, data: Any) -> None:
        """Queue one message; raises TypeError or ValueError for what JSON can't hold. Never blocks."""
        if self.writer is not None:
            self.writer.write(encode_frame(dumps(data, self._serialize_message)))

    def _serialize_message(self, data: Any) -> Any:
        if isinstance(data, BaseModel):
            return data.model_dump(mode="json", by_alias=True, exclude_none=True)
        if isinstance(data, Mapping):
            return dict(cast("Mapping[str, Any]", data))
        if hasattr(data, "__attrs_attrs__"):
            return self._converter.unstructure(data)
        raise TypeError(f"{type(data).__name__} is not JSON")


def _optional(params: Any | None) -> dict[str, Any]:
    """JSON-RPC knows absent params, but no null ones."""
    return {} if params is None else {"params": params}


def _id_in(head: bytes) -> MessageId | None:
    """The id of a message of which only the beginning is known; None if it does not stand there."""
    found = _ID_IN_HEAD.search(head.partition(b'"params"')[0])
    try:
        return loads(found[1]) if found else None
    except ValueError:
        return None


def _as_error(msg_id: MessageId, error: BaseException) -> JsonRpcException:
    """What the client may see of an exception: our own errors whole, of others only the kind."""
    if isinstance(error, JsonRpcException) and not isinstance(error, ClientError):
        return error
    logger.error("request %r failed", msg_id, exc_info=error)
    return JsonRpcInternalError(f"internal error ({type(error).__name__}); the server's log has the details")


def _log_failure(method: str, future: "Future[Any] | asyncio.Future[Any]") -> None:
    if not future.cancelled() and (error := future.exception()) is not None:
        logger.error("the notification %r failed", method, exc_info=error)


def _client_error(error: Any) -> ClientError:
    fields = cast("dict[str, Any]", error) if isinstance(error, dict) else {}
    code = fields.get("code")
    message = str(fields.get("message") or "the client answered with an error")
    return ClientError(message, code if isinstance(code, int) else -32603, fields.get("data"))
