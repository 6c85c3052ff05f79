"""Metrics of who uses what: jobs by project and queue, and CPUs, memory and GPUs of clusters.

Projects and queues get series of their own up to a bound, because people may name any number of them.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from prometheus_client.core import GaugeMetricFamily, Metric

from spillover.control.views.counting import JobCounts
from spillover.core.records.jobs import Kind
from spillover.core.state import State
from spillover.core.transitions import AGENT
from spillover.model.budget import EVERY, Of
from spillover.model.resources import Resources

MOST: Final = 100
"""Projects with series of their own; the same for queues."""
OTHER: Final = "other"
"""The project, or queue, that stands for all others."""
ANY: Final = "*"
"""The cluster that stands for several, or all."""
STATES: Final = ("HELD", "QUEUED", "PLACED", "RUNNING")
AGENT_STATES: Final = tuple(dict.fromkeys(AGENT.values()))
_AMOUNTS: Final[tuple[tuple[str, str, Callable[[Resources], float]], ...]] = (
    ("cpus", "CPUs", lambda amount: amount.cpu / 1000),
    ("memory_bytes", "Memory", lambda amount: amount.memory),
    ("gpus", "GPUs", lambda amount: amount.gpu),
)
"""The end of the names of metrics, what they count, and how."""


class JobMetrics:
    """Metrics of the jobs that have not ended."""

    def __init__(self, counts: JobCounts) -> None:
        self._counts = counts
        self._projects = Series()
        self._queues = Series()

    def collect(self, state: State) -> Iterator[Metric]:
        """Yield jobs by project and by queue, and what waits."""
        projects, queues = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
        asked: dict[str, Resources] = {spec.name: Resources() for spec in state.facts.clusters}
        asked[ANY] = Resources()
        for (kind, state_of_job), count in self._counts.counts.items():
            projects[kind.project, state_of_job] += count
            queues[kind.queue, state_of_job] += count
            if state_of_job == "QUEUED":
                cluster = _only_cluster(kind)
                cluster = cluster if cluster in asked else ANY
                asked[cluster] += kind.shape.total.times(count)
        # Those in the configuration have series of their own before any that people name.
        named = [each.name for each in state.facts.budgets if each.of is Of.PROJECT and each.name != EVERY]
        yield self._projects.family("project", projects, named)
        yield self._queues.family("queue", queues, [each.name for each in state.facts.queues])
        for end, what, amount in _AMOUNTS:
            family = GaugeMetricFamily(
                f"spill_asked_{end}", f"{what} that queued jobs ask for.", labels=("cluster",)
            )
            for cluster, total in asked.items():
                family.add_metric((cluster,), amount(total))
            yield family


class Series:
    """The names that have series of their own. A name keeps its series while it has jobs."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._shown: dict[str, None] = {}

    def choose(self, weights: Mapping[str, int], configured: Iterable[str] = ()) -> dict[str, None]:
        """Return the names with series: the configured ones, those that had one, and then the largest."""
        kept = [name for name in self._shown if name in weights]
        new = sorted(weights, key=lambda name: (-weights[name], name))
        self._shown = dict.fromkeys(list(dict.fromkeys([*configured, *kept, *new]))[: self._most])
        return self._shown

    def family(
        self, label: str, counts: Mapping[tuple[str, str], int], configured: Iterable[str]
    ) -> GaugeMetricFamily:
        """Return the jobs of each name in each state; those without series are together under OTHER."""
        weights = Counter[str]()
        for (name, _), count in counts.items():
            weights[name] += count
        shown = self.choose(weights, configured)
        summed = Counter({(name, each): 0 for name in shown for each in STATES})
        for (name, each), count in counts.items():
            summed[name if name in shown else OTHER, each] += count
        family = GaugeMetricFamily(
            f"spill_{label}_jobs", f"Jobs that have not ended, by {label}.", labels=(label, "state")
        )
        for (name, each), count in summed.items():
            family.add_metric((name, each), count)
        return family


def cluster_metrics(state: State) -> Iterator[Metric]:
    """Yield what the ready machines of each cluster have, and who uses it."""
    sums = {
        spec.name: {use: Resources() for use in ("capacity", "used", "foreign", "free")}
        for spec in state.facts.clusters
    }
    for node in state.nodes.values():
        if node.status != "ready" or (found := sums.get(node.cluster)) is None:
            continue
        foreign = node.foreign or Resources()
        found["capacity"] += node.capacity
        found["used"] += node.used
        found["foreign"] += foreign
        # Each machine for itself: too much on one is no room on another.
        found["free"] += _at_least_nothing(node.capacity - node.used - foreign)
    for end, what, amount in _AMOUNTS:
        family = GaugeMetricFamily(f"spill_cluster_{end}", f"{what} of clusters.", labels=("cluster", "use"))
        for cluster, uses in sums.items():
            for use, total in uses.items():
                family.add_metric((cluster, use), amount(total))
        yield family


def agent_metrics(state: State) -> Iterator[Metric]:
    """Yield the agents of each cluster by their state."""
    counts = Counter(
        {(spec.name, each): 0 for spec in state.facts.clusters if not spec.external for each in AGENT_STATES}
    )
    for node in state.agents.values():
        counts[node.cluster, node.status] += 1
    family = GaugeMetricFamily("spill_agents", "Agents.", labels=("cluster", "state"))
    for (cluster, each), count in counts.items():
        family.add_metric((cluster, each), count)
    yield family


def _only_cluster(kind: Kind) -> str:
    """Return the cluster that jobs insist on; ANY if several will do."""
    where = kind.shape.where
    return where.clusters[0] if where is not None and len(where.clusters) == 1 else ANY


def _at_least_nothing(amount: Resources) -> Resources:
    """Return an amount without what is below 0."""
    return Resources(max(0, amount.cpu), max(0, amount.memory), max(0, amount.gpu))
