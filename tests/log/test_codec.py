"""Canonical JSON, payloads and the chain."""

import hashlib
import json
import math
from typing import get_args

import pytest
from hypothesis import given, strategies as st

from deskmate_session.errors import LogCorrupt
from deskmate_session.log import chain, codec
from deskmate_session.model import events as e
from tests.log import support

scalars = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
)
surrogates = st.text(st.characters(categories=["Cs", "L", "Nd"]))
values = st.recursive(
    scalars | surrogates,
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | surrogates, inner),
    max_leaves=20,
)
objects = st.dictionaries(st.text(), values)


@given(values)
def test_canonical_json_is_stable(value: object):
    plain = codec.canonical(value)
    assert codec.canonical(json.loads(plain)) == plain


@given(st.dictionaries(st.text(), scalars))
def test_canonical_json_does_not_depend_on_the_order_of_keys(value: dict[str, object]):
    assert codec.canonical(dict(reversed(value.items()))) == codec.canonical(value)
    assert json.loads(codec.canonical(value)) == value


def test_canonical_json_holds_what_json_can_not():
    assert codec.canonical({"b": "\ud800", "a": "é\U0001f600"}) == '{"a":"é\U0001f600","b":"\ufffd"}'.encode()
    assert codec.canonical({"\udfff": 1, "\ufffc": 2}) == '{"\ufffc":2,"\ufffd":1}'.encode()
    assert codec.canonical([math.nan, math.inf, 1.5]) == b"[null,null,1.5]"
    with pytest.raises(TypeError):
        codec.canonical(object())


@given(st.binary(max_size=3_000).map(lambda data: b"{" + data) | st.text(min_size=200).map(codec.canonical))
def test_packing_gives_the_same_bytes_back(plain: bytes):
    assert codec.unpack(codec.pack(plain)) == plain


def test_only_what_pays_is_compressed():
    assert codec.pack(b"{" * 400) == b"{" * 400
    assert len(codec.pack(b"{" * 401)) < 20
    noise = b"{" + b"".join(hashlib.sha256(bytes([n])).digest() for n in range(20))
    assert codec.pack(noise) == noise


@given(objects, st.text())
def test_an_unknown_type_is_kept_whole(data: dict[str, object], tag: str):
    plain = codec.canonical(data)
    payload = codec.decode(f"?{tag}", 1, plain)
    assert isinstance(payload, e.UnknownPayload)
    assert codec.encode(payload) == plain
    assert codec.tag(payload) == (f"?{tag}", 1)


def test_a_newer_version_of_a_known_type_is_kept_whole():
    plain = b'{"messageId":"msg_1","soul":{"b":1}}'
    payload = codec.decode("part.appended", 2, plain)
    assert payload == e.UnknownPayload(tag="part.appended", data={"messageId": "msg_1", "soul": {"b": 1}})
    assert codec.encode(payload) == plain


def test_every_event_type_is_in_the_table():
    assert set(get_args(e.EventPayload)) == {*e.EVENT_TYPES.values(), e.UnknownPayload, e.ErasedPayload}


@pytest.mark.parametrize(
    "draft",
    [
        support.created(),
        support.received(),
        support.call_started(),
        support.changed(),
        support.part_started(call="call_1"),
        support.responded("msg_1", "call_1", "call_2"),
    ],
)
def test_a_payload_comes_back_equal(draft: e.Draft):
    type, version = codec.tag(draft.payload)
    assert codec.decode(type, version, codec.encode(draft.payload)) == draft.payload


@pytest.mark.parametrize("plain", [b"{", b'{"messageId":1}', b"[]"])
def test_bytes_that_are_no_payload_are_corrupt(plain: bytes):
    with pytest.raises(LogCorrupt, match=r"the payload is no 'part\.appended'"):
        codec.decode("part.appended", 1, plain)


def test_unknown_payloads_must_be_objects_too():
    with pytest.raises(LogCorrupt):
        codec.decode("new.fact", 1, b"{")


def test_a_broken_zlib_stream_is_corrupt():
    with pytest.raises(LogCorrupt, match="can't be unpacked"):
        codec.unpack(b"x\x01broken")


def test_the_header_is_canonical_json_of_seven_keys():
    made = chain.header(session="ses_1", index=3, id="evt_1", type="a.b", version=1, at=5, cause=None)
    assert made == (
        b'{"at":5,"cause":null,"id":"evt_1","index":3,"session":"ses_1","type":"a.b","version":1}'
    )


@given(st.binary(min_size=32, max_size=32), st.binary(), st.binary())
def test_a_link_is_the_documented_hash(prev: bytes, header: bytes, plain: bytes):
    expected = hashlib.sha256(prev + header + hashlib.sha256(plain).digest()).digest()
    assert chain.link(prev, header, chain.digest(plain)) == expected
