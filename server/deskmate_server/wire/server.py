"""The server object that handlers register with: pygls' `LanguageServer` plus typed custom methods."""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar, cast

from lsprotocol import types
from pydantic import BaseModel, ValidationError
from pygls.lsp.server import LanguageServer
from pygls.protocol import default_converter

from deskmate_server.wire.errors import from_pydantic, invalid_params
from deskmate_server.wire.outbound import OutWriter
from deskmate_server.wire.protocol import DeskmateProtocol

logger = logging.getLogger(__name__)

Params = TypeVar("Params", bound=BaseModel)
Result = BaseModel | Mapping[str, Any] | Sequence[Any] | None


class WireServer(LanguageServer):
    """A language server with our protocol.

    `experimental` gives the object for `capabilities.experimental.deskmate`; it is called when `initialize`
    is answered, after the `on_initialize` callback. Standard features register with pygls' `feature`,
    document sync (`textDocument/did*`) too: there is no built-in one.
    """

    protocol: DeskmateProtocol  # pyright: ignore[reportIncompatibleVariableOverride] -- set once, by pygls

    def __init__(
        self, name: str, version: str, *, experimental: Callable[[], Mapping[str, Any]] = dict
    ) -> None:
        self.experimental = experimental
        self.methods: list[str] = []
        """The custom methods registered so far, in order."""
        super().__init__(  # pyright: ignore[reportUnknownMemberType] -- pygls leaves *args untyped
            name, version, protocol_cls=DeskmateProtocol, converter_factory=default_converter
        )

    def rpc(self, method: str, model: type[Params], fn: Callable[[Params], Awaitable[Result]]) -> None:
        """Answer the custom request `method`; `model` validates the params (absent or null is `{}`).

        Bad params are answered -32602 with the field's path before `fn` is called. A model in the result goes
        out by alias and without its None fields. Raise `RequestFailed` for a failure the client should
        understand.
        """
        self.feature(method)(_validated(method, model, fn))
        self.methods.append(method)

    def rpc_command(
        self, command: str, model: type[Params], fn: Callable[[Params], Awaitable[Result]]
    ) -> None:
        """Answer `workspace/executeCommand` for `command`; its first argument is the params of `rpc`."""
        self.command(command)(_validated(command, model, fn))

    def on_initialize(self, callback: Callable[[types.InitializeParams], None]) -> None:
        """Call back while `initialize` is being answered; only one callback is kept.

        The workspace and the client's capabilities are known then, and features may still be registered. What
        it raises becomes the answer.
        """

        def initialize(params: Any) -> None:
            callback(params)

        self.feature(types.INITIALIZE)(initialize)

    @property
    def position_encoding(self) -> str:
        """The negotiated encoding: `utf-8`, `utf-16` or `utf-32`; raises RuntimeError before `initialize`."""
        return types.PositionEncodingKind(self.workspace.position_encoding).value

    async def request(self, method: str, params: Any | None = None, timeout: float | None = None) -> Any:  # noqa: ASYNC109 -- expiry tells the client
        """Ask the client; see `DeskmateProtocol.request` (TimeoutError, ClientError, ClientGone)."""
        return await self.protocol.request(method, params, timeout)

    def notify(self, method: str, params: Any | None = None) -> None:
        """Queue a notification; never blocks. Follow a burst of them with `drain`."""
        self.protocol.notify(method, params)

    async def drain(self) -> None:
        """Wait until the client has read enough; at once when it keeps up."""
        if isinstance(self.protocol.writer, OutWriter):
            await self.protocol.writer.drain()

    def report_server_error(self, error: Exception, source: Any) -> None:
        """Log only: the person is not told about our faults by a popup."""
        logger.error("%s: %s", getattr(source, "__name__", source), error)


def _validated(
    method: str, model: type[Params], fn: Callable[[Params], Awaitable[Result]]
) -> Callable[[Any], Awaitable[Result]]:
    # `params` is annotated Any, not object: pygls hands the server to a first parameter whose type it fits.
    async def handle(params: Any) -> Result:
        if not isinstance(params, dict | None):
            raise invalid_params(method, "", "expected an object")
        raw = cast("dict[str, Any]", params or {})
        try:
            parsed = model.model_validate(raw)
        except ValidationError as error:
            raise from_pydantic(method, raw, error) from None
        return await fn(parsed)

    return handle
