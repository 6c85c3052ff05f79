import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from spillover.model.units import SECOND
from spillover.server.pauses import WINDOW, Pauses
from tests.support.virtual_time import VirtualTime, run_virtually


def measured(story: Callable[[VirtualTime], Coroutine[Any, Any, None]]) -> Pauses:
    """The pauses of a loop while something happens on it."""

    async def main(time: VirtualTime) -> Pauses:
        pauses = Pauses()
        looking = asyncio.create_task(pauses.run())
        await story(time)
        looking.cancel()
        return pauses

    return run_virtually(main)


def compute(time: VirtualTime, seconds: float) -> None:
    """Keep the loop from everything else."""
    time.now += round(seconds * SECOND)


def test_a_loop_with_nothing_to_do_makes_no_pause() -> None:
    async def idle(_: VirtualTime) -> None:
        await asyncio.sleep(10)

    pauses = measured(idle)
    assert pauses.longest() == pytest.approx(0, abs=1e-6)
    assert dict(pauses.buckets())["0.001"] == dict(pauses.buckets())["+Inf"] > 190


def test_what_computes_in_one_go_is_seen_in_its_whole_length_but_for_one_look() -> None:
    async def busy(time: VirtualTime) -> None:
        await asyncio.sleep(1)
        compute(time, 0.7)
        await asyncio.sleep(1)
        compute(time, 0.2)
        await asyncio.sleep(1)

    pauses = measured(busy)
    assert 0.65 <= pauses.longest() <= 0.7
    counts = dict(pauses.buckets())
    assert counts["+Inf"] - counts["0.1"] == 2
    assert counts["+Inf"] - counts["0.5"] == 1
    assert 0.8 <= pauses.total <= 0.9


def test_the_longest_pause_is_forgotten_after_its_minute_and_not_before() -> None:
    pauses = Pauses()
    assert pauses.longest() == 0
    pauses.add(2.0, 0.0)
    for at in range(1, int(WINDOW)):
        pauses.add(0.01, float(at))
        assert pauses.longest() == 2.0, at
    pauses.add(0.02, WINDOW + 10)
    assert pauses.longest() == 0.02


def test_counts_are_cumulative_as_prometheus_wants_them() -> None:
    pauses = Pauses()
    for seconds in (0.0, 0.001, 0.02, 99.0):
        pauses.add(seconds, seconds)
    counts = dict(pauses.buckets())
    assert [counts[bound] for bound in ("0.001", "0.01", "0.025", "10.0", "+Inf")] == [2, 2, 3, 3, 4]
