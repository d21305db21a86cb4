"""Where names lead, what kind of file they are, and URIs that round-trip."""

from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from deskmate_session.core.guard import guard
from deskmate_session.errors import ToolFailure
from deskmate_session.workspace.paths import inside, path_to_uri, resolve, shown, uri_to_path


def test_a_path_is_resolved_through_links(tmp_path: Path):
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "out").symlink_to("/etc")
    (folder / "loop").symlink_to("loop")
    assert resolve("a/../b", str(folder)) == str(folder / "b")
    assert resolve("out/hosts", str(folder)) == "/etc/hosts"
    assert resolve("../../etc/hosts", str(folder)) == str(tmp_path.parent / "etc/hosts")
    assert resolve("~/x", str(folder)) == str(folder / "~/x")
    assert resolve("loop/x", str(folder)).startswith(str(folder))
    for wrong in ("", "a\0b"):
        with pytest.raises(ToolFailure):
            resolve(wrong, str(folder))


def test_inside_is_by_whole_names():
    assert inside("/a/b", ("/a/b",))
    assert inside("/a/b/c", ("/x", "/a/b"))
    assert not inside("/a/bc", ("/a/b",))
    assert inside("/x", ("/",))


def test_paths_are_shown_relative_inside():
    assert (shown("/a/b/c", "/a/b"), shown("/a/b", "/a/b"), shown("/a/bc", "/a/b")) == ("c", ".", "/a/bc")


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/w/.env", "secret"),
        ("/w/.ENV", "secret"),
        ("/w/.env.local", "secret"),
        ("/w/.env.example", None),
        ("/w/k.pem", "secret"),
        ("/h/.ssh/id_rsa", "secret"),
        ("/w/id_ed25519", "secret"),
        ("/w/id_rsa.pub", None),
        ("/w/.git/hooks/pre-commit", "runsLater"),
        ("/w/.git/config", "runsLater"),
        ("/w/sub/.git", "runsLater"),
        ("/w/.vscode/tasks.json", "runsLater"),
        ("/w/.envrc", "runsLater"),
        ("/w/deskmate.toml", "runsLater"),
        ("/w/.deskmate/agents/a.md", "runsLater"),
        ("/h/.bashrc", "runsLater"),
        ("/h/.bash_profile", "runsLater"),
        ("/h/.zshenv", "runsLater"),
        ("/h/.config/deskmate/config.toml", "runsLater"),
        ("/w/.gitignore", None),
        ("/w/src/environment.py", None),
    ],
)
def test_files_that_are_always_asked_about(path: str, kind: str | None):
    assert guard(path) == kind


@pytest.mark.parametrize(
    ("path", "uri"),
    [
        ("/my proj#1/100%/é.py", "file:///my%20proj%231/100%25/%C3%A9.py"),
        ("/a:b/?x", "file:///a%3Ab/%3Fx"),
        ("/bad\udcff", "file:///bad%FF"),
    ],
)
def test_uris_are_quoted(path: str, uri: str):
    assert path_to_uri(path) == uri
    assert uri_to_path(uri) == path


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])))
def test_uris_round_trip(name: str):
    assert uri_to_path(path_to_uri(f"/{name}")) == f"/{name}"


@pytest.mark.parametrize("uri", ["untitled:1", "file://host/x", "http://a/b", "file:///a%00b", "file:x"])
def test_other_uris_are_no_paths(uri: str):
    with pytest.raises(ValueError, match=r"uri|NUL"):
        uri_to_path(uri)


def test_a_uri_may_be_quoted_more_or_less():
    assert (
        uri_to_path("file:///a%62c/(x)@y") == uri_to_path("file://localhost/abc/%28x%29%40y") == "/abc/(x)@y"
    )
