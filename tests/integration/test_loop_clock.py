"""The live loop and a clock on the wall that people set: nothing is rented early, nothing stops."""

import pytest
from structlog.testing import capture_logs

from spillover.control.controllers.keeping import Keeping, Retention
from spillover.control.live.clock import OtherClocks
from spillover.control.requests.tokens import Tokens
from spillover.control.views.overview import clock_view
from spillover.core.events import ClockJumped, JobPlaced, JobState, JobStopping
from spillover.core.proposals import Act, Change, Started
from spillover.core.records.jobs import Placed
from spillover.model.ids import JobId
from spillover.model.policy import Choice, PolicySet
from spillover.model.units import HOUR, MINUTE, SECOND
from spillover.testing.builders import a_job
from spillover.wire.api import TokenRequest
from tests.support.inside import leading
from tests.support.live import Live, a_live_loop

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
        await live.loop.checkpoints.write()
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


YEARS = 10 * 365 * 24 * 3600


async def a_deadline(live: Live) -> None:
    """A job that waits has a deadline in two years, and one that is not to start before."""
    now = live.loop.now()
    await live.submit(
        a_job("due").cpus(64).between(deadline=now + 2 * YEARS * SECOND // 10),
        a_job("later").between(not_before=now + 2 * YEARS * SECOND // 10),
    )


async def test_a_clock_that_is_ten_years_ahead_for_a_moment_changes_nothing() -> None:
    async with a_live_loop(POLICIES) as live:
        await one_runs_one_waits(live)
        await a_deadline(live)
        before = live.loop.now()
        revision = live.loop.applied
        live.clock.set_wall(seconds=YEARS)
        with capture_logs() as logged:
            for _ in range(3):
                live.clock.pass_by(seconds=1)
                await live.look()
        assert [each["ahead_s"] for each in logged if "too far and is ignored" in each["event"]] == [YEARS]
        assert live.loop.now() == before + 3 * SECOND
        assert live.job("due").state is JobState.QUEUED
        live.clock.set_wall(seconds=-YEARS)
        await live.look()
        assert live.loop.applied == revision, "not even an event was written"
        assert live.loop.now() == before + 3 * SECOND


async def test_a_jump_that_is_held_back_sweeps_nothing_and_ends_no_token() -> None:
    async with leading() as control:
        tokens = Tokens("own", control.loop)
        made = await tokens.create(TokenRequest("submit", expires_s=90 * 24 * 3600.0), "ada")
        (job,) = await control.submit("train")
        await control.propose(Change(Act.CANCEL, (JobId(job),), "ada"))
        control.archiving.begin()
        await control.archive()
        keeping = Keeping(
            control.loop, control.store.journal, control.store.archive, control.store.audit, Retention()
        )
        control.clock.at += YEARS * SECOND
        await keeping.sweep()
        assert await control.store.archive.count() == 1
        assert await control.store.journal.oldest() == 1
        assert tokens.caller(made.token).role == "submit"


async def test_a_jump_that_a_person_accepts_is_followed_and_journaled_with_their_name() -> None:
    async with a_live_loop(POLICIES) as live:
        await one_runs_one_waits(live)
        await a_deadline(live)
        live.clock.set_wall(seconds=YEARS)
        await live.look()
        await live.loop.accept_clock("ada")
        jumps = [event for event in live.heard if isinstance(event, ClockJumped)]
        assert jumps == [ClockJumped(YEARS * SECOND, "ada")]
        assert live.loop.now() == live.clock.wall()
        assert live.where("second") is None, "what it jumped by is no waiting"
        await live.look()
        assert live.job("due").state is JobState.TIMED_OUT


@pytest.mark.parametrize(
    ("machines", "followed"),
    [
        ((YEARS,), True),
        ((YEARS, YEARS, 0), True),
        ((YEARS, 0), False),
        ((0, 0), False),
        ((), False),
    ],
)
async def test_a_jump_is_followed_once_most_other_machines_agree(
    machines: tuple[int, ...], followed: bool
) -> None:
    async with a_live_loop(POLICIES) as live:
        live.loop.clocks = OtherClocks(here="this")
        live.clock.set_wall(seconds=YEARS)
        live.clock.pass_by(seconds=1)
        true = live.clock.wall() - YEARS * SECOND
        for number, ahead in enumerate(machines):
            live.loop.clocks.introduce(str(number), f"machine {number}")
            live.loop.clocks.hear(str(number), true + ahead * SECOND, live.clock.monotonic())
        await live.look()
        assert bool(live.loop.time.held()) is not followed
        assert bool([event for event in live.heard if isinstance(event, ClockJumped)]) is followed


async def test_a_server_that_starts_with_a_clock_years_ahead_goes_on_where_it_was() -> None:
    async with a_live_loop(POLICIES) as live:
        await one_runs_one_waits(live)
        await a_deadline(live)
        last = live.loop.now()
        live.clock.set_wall(seconds=YEARS)
        live.loop.begin(live.loop.epoch, await live.loop.load())
        assert live.loop.now() == last
        await live.look()
        assert live.job("due").state is JobState.QUEUED


async def test_a_server_says_that_its_journal_ends_in_the_future() -> None:
    async with a_live_loop(POLICIES) as live:
        live.clock.set_wall(seconds=-YEARS)
        with capture_logs() as logged:
            live.loop.begin(live.loop.epoch, await live.loop.load())
        assert [each["ahead_s"] for each in logged if "the journal ends after" in each["event"]] == [YEARS]
        assert clock_view(live.loop).state == "behind"
