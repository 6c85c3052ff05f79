"""Agents that are forked on one host start by turns."""

import threading
from pathlib import Path

import pytest

from spillover.agent.forks import take_turn


def waiting(folder: Path, number: int) -> threading.Event:
    """Take a turn in a thread; return what is set once it is there. It lasts until the process ends."""
    there = threading.Event()

    def wait() -> None:
        turns.append(take_turn(folder, number, 2))
        there.set()

    turns: list[object] = []
    threading.Thread(target=wait, daemon=True).start()
    return there


def test_as_many_agents_start_as_there_are_turns_and_the_next_one_when_one_has_joined(tmp_path: Path) -> None:
    first, second = (take_turn(tmp_path, number, 2) for number in range(2))
    third = waiting(tmp_path, 2)
    assert not third.wait(0.1)
    first.close()
    assert third.wait(30)
    second.close()


def test_an_agent_that_does_not_join_does_not_keep_the_others_from_starting(tmp_path: Path) -> None:
    first = take_turn(tmp_path, 0, 2, patience=0.01)
    assert waiting(tmp_path, 0).wait(30)
    assert first.closed


@pytest.mark.parametrize("times", [1, 2])
def test_a_turn_may_end_more_than_once(tmp_path: Path, times: int) -> None:
    turn = take_turn(tmp_path, 0, 2)
    for _ in range(times):
        turn.close()
    assert waiting(tmp_path, 0).wait(30)
