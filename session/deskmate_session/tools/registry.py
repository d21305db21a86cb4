"""The tools by name, as the model sees them and as it calls them."""

import json
from collections.abc import Iterable
from typing import Any

from pydantic import ValidationError

from deskmate_session.errors import ToolFailure
from deskmate_session.model.base import Wire
from deskmate_session.model.ports import Tool, ToolSpec
from deskmate_session.tools.bash import BashTool
from deskmate_session.tools.edit import EditTool
from deskmate_session.tools.glob import GlobTool
from deskmate_session.tools.grep import GrepTool
from deskmate_session.tools.read import ReadTool
from deskmate_session.tools.schema import flat_schema
from deskmate_session.tools.write import WriteTool


class Registry:
    """Tools in a fixed order: their list is a part of the prompt that providers cache."""

    def __init__(self, tools: Iterable[Tool]) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self._specs: dict[str, ToolSpec] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """All names, in order."""
        return tuple(self._tools)

    def find(self, name: str) -> Tool:
        """The tool that is meant; letter case is forgiven. Raises `ToolFailure` (`unknownTool`)."""
        tool = self._tools.get(name)
        if tool is None:
            lower = name.strip().lower()
            tool = next((tool for key, tool in self._tools.items() if key.lower() == lower), None)
        if tool is None:
            raise ToolFailure(
                "unknownTool", f"there is no tool {name!r}; there are: {', '.join(self._tools)}"
            )
        return tool

    def specs(self, names: Iterable[str] | None = None) -> tuple[ToolSpec, ...]:
        """What the model is told; of `names` only, in the registry's order."""
        wanted = self._tools if names is None else set(names)
        return tuple(self._spec(tool) for name, tool in self._tools.items() if name in wanted)

    def _spec(self, tool: Tool) -> ToolSpec:
        if tool.name not in self._specs:
            self._specs[tool.name] = ToolSpec(tool.name, tool.description, flat_schema(tool.args))
        return self._specs[tool.name]


def default_tools(ripgrep: str | None = None) -> tuple[Tool, ...]:
    """The built-in tools; `ripgrep` is a configured path of that program."""
    return (ReadTool(), WriteTool(), EditTool(), GlobTool(), GrepTool(ripgrep), BashTool())


def parse_args(tool: Tool, raw: object) -> Wire:
    """The arguments, checked. Raises `ToolFailure` (`badArguments`) that says what is wrong and valid.

    A list or object that came as a string of JSON, where the schema wants no string, is unpacked.
    """
    try:
        return tool.args.parse(raw)
    except ValidationError as error:
        unpacked = _unpacked(tool, raw)
        if unpacked is None:
            raise ToolFailure("badArguments", _say(tool, error)) from None
    try:
        return tool.args.parse(unpacked)
    except ValidationError as error:
        raise ToolFailure("badArguments", _say(tool, error)) from None


def _unpacked(tool: Tool, raw: object) -> dict[str, Any] | None:
    if not isinstance(raw, dict):
        return None
    values: dict[str, Any] = dict(raw)  # pyright: ignore[reportUnknownArgumentType] - checked by the model below
    properties: dict[str, Any] = flat_schema(tool.args)["properties"]
    changed = False
    for key, value in values.items():
        if isinstance(value, str) and properties.get(key, {}).get("type") in ("array", "object"):
            try:
                values[key] = json.loads(value)
            except ValueError:
                return None
            changed = True
    return values if changed else None


def _say(tool: Tool, error: ValidationError) -> str:
    wrong = "; ".join(
        f"{'.'.join(map(str, item['loc'])) or 'arguments'}: {item['msg']}"
        for item in error.errors(include_url=False, include_context=False, include_input=False)[:5]
    )
    schema = flat_schema(tool.args)
    required = schema.get("required", [])
    valid = ", ".join(name if name in required else f"{name}?" for name in schema["properties"])
    return f"wrong arguments for {tool.name!r}: {wrong}. Valid: {{{valid}}}"
