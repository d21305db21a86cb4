"""URIs: however a client spells a path, it is that path."""

from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from deskmate_server.editor.uris import key_of, to_path, to_uri

PATH = "/my proj#1/100%/é.py"


@pytest.mark.parametrize(
    "uri",
    [
        "file:///my%20proj%231/100%25/%C3%A9.py",
        "file:///my%20proj%231/100%25/%c3%a9.py",
        "file:///my proj#1/100%/é.py",
        "FILE://localhost/my%20proj%231/100%25/é.py",
        "file:/my%20proj%231/100%25/%C3%A9.py",
        "file:///%6dy%20proj%231/100%25/%C3%A9.py",
    ],
)
def test_L04_every_spelling_is_one_path(uri: str) -> None:
    assert to_path(uri) == Path(PATH)


def test_the_canonical_spelling() -> None:
    assert to_uri(Path(PATH)) == "file:///my%20proj%231/100%25/%C3%A9.py"


@pytest.mark.parametrize(
    "uri", ["untitled:Untitled-1", "file://host/a", "file:a", "https://x/y", "", "file:///a%00b"]
)
def test_what_is_no_local_file_has_no_path(uri: str) -> None:
    assert to_path(uri) is None
    assert key_of(uri) == uri


@given(
    st.lists(
        st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1), min_size=1
    )
)
def test_paths_round_trip(names: list[str]) -> None:
    path = Path("/", *names)
    assert to_path(to_uri(path)) == path


def test_a_name_that_is_not_utf8_round_trips() -> None:
    assert to_uri(Path("/a\udcff")) == "file:///a%FF"
    assert to_path("file:///a%FF") == Path("/a\udcff")
