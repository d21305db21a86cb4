"""The table of a run: every move of every state, and what they come to."""

from typing import get_args

from deskmate_session.core.lifecycle import RUN_MOVES, RunEffect, RunMove, RunState, run_move


def moved(*moves: RunMove) -> tuple[RunState, list[RunEffect]]:
    """From idle: the state that these moves lead to, and their effects but `none`."""
    state: RunState = "idle"
    effects: list[RunEffect] = []
    for by in moves:
        state, effect = run_move(state, by)
        effects += [effect] if effect != "none" else []
    return state, effects


def test_every_move_is_in_the_table() -> None:
    assert set(RUN_MOVES) == {(state, by) for state in get_args(RunState) for by in get_args(RunMove)}


def test_any_number_of_wakes_gives_one_further_pass() -> None:
    assert moved("wake", "wake", "wake", "ended", "ended") == ("idle", ["start", "start", "release"])


def test_an_interrupt_drops_pending_wakes_and_a_second_one_joins_it() -> None:
    assert moved("wake", "wake", "interrupt", "interrupt", "ended") == ("idle", ["start", "stop", "release"])
    assert moved("interrupt") == ("idle", [])


def test_a_wake_during_clean_up_starts_a_successor_unless_it_is_interrupted_too() -> None:
    assert moved("wake", "interrupt", "wake", "ended") == ("running", ["start", "stop", "start"])
    assert moved("wake", "interrupt", "wake", "interrupt", "ended") == ("idle", ["start", "stop", "release"])
