"""Bounds of what is taken from models and clients."""

from typing import Any, cast

MAX_DEPTH = 64
"""Levels of nesting in JSON that is logged. Readers give up at a few hundred; what is logged must be read."""
MAX_PROMPT_BYTES = 1_000_000
"""UTF-8 bytes of all texts of a prompt."""


def is_shallow(value: Any) -> bool:
    """No list or object is nested deeper than `MAX_DEPTH`."""
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        inner: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                inner += cast("dict[str, Any]", item).values()
            elif isinstance(item, list):
                inner += cast("list[Any]", item)
        if not inner:
            return True
        level = inner
    return False


def shallow(value: Any) -> Any:
    """The value; raises `ValueError` where it is nested too deep."""
    if not is_shallow(value):
        raise ValueError(f"nested deeper than {MAX_DEPTH} levels")
    return value
