"""EASY backfill never delays the job at the head of the queue: its start is no later than it could first be promised."""

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from spillover.core.events import AnyEvent, GangPlaced, JobEnded, JobPlaced, JobSubmitted
from spillover.model.policy import Choice
from spillover.model.resources import Resources
from spillover.model.units import SECOND
from spillover.sim.runner import simulate
from spillover.sim.setting import Setting
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
from tests.support.tiers import examples

EASY = Choice("easy")


class Promises:
    """Watches a simulation and works out, from the events alone, when each head could start at the latest."""

    def __init__(self, jobs: Sequence[TraceJob], setting: Setting) -> None:
        self.jobs = jobs
        self.shapes = [shape_of(job, setting) for job in jobs]
        self.nodes = [f"n{number}" for number in range(1, setting.fleet.count + 1)]
        self.queue: list[int] = []
        self.running: dict[int, tuple[int, dict[str, Resources]]] = {}
        self.promised: dict[int, int] = {}

    def __call__(self, now: int, events: Sequence[AnyEvent]) -> None:
        for event in events:
            if isinstance(event, JobSubmitted):
                self.queue.append(int(event.job))
            elif isinstance(event, JobEnded):
                del self.running[int(event.job)]
            elif isinstance(event, JobPlaced | GangPlaced):
                job = int(event.job)
                nodes = (event.node,) if isinstance(event, JobPlaced) else event.nodes
                self.queue.remove(job)
                self.running[job] = (now + self.jobs[job].runtime, self._holds(job, nodes))
                assert now <= self.promised.get(job, now), f"{job} was promised {self.promised[job]}"
        if self.queue:
            head = self.queue[0]
            self.promised.setdefault(head, self._could_start(head, now))

    def _holds(self, job: int, nodes: Sequence[str]) -> dict[str, Resources]:
        asked = held_by_rank(self.shapes[job], len(nodes))
        holds: dict[str, Resources] = {}
        for node, each in zip(nodes, asked, strict=True):
            holds[node] = holds.get(node, Resources()) + each
        return holds

    def _could_start(self, head: int, now: int) -> int:
        """The first moment at which it fits if nothing else starts."""
        moments = sorted({now, *(end for end, _ in self.running.values())})
        return next(at for at in moments if self._fits(head, at))

    def _fits(self, head: int, at: int) -> bool:
        free = dict.fromkeys(self.nodes, NODE)
        for end, holds in self.running.values():
            if end > at:
                for node, asked in holds.items():
                    free[node] -= asked
        for each in tasks_to_place(
            self.shapes[head]
        ):  # whole machines before the rest, so taking any that fits is as good as the best
            roomy = [node for node in self.nodes if each.fits(free[node])]
            if not roomy:
                return False
            free[roomy[0]] -= each
        return True


@settings(max_examples=examples(300))
@given(job_lists(), st.integers(2, 4), st.sampled_from(["first_fit", "best_fit", "worst_fit"]))
def test_the_head_starts_no_later_than_it_was_promised(jobs: list[TraceJob], nodes: int, place: str) -> None:
    where = on_machines(nodes, EASY, place)
    outcomes = simulate(jobs, where, Promises(jobs, where))
    assert len(outcomes) == len(jobs)


@settings(max_examples=examples(300))
@given(gang_lists(), st.integers(4, 5))
def test_so_does_a_gang_with_groups_or_of_elastic_size(jobs: list[TraceJob], nodes: int) -> None:
    where = on_machines(nodes, EASY)
    outcomes = simulate(jobs, where, Promises(jobs, where))
    assert len(outcomes) == len(jobs)


def test_out_of_order_breaks_the_promise_that_easy_keeps() -> None:
    whole, one = NODE.cpu * 2, 1000
    jobs = [
        TraceJob("long", 0, 10 * SECOND, cpus=4000, estimate=10 * SECOND),
        TraceJob("head", SECOND, 5 * SECOND, cpus=whole, estimate=5 * SECOND),
        TraceJob("late", 2 * SECOND, 60 * SECOND, cpus=one, estimate=60 * SECOND),
        TraceJob("brief", 2 * SECOND, 8 * SECOND, cpus=one, estimate=8 * SECOND),
    ]
    easy = {jobs[each.job].id: each.start for each in simulate(jobs, on_machines(2, EASY))}
    plain = {jobs[each.job].id: each.start for each in simulate(jobs, on_machines(2, Choice("out_of_order")))}
    assert easy == {"long": 0, "head": 10 * SECOND, "late": 15 * SECOND, "brief": 2 * SECOND}
    assert plain["late"] == 2 * SECOND
    assert plain["head"] == 62 * SECOND


def test_room_beyond_what_the_head_needs_is_given_to_others_however_long_they_run() -> None:
    jobs = [
        TraceJob("long", 0, 10 * SECOND, cpus=3000, gpus=1, estimate=10 * SECOND),
        TraceJob("head", SECOND, 5 * SECOND, cpus=2000, gpus=2, estimate=5 * SECOND),
        TraceJob("beside", 2 * SECOND, 60 * SECOND, cpus=1000, estimate=60 * SECOND),
        TraceJob("in its way", 2 * SECOND, 60 * SECOND, gpus=1, estimate=60 * SECOND),
    ]
    starts = {jobs[each.job].id: each.start for each in simulate(jobs, on_machines(1, EASY))}
    assert starts == {"long": 0, "head": 10 * SECOND, "beside": 2 * SECOND, "in its way": 15 * SECOND}
