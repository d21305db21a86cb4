"""Every shape that crosses the wire, as JSON schema: the one form that the other exporters print.

Pydantic makes it; here it is given its words and its truth about absence: a field that may be `None` is never
sent as null, it is left out, so null does not occur and such fields are optional.
"""

import types
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

from pydantic import TypeAdapter
from pydantic.json_schema import models_json_schema

from deskmate_server.wire.export.words import alias_words, class_words, field_words, wire_name
from deskmate_server.wire.methods import CLIENT_NOTIFICATIONS, CLIENT_REQUESTS, METHODS
from deskmate_session import errors
from deskmate_session.model import commands, edits, events, messages, permissions, queries, updates
from deskmate_session.model.base import Wire
from deskmate_session.model.updates import Delta

Schema = dict[str, Any]

_MODULES: tuple[types.ModuleType, ...] = (
    errors,
    edits,
    messages,
    permissions,
    commands,
    queries,
    updates,
    events,
)
_UNIONS = {"PartInput": messages, "Part": messages, "AskDetail": messages, "Update": updates}
_REF = "#/$defs/"


@dataclass(frozen=True, slots=True)
class Shapes:
    """`defs` holds every shape by name; the sets name those of each part of the documents."""

    defs: dict[str, Schema]
    inputs: frozenset[str]
    """Shapes that a client sends: a field with a default may be left out."""
    wire: frozenset[str]
    """Shapes that requests, answers and updates use."""
    events: frozenset[str]
    """Payloads of events, and what only they use."""


def collect() -> Shapes:
    """Build every shape. Slow (a second); for the exporter only."""
    calls = (*METHODS.values(), *CLIENT_REQUESTS.values())
    payloads = tuple(events.EVENT_TYPES.values())
    updated = tuple(t for t in get_args(get_args(updates.Update)[0]))
    roots: set[type[Wire]] = {model for call in calls for model in (call.params, call.result)}
    roots |= {note.params for note in CLIENT_NOTIFICATIONS.values()} | {*updated, *payloads}
    _, raw = models_json_schema(
        [(root, "validation") for root in sorted(roots, key=lambda r: r.__name__)], by_alias=True
    )
    defs: dict[str, Schema] = dict(raw["$defs"])
    defs["Delta"] = _delta()
    aliases = _aliases()
    unions = {name: _refs(_target(getattr(module, name), defs)) for name, module in _UNIONS.items()}
    unions["Update"] = unions["Update"] | {"Delta"}
    asked = {call.params.__name__ for call in METHODS.values()}
    asked |= {call.result.__name__ for call in CLIENT_REQUESTS.values()}
    inputs = _closure(asked, defs)
    classes = {cls.__name__: cls for cls in _subclasses(Wire)}
    shaped = {
        name: _shape(name, schema, classes.get(name), name in inputs, aliases, unions)
        for name, schema in defs.items()
    }
    for name, members in unions.items():
        words = alias_words(_UNIONS[name].__name__, name)
        shaped[name] = {"description": words} if words else {}
        shaped[name]["anyOf"] = [{"$ref": _REF + member} for member in _in_order(members, defs)]
    shaped |= {name: {"type": "string", "enum": list(values)} for values, name in aliases.items()}
    on_wire = {m.__name__ for call in calls for m in (call.params, call.result)} | {"Update", "PartInput"}
    on_wire |= {note.params.__name__ for note in CLIENT_NOTIFICATIONS.values()}
    wire = _closure(on_wire, shaped)
    facts = _closure({payload.__name__ for payload in payloads}, shaped)
    kept = {name: shaped[name] for name in sorted(wire | facts)}
    return Shapes(kept, inputs, wire, facts - wire)


def reference(schema: Schema) -> str | None:
    """The name that a schema refers to."""
    ref = schema.get("$ref")
    return ref.removeprefix(_REF) if isinstance(ref, str) else None


def _shape(
    name: str,
    schema: Schema,
    cls: type | None,
    is_input: bool,
    aliases: dict[tuple[str, ...], str],
    unions: dict[str, frozenset[str]],
) -> Schema:
    cls = Delta if name == "Delta" else cls
    assert cls is not None, f"{name!r} is no class of the model: declare wire shapes there"
    fields = {wire_name(field): field for field in _fields(cls)}
    given: dict[str, Schema] = schema.get("properties", {})
    demanded: list[str] = schema.get("required", [])
    properties: dict[str, Schema] = {}
    required: list[str] = []
    for key, value in given.items():
        clean, nullable = _clean(value, aliases, unions)
        words = field_words(cls, fields.get(key, key))
        properties[key] = {**clean, "description": words} if words else clean
        if "const" in clean or (not nullable and (key in demanded or not is_input)):
            required.append(key)
    result: Schema = {"type": "object", "description": class_words(cls), "properties": properties}
    if required:
        result["required"] = required
    return result


def _clean(
    schema: Schema, aliases: dict[tuple[str, ...], str], unions: dict[str, frozenset[str]]
) -> tuple[Schema, bool]:
    """A schema without titles, nulls and discriminators, with names where we have them."""
    result = {k: v for k, v in schema.items() if k not in ("title", "discriminator", "description")}
    if result.get("default", 0) is None or "const" in result:
        result.pop("default", None)
    branches: list[Schema] = result.pop("anyOf", None) or result.pop("oneOf", None) or []
    nullable = schema.get("default", 0) is None or any(branch.get("type") == "null" for branch in branches)
    branches = [_clean(branch, aliases, unions)[0] for branch in branches if branch.get("type") != "null"]
    members = frozenset(name for branch in branches if (name := reference(branch)))
    union = next((name for name, refs in unions.items() if members and refs == members), None)
    if union:
        result["$ref"] = _REF + union
    elif len(branches) == 1:
        result = {**branches[0], **result}
    elif branches:
        result["anyOf"] = branches
    if isinstance(result.get("items"), dict):
        result["items"] = _clean(result["items"], aliases, unions)[0]
    if isinstance(result.get("additionalProperties"), dict):
        result["additionalProperties"] = _clean(result["additionalProperties"], aliases, unions)[0]
    if result.get("additionalProperties") is True:
        del result["additionalProperties"]
    if alias := aliases.get(tuple(result.get("enum", ()))):
        result = {"$ref": _REF + alias, **{k: v for k, v in result.items() if k not in ("enum", "type")}}
    return result, nullable


def _delta() -> Schema:
    """`Delta` is a plain dataclass, since thousands are made a second; its `dump` is its shape."""
    schema = TypeAdapter(Delta).json_schema()
    given = {wire_name(key): value for key, value in schema["properties"].items()}
    return {
        "properties": {"kind": {"const": "delta", "type": "string"}, **given},
        "required": ["kind", *given],
    }


def _aliases() -> dict[tuple[str, ...], str]:
    """Named sets of strings: values → name; the first module that names a set wins."""
    found: dict[tuple[str, ...], str] = {}
    for module in _MODULES:
        for name, value in vars(module).items():
            if get_origin(value) is Literal and not name.startswith("_"):
                found.setdefault(get_args(value), name)
    return found


def _target(union: Any, defs: dict[str, Schema]) -> Schema:
    schema: Schema = TypeAdapter(union).json_schema(by_alias=True)
    defs.update({name: value for name, value in schema.get("$defs", {}).items() if name not in defs})
    return schema


def _refs(schema: Schema) -> frozenset[str]:
    branches: list[Schema] = schema.get("anyOf") or schema.get("oneOf") or []
    return frozenset(name for branch in branches if (name := reference(branch)))


def _in_order(names: Iterable[str], defs: dict[str, Schema]) -> list[str]:
    order = list(defs)
    return sorted(names, key=order.index)


def _closure(names: set[str], defs: dict[str, Schema]) -> frozenset[str]:
    """The names, and all that their shapes refer to."""
    seen: set[str] = set()
    todo = sorted(names)
    while todo:
        name = todo.pop()
        if name in seen or name not in defs:
            continue
        seen.add(name)
        todo.extend(_mentioned(defs[name]))
    return frozenset(seen)


def _mentioned(schema: Any) -> list[str]:
    match schema:
        case {"$ref": str(ref)}:
            return [ref.removeprefix(_REF)]
        case dict():
            return [name for value in schema.values() for name in _mentioned(value)]  # pyright: ignore[reportUnknownVariableType]
        case list():
            return [name for value in schema for name in _mentioned(value)]  # pyright: ignore[reportUnknownVariableType]
        case _:
            return []


def _fields(cls: type) -> list[str]:
    if issubclass(cls, Wire):
        return list(cls.model_fields)
    return list(cls.__annotations__)


def _subclasses(cls: type[Wire]) -> list[type[Wire]]:
    return [found for sub in cls.__subclasses__() for found in (sub, *_subclasses(sub))]
