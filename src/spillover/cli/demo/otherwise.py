"""Works out what the jobs of the demo would have cost otherwise: all on rented machines, or none of them.

The jobs run once more in the simulator, with the runtimes that they had, on the clusters and at the prices of the demo.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec.structs import replace

from spillover.cli.demo.plan import CONFIG, OWNED, OWNED_CPUS, RENTED
from spillover.cli.demo.story import mean_wait, ran
from spillover.cli.printing.shown import between

if TYPE_CHECKING:
    from spillover.sim.pools import PoolNumbers
    from spillover.sim.setting import Scene
    from spillover.sim.trace import TraceJob
    from spillover.wire.api import JobView

_ENOUGH: Final = 1000
"""Machines that may be rented if all jobs are, so that no job waits because there may be no more."""
_POLICIES: Final = "wait=zero,order=fifo,backfill=out_of_order,place=best_fit"
"""Those of the demo, but for the wait: each cluster is alone, so no job waits for the other one."""


class Outcome(NamedTuple):
    """What one way to run the jobs means."""

    name: str
    mean_wait: float
    """Seconds."""
    last_end: float
    """Seconds after the first submission."""
    rent: float


def outcomes(jobs: "Iterable[JobView]", paid: float) -> list[Outcome]:
    """Return how the jobs ran, and how they would have run otherwise; nothing if none ran."""
    done = [job for job in jobs if ran(job) is not None]
    if not done:
        return []
    first = min(job.submitted_at for job in done)
    last = max(between(first, job.finished_at) or 0.0 for job in done)
    traced = sorted([_traced(job, first) for job in done], key=lambda job: job.submit)
    return [
        Outcome("as they ran", mean_wait(done), last, paid),
        _simulated("all rented, simulated", traced, RENTED),
        _simulated("never rented, simulated", traced, OWNED),
    ]


def _traced(job: "JobView", first: str) -> "TraceJob":
    """Return a job for the simulator."""
    from spillover.model.units import SECOND  # noqa: PLC0415 - only the end of the demo simulates
    from spillover.sim.trace import TraceJob  # noqa: PLC0415 - likewise

    ready, runtime = between(first, job.submitted_at) or 0.0, ran(job) or 0.0
    cpus = round(job.resources["cpu"] * 1000)
    runs = round(runtime * SECOND)
    return TraceJob(job.id, round(ready * SECOND), runs, cpus=cpus, estimate=runs)


def _simulated(name: str, jobs: "Sequence[TraceJob]", cluster: str) -> Outcome:
    """Run the jobs on one of the two clusters alone."""
    from spillover.model.ids import ClusterName  # noqa: PLC0415 - only the end of the demo simulates
    from spillover.model.units import SECOND  # noqa: PLC0415 - likewise
    from spillover.sim.runner import simulate  # noqa: PLC0415 - likewise

    pools: dict[ClusterName, PoolNumbers] = {}
    ended = simulate(jobs, _only(cluster), pools=pools)
    return Outcome(
        name,
        sum(one.start - one.submit for one in ended) / len(ended) / SECOND,
        max(one.end for one in ended) / SECOND,
        sum(numbers.paid for numbers in pools.values()),
    )


def _only(name: str) -> "Scene":
    """Return the scene with one cluster of the demo; its pool may have as many machines as jobs want."""
    from spillover.config.read import read_config  # noqa: PLC0415 - only the end of the demo simulates
    from spillover.forms.policystring import read_policies  # noqa: PLC0415 - likewise
    from spillover.model.ids import NodeName  # noqa: PLC0415 - likewise
    from spillover.model.resources import Resources  # noqa: PLC0415 - likewise
    from spillover.model.units import SECOND  # noqa: PLC0415 - likewise
    from spillover.sim.pools import SimulatedPool  # noqa: PLC0415 - likewise
    from spillover.sim.setting import FleetMachine, Scene, Site  # noqa: PLC0415 - likewise

    (spec,) = [each for each in read_config(CONFIG).clusters if each.name == name]
    policies = read_policies(_POLICIES)
    if spec.pool is None:
        machine = FleetMachine(spec.name, NodeName("n1"), Resources(OWNED_CPUS * 1000, 4 << 30))
        return Scene(Site((spec,), (machine,)), policies)
    pool = replace(spec.pool, max=_ENOUGH)
    behaves = SimulatedPool(pool, to_end=SECOND)
    return Scene(Site((replace(spec, pool=pool),), (), pools={spec.name: behaves}), policies)
