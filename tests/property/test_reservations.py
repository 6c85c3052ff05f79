"""Conservative and hybrid backfill keep their reservations, beside a naive calendar of all jobs."""

from collections.abc import Sequence
from random import Random
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spillover.core.events import AnyEvent, GangPlaced, JobEnded, JobPlaced, JobSubmitted
from spillover.deciding.cycle import cycle
from spillover.deciding.cycle.placing import Placer
from spillover.model.cluster import Billing, Price
from spillover.model.job import Shape
from spillover.model.policy import Choice, PolicySet
from spillover.model.resources import Resources
from spillover.model.units import SECOND
from spillover.sim.runner import simulate
from spillover.sim.setting import Fleet, Rent, Setting
from spillover.sim.trace import TraceJob
from tests.support.exact_jobs import (
    NODE,
    gang_lists,
    held_by_rank,
    job_lists,
    on_machines,
    shape_of,
    tasks_to_place,
)
from tests.support.tiers import examples, few_of

CONSERVATIVE = Choice("conservative")


class Calendar:
    """What every machine holds in every second."""

    def __init__(self, nodes: int, node: Resources) -> None:
        self.nodes = nodes
        self.node = node
        self.held: dict[tuple[int, int], Resources] = {}

    def book(self, shape: Shape, since: int, seconds: int) -> int:
        """Give a job the first span in which it fits, on the first machines where it fits; return its start."""
        start = since
        while (parts := self._fit(shape, start, seconds)) is None:
            start += 1
        self.add(parts, start, start + seconds)
        return start

    def add(self, parts: dict[int, Resources], start: int, end: int) -> None:
        for second in range(start, end):
            for number, asked in parts.items():
                self.held[number, second] = self.held.get((number, second), Resources()) + asked

    def _fit(self, shape: Shape, start: int, seconds: int) -> dict[int, Resources] | None:
        parts: dict[int, Resources] = {}
        for asked in tasks_to_place(shape):
            for number in range(self.nodes):
                mine = parts.get(number, Resources()) + asked
                if all(
                    (mine + self.held.get((number, second), Resources())).fits(self.node)
                    for second in range(start, start + seconds)
                ):
                    parts[number] = mine
                    break
            else:
                return None
        return parts


def booked_in_order(jobs: Sequence[TraceJob], where: Setting) -> list[int]:
    """Return when each job starts if each gets the first span that the jobs before it leave, in seconds."""
    calendar = Calendar(where.fleet.count, where.fleet.node)
    return [calendar.book(shape_of(job, where), job.submit // SECOND, job.runtime // SECOND) for job in jobs]


def starts(jobs: Sequence[TraceJob], where: Setting) -> list[int]:
    return [each.start // SECOND for each in simulate(jobs, where)]


@settings(max_examples=examples(300))
@given(job_lists(), st.integers(2, 4))
def test_with_exact_runtimes_each_job_starts_when_the_jobs_ahead_of_it_first_leave_room(
    jobs: list[TraceJob], nodes: int
) -> None:
    where = on_machines(nodes, CONSERVATIVE)
    assert starts(jobs, where) == booked_in_order(jobs, where)


@settings(max_examples=examples(100))
@given(job_lists(), st.sampled_from(["best_fit", "worst_fit", "spread"]))
def test_on_one_machine_that_holds_for_every_place_policy(jobs: list[TraceJob], place: str) -> None:
    where = on_machines(1, CONSERVATIVE, place, node=NODE.times(4))
    assert starts(jobs, where) == booked_in_order(jobs, where)


@settings(max_examples=examples(100))
@given(job_lists(exact=False), st.integers(2, 4), st.sampled_from(["first_fit", "best_fit", "spread"]))
def test_a_reservation_for_every_job_is_conservative(jobs: list[TraceJob], nodes: int, place: str) -> None:
    every = Choice("hybrid", {"depth": len(jobs) + 1})
    assert starts(jobs, on_machines(nodes, every, place)) == starts(
        jobs, on_machines(nodes, CONSERVATIVE, place)
    )


@settings(max_examples=examples(100))
@given(job_lists(exact=False), st.integers(2, 4), st.sampled_from(["first_fit", "best_fit", "spread"]))
def test_one_reservation_is_easy(jobs: list[TraceJob], nodes: int, place: str) -> None:
    one = Choice("hybrid", {"depth": 1})
    assert starts(jobs, on_machines(nodes, one, place)) == starts(
        jobs, on_machines(nodes, Choice("easy"), place)
    )


class Promises:
    """Watches a simulation: what starts must leave the first spans of the jobs ahead of it, in the same cycle."""

    def __init__(self, jobs: Sequence[TraceJob], where: Setting, depth: int) -> None:
        self.jobs = jobs
        self.where = where
        self.depth = depth
        self.shapes = [shape_of(job, where) for job in jobs]
        self.queue: list[int] = []
        self.running: dict[int, tuple[int, dict[int, Resources]]] = {}

    def __call__(self, now: int, events: Sequence[AnyEvent]) -> None:
        second = now // SECOND
        placed: list[int] = []
        for event in events:
            if isinstance(event, JobSubmitted):
                self.queue.append(int(event.job))
            elif isinstance(event, JobEnded):
                del self.running[int(event.job)]
            elif isinstance(event, JobPlaced | GangPlaced):
                job = int(event.job)
                nodes = (event.node,) if isinstance(event, JobPlaced) else event.nodes
                before = self._promised(job, second)
                self._start(job, nodes, second)
                assert self._promised(job, second) == before, f"{job} delays a job ahead of it"
                placed.append(job)
        for job in placed:
            self.queue.remove(job)

    def _start(self, job: int, nodes: Sequence[str], second: int) -> None:
        shape, holds = self.shapes[job], dict[int, Resources]()
        for node, each in zip(nodes, held_by_rank(shape, len(nodes)), strict=True):
            number = int(node.removeprefix("n")) - 1
            holds[number] = holds.get(number, Resources()) + each
        self.running[job] = (second + (self.jobs[job].estimate or 0) // SECOND, holds)

    def _promised(self, job: int, second: int) -> list[int]:
        """Return the starts of the jobs ahead that wait, as far as they have reservations."""
        calendar = Calendar(self.where.fleet.count, self.where.fleet.node)
        for end, holds in self.running.values():
            calendar.add(holds, second, end)
        ahead = [each for each in self.queue if each < job and each not in self.running]
        return [
            calendar.book(self.shapes[each], second, (self.jobs[each].estimate or 0) // SECOND)
            for each in ahead[: self.depth]
        ]


@settings(max_examples=examples(100))
@given(job_lists(exact=False), st.integers(2, 4), st.integers(2, 4))
def test_no_job_that_starts_delays_a_job_with_a_reservation(
    jobs: list[TraceJob], nodes: int, depth: int
) -> None:
    where = on_machines(nodes, Choice("hybrid", {"depth": depth}))
    assert len(simulate(jobs, where, Promises(jobs, where, depth))) == len(jobs)


@settings(max_examples=examples(200))
@given(gang_lists(elastic=False), st.integers(4, 5))
def test_that_holds_for_gangs_and_groups(jobs: list[TraceJob], nodes: int) -> None:
    where = on_machines(nodes, CONSERVATIVE)
    assert starts(jobs, where) == booked_in_order(jobs, where)


@settings(max_examples=examples(150))
@given(gang_lists(exact=False), st.integers(4, 5), st.integers(2, 4))
def test_no_gang_of_elastic_size_that_starts_delays_a_job_with_a_reservation(
    jobs: list[TraceJob], nodes: int, depth: int
) -> None:
    where = on_machines(nodes, Choice("hybrid", {"depth": depth}))
    assert len(simulate(jobs, where, Promises(jobs, where, depth))) == len(jobs)


@settings(max_examples=examples(150))
@given(
    job_lists(exact=False),
    st.integers(2, 4),
    st.sampled_from(
        [Choice("strict"), Choice("easy"), Choice("hybrid", {"depth": 2}), Choice("conservative")]
    ),
    st.sampled_from(["first_fit", "best_fit", "spread"]),
    st.sampled_from(["fifo", "sjf", "ljf", "lifo"]),
)
def test_a_cycle_without_room_for_new_jobs_decides_as_one_that_tries_all_jobs(
    jobs: list[TraceJob], nodes: int, backfill: Choice, place: str, order: str
) -> None:
    where = on_machines(nodes, backfill, place, order=order)
    found = starts(jobs, where)
    with patch.object(Placer, "_only_newcomers_without_room", lambda _: False):
        assert found == starts(jobs, where)


@pytest.mark.parametrize("first", [861, 1072, 1513, 3726, *few_of(1, range(0, 1000, 100))])
def test_a_cycle_that_is_not_repeated_would_decide_nothing_more(first: int) -> None:
    for seed in range(first, first + (1 if first % 100 else 100)):
        jobs, where = full_house(Random(seed))
        found = written(jobs, where)
        with patch.object(cycle, "_is_final", lambda *_: False):
            assert found == written(jobs, where), seed


@pytest.mark.parametrize("first", few_of(1, range(0, 1000, 50)))
def test_reservations_that_were_kept_decide_as_new_ones(first: int) -> None:
    for seed in range(first, first + 50):
        jobs, where = full_house(Random(seed), several=True)
        found = written(jobs, where)
        with patch.object(Placer, "_resume", lambda *_: False):
            assert found == written(jobs, where), seed


def full_house(dice: Random, *, several: bool = False) -> tuple[list[TraceJob], Setting]:
    """More jobs than fit on one large machine or a few small ones; some end before they are expected to, some after that.

    With `several`, more of them come one by one, and several have reservations.
    """
    jobs, at = list[TraceJob](), 0
    for number in range(dice.randint(30, 70) if several else dice.randint(5, 40)):
        at += dice.choice([0, 0, 1, 2, 5])
        runtime = dice.randint(1, 40)
        jobs.append(
            TraceJob(
                str(number),
                at * SECOND,
                runtime * SECOND,
                gpus=dice.choice([0, 0, 1, 2]),
                cpus=dice.choice([1000, 2000, 4000, 8000]),
                memory=dice.choice([0, 1, 4, 8]),
                estimate=max(0, runtime + dice.choice([0, 0, 10, 60, *([] if several else [-3, -60])]))
                * SECOND,
            )
        )
    machines, large = dice.choice([(1, 4), (3, 1), (4, 1)])
    backfills = [Choice("easy"), Choice("hybrid", {"depth": 2}), CONSERVATIVE]
    policies = PolicySet(
        backfill=dice.choice(backfills[1:] if several else backfills),
        wait=dice.choice(
            [
                Choice("never"),
                Choice("constant", {"wait": 15 * SECOND}),
                Choice("break_even", {"coefficient": 0.5}),
                Choice("compute", {"coefficient": 0.5}),
            ]
        ),
        order=Choice(dice.choice(["fifo", "sjf"])),
        place=Choice(dice.choice(["best_fit", "first_fit", "spread"])),
    )
    rent = Rent(Price(cpu_hour=40_000, gpu_hour=2_500_000), Billing())
    return jobs, Setting(Fleet(machines, NODE.times(large)), rent, policies)


def written(jobs: Sequence[TraceJob], where: Setting) -> list[AnyEvent]:
    """Return the journal of a simulation."""
    events: list[AnyEvent] = []
    simulate(jobs, where, lambda _, step: events.extend(step))
    return events


def test_a_new_job_that_takes_the_reservation_of_another_lets_jobs_start_that_would_have_delayed_it() -> None:
    asked = (
        ("runs", 0, 100, 0, 9000),
        ("head", 0, 100, 6, 500),
        ("small", 1, 100, 1, 500),
        ("new", 2, 20, 0, 4000),
    )
    jobs = [
        TraceJob(name, at * SECOND, runs * SECOND, gpus, cpus, estimate=runs * SECOND)
        for name, at, runs, gpus, cpus in asked
    ]
    where = on_machines(3, Choice("easy"), "best_fit", order="sjf")
    first = dict(zip([job.id for job in jobs], starts(jobs, where), strict=True))
    assert first["small"] == 2, "from then on, only the new job has a reservation"
