"""The live loop on a virtual clock, with simulated clusters, writes the very journal that the simulator writes."""

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spillover.control.live.loop import Loop
from spillover.core.events import AnyEvent, JobEnded
from spillover.core.proposals import Proposal
from spillover.deciding.replay import Replay
from spillover.model.cluster import Billing, Price
from spillover.model.policy import Choice, PolicySet
from spillover.model.resources import Resources
from spillover.model.units import FOREVER, SECOND
from spillover.policies.loading import load
from spillover.sim.runner import opening, simulate, submission
from spillover.sim.setting import Fleet, Rent, Setting
from spillover.sim.shapes import Shapes
from spillover.sim.trace import TraceJob
from spillover.sim.world import SimulatedWorld
from spillover.stores.memory import open_memory
from spillover.wire.journal import decode_event, encode_event
from tests.support.tiers import examples, few_of
from tests.support.virtual_time import VirtualTime, run_virtually

GIB = 2**30
FLEET = Fleet(3, Resources(4000, 8 * GIB, 2))
RENT = Rent(Price(cpu_hour=40_000, gpu_hour=2_500_000), Billing(SECOND, 60 * SECOND))
SLOW_TO_START = Rent(Price(cpu_hour=40_000, gpu_hour=2_500_000), Billing(), 7 * SECOND)

POLICIES = [
    PolicySet(
        wait=Choice("runtime", {"coefficient": 0.7}),
        order=Choice("fair_share", {"half_life": 100 * SECOND, "shares": "p=2"}),
        backfill=Choice("strict"),
    ),
    PolicySet(wait=Choice("compute", {"coefficient": 0.5}), backfill=Choice("easy"), order=Choice("sjf")),
    PolicySet(wait=Choice("zero")),
    PolicySet(wait=Choice("never"), backfill=Choice("easy")),
    PolicySet(wait=Choice("never"), backfill=Choice("conservative")),
    PolicySet(wait=Choice("constant", {"wait": 20 * SECOND, "max_queue": 2}), backfill=Choice("strict")),
    PolicySet(wait=Choice("compute", {"coefficient": 0.076}), place=Choice("best_fit")),
    PolicySet(wait=Choice("star", {"coefficient": 30 * SECOND, "h": 5 * SECOND, "k": 2})),
    PolicySet(wait=Choice("budget", {"b": 0.2}), order=Choice("lifo"), depth=1),
    PolicySet(wait=Choice("constant", {"wait": 30 * SECOND}), order=Choice("ljf"), depth=2),
    PolicySet(wait=Choice("break_even", {"coefficient": 0.5}), place=Choice("spread")),
]


class Clusters:
    """Simulated clusters and people, as the live loop sees them: they propose, and do what has become durable."""

    def __init__(self, time: VirtualTime, jobs: Sequence[TraceJob], setting: Setting) -> None:
        self._jobs = jobs
        self._setting = setting
        self._at = 0
        self._world = SimulatedWorld(jobs, setting.scene.site)
        self._said: list[asyncio.Task[object]] = []
        self._time = time
        self.store = open_memory()
        self.loop = Loop(self.store.journal, load, time, debug=True)
        self.loop.listen(lambda _, events: self._world.carry_out(events))
        self.done = asyncio.Event()

    def next_time(self) -> int:
        """See Outside."""
        submit = self._jobs[self._at].submit if self._at < len(self._jobs) else FOREVER
        due = min(self._world.next_time(), submit)
        return self._time.now if self._over(due) else due

    def happen(self, now: int) -> None:
        """See Outside."""
        if self._over(self._world.next_time()):
            self.done.set()
        said: list[Proposal] = [*self._world.observe(now)]
        while self._at < len(self._jobs) and self._jobs[self._at].submit <= now:
            said.append(submission(self._at, self._jobs[self._at], Shapes(self._setting.fleet)))
            self._at += 1
        self._said.append(asyncio.ensure_future(self.loop.propose(*said), loop=self._time))

    def _over(self, due: int) -> bool:
        """Whether nothing more can happen."""
        left = self._at < len(self._jobs) or due < FOREVER or self.loop.engine.next_time() < FOREVER
        return not left and not self.done.is_set()

    async def live(self) -> list[bytes]:
        """The journal, once nothing more can happen."""
        epoch = await self.store.election.campaign("test", "http://test")
        assert isinstance(epoch, int)
        self.loop.begin(epoch, await self.loop.load())
        running = asyncio.create_task(self.loop.run())
        try:
            await self.loop.propose(*opening(self._setting))
            self._time.outside = self
            await self.done.wait()
            self._time.outside = None
            await asyncio.gather(*self._said)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        return [stored.event async for stored in self.store.journal.tail(0)]


def lived(jobs: Sequence[TraceJob], setting: Setting) -> list[bytes]:
    """The journal of the live loop."""

    async def live(time: VirtualTime) -> list[bytes]:
        return await Clusters(time, jobs, setting).live()

    return run_virtually(live)


def simulated(jobs: Sequence[TraceJob], setting: Setting) -> list[bytes]:
    """The journal of the simulator."""
    events: list[AnyEvent] = []
    simulate(jobs, setting, lambda _, step: events.extend(step))
    return [encode_event(event) for event in events]


def same(jobs: Sequence[TraceJob], setting: Setting) -> list[bytes]:
    """Both, which are one, and lead to the plans that they stored."""
    live, simulation = lived(jobs, setting), simulated(jobs, setting)
    for number, (one, other) in enumerate(zip(live, simulation, strict=False), 1):
        assert one == other, (number, decode_event(one), decode_event(other))
    assert len(live) == len(simulation), [decode_event(each) for each in (live + simulation)[-3:]]
    replay = Replay(load)
    for revision, event in enumerate(live, 1):
        replay.take(revision, decode_event(event))
    replay.end(len(live))
    assert replay.difference is None
    return live


@st.composite
def traces(draw: st.DrawFn) -> list[TraceJob]:
    milliseconds = SECOND // 1000
    drawn = draw(
        st.lists(
            st.tuples(
                st.one_of(st.sampled_from([0, 0, 10_000, 60_000]), st.integers(0, 90_000)),
                st.one_of(st.sampled_from([0, 5_000, 60_000]), st.integers(1, 120_000)),
                st.sampled_from([0, 0, 1, 1, 2, 3, 6]),
                st.sampled_from([500, 1000, 2000, 4000, 9000]),
                st.sampled_from([None, None, 20, 200]),
                st.sampled_from(["p", "q", "r"]),
            ),
            min_size=1,
            max_size=14,
        )
    )
    return [
        TraceJob(
            str(number),
            submit * milliseconds,
            runtime * milliseconds,
            gpus,
            cpus,
            project=project,
            estimate=None if told is None else told * SECOND,
        )
        for number, (submit, runtime, gpus, cpus, told, project) in enumerate(
            sorted(drawn, key=lambda row: row[0])
        )
    ]


@settings(max_examples=examples(60), suppress_health_check=list(HealthCheck))
@given(
    jobs=traces(),
    policies=st.sampled_from(POLICIES),
    rent=st.sampled_from([RENT, SLOW_TO_START]),
)
def test_the_live_loop_and_the_simulator_write_the_same_journal(
    jobs: list[TraceJob], policies: PolicySet, rent: Rent
) -> None:
    same(jobs, Setting(FLEET, rent, policies))


@pytest.mark.parametrize("policies", few_of(1, POLICIES), ids=lambda policies: policies.wait.name)
def test_a_busy_hour_is_the_same_live_and_simulated(policies: PolicySet) -> None:
    jobs = [
        TraceJob(
            str(number),
            number * 17 * SECOND,
            (number * 7919 % 400 + 1) * SECOND,
            number % 4,
            1000 + 500 * (number % 5),
            project="pqr"[number % 3],
            estimate=(number * 31 % 300 + 1) * SECOND if number % 2 else None,
        )
        for number in range(200)
    ]
    assert len(same(jobs, Setting(FLEET, RENT, policies))) > 3 * len(jobs)


def test_a_job_that_ends_at_the_moment_at_which_it_is_brought_back_has_ended() -> None:
    star = PolicySet(wait=Choice("star", {"coefficient": 30 * SECOND, "h": 5 * SECOND, "k": 1.0}))
    jobs = [TraceJob(str(number), 0, 5 * SECOND, 2, 1000) for number in range(4)]
    events = [decode_event(event) for event in same(jobs, Setting(FLEET, RENT, star))]
    assert sum(type(event) is JobEnded for event in events) == len(jobs)
