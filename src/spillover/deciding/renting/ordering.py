"""Chooses the machines to order for jobs that nothing else takes in time: the cheapest for the work that they would do.

Each choice imagines one machine of every open offer, fills it with the first jobs that fit, and compares what the machine
costs with how much work it takes over. Boot time and whole billing steps are part of the cost. All machines of a gang
are of one offer, so they are in one zone, and the pool must have room and money for all of them.
"""

from collections.abc import Sequence
from typing import Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from spillover.deciding.capacity.amounts import CPU, change
from spillover.deciding.renting.demand import Demand, weight_of
from spillover.deciding.renting.money import PoolMoney
from spillover.deciding.renting.offers import OpenOffer
from spillover.deciding.renting.room import Room
from spillover.model.cluster import billed
from spillover.model.ids import ClusterName, JobId
from spillover.model.units import FOREVER

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

    def __init__(
        self,
        left: dict[ClusterName, int],
        money: dict[ClusterName, PoolMoney],
        together: dict[ClusterName, int] | None = None,
    ) -> None:
        self._left = left
        self._money = money
        self._together = together or {}
        """The most machines for one gang, of pools that ordered nothing lately: a rate must not keep it for ever."""

    def allow(self, offer: OpenOffer, machines: int, stays: int, *, gang: bool = False) -> bool:
        """Return whether a pool has room and money for this many machines."""
        name = offer.spec.name
        left = self._left.get(name, 0)
        if gang and left > 0:
            left = max(left, self._together.get(name, 0))
        return left >= machines and self._money[name].pays(offer, machines, stays)

    def allow_behind(self, offer: OpenOffer, machines: int, stays: int, ahead: int) -> bool:
        """Return whether a pool has room and money for the machines of a gang behind jobs that need others."""
        if ahead and self._left.get(offer.spec.name, 0) < machines + ahead:
            return False
        return self.allow(offer, machines, stays, gang=True)

    def has_room(self) -> bool:
        """Return whether any pool may order a machine."""
        return any(left > 0 for left in self._left.values())

    def take(self, choice: Choice) -> None:
        """Count machines that are to be ordered."""
        name = choice.offer.spec.name
        self._left[name] -= choice.machines
        self._together.pop(name, None)
        self._money[name].take(choice.offer, choice.machines, choice.stays)


def choose(demand: Sequence[Demand], offers: Sequence[OpenOffer], limits: Limits) -> list[Choice]:
    """Return the machines to order for jobs, in the order of the jobs."""
    chosen: list[Choice] = []
    left = [each for each in demand if each.count]
    groups = grouped(left, offers) if left else []
    while left and limits.has_room():
        gang = left[0].job.kind.shape.is_gang
        choice = _for_gang(left[0], offers, limits) if gang else _for_tasks(left, groups, limits)
        if choice is None or choice.gang:
            left = left[1:]  # served, or given up for this time
        else:
            left = [each for each in left[:MOST_FILLED] if each.count] + left[MOST_FILLED:]
        if choice is not None:
            chosen.append(choice)
            limits.take(choice)
    return _joined(chosen)


_Group: TypeAlias = list[tuple[int, OpenOffer]]
"""Offers with their numbers, whose machines take over the same jobs; the cheapest first."""


def grouped(demand: Sequence[Demand], offers: Sequence[OpenOffer]) -> list[_Group]:
    """Return offers in groups that differ in price alone, as far as these jobs can tell."""
    shapes = {each.alike: each.job.kind.shape for each in demand}
    labelled = any(shape.rules is not None or shape.topology is not None for shape in shapes.values())
    hurried = any(each.slack < FOREVER for each in demand)
    groups: dict[tuple[object, ...], _Group] = {}
    for number, offer in enumerate(offers):
        market = hurried and offer.offer.spot and offer.late
        key = (offer.spec.name, *offer.size(), offer.boot, market, offer.offer.key if labelled else "")
        groups.setdefault(key, []).append((number, offer))
    for group in groups.values():
        group.sort(key=_price)
    return list(groups.values())


def _price(numbered: tuple[int, OpenOffer]) -> tuple[int, int]:
    number, offer = numbered
    return offer.offer.hour, number


class Filled(Struct):
    """What an imagined machine takes over."""

    taken: dict[int, int]
    """How many of each job, by its position."""
    stays: int
    """Nanoseconds from ready to empty."""
    work: int
    """How much work that is, in the unit of `weight_of`."""


def _for_tasks(left: Sequence[Demand], groups: Sequence[_Group], limits: Limits) -> Choice | None:
    """Choose a machine for the first job, and take over what it takes; None if there is none."""
    best = best_machine(left, groups, limits)
    if best is None:
        return None
    offer, filled = best
    job = left[0].job.id
    for at, count in filled.taken.items():
        left[at].count -= count
    return Choice(offer, 1, job, filled.stays)


def best_machine(
    left: Sequence[Demand], groups: Sequence[_Group], limits: Limits
) -> tuple[OpenOffer, Filled] | None:
    """Return the cheapest machine for the first job by what it takes over, and what that is; None if there is none."""
    best: tuple[float, int, OpenOffer, Filled] | None = None
    jobs = left[:MOST_FILLED]
    least = min([each.job.kind.shape.resources.cpu for each in jobs if not each.job.kind.shape.is_gang])
    for group in groups:
        cheapest = group[0][1]
        if not limits.allow(cheapest, 1, 0) or not cheapest.admits(left[0].job, left[0].slack):
            continue
        filled = _fill(cheapest, jobs, least)
        if not filled.work:
            continue
        lowest = cheapest.cost(filled.stays)
        for number, offer in group:
            cost = offer.cost(filled.stays)
            if cost > lowest or not limits.allow(offer, 1, filled.stays):
                break  # as all others of the group, which are dearer
            dear = cost / filled.work
            if best is None or (dear, number) < best[:2]:
                best = (dear, number, offer, filled)
    return None if best is None else best[2:]


def _fill(offer: OpenOffer, jobs: Sequence[Demand], least: int) -> Filled:
    """Fill an imagined machine with the first jobs that fit, and then with others while its time is paid anyway.

    No job asks for less CPU than `least`.
    """
    machine, room = offer.empty(), Room(0)
    taken: dict[int, int] = {}
    full: dict[int, None] = {}
    for at, each in enumerate(jobs):
        shape = each.job.kind.shape
        if each.alike in full or shape.is_gang or not offer.admits(each.job, each.slack):
            continue
        count, most = 0, min(each.count, MOST_FILLED)
        while count < most and machine.fits(shape):
            wants = machine.takes(shape)
            change(machine.free, wants, -1)
            room.add(each.runs, machine, wants)
            count += 1
        if count:
            taken[at] = count
        if count < most:
            full[each.alike] = None
        if machine.free[CPU] < least:
            break
    stays = max([jobs[at].runs for at in taken], default=0)
    paid = billed(offer.spec.billing, offer.boot + stays) - offer.boot
    if taken and paid > stays:
        _fill_paid(offer, jobs, taken, room, paid)
    work = sum([count * weight_of(jobs[at].job, jobs[at].runs, offer.spec) for at, count in taken.items()])
    return Filled(taken, stays, work)


def _fill_paid(
    offer: OpenOffer, jobs: Sequence[Demand], taken: dict[int, int], room: Room, paid: int
) -> None:
    """Let jobs take what becomes free before the end of the time that is paid; add how many of each."""
    until = [min(paid - each.runs, max(offer.boot, each.patience)) for each in jobs]
    if max(until) < min([jobs[at].runs for at in taken]):
        return  # nothing becomes free in time
    more = {
        at: replace(each, count=min(each.count, MOST_FILLED) - taken.get(at, 0))
        for at, each in enumerate(jobs)
        if offer.admits(each.job, each.slack)
    }
    before = {at: each.count for at, each in more.items()}
    room.take(more.values(), lambda each: min(paid - each.runs, max(offer.boot, each.patience)))
    for at, each in more.items():
        if each.count < before[at]:
            taken[at] = taken.get(at, 0) + before[at] - each.count


def _for_gang(demand: Demand, offers: Sequence[OpenOffer], limits: Limits) -> Choice | None:
    """Choose machines for all tasks of a gang: of one offer, the cheapest."""
    best: tuple[int, int, Choice] | None = None
    for number, offer in enumerate(offers):
        machines = offer.machines_for(demand.job.kind.shape) if offer.admits(demand.job, demand.slack) else 0
        if not machines or not limits.allow(offer, machines, demand.runs, gang=True):
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
