"""Looking ahead decides as a replay does that knows no shortcuts, and as a scheduler does that has just been restarted."""

from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spillover.deciding.cycle import cycle
from spillover.deciding.cycle.plan import Plan
from spillover.deciding.engine import Engine, Step
from spillover.deciding.queue.index import SchedulingIndex
from spillover.model.cluster import Billing, Price
from spillover.model.policy import Choice, PolicySet
from spillover.model.resources import Resources
from spillover.model.units import FOREVER, MINUTE, SECOND
from spillover.sim import runner
from spillover.sim.runner import simulate
from spillover.sim.setting import RENTED, Fleet, Rent, Setting
from spillover.sim.trace import TraceJob
from tests.support.tiers import examples

UNIT = 4
"""GPUs of a node."""
NODE = Resources(10**9, 2**60, UNIT)


class Running(NamedTuple):
    """A job on owned machines."""

    job: int
    began: int
    ends: int
    expected: int
    """When it is expected to end."""
    parts: dict[int, int]


class Plain:
    """The rules of break_even on GPUs alone, each from scratch: slow, and short enough to be seen to be right."""

    def __init__(
        self, jobs: list[TraceJob], nodes: int, part: tuple[int, int], most: int, rules: str
    ) -> None:
        self.jobs = jobs
        self.nodes = nodes
        self.part = part
        self.most = most
        self.strict = "strict" in rules
        self.first_fit = "first_fit" in rules
        self.started: dict[int, tuple[int, bool]] = {}
        self.queue: list[int] = []
        self.running: list[Running] = []

    def run(self) -> list[tuple[int, bool]]:
        """When each job starts, and whether it is rented."""
        while True:
            ends = [one.ends for one in self.running]
            comes = [job.submit for at, job in enumerate(self.jobs) if not self.seen(at)]
            now = min([*ends, *comes, *[self.latest(at) for at in self.queue]], default=FOREVER)
            if now == FOREVER:
                return [self.started[at] for at in range(len(self.jobs))]
            self.step(now)

    def seen(self, at: int) -> bool:
        return at in self.started or at in self.queue

    def patience(self, at: int) -> int:
        up, down = self.part
        return up * self.jobs[at].gpus * (self.jobs[at].estimate or 0) // down

    def latest(self, at: int) -> int:
        return self.jobs[at].submit + 3 * self.patience(at)

    def rent(self, at: int, now: int) -> None:
        self.started[at] = (now, True)
        self.queue.remove(at)

    def step(self, now: int) -> None:
        """Ends, waits that are over, arrivals, placement, and a look ahead."""
        self.running = [one for one in self.running if one.ends > now]
        before = self.queue[: 5 * self.most]
        fresh = [at for at, job in enumerate(self.jobs) if job.submit == now and not self.seen(at)]
        self.queue += fresh
        self.place(now)
        for at in [at for at in self.queue if self.latest(at) <= now]:
            self.rent(at, now)
        fresh = [at for at in fresh if at in self.queue][: 5 * self.most]
        if fresh:
            looked_at = [at for at in self.queue if at in before or at in fresh]
            for at in self.late(now, fresh, looked_at):
                self.rent(at, now)
        if self.strict:  # those that were rented have made way
            self.place(now)

    def place(self, now: int) -> None:
        """Start what fits, in order."""
        for at in list(self.queue):
            parts = self.fit(self.free(self.running), self.jobs[at].gpus)
            if parts is None:
                if self.strict:
                    break
                continue
            job = self.jobs[at]
            self.queue.remove(at)
            self.started[at] = (now, False)
            self.running.append(Running(at, now, now + job.runtime, now + (job.estimate or 0), parts))

    def late(self, now: int, fresh: list[int], queue: list[int]) -> list[int]:
        """Jobs that are not expected to start in time."""
        ends = [
            one._replace(expected=now + max(MINUTE, (now - one.began) * 3 // 10))
            if one.expected <= now
            else one
            for one in self.running
        ]
        limits = {
            at: now + min(self.latest(at) - now, self.patience(at) - (now - self.jobs[at].submit) // 3)
            for at in queue
        }
        soonest = min((one.expected for one in ends), default=FOREVER)
        late = [at for at in fresh if limits[at] <= soonest]
        if len(late) == len(fresh):
            return late
        waiting = [at for at in queue if at not in late]
        seen = 0
        while waiting and seen < self.most:
            now = min((one.expected for one in ends), default=FOREVER)
            late += [at for at in waiting if limits[at] <= now]
            waiting = [at for at in waiting if limits[at] > now]
            seen += sum(1 for one in ends if one.expected == now)
            ends = [one for one in ends if one.expected > now]
            for at in list(waiting):
                parts = self.fit(self.free(ends), self.jobs[at].gpus)
                if parts is None:
                    if self.strict:
                        break
                    continue
                waiting.remove(at)
                ends.append(Running(at, now, 0, now + (self.jobs[at].estimate or 0), parts))
        return late

    def free(self, running: list[Running]) -> list[int]:
        free = [UNIT] * self.nodes
        for one in running:
            for node, gpus in one.parts.items():
                free[node] -= gpus
        return free

    def fit(self, free: list[int], gpus: int) -> dict[int, int] | None:
        """Whole nodes, and then the rest where the place policy puts it."""
        whole, rest = divmod(gpus, UNIT) if gpus > UNIT else (0, gpus)
        empty = [node for node in range(self.nodes) if free[node] == UNIT][:whole]
        parts = dict.fromkeys(empty, UNIT)
        if len(parts) < whole:
            return None
        if rest:
            fitting = [node for node in range(self.nodes) if free[node] >= rest and node not in parts]
            if not fitting:
                return None
            best = fitting[0] if self.first_fit else min(fitting, key=lambda node: (free[node], node))
            parts[best] = rest
        return parts


@st.composite
def job_lists(draw: st.DrawFn) -> list[TraceJob]:
    """Jobs of which less or more is expected than comes; some are larger than a node, or than all of them."""
    submits = sorted(draw(st.lists(st.integers(0, 400), min_size=1, max_size=30)))
    return [
        TraceJob(
            str(number),
            submit * SECOND,
            draw(st.integers(1, 300)) * SECOND,
            gpus=draw(st.sampled_from([1, 1, 2, 3, 4, 6, 8, 16])),
            estimate=draw(st.integers(1, 300)) * SECOND,
        )
        for number, submit in enumerate(submits)
    ]


def setting(nodes: int, coefficient: float, most: int, backfill: str, place: str) -> Setting:
    wait = Choice("break_even", {"coefficient": coefficient, "most_ends": most})
    policies = PolicySet(backfill=Choice(backfill), wait=wait, place=Choice(place))
    return Setting(Fleet(nodes, NODE), Rent(Price(), Billing()), policies)


COEFFICIENTS = {0.05: (1, 20), 0.2: (1, 5), 0.5: (1, 2), 2.0: (2, 1)}
backfills = st.sampled_from(["out_of_order", "out_of_order", "strict"])
places = st.sampled_from(["best_fit", "first_fit"])


@settings(max_examples=examples(300))
@given(
    job_lists(),
    st.integers(1, 3),
    st.sampled_from(sorted(COEFFICIENTS)),
    st.sampled_from([1, 3, 200]),
    backfills,
    places,
)
def test_it_rents_what_a_plain_replay_says(
    jobs: list[TraceJob], nodes: int, coefficient: float, most: int, backfill: str, place: str
) -> None:
    plain = Plain(jobs, nodes, COEFFICIENTS[coefficient], most, f"{backfill} {place}").run()
    found = simulate(jobs, setting(nodes, coefficient, most, backfill, place))
    assert [(one.start, one.cluster == RENTED) for one in found] == plain


class Checked(Engine):
    """An engine that compares each plan with that of a index which was made from the book alone."""

    def _cycle(self, now: int, step: Step) -> Plan | None:
        index = SchedulingIndex(self.state, self.policies)
        anew = cycle.run(self.state, index, self.policies, now, self.state.facts.cycles).plan
        plan = super()._cycle(now, step)
        assert plan == (anew or None)
        return plan


@settings(max_examples=examples(100))
@given(job_lists(), st.integers(1, 3), st.sampled_from(sorted(COEFFICIENTS)), backfills, places)
def test_a_board_that_is_made_anew_decides_the_same(
    jobs: list[TraceJob], nodes: int, coefficient: float, backfill: str, place: str
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "Engine", Checked)
        simulate(jobs, setting(nodes, coefficient, 200, backfill, place))
