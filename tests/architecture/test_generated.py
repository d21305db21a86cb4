"""What is generated says what the model says, and the table of methods is whole."""

import json
import re
from pathlib import Path
from typing import Any

from deskmate_server.wire.export import files
from deskmate_server.wire.methods import CLIENT_REQUESTS, METHODS
from tests.architecture.source import ROOT


def test_generated_files_are_fresh() -> None:
    assert not files.stale(), "run `make generate` and commit what it writes"


def test_the_exporter_always_says_the_same() -> None:
    assert files.render() == files.render()


def test_a_stale_file_is_found_and_written(tmp_path: Path) -> None:
    everything = files.write(tmp_path)
    assert not files.stale(tmp_path)
    (tmp_path / "docs/protocol.md").write_text("old")
    assert files.stale(tmp_path) == ["docs/protocol.md"]
    assert sorted(files.write(tmp_path)) == ["docs/protocol.md"]
    assert "vscode-extension/src/protocol.ts" in everything


def test_every_reference_in_the_schema_leads_somewhere() -> None:
    schema = (ROOT / "editors/protocol/schema.json").read_text()
    methods = (ROOT / "editors/protocol/methods.json").read_text()
    named = set(re.findall(r"#/\$defs/(\w+)", schema + methods))
    assert named <= set(json.loads(schema)["$defs"])


def test_every_shape_has_words_for_each_field() -> None:
    defs: dict[str, dict[str, Any]] = json.loads((ROOT / "editors/protocol/schema.json").read_text())["$defs"]
    silent = [
        f"{name}.{field}"
        for name, shape in defs.items()
        for field, value in shape.get("properties", {}).items()
        if not value.get("description")
    ]
    assert not silent, "write an attribute docstring, or a word in wire/export/words.py"


def test_no_shape_says_null() -> None:
    """A field without a value is left out, on the wire and in the types."""
    for path in ("editors/protocol/schema.json", "vscode-extension/src/protocol.ts"):
        assert not re.search(r"\bnull\b", (ROOT / path).read_text()), path


def test_methods_are_named_as_their_family_is() -> None:
    for name in (*METHODS, *CLIENT_REQUESTS):
        assert re.fullmatch(r"deskmate(/[a-z][A-Za-z]*){1,2}", name)
