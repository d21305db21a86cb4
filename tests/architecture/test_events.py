"""The event union is closed, documented, and holds nothing that two machines write differently."""

import re
from collections.abc import Iterator
from typing import Any, get_args, get_type_hints

import pytest

from deskmate_server.wire.export.words import class_words, field_is_documented
from deskmate_session.model.base import Wire
from deskmate_session.model.events import EVENT_TYPES, ErasedPayload, EventPayload, Payload, UnknownPayload
from deskmate_session.model.messages import Message, Session, TurnResult


def undocumented(cls: type[Wire]) -> list[str]:
    """What has no words: the class, or a field that has none of its own nor a name in the glossary."""
    faults = [] if class_words(cls) and cls.__doc__ else [cls.__name__]
    return faults + [
        f"{cls.__name__}.{name}" for name in cls.model_fields if not field_is_documented(cls, name)
    ]


def floats(cls: type[Wire]) -> Iterator[str]:
    """Fields whose type holds a float, through every shape inside."""
    for name in cls.model_fields:
        hint = get_type_hints(cls, include_extras=True)[name]
        if float in set(_types_in(hint, set())):
            yield f"{cls.__name__}.{name}"


def _types_in(hint: Any, seen: set[Any]) -> Iterator[Any]:
    if isinstance(hint, type) and issubclass(hint, Wire):
        if hint not in seen:
            seen.add(hint)
            for inner in get_type_hints(hint, include_extras=True).values():
                yield from _types_in(inner, seen)
        return
    yield hint
    for argument in get_args(hint):
        yield from _types_in(argument, seen)


def test_the_table_of_types_is_the_union() -> None:
    assert set(EVENT_TYPES.values()) == set(get_args(EventPayload)) - {UnknownPayload, ErasedPayload}
    assert {cls.type: cls for cls in EVENT_TYPES.values()} == EVENT_TYPES
    ours = Payload.__module__.rpartition(".")[0]
    declared = {cls for cls in Payload.__subclasses__() if cls.__module__.startswith(ours)}
    assert declared == set(get_args(EventPayload)), "declared, but not in the union"


@pytest.mark.parametrize("cls", EVENT_TYPES.values(), ids=list(EVENT_TYPES))
class TestEachEvent:
    def test_says_what_happened_and_what_each_field_means(self, cls: type[Payload]) -> None:
        assert not undocumented(cls)

    def test_has_a_stable_tag_and_a_version(self, cls: type[Payload]) -> None:
        assert re.fullmatch(r"[a-z][A-Za-z]*\.[a-z][A-Za-z]*", cls.type)
        assert cls.version >= 1
        assert not {"type", "version", "folds"} & set(cls.model_fields)

    def test_is_frozen(self, cls: type[Payload]) -> None:
        assert cls.model_config.get("frozen") is True

    def test_holds_no_float(self, cls: type[Payload]) -> None:
        assert not list(floats(cls))


@pytest.mark.parametrize("cls", [Message, Session, TurnResult])
def test_what_people_see_is_documented_and_holds_no_float(cls: type[Wire]) -> None:
    assert not undocumented(cls)
    assert not list(floats(cls))


def test_a_float_and_a_field_without_words_are_found() -> None:
    class Inner(Wire):
        share: float | None = None

    class Outer(Wire):
        """It has words."""

        inners: tuple[Inner, ...]

    assert list(floats(Outer)) == ["Outer.inners"]
    assert undocumented(Outer) == ["Outer.inners"]
    assert undocumented(Inner) == ["Inner", "Inner.share"]
