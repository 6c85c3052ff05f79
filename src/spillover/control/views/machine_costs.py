"""Reports what rented machines cost and for what: all of their time, while tasks pay only for their shares."""

from collections.abc import Iterator

from spillover.control.views.jobs import money, when
from spillover.core.deciders.endings import attempt_cost, elapsed
from spillover.core.records.jobs import Job, Running
from spillover.core.records.machines import MachineBill, RentedMachine
from spillover.core.state import State
from spillover.model.budget import MachinesBy, Per, period_of
from spillover.model.cluster import Billing
from spillover.model.ids import ClusterName
from spillover.model.units import DAY
from spillover.wire.api import MachineCosts, MachineCostView


class _Sum:
    """The sum of all machines under one key."""

    def __init__(self) -> None:
        self.machines = self.live = self.so_far = 0
        self.bill = MachineBill(0, 0, 0, 0, 0)

    def add(self, machines: int, bill: MachineBill, *, live: bool) -> None:
        self.machines += machines
        self.bill = MachineBill(*[one + other for one, other in zip(self.bill, bill, strict=True)])
        if live:
            self.live += machines
            self.so_far += bill.paid

    def view(self, key: str) -> MachineCostView:
        bill = self.bill
        return MachineCostView(
            key=key,
            machines=self.machines,
            paid=money(bill.paid),
            useful=money(bill.useful),
            boot=money(bill.boot),
            idle=money(bill.idle),
            interrupted=money(bill.interrupted),
            live=self.live,
            so_far=money(self.so_far),
        )


def machine_costs(state: State, by: MachinesBy, since: int | None, now: int, currency: str) -> MachineCosts:
    """Return what machines cost that exist now, or were gone on the day of `since` or later (UTC)."""
    sums: dict[str, _Sum] = {}
    total = _Sum()
    for cluster, at, machines, bill, live in _items(state, now):
        if not live and since is not None and at < since // DAY * DAY:
            continue
        key = cluster if by == "pool" else period_of(Per(by), at).label
        for each in (sums.setdefault(key, _Sum()), total):
            each.add(machines, bill, live=live)
    rows = [found.view(key) for key, found in sorted(sums.items())]
    return MachineCosts(by, when(since), currency, rows, total.view("total"))


def paid_for_machines(state: State, since: int | None, now: int) -> float | None:
    """Return what all machines cost since the day of a time; None if no pool ever had any."""
    if not state.spends and not any(spec.pool is not None for spec in state.facts.clusters):
        return None
    return machine_costs(state, "pool", since, now, "").total.paid


def _items(state: State, now: int) -> Iterator[tuple[ClusterName, int, int, MachineBill, bool]]:
    """Yield cluster, time, number and bill of machines, and whether they exist: by day of those that are gone, and each that exists."""
    for spend in state.spends.values():
        if (day := spend.day) is not None:
            yield spend.cluster, day, spend.machines, spend.bill, False
    for machine in state.machines.values():
        if machine.is_live and machine.made_at is not None:
            yield machine.cluster, now, 1, so_far(state, machine, now), True


def so_far(state: State, machine: RentedMachine, now: int) -> MachineBill:
    """Return what a machine would have cost, and for what, if it were gone now."""
    spec = state.clusters.get(machine.cluster)
    node = state.nodes.get(machine.key)
    jobs = {} if node is None else node.jobs
    running = sum([_share(state, state.jobs.get(each), now) for each in jobs])
    return machine.bill_parts(Billing() if spec is None else spec.billing, now, used=running)


def _share(state: State, job: Job | None, now: int) -> int:
    """Return what the present attempt of a job has paid for each of its machines so far, in millionths."""
    if job is None or type(job.phase) is not Running:
        return 0
    nodes = dict.fromkeys([task.node for task in job.tasks])
    return attempt_cost(state, job, elapsed(state, job, now)) // max(1, len(nodes))
