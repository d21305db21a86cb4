"""What the model is told of the tools, and how its arguments are taken."""

import json

import pytest

from deskmate_session.errors import ToolFailure
from deskmate_session.model.base import Wire
from deskmate_session.tools.registry import parse_args
from deskmate_session.tools.schema import flat_schema
from tests.support.tool_context import TOOLS


def test_every_tool_has_a_prompt_and_a_flat_schema():
    for spec in TOOLS.specs():
        assert len(spec.description) > 100
        text = json.dumps(spec.schema)
        assert spec.schema["type"] == "object"
        for noise in ("$ref", "$defs", '"title"', "null"):
            assert noise not in text, (spec.name, noise)
        assert all("description" in value for value in spec.schema["properties"].values())
    assert TOOLS.names == ("read", "write", "edit", "glob", "grep", "bash")


def test_the_schema_of_bash_is_as_the_protocol_names_it():
    schema = TOOLS.specs(["bash"])[0].schema
    assert schema["required"] == ["command"]
    assert set(schema["properties"]) == {"command", "timeout", "workdir", "description"}
    assert schema["properties"]["timeout"] == {
        "type": "integer",
        "minimum": 1,
        "description": "Limit in milliseconds.",
    }


def test_a_shape_inside_itself_ends():
    assert flat_schema(Tree)["properties"]["kids"]["items"] == {"type": "object"}


class Tree(Wire):
    """A recursive shape with a property that is called title."""

    title: str
    kids: "tuple[Tree, ...]" = ()


def test_a_property_may_be_called_title():
    assert flat_schema(Tree)["properties"]["title"] == {"type": "string"}


def test_letter_case_of_a_name_is_forgiven():
    assert TOOLS.find("Read").name == "read"
    with pytest.raises(ToolFailure, match=r"there is no tool 'fly'; there are: read, write"):
        TOOLS.find("fly")


def test_wrong_arguments_are_named_with_what_is_valid():
    with pytest.raises(ToolFailure) as caught:
        parse_args(TOOLS.find("read"), {"offset": "x"})
    assert caught.value.kind == "badArguments"
    assert "path: Field required" in caught.value.message
    assert "{path, offset?, limit?}" in caught.value.message
    with pytest.raises(ToolFailure, match="are needed"):
        parse_args(TOOLS.find("edit"), {"path": "f", "old": "x"})
    with pytest.raises(ToolFailure):
        parse_args(TOOLS.find("edit"), None)


def test_a_list_that_came_as_a_string_is_unpacked():
    raw = {"path": "f", "edits": '[{"old": "a", "new": "b"}]'}
    edit = parse_args(TOOLS.find("edit"), raw).dump()
    assert edit["edits"] == [{"old": "a", "new": "b", "all": False}]


def test_unknown_fields_are_ignored():
    assert parse_args(TOOLS.find("read"), {"path": "f", "why": "so"}).dump() == {"path": "f", "offset": 1}
