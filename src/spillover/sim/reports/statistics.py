"""Computes the statistics of a simulation: waits, completion times, rented work, and utilization.

Sums are sums of integers, so the same outcomes give the same digits everywhere.
"""

from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from spillover.model.ids import ClusterName
from spillover.model.units import HOUR, MONEY, SECOND
from spillover.sim.outcome import JobOutcome
from spillover.sim.pools import PoolNumbers, together
from spillover.sim.setting import RENTED, Fleet, FleetCapacity, Site
from spillover.sim.trace import TraceJob


class Statistics(Struct, frozen=True):
    """Statistics of the counted jobs; the waits of rented jobs are included."""

    jobs: int
    rented_jobs: int
    """Jobs that ended on rented capacity."""
    rented_cost: float
    """In the currency of the prices."""
    rented_gpu_hours: float
    """Includes attempts that did not complete a job."""
    rented_cpu_hours: float
    """The same, for jobs that request CPUs."""
    mean_wait_s: float
    """From submission to start."""
    p50_wait_s: float
    """The smallest wait that at least half of the jobs do not exceed."""
    p90_wait_s: float
    p99_wait_s: float
    max_wait_s: float
    mean_completion_s: float
    """From submission to end."""
    mean_runtime_s: float
    wasted_wait: float
    """Share of all waiting that was in vain, because the job was rented in the end; from 0 to 1."""
    owned_utilization: float
    """Share of the capacity of owned machines that was in use within the window.

    The window goes from the submission of the first counted job to that of the last.
    """
    system_utilization: float
    """All work, owned and rented, divided by the capacity of owned machines within the window."""
    never_ran: int
    """Jobs still waiting at the end of the simulation; excluded from all other numbers."""
    pool: PoolNumbers | None = None
    """What the machines of a pool cost; then `rented_cost` is what they cost in all. None without a pool."""


def summarize(
    jobs: Sequence[TraceJob],
    outcomes: Sequence[JobOutcome],
    owned: Fleet | Site,
    counted: range,
    window: tuple[int, int] | None = None,
    rented: Collection[str] = frozenset({RENTED}),
) -> Statistics:
    """Compute the statistics of the jobs with these indexes.

    Without a window, it goes from the first submission to the last. `rented` names the clusters that are paid for by
    use.
    """
    window = window or (jobs[counted[0]].submit, jobs[counted[-1]].submit)
    waits: list[int] = []
    ran = wasted = cost = spilled = gpu_time = cpu_time = 0
    first, last = counted[0], counted[-1]
    for one in outcomes:
        if not first <= one.job <= last:
            continue
        job = jobs[one.job]
        wait = one.start - one.submit
        waits.append(wait)
        ran += one.end - one.start
        cost += one.cost
        used = one.abandoned
        if one.cluster in rented:
            spilled += 1
            wasted += wait
            used += one.end - one.start
        if used:
            gpu_time += job.gpus * used
            cpu_time += job.cpus * used
    waits.sort()
    count, waited = len(waits), sum(waits)
    capacity = owned.capacity
    busy, everything = _work(jobs, outcomes, capacity, window, rented)
    most = capacity.units * (window[1] - window[0])
    return Statistics(
        jobs=count,
        rented_jobs=spilled,
        rented_cost=cost / MONEY,
        rented_gpu_hours=gpu_time / HOUR,
        rented_cpu_hours=cpu_time / (1000 * HOUR),
        mean_wait_s=_ratio(waited, count * SECOND),
        p50_wait_s=percentile(waits, 50) / SECOND,
        p90_wait_s=percentile(waits, 90) / SECOND,
        p99_wait_s=percentile(waits, 99) / SECOND,
        max_wait_s=percentile(waits, 100) / SECOND,
        mean_completion_s=_ratio(waited + ran, count * SECOND),
        mean_runtime_s=_ratio(ran, count * SECOND),
        wasted_wait=_ratio(wasted, waited),
        owned_utilization=_ratio(busy, most),
        system_utilization=_ratio(everything, most),
        never_ran=len(counted) - count,
    )


def with_machines(
    numbers: Statistics, pools: Mapping[ClusterName, PoolNumbers], tasks: float = 0.0
) -> Statistics:
    """Return statistics in which machines of pools cost what was paid for them, not what jobs pay of it.

    `tasks` is what jobs paid on other rented clusters.
    """
    pool = together(pools.values())
    return numbers if pool is None else replace(numbers, rented_cost=tasks + pool.paid, pool=pool)


def _work(
    jobs: Sequence[TraceJob],
    outcomes: Sequence[JobOutcome],
    capacity: FleetCapacity,
    window: tuple[int, int],
    rented: Collection[str],
) -> tuple[int, int]:
    """Return GPU-nanoseconds (or thousandths of CPU-nanoseconds) within a window: on owned machines, and on all."""
    opens, closes = window
    by_gpu = capacity.by_gpu
    owned = elsewhere = 0
    for one in outcomes:
        start, end = one.start, one.end
        if start >= closes or end <= opens:
            continue
        span = (end if end < closes else closes) - (start if start > opens else opens)
        job = jobs[one.job]
        work = (job.gpus if by_gpu else job.cpus) * span
        if one.cluster in rented:
            elsewhere += work
        else:
            owned += work
    return owned, owned + elsewhere


def percentile(values: Sequence[int], percent: int) -> int:
    """Return the smallest of sorted values that `percent` of them do not exceed; 0 if there are none."""
    return values[-(-len(values) * percent // 100) - 1] if values else 0


def _ratio(part: int, whole: int) -> float:
    """Return a share; 0 if the whole is 0."""
    return part / whole if whole else 0.0
