"""Nothing of others runs on a reserved node within its window, under every backfill policy, if runtimes are exact."""

import heapq
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from spillover.core.proposals import Done, Reserve
from spillover.core.records.jobs import Queued
from spillover.deciding.capacity import matching
from spillover.deciding.reserving import Choice as Chosen
from spillover.deciding.reserving import NoChoice, Request, choose
from spillover.model.cluster import ClusterSpec, Role
from spillover.model.ids import ClusterName
from spillover.model.policy import Choice, PolicySet
from spillover.model.reservation import AdvanceReservation
from spillover.model.topology import Level, Topology
from spillover.model.units import SECOND
from spillover.policies.loading import load
from spillover.testing.builders import a_job
from spillover.testing.world import START, World
from tests.support.tiers import examples

RACK = Level("rack", "example.com/rack")
CLUSTER = ClusterSpec(ClusterName("onprem"), "agents", Role.OWNED, gangs=True, levels=(RACK,))
BACKFILLS = [
    Choice("strict"),
    Choice("out_of_order"),
    Choice("easy"),
    Choice("conservative"),
    Choice("hybrid", {"depth": 2}),
]
PROJECTS = ["physics", "chemistry"]


class Job(NamedTuple):
    """A job that runs exactly as long as it says."""

    at: int
    seconds: int
    cpus: int
    tasks: int
    project: str
    limited: bool
    topology: Topology | None
    members: int
    named: bool


class Wish(NamedTuple):
    """A reservation that somebody asks for."""

    at: int
    ahead: int
    seconds: int
    nodes: int
    project: str
    within: str


jobs = st.builds(
    Job,
    st.integers(0, 60),
    st.integers(1, 30),
    st.integers(1, 4),
    st.sampled_from([1, 1, 1, 2, 3]),
    st.sampled_from(PROJECTS),
    st.booleans(),
    st.sampled_from([None, None, Topology(within="rack"), Topology(exclusive=True)]),
    st.sampled_from([1, 1, 3]),
    st.booleans(),
)
wishes = st.builds(
    Wish,
    st.integers(0, 40),
    st.integers(0, 40),
    st.integers(1, 40),
    st.integers(1, 3),
    st.sampled_from([*PROJECTS, ""]),
    st.sampled_from(["", "", "rack"]),
)


class Story:
    """Plays jobs and reservations second by second, with agents that end every job on time."""

    def __init__(self, backfill: Choice, nodes: int, wait: Choice) -> None:
        clusters = (CLUSTER,) if wait.name == "never" else (CLUSTER, RENTED)
        self.w = World(load, PolicySet(backfill=backfill, wait=wait), clusters)
        for number in range(nodes):
            self.w.agent(f"n{number}", cpus=4, labels={RACK.label: f"r{number // 2}"})
        self.ends: list[tuple[int, str]] = []
        self.lasts: dict[str, int] = {}
        self.running: dict[str, None] = {}
        self.made: list[AdvanceReservation] = []

    def play(self, jobs: list[Job], wishes: list[Wish]) -> None:
        arrivals: list[Job | Wish] = sorted([*jobs, *wishes], key=lambda each: each.at)
        second, number = 0, 0
        while number < len(arrivals) or self.ends or self.w.state.reservations:
            ends = [each.start for each in self.made] + [each.end for each in self.made]
            times = [arrivals[number].at] if number < len(arrivals) else []
            times += [self.ends[0][0]] if self.ends else []
            times += [(at - START) // SECOND for at in ends if at > self.w.now]
            following = max(second, min(times))
            self.w.wait(seconds=following - second)
            second = following
            self._start(second)
            while self.ends and self.ends[0][0] <= second:
                job = heapq.heappop(self.ends)[1]
                del self.running[job]
                self.w.finish(job, ran=self.lasts[job.partition(".")[0]])
                self._start(second)
            if number < len(arrivals) and arrivals[number].at == second:
                each = arrivals[number]
                number += 1
                if isinstance(each, Wish):
                    self._reserve(f"res{number}", each)
                else:
                    self._submit(f"job{chr(97 + number)}", each)
                self._start(second)
            self._check()

    def _submit(self, name: str, job: Job) -> None:
        built = a_job(name).cpus(job.cpus).project(job.project)
        if job.limited:
            built.terms(walltime=job.seconds * SECOND)
        else:
            built.expected(seconds=job.seconds)
        if job.members > 1:
            built.array(1, job.members)
        else:
            built.tasks(job.tasks)
        if job.topology is not None:
            built.together(job.topology)
        own = [
            each.name
            for each in self.w.state.reservations.values()
            if each.project == job.project and each.end - each.start >= job.seconds * SECOND
        ]
        if job.named and own:
            built.reservation(own[0])
        shape = built.spec().shape
        if matching.most_ever(self.w.engine.index.capacity[CLUSTER.name], shape) < shape.tasks:
            return  # a strict queue would wait for it for ever
        self.lasts[name] = job.seconds
        self.w.submit(built)

    def _start(self, second: int) -> None:
        for each in self.w.placed():
            if each not in self.running:
                self.running[each] = None
                self.w.start(each)
                heapq.heappush(self.ends, (second + self.lasts[each.partition(".")[0]], each))

    def _reserve(self, name: str, wish: Wish) -> None:
        now = self.w.now
        request = Request(now + wish.ahead * SECOND, wish.seconds * SECOND, wish.nodes, within=wish.within)
        found = choose(self.w.engine.index, request, now)
        if isinstance(found, NoChoice):
            if found.earliest is None:
                return
            assert found.earliest > request.start
            request = Request(found.earliest, request.length, wish.nodes, within=wish.within)
            found = choose(self.w.engine.index, request, now)
        assert isinstance(found, Chosen), "the earliest other time is one"
        end = request.start + request.length
        made = AdvanceReservation(name, found.cluster, found.nodes, request.start, end, wish.project)
        assert self.w.propose(Reserve(made)) == Done()
        self.made.append(made)

    def _check(self) -> None:
        """No node is used by others within a window."""
        for each in self.made:
            if not each.start <= self.w.now < each.end or each.name not in self.w.state.reservations:
                continue
            for name in each.nodes:
                for job in self.w.state.nodes[f"onprem/{name}"].jobs:
                    assert self.w.job(job).kind.project == each.project, f"{job} runs in {each}"


RENTED = ClusterSpec(ClusterName("cloud"), "agents", Role.RENTED)


@settings(max_examples=examples(150), deadline=None)
@given(
    st.sampled_from(BACKFILLS),
    st.sampled_from([Choice("never"), Choice("break_even", {"coefficient": 5.0})]),
    st.integers(1, 5),
    st.lists(jobs, min_size=1, max_size=12),
    st.lists(wishes, min_size=1, max_size=4),
)
def test_nothing_of_others_runs_within_a_window_and_all_jobs_run_in_the_end(
    backfill: Choice, wait: Choice, nodes: int, jobs: list[Job], wishes: list[Wish]
) -> None:
    story = Story(backfill, nodes, wait)
    story.play(jobs, wishes)
    left = [
        job
        for job in story.w.state.jobs.values()
        if type(job.phase) is Queued and not job.kind.shape.reservation
    ]
    assert not left, f"these never ran: {[job.id for job in left]}"
    assert story.w.now >= START
