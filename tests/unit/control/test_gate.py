"""Nothing leaves before it is durable; time only goes on."""

import asyncio

import pytest

from spillover.control.live.clock import JUMP, SteadyTime
from spillover.control.live.gate import Gate
from spillover.model.units import SECOND
from spillover.ports.commands import CommandError
from tests.support.inside import HandClock
from tests.support.waiting import turn


async def test_the_gate_opens_up_to_what_is_durable() -> None:
    gate = Gate(3)
    await gate.passed(3)
    early, late = asyncio.create_task(gate.passed(4)), asyncio.create_task(gate.passed(6))
    await turn()
    gate.open(5)
    await early
    assert not late.done()
    gate.open(6)
    await late


async def test_what_is_dropped_raises_for_those_who_wait() -> None:
    gate = Gate(0)
    waiting = asyncio.create_task(gate.passed(1))
    await turn()
    gate.drop(Gate.dropped("disk full"))
    with pytest.raises(CommandError, match="disk full; retry"):
        await waiting


def test_time_follows_small_leads_and_tells_of_large_ones_once() -> None:
    clock = HandClock()
    steady = SteadyTime(clock)
    start = steady.now()
    clock.at += SECOND  # slewed
    assert steady.now() == start + SECOND
    assert steady.take_jump() == 0
    clock.at += 2 * JUMP
    assert steady.now() == steady.now() == start + SECOND + 2 * JUMP
    assert steady.take_jump() == 2 * JUMP
    assert steady.take_jump() == 0


def test_time_goes_on_when_the_wall_clock_goes_back() -> None:
    clock = HandClock()
    steady = SteadyTime(clock)
    start = steady.now()
    clock.at -= 3600 * SECOND
    clock.pass_by(7)
    assert steady.now() == start + 7 * SECOND
    assert steady.take_jump() == 0


def test_time_does_not_begin_before_what_was_written_last() -> None:
    clock = HandClock()
    assert SteadyTime(clock, clock.at + 5 * SECOND).now() == clock.at + 5 * SECOND
