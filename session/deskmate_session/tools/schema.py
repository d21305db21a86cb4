"""JSON schemas for models: flat, without noise. Providers differ in what they make of `$ref` and `title`."""

from typing import Any, cast

from deskmate_session.model.base import Wire


def flat_schema(args: type[Wire]) -> dict[str, Any]:
    """The schema of a tool's arguments, references put in place."""
    schema = args.model_json_schema(by_alias=True)
    definitions: dict[str, Any] = schema.pop("$defs", {})
    flat: dict[str, Any] = _flat(schema, definitions, ())
    flat.pop("description", None)  # the docstring of the model; the tool's prompt says it
    flat.setdefault("properties", {})
    return flat


def _flat(node: Any, definitions: dict[str, Any], inside: tuple[str, ...]) -> Any:
    if isinstance(node, list):
        return [_flat(item, definitions, inside) for item in cast("list[Any]", node)]
    if not isinstance(node, dict):
        return node
    schema: dict[str, Any] = dict(cast("dict[str, Any]", node))
    if "$ref" in schema:
        name = str(schema.pop("$ref")).rpartition("/")[2]
        if name in inside:
            return {"type": "object"}  # a shape inside itself: say no more of it
        target = {key: value for key, value in definitions[name].items() if key != "description"}
        return _flat({**target, **schema}, definitions, (*inside, name))
    choices: list[Any] | None = schema.get("anyOf")
    if choices is not None and {"type": "null"} in choices:
        rest: list[Any] = [choice for choice in choices if choice != {"type": "null"}]
        schema.pop("anyOf")
        schema = {**rest[0], **schema} if len(rest) == 1 else {**schema, "anyOf": rest}
        if "$ref" in schema:
            return _flat(schema, definitions, inside)
    schema.pop("title", None)
    if schema.get("default", ...) is None:
        schema.pop("default")
    properties: dict[str, Any] = schema.pop("properties", {})
    flat: dict[str, Any] = {key: _flat(value, definitions, inside) for key, value in schema.items()}
    if properties:
        flat["properties"] = {key: _flat(value, definitions, inside) for key, value in properties.items()}
    return flat
