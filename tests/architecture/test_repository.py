"""Nothing of one machine is committed, and what setup installs is pinned."""

import re

import pytest

from tests.architecture.source import ROOT, our_files

MACHINE = re.compile(
    # Written in pieces so that this file does not find itself.
    r"/work/(?:main|shared|\.library)\b|/opt/" + r"(?:pypi|wheels)|/ro" + r"ot/|/tmp/bash_" + r"jobs"
    r"|/home/(?!(?:me|you|user|name|NAME)\b)[a-z]\w*/|/Users/(?!(?:me|you|user|name|NAME)\b)[a-z]\w*/"
)
REGISTRY = re.compile(
    r"registry\." + r"npmjs|registry\." + r"yarnpkg|files\.python" + r"hosted|pypi\." + r"org"
    r"|extra-index" + r"-url|_auth" + r"Token|deb\.debian" + r"\.org"
)
PIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*==[A-Za-z0-9.!+]+")


def of_one_machine(text: str) -> list[str]:
    """Absolute paths of a machine and hosts of registries that a text names."""
    return [found[0] for pattern in (MACHINE, REGISTRY) for found in pattern.finditer(text)]


def badly_pinned(text: str) -> list[str]:
    """Lines of a constraints file that are more or less than `name==version`."""
    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if line and not line.startswith("#") and not PIN.fullmatch(line)]


def test_no_path_of_a_machine_and_no_host_of_a_registry_is_committed() -> None:
    faults: list[str] = []
    for path in our_files():
        data = (ROOT / path).read_bytes()
        if b"\0" not in data:
            faults += [f"{path}: {found}" for found in of_one_machine(data.decode("utf-8", "replace"))]
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize(
    "text",
    [
        "/work/" + "main/x",
        "/ro" + "ot/.venv",
        "/home/" + "anna/code",
        '"resolved": "https://registry.' + 'npmjs.org/a"',
        "--extra-index" + "-url=x",
    ],
)
def test_a_path_or_host_is_found(text: str) -> None:
    assert of_one_machine(text)


def test_an_example_path_is_none() -> None:
    assert not of_one_machine("/home/me/project and ~/code and /tmp/x and /work/a.py")


def test_constraints_are_names_and_versions_and_nothing_else() -> None:
    text = (ROOT / "constraints.txt").read_text()
    assert not badly_pinned(text)
    assert "deskmate" not in re.findall(r"^[\w-]+", text, re.MULTILINE)
    names = [line.partition("==")[0] for line in text.splitlines() if "==" in line]
    assert names == sorted(set(names), key=str.lower)


@pytest.mark.parametrize("line", ["a @ file:///x", "-e .", "git+https://x/y", "a>=1", "a==1 --hash=sha256:0"])
def test_another_line_in_constraints_is_found(line: str) -> None:
    assert badly_pinned(line) == [line]


def test_every_dependency_is_pinned() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    named = set(re.findall(r'^  "([A-Za-z0-9-]+)[>=]', project, re.MULTILINE))
    pinned = set(re.findall(r"^([\w-]+)==", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    assert {n.lower().replace("_", "-") for n in named} <= {n.lower().replace("_", "-") for n in pinned}


def test_scripts_can_be_run() -> None:
    for path in our_files():
        if path == ".ci/run" or (path.startswith("scripts/") and path.endswith(".sh")):
            assert (ROOT / path).stat().st_mode & 0o100, path
