"""What an empty machine costs before it is given back, compared with somebody who knows the future.

Billed by the second, an empty machine stays for one boot time. So a machine for a job that comes later never costs more
than twice the best: to keep each machine exactly as long as that is cheaper than another boot. Draining takes two seconds
more for each machine.
"""

from collections.abc import Sequence
from random import Random

import pytest

from spillover.core.events import AnyEvent, MachinesDraining, MachinesWanted
from spillover.deciding.renting.giving_back import DRAINED_FOR
from spillover.forms.policystring import read_policies
from spillover.model.cluster import Billing, ClusterSpec, Role, billed, pool_price
from spillover.model.ids import ClusterName
from spillover.model.job import Burst, Shape
from spillover.model.pools import Offer, Pool
from spillover.model.resources import Resources
from spillover.model.units import HOUR, MINUTE, MONEY, SECOND
from spillover.sim.pools import Boots, PoolNumbers, SimulatedPool
from spillover.sim.runner import simulate
from spillover.sim.setting import Scene, Site
from spillover.sim.trace import Own, TraceJob
from tests.support.tiers import few_of

CLOUD = ClusterName("cloud")
OFFER = Offer("one", Resources(1000, 2**30), MONEY)
NEAR = SECOND // 100
"""Simulated boots differ by some nanoseconds, and amounts are rounded up."""
AT_ONCE = read_policies("wait=zero")


class Story:
    """Jobs that come one after the other to a pool with one machine, and what that costs."""

    def __init__(self, jobs: Sequence[tuple[int, int]], boot: int, billing: Billing) -> None:
        self.jobs = jobs
        """When each comes and how long it runs, in nanoseconds."""
        self.boot = boot
        self.billing = billing
        self.drained: list[int] = []
        self.ordered: list[int] = []
        pool = Pool("sim", (OFFER,), max=1, boot=boot, join_within=HOUR)
        spec = ClusterSpec(CLOUD, "agents", Role.RENTED, pool_price(pool), billing, pool=pool)
        exact = {OFFER.key: Boots(boot, boot + 1)}  # all boots take the same time
        site = Site((spec,), (), pools={CLOUD: SimulatedPool(pool, boots=exact, to_end=0)})
        shape = Shape(Resources(1000, 2**30), burst=Burst.ALWAYS)
        trace = [
            TraceJob(
                str(at), begin, runs, 0, 1000, 0, 2**30, estimate=runs, own=Own(shape, "job", "default", 0)
            )
            for at, (begin, runs) in enumerate(jobs)
        ]
        found: dict[ClusterName, PoolNumbers] = {}
        self.outcomes = simulate(trace, Scene(site, AT_ONCE), self._hear, pools=found)
        assert len(self.outcomes) == len(jobs)
        self.machines = found[CLOUD].machines
        self.paid = round(found[CLOUD].paid_hours * HOUR)
        """Nanoseconds of machines that were paid."""

    def _hear(self, now: int, events: Sequence[AnyEvent]) -> None:
        self.drained += [now for each in events if isinstance(each, MachinesDraining)]
        self.ordered += [now for each in events if isinstance(each, MachinesWanted)]

    @property
    def best(self) -> int:
        """Nanoseconds that somebody would pay who knows all jobs: whose machines are ready when they come."""
        spans: list[tuple[int, int]] = []
        for begin, runs in self.jobs:
            start = max(begin, spans[-1][1] if spans else 0)
            spans.append((start, start + runs))
        costs = [0]
        for last in range(len(spans)):
            # The last machine does the jobs from `first` on.
            costs.append(
                min(
                    costs[first] + billed(self.billing, self.boot + spans[last][1] - spans[first][0])
                    for first in range(last + 1)
                )
            )
        return costs[-1]


def a_story(dice: Random, billing: Billing, boot: int) -> Story:
    """Jobs with pauses that are about as long as a boot, or as the shortest time that is paid."""
    jobs: list[tuple[int, int]] = []
    now = 0
    for _ in range(dice.randint(1, 12)):
        near = dice.choice([0, boot, 2 * boot, billing.minimum, dice.choice([3, 10]) * boot])
        now += max(0, near + round(dice.choice([0, 0.01, 1]) * dice.uniform(-boot, boot)))
        runs = dice.choice([SECOND, boot // 3 + 1, boot, 5 * boot, billing.minimum + 1])
        jobs.append((now, runs))
        now += runs + boot * dice.choice([0, 0, 1])
    return Story(jobs, boot, billing)


SEEDS = range(400)


@pytest.mark.parametrize("seed", few_of(60, SEEDS))
def test_giving_back_costs_at_most_twice_of_what_somebody_pays_who_knows_the_future(seed: int) -> None:
    dice = Random(seed)
    boot = dice.choice([20, 45, 90, 300]) * SECOND
    minimum = dice.choice([0, 0, boot // 2, MINUTE, 10 * MINUTE])
    story = a_story(dice, Billing(SECOND, minimum), boot)
    draining = story.machines * (DRAINED_FOR + SECOND)
    assert story.paid <= 2 * story.best + draining, (story.jobs, boot, minimum)


@pytest.mark.parametrize("seed", few_of(20, SEEDS))
def test_longer_billing_steps_add_one_of_them_for_each_machine(seed: int) -> None:
    dice = Random(seed)
    boot = dice.choice([90, 300]) * SECOND
    step = dice.choice([boot // 3, boot])
    story = a_story(dice, Billing(step, dice.choice([0, step])), boot)
    assert story.paid <= 2 * story.best + story.machines * (step + DRAINED_FOR), (story.jobs, boot, step)


def test_an_empty_machine_stays_one_boot_time() -> None:
    story = Story([(0, MINUTE)], 90 * SECOND, Billing())
    assert story.drained == [pytest.approx(90 * SECOND + MINUTE + 90 * SECOND, abs=NEAR)]
    assert story.paid == pytest.approx(240 * SECOND + DRAINED_FOR, abs=SECOND)


def test_a_job_that_comes_within_one_boot_time_gets_the_same_machine() -> None:
    boot = 90 * SECOND
    end = boot + MINUTE
    assert Story([(0, MINUTE), (end + boot - NEAR, MINUTE)], boot, Billing()).machines == 1
    assert Story([(0, MINUTE), (end + boot + DRAINED_FOR + NEAR, MINUTE)], boot, Billing()).machines == 2


def test_a_machine_stays_until_shortly_before_the_end_of_the_shortest_time_that_is_paid() -> None:
    story = Story([(0, SECOND)], 10 * SECOND, Billing(SECOND, 10 * MINUTE))
    assert story.drained == [9 * MINUTE]
    assert story.paid == pytest.approx(story.best, abs=NEAR)
    assert story.best == 10 * MINUTE


def test_the_worst_that_can_happen_is_twice_the_best() -> None:
    boot = 90 * SECOND
    jobs: list[tuple[int, int]] = []
    now = 0
    for _ in range(50):  # each comes just after its machine was given back
        jobs.append((now, SECOND))
        now += boot + SECOND + boot + DRAINED_FOR + NEAR
    story = Story(jobs, boot, Billing())
    assert story.machines == 50
    ratio = story.paid / story.best
    assert 1.9 < ratio < 2.05, ratio
