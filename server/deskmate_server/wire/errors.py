"""JSON-RPC errors as Deskmate sends them: codes, `data.kind`, and the path of a bad parameter."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

import cattrs
from pydantic import ValidationError
from pydantic.alias_generators import to_camel
from pygls.exceptions import JsonRpcException, JsonRpcInvalidParams

REQUEST_FAILED = -32803
"""LSP's RequestFailed: the request was understood and could not be done."""


class RequestFailed(JsonRpcException):
    """Raise it in a handler: -32803 with `data: {kind, hint?, **data}`; `kind` is one of the contract's."""

    CODE = REQUEST_FAILED

    def __init__(self, kind: str, message: str, hint: str | None = None, **data: Any) -> None:
        body: dict[str, Any] = {"kind": kind, **data}
        if hint is not None:
            body["hint"] = hint
        super().__init__(message, code=REQUEST_FAILED, data=body)
        self.kind = kind
        self.hint = hint


class ClientGone(Exception):
    """A request to the client can't be answered any more: it shut us down, or its stream ended."""


class ClientError(JsonRpcException):
    """The client answered a request of ours with an error; `code`, `message` and `data` are its words."""


def invalid_params(method: str, path: str, message: str, errors: Sequence[Any] = ()) -> JsonRpcInvalidParams:
    """-32602 in the contract's form; `path` is the field's place, `""` for the params themselves."""
    where = f" at {path}" if path else ""
    listed = list(errors) or [{"path": path, "message": message}]
    return JsonRpcInvalidParams(
        f"invalid params for {method!r}{where}: {message}",
        data={"kind": "invalidParams", "path": path, "errors": listed},
    )


def from_pydantic(method: str, params: object, error: ValidationError) -> JsonRpcInvalidParams:
    """Translate a failed validation of `params`; the first error gives the path."""
    found: list[dict[str, str]] = []
    for item in error.errors(include_url=False, include_input=False):
        loc: list[str | int] = list(item["loc"])
        discriminator = str(item.get("ctx", {}).get("discriminator", ""))
        if re.fullmatch(r"'\w+'", discriminator):
            loc.append(discriminator.strip("'"))
        path = field_path(params, loc, missing=item["type"] == "missing" or bool(discriminator))
        found.append({"path": path, "message": item["msg"], "type": item["type"]})
    return invalid_params(method, found[0]["path"], found[0]["message"], found)


def from_cattrs(method: str, error: Exception) -> JsonRpcInvalidParams:
    """Translate what cattrs says about the params of a standard LSP method."""
    found: list[dict[str, str]] = []
    for line in cattrs.transform_error(error):
        message, _, place = line.rpartition(" @ $")
        path = re.sub(r"[a-z]+(?:_[a-z]+)+", lambda m: to_camel(m[0]), place.lstrip("."))
        # An exception's own words could show more than the field's name.
        found.append({"path": path, "message": message.partition(" (")[0] or "invalid value"})
    first = found[0] if found else {"path": "", "message": "not of the expected shape"}
    return invalid_params(method, first["path"], first["message"], found)


def field_path(params: object, loc: Sequence[str | int], *, missing: bool = False) -> str:
    """Write pydantic's location as `parts[0].text`.

    The location also holds the tags and type names of unions, which are no fields; walking the params along
    with it tells them apart. `missing`: the last element names a field that is not there.
    """
    path, at = "", params
    for index, step in enumerate(loc):
        last = index == len(loc) - 1
        if isinstance(step, int):
            path += f"[{step}]"
            items = cast("Sequence[object]", at) if isinstance(at, list) else ()
            at = items[step] if step < len(items) else None
        elif isinstance(at, Mapping):
            fields = cast("Mapping[str, object]", at)
            is_tag = not last and step in (fields.get("type"), fields.get("kind"))
            if is_tag or not (step in fields or (last and missing)):
                continue
            path += f".{step}" if path else step
            at = fields.get(step)
    return path
