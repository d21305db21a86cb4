"""The real server killed at 25 moments of scripted turns: what it acknowledged stays, nothing runs twice."""

from pathlib import Path

import pytest

from tests.support.crash import SPAN, Crashes

KILLS = 5
GROUPS = 5


@pytest.mark.parametrize("group", range(GROUPS))
async def test_a_kill_at_any_moment_loses_nothing_that_was_acknowledged(tmp_path: Path, group: int) -> None:
    async with Crashes.open(tmp_path, seed=group) as crashes:
        for kill in range(KILLS):
            # One moment of each twenty-fifth of a turn, the groups interleaved.
            await crashes.round(after=(kill * GROUPS + group) * SPAN // (KILLS * GROUPS))
        between = crashes.where.get("turn.ended", 0)
        assert between <= 2, f"most kills are to fall into a turn: {crashes.where}"
