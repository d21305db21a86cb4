"""How often Python looks for cycles of garbage."""

import gc


def seldom() -> None:
    """Look seldom. For the start of a program.

    The default, after 700 new objects, makes a flood of events cost a sixth more: they live until the disk
    has them, and none of them is in a cycle. See https://docs.python.org/3/library/gc.html#gc.set_threshold.
    """
    gc.set_threshold(10_000, 50, 100)
