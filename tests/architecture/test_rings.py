"""Who may import whom: the contracts in pyproject.toml, and what they can't say."""

import contextlib
import io
import logging
import subprocess
import sys
from collections.abc import Callable
from functools import cache

import grimp
import pytest
from importlinter.cli import lint_imports

from tests.architecture.source import ROOT

SERVER_MAY_SEE = ("kernel", "model", "errors", "supervisor")
"""What the server may import of the session."""

IN_ONE_FILE = {"anthropic": "deskmate_session.providers.", "mcp": "deskmate_session.mcp."}
"""Libraries that one module imports, and the package that it stands in."""


@cache
def imports() -> grimp.ImportGraph:
    return grimp.build_graph(
        "deskmate_session", "deskmate_server", include_external_packages=True, cache_dir=None
    )


def forbidden_to_the_server(graph: grimp.ImportGraph) -> list[str]:
    return [
        f"{importer} imports {imported}"
        for importer in sorted(m for m in graph.modules if m.partition(".")[0] == "deskmate_server")
        for imported in sorted(graph.find_modules_directly_imported_by(importer))
        if imported.startswith("deskmate_session")
        and (imported.split(".")[1:2] or ["__init__"])[0] not in SERVER_MAY_SEE
    ]


def imported_in_several_files(graph: grimp.ImportGraph) -> list[str]:
    faults: list[str] = []
    for library, package in IN_ONE_FILE.items():
        users = sorted(graph.find_modules_that_directly_import(library)) if library in graph.modules else []
        if len(users) > 1 or not all(user.startswith(package) for user in users):
            faults.append(f"{library} is imported by {users}: one module in {package}* may")
    return faults


def test_the_contracts_hold() -> None:
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        code = lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True)
    # Its logging set-up switches every logger off that exists; other tests of this process need theirs.
    for name in logging.root.manager.loggerDict:
        logging.getLogger(name).disabled = False
    assert code == 0, said.getvalue()


def test_the_server_sees_only_the_front_door_the_model_errors_and_the_supervisor() -> None:
    assert not forbidden_to_the_server(imports())


def test_a_slow_library_is_imported_in_one_file() -> None:
    assert not imported_in_several_files(imports())


@pytest.mark.parametrize(
    ("find", "importer", "imported"),
    [
        (forbidden_to_the_server, "deskmate_server.app", "deskmate_session.log.writer"),
        (forbidden_to_the_server, "deskmate_server.wire.methods", "deskmate_session.ids"),
        (imported_in_several_files, "deskmate_session.tools.x", "anthropic"),
        (imported_in_several_files, "deskmate_server.cli", "mcp"),
    ],
)
def test_a_wrong_import_is_found(
    find: Callable[[grimp.ImportGraph], list[str]], importer: str, imported: str
) -> None:
    graph = grimp.ImportGraph()
    graph.add_import(importer=importer, imported=imported)
    assert find(graph)


def test_the_method_table_loads_nothing_that_is_slow() -> None:
    """It is imported before `initialize` is answered."""
    code = (
        "import sys, deskmate_server.wire.methods\n"
        "print(*sorted({'anthropic', 'httpx', 'mcp', 'sqlite_utils'} & set(sys.modules)))"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": f"{ROOT / 'server'}:{ROOT / 'session'}"},
        check=True,
        capture_output=True,
        text=True,
    )
    assert loaded.stdout.split() == []
