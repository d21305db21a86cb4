"""From raw JSON to typed params and back: lsprotocol's types for standard methods, raw objects for ours."""

from collections.abc import Callable
from typing import Any, cast

from cattrs import Converter
from lsprotocol import types

from deskmate_server.wire.errors import from_cattrs

_TYPES = cast("dict[str, tuple[Any, Any, Any, Any]]", types.METHOD_TO_TYPES)


def structure_params(converter: Converter, method: str, params: Any) -> Any:
    """Type the params of a standard method; others stay as they are. Raises JsonRpcInvalidParams."""
    wanted = _TYPES[method][2] if method in _TYPES else None
    if wanted is None:
        return params
    raw: Any = {} if params is None else params
    try:
        return converter.structure(raw, wanted)
    except Exception as error:
        if method == types.INITIALIZE and isinstance(raw, dict):
            pruned = _prune(converter, cast("dict[str, Any]", raw))
            if pruned is not None:
                return pruned
        raise from_cattrs(method, error) from None


def structure_result(converter: Converter, method: str, result: Any) -> Any:
    """Type the client's result of a standard method; raises what cattrs raises."""
    wanted = _TYPES[method][1] if method in _TYPES else None
    if wanted is None:
        return result
    return converter.structure({"jsonrpc": "2.0", "id": 0, "result": result}, wanted).result


def _prune(converter: Converter, raw: dict[str, Any]) -> types.InitializeParams | None:
    """Leave out capabilities that this lsprotocol does not know.

    A newer client lists enum values of a newer LSP; refusing it for them would shut it out for nothing.
    """

    def accepts(capabilities: dict[str, Any]) -> bool:
        try:
            converter.structure(capabilities, types.ClientCapabilities)
        except Exception:
            return False
        return True

    known = _known(raw.get("capabilities"), accepts)
    try:
        return converter.structure({**raw, "capabilities": known}, types.InitializeParams)
    except Exception:
        return None


def _known(value: Any, accepts: Callable[[Any], bool]) -> Any:
    """The largest part of `value` that `accepts` takes, dropping one field or list element at a time."""
    if not isinstance(value, dict | list) or accepts(cast("Any", value)):
        return cast("Any", value)
    if isinstance(value, list):
        items = cast("list[Any]", value)
        return [item for item in items if accepts([item])]
    kept: dict[str, Any] = {}
    for key, item in cast("dict[str, Any]", value).items():
        part = _known(item, lambda inner, key=key: accepts({key: inner}))
        if accepts({key: part}):
            kept[key] = part
    return kept
