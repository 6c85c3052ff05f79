"""The live loop and a clock on the wall that people set: nothing is rented early, nothing stops."""

import pytest

from spillover.core.events import ClockJumped, JobPlaced, JobState, JobStopping
from spillover.core.jobs import Placed
from spillover.core.proposals import Started
from spillover.model.policy import Choice, PolicySet
from spillover.model.units import HOUR, MINUTE, SECOND
from spillover.testing.builders import a_job
from spillover.testing.live import Live, a_live_loop

WAIT = 600
POLICIES = PolicySet(wait=Choice("constant", {"wait": WAIT * SECOND}))


async def one_runs_one_waits(live: Live) -> None:
    """Owned capacity is taken; the second job may wait ten minutes before it is rented."""
    await live.agent("onprem", cpus=1)
    await live.agent("cloud", cpus=4)
    await live.submit(a_job("first").terms(walltime=30 * MINUTE))
    await live.submit(a_job("second"))
    first = live.job("first")
    assert isinstance(first.phase, Placed)
    await live.loop.propose(Started(first.phase.key, first.lease, 0))
    assert (live.where("first"), live.where("second")) == ("onprem", None)


async def test_a_clock_that_jumps_forward_an_hour_rents_nothing_early() -> None:
    async with a_live_loop(POLICIES) as live:
        await one_runs_one_waits(live)
        live.clock.pass_by(seconds=100)
        live.clock.set_wall(seconds=3600)
        await live.look()
        assert live.where("second") is None
        assert [event.by for event in live.heard if isinstance(event, ClockJumped)] == [HOUR]
        live.clock.pass_by(seconds=WAIT - 101)
        await live.look()
        assert live.where("second") is None
        live.clock.pass_by(seconds=2)
        await live.look()
        assert live.where("second") == "cloud"


async def test_a_clock_that_jumps_forward_ends_no_walltime_early() -> None:
    async with a_live_loop(POLICIES) as live:
        await one_runs_one_waits(live)
        live.clock.set_wall(seconds=3600)
        await live.look()
        await live.loop.checkpoint()
        await live.loop.load()  # a restart knows of the jump too
        live.clock.pass_by(seconds=1700)
        await live.look()
        assert not [event for event in live.heard if isinstance(event, JobStopping)]
        live.clock.pass_by(seconds=200)
        await live.look()
        assert [event.job for event in live.heard if isinstance(event, JobStopping)] == ["first"]


async def test_a_jump_is_seen_by_whoever_asks_for_the_time_first() -> None:
    async with a_live_loop(POLICIES) as live:
        await one_runs_one_waits(live)
        live.clock.set_wall(seconds=3600)
        for _ in range(3):
            live.loop.now()
        live.clock.pass_by(seconds=1)
        await live.look()
        assert live.where("second") is None
        assert sum(event.by for event in live.heard if isinstance(event, ClockJumped)) == HOUR


@pytest.mark.parametrize("jumps", [1, 3])
async def test_a_clock_that_jumps_back_an_hour_stops_nothing(jumps: int) -> None:
    async with a_live_loop(POLICIES) as live:
        await one_runs_one_waits(live)
        before = live.loop.now()
        for _ in range(jumps):
            live.clock.set_wall(seconds=-3600)
            await live.look()
            assert live.loop.now() >= before
        await live.submit(a_job("third").cpus(4).between(not_before=before + 60 * SECOND))
        live.clock.pass_by(seconds=WAIT - 1)
        await live.look()
        assert live.where("second") is None
        assert live.job("third").state is JobState.QUEUED
        live.clock.pass_by(seconds=2)
        await live.look()
        assert live.where("second") == "cloud"
        assert live.job("first").state is JobState.RUNNING
        assert not [event for event in live.heard if isinstance(event, JobStopping)]
        times = [event.at for event in live.heard if isinstance(event, JobPlaced)]
        assert times == sorted(times)


async def test_a_clock_that_comes_back_after_it_jumped_back_is_no_jump_forward() -> None:
    async with a_live_loop(POLICIES) as live:
        await one_runs_one_waits(live)
        live.clock.set_wall(seconds=-3600)
        await live.look()
        live.clock.pass_by(seconds=30)
        live.clock.set_wall(seconds=3600)
        await live.look()
        assert not [event for event in live.heard if isinstance(event, ClockJumped)]
        assert live.where("second") is None
