"""Chooses the machines to order for jobs that nothing else takes in time: the cheapest for the work that they would do.

Each choice imagines one machine of every open offer, fills it with the first jobs that fit, and compares what the machine
costs with how much work it takes over. Boot time and whole billing steps are part of the cost. All machines of a gang
are of one offer, so they are in one zone, and the pool must have room and money for all of them.
"""

from collections.abc import Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from spillover.deciding.renting.demand import Demand, weight_of
from spillover.deciding.renting.money import PoolMoney
from spillover.deciding.renting.offers import OpenOffer
from spillover.deciding.renting.room import Room
from spillover.model.cluster import billed
from spillover.model.ids import ClusterName, JobId

MOST_FILLED: Final = 256
"""The most jobs and array members that an imagined machine is filled with."""


class Choice(Struct, frozen=True):
    """Machines of one offer to order."""

    offer: OpenOffer
    machines: int
    job: JobId | None
    """The first job that they are for; None for machines that are always there."""
    stays: int
    """Expected nanoseconds from ready to empty."""
    gang: bool = False


class Limits:
    """How many more machines each pool may order."""

    def __init__(self, left: dict[ClusterName, int], money: dict[ClusterName, PoolMoney]) -> None:
        self._left = left
        self._money = money

    def allow(self, offer: OpenOffer, machines: int, stays: int) -> bool:
        """Return whether a pool has room and money for this many machines."""
        name = offer.spec.name
        return self._left.get(name, 0) >= machines and self._money[name].pays(offer, machines, stays)

    def take(self, choice: Choice) -> None:
        """Count machines that are to be ordered."""
        name = choice.offer.spec.name
        self._left[name] -= choice.machines
        self._money[name].take(choice.offer, choice.machines, choice.stays)


def choose(demand: Sequence[Demand], offers: Sequence[OpenOffer], limits: Limits) -> list[Choice]:
    """Return the machines to order for jobs, in the order of the jobs."""
    chosen: list[Choice] = []
    left = [each for each in demand if each.count]
    while left:
        choice = (
            _for_gang(left[0], offers, limits)
            if left[0].job.kind.shape.is_gang
            else _for_tasks(left, offers, limits)
        )
        if choice is None or choice.gang:
            left[0].count = 0  # served, or given up for this time
        if choice is not None:
            chosen.append(choice)
            limits.take(choice)
        left = [each for each in left if each.count]
    return _joined(chosen)


class _Filled(Struct):
    """What an imagined machine takes over."""

    taken: list[int]
    """How many of each job."""
    stays: int
    """Nanoseconds from ready to empty."""
    work: int
    """How much work that is, in the unit of `weight_of`."""


def _for_tasks(left: Sequence[Demand], offers: Sequence[OpenOffer], limits: Limits) -> Choice | None:
    """Choose a machine for the first job, and take over what it takes; None if there is none."""
    best: tuple[float, int, OpenOffer, _Filled] | None = None
    for number, offer in enumerate(offers):
        if not offer.admits(left[0].job, safe=left[0].safe):
            continue
        filled = _fill(offer, left)
        if not filled.work or not limits.allow(offer, 1, filled.stays):
            continue
        dear = offer.cost(filled.stays) / filled.work
        if best is None or (dear, number) < best[:2]:
            best = (dear, number, offer, filled)
    if best is None:
        return None
    _, _, offer, filled = best
    job = left[0].job.id
    for each, count in zip(left, filled.taken, strict=False):
        each.count -= count
    return Choice(offer, 1, job, filled.stays)


def _fill(offer: OpenOffer, left: Sequence[Demand]) -> _Filled:
    """Fill an imagined machine with the first jobs that fit, and then with others while its time is paid anyway."""
    _, machine = offer.machine()
    jobs = [each for each in left[:MOST_FILLED] if offer.admits(each.job, safe=each.safe)]
    own = {each.job.id: replace(each, count=min(each.count, MOST_FILLED)) for each in jobs}
    room = Room(0)
    room.add_ready(0, machine)
    room.take(own.values(), lambda _: 0)
    first = [each for each in jobs if own[each.job.id].count < min(each.count, MOST_FILLED)]
    stays = max([each.runs for each in first], default=0)
    paid = billed(offer.spec.billing, offer.boot + stays) - offer.boot
    if first and paid > stays:
        room.take(own.values(), lambda each: min(paid - each.runs, max(offer.boot, each.patience)))
    taken = [
        min(each.count, MOST_FILLED) - own[each.job.id].count if each.job.id in own else 0 for each in left
    ]
    work = sum(
        [
            count * weight_of(each.job, each.runs, offer.spec)
            for each, count in zip(left, taken, strict=True)
            if count
        ]
    )
    return _Filled(taken, stays, work)


def _for_gang(demand: Demand, offers: Sequence[OpenOffer], limits: Limits) -> Choice | None:
    """Choose machines for all tasks of a gang: of one offer, the cheapest."""
    best: tuple[int, int, Choice] | None = None
    for number, offer in enumerate(offers):
        machines = (
            offer.machines_for(demand.job.kind.shape) if offer.admits(demand.job, safe=demand.safe) else 0
        )
        if not machines or not limits.allow(offer, machines, demand.runs):
            continue
        cost = machines * offer.cost(demand.runs)
        if best is None or (cost, number) < best[:2]:
            best = (cost, number, Choice(offer, machines, demand.job.id, demand.runs, gang=True))
    return None if best is None else best[2]


def _joined(chosen: Sequence[Choice]) -> list[Choice]:
    """Return choices with machines of one offer together, where they are next to each other and for no gang."""
    joined: list[Choice] = []
    for each in chosen:
        last = joined[-1] if joined else None
        if last is not None and not each.gang and not last.gang and last.offer is each.offer:
            joined[-1] = Choice(last.offer, last.machines + 1, last.job, max(last.stays, each.stays))
        else:
            joined.append(each)
    return joined
