"""Estimates what a job costs: on its present cluster, or on the cheapest rented one."""

from typing import NamedTuple

from spillover.core.records.jobs import Job, Placed, Running
from spillover.deciding.capacity.cluster import Capacity
from spillover.deciding.queue.index import SchedulingIndex
from spillover.deciding.renting.offers import offers_for
from spillover.model.admission import may_run
from spillover.model.cluster import ClusterSpec, Role, cost_of_job
from spillover.model.ids import ClusterName
from spillover.model.job import WALLTIME_SLACK, Burst, Shape


class Quote(NamedTuple):
    """The cost of an attempt on one cluster; for an array, of all members."""

    cluster: ClusterName
    expected: int
    """Millionths, if it runs as long as expected."""
    at_walltime: int | None
    """Millionths, if it runs until it is killed at its walltime, which is what caps hold; None without a walltime."""


def quote(index: SchedulingIndex, job: Job, expected: int) -> Quote | None:
    """Estimate the cost of a job that has not ended; None if it cannot be rented and is on no cluster."""
    if isinstance(job.phase, Placed | Running):
        spec = index.state.cluster_of(job)
    else:
        spec = cheapest(index, job, expected)
    return None if spec is None else quote_on(spec, job, expected)


def quote_on(spec: ClusterSpec, job: Job, expected: int) -> Quote:
    """Estimate the cost of a job on one cluster."""
    if spec.role is Role.OWNED:
        return Quote(spec.name, 0, 0)
    members = job.extra.members
    count = 1 if members is None else members.size
    placed = isinstance(job.phase, Placed | Running)
    shape, data, walltime = job.shape if placed else job.kind.shape, job.terms.data, job.walltime
    most = None
    if walltime is not None:
        most = count * cost_of_job(spec, shape, walltime + job.terms.grace + WALLTIME_SLACK, data)
    return Quote(spec.name, count * cost_of_job(spec, shape, expected, data), most)


def cheapest(index: SchedulingIndex, job: Job, expected: int) -> ClusterSpec | None:
    """Return the rented cluster that could run a job for the least; None if none could."""
    shape = job.kind.shape
    if shape.burst is Burst.NEVER:
        return None
    could = [
        cluster.spec
        for cluster in index.capacity.values()
        if cluster.spec.role is Role.RENTED and _could_run(cluster, shape)
    ]
    return min(could, key=lambda spec: cost_of_job(spec, shape, expected, job.terms.data), default=None)


def _could_run(cluster: Capacity, shape: Shape) -> bool:
    """Return whether a cluster could run a job. A cluster whose machines are not known yet could."""
    if (shape.is_gang and not cluster.spec.gangs) or not may_run(shape, cluster.spec):
        return False
    if cluster.spec.pool is not None and offers_for(cluster.spec, shape):
        return True
    return not cluster.machines or all(
        any(machine.could_fit(part) for machine in cluster.machines) for _, part in shape.parts
    )
