"""The documents written by hand name what there is."""

import re

from deskmate_session.model.settings import (
    CheckpointSettings,
    LogSettings,
    ModelSettings,
    ProviderSettings,
    Settings,
    StreamingSettings,
    ToolSettings,
)
from deskmate_session.providers.catalog import DEFAULT_MODELS
from tests.architecture.source import ROOT, our_files

TABLES = (
    CheckpointSettings,
    LogSettings,
    ModelSettings,
    ProviderSettings,
    Settings,
    StreamingSettings,
    ToolSettings,
)
HANDMADE = tuple(
    path
    for path in our_files()
    if path.endswith(".md") and path.partition("/")[0] not in ("session", "server")
)


def missing_tests(text: str) -> list[str]:
    """Tests that a document names as `path::name` and that don't exist."""
    faults: list[str] = []
    for path, name in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", text):
        file = ROOT / path
        if not file.exists() or not re.search(
            rf"^( *(async )?def {name}\(|class {name}\(|{name} = )",
            file.read_text(encoding="utf-8"),
            re.MULTILINE,
        ):
            faults.append(f"{path}::{name}")
    return faults


def undocumented_settings(text: str) -> list[str]:
    """Keys without a row of their own, and plain defaults that their row does not say."""
    faults: list[str] = []
    for table in TABLES:
        for name, field in table.model_fields.items():
            row = re.search(rf"^\|.*`{name}`.*$", text, re.MULTILINE)
            if row is None:
                faults.append(f"{table.__name__}.{name} has no row")
            elif (
                isinstance(field.default, (bool, int, str))
                and f"`{str(field.default).lower()}`" not in row[0]
            ):
                faults.append(f"{table.__name__}.{name}: the row does not say {field.default!r}")
    return faults


def test_every_invariant_names_a_test_that_exists() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    assert "::test_" in text
    assert not missing_tests(text)


def test_every_setting_is_documented_with_its_default() -> None:
    assert not undocumented_settings((ROOT / "docs/configuration.md").read_text(encoding="utf-8"))


def test_the_help_of_the_plugin_shows_a_model_that_is_the_default() -> None:
    text = (ROOT / "editors/nvim/doc/deskmate.txt").read_text(encoding="utf-8")
    named = set(re.findall(r'model = "([^"]+)"', text))
    assert named == {f"anthropic/{DEFAULT_MODELS['anthropic']}"}


def test_links_between_documents_lead_somewhere() -> None:
    faults = [
        f"{path}: {link}"
        for path in HANDMADE
        for link in re.findall(
            r"\]\((?!https?:|#|mailto:)([^)#]+)", (ROOT / path).read_text(encoding="utf-8")
        )
        if not ((ROOT / path).parent / link).exists()
    ]
    assert not faults


def test_a_lost_test_and_a_lost_setting_are_found() -> None:
    assert missing_tests("`tests/architecture/test_documents.py::test_nowhere`")
    assert missing_tests("`tests/nowhere.py::test_x`")
    assert undocumented_settings("| `chunk_size` | `31` | |")
