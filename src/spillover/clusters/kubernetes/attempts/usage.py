"""How much CPU and memory pods use, from samples of the metrics API while they run.

Kubernetes does not say what a pod used that has ended. Where the cluster serves `metrics.k8s.io`, as with
metrics-server, the driver asks it now and then. A sample has the memory at one time and the mean CPU of some seconds.
So the CPU time of a pod is the mean of its samples over its whole runtime, which also covers the time before the first
and after the last of them, and the peak is that of the samples.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
from msgspec import Struct

from spillover.clusters.kubernetes.api.objects import Meta, Moment, Page, moment_of
from spillover.clusters.kubernetes.api.quantities import billionths, whole
from spillover.core.events import Usage
from spillover.model.bounds import MOST_RAN, bounded
from spillover.model.units import MINUTE, SECOND

API: Final = "/apis/metrics.k8s.io/v1beta1"
MOST_SPAN: Final = 5 * MINUTE
"""The longest time between two samples for which the second one counts."""
FIRST_SPAN: Final = 15 * SECOND
"""The time for which a sample counts that has none before it."""


class ContainerUse(Struct, frozen=True):
    """What one container uses."""

    usage: dict[str, str] = {}
    """Quantities: `cpu` and `memory`."""


class PodMetrics(Struct, frozen=True):
    """A sample of one pod."""

    metadata: Meta = Meta()
    timestamp: Moment | None = None
    """When it was taken."""
    containers: tuple[ContainerUse, ...] = ()


SAMPLES: Final = msgspec.json.Decoder(Page[PodMetrics])


class PodUse(Struct):
    """What the samples of one pod say."""

    last: int = 0
    """Time of the last sample, nanoseconds UTC."""
    used: int = 0
    """CPU time in nanoseconds during the spans that samples cover."""
    covered: int = 0
    """Length of these spans together, in nanoseconds."""
    peak: int = 0
    """Most memory of all samples, in bytes."""

    def add(self, sample: PodMetrics) -> None:
        """Count a sample, unless it was counted before."""
        at = moment_of(sample.timestamp) if sample.timestamp is not None else 0
        if at <= self.last:
            return
        span = at - self.last if self.last and at - self.last <= MOST_SPAN else FIRST_SPAN
        rate = sum([billionths(one.usage.get("cpu", "0")) for one in sample.containers])
        self.last = at
        self.used += rate * span // SECOND
        self.covered += span
        self.peak = max(self.peak, sum([whole(one.usage.get("memory", "0")) for one in sample.containers]))

    def over(self, ran: int) -> Usage:
        """Return the usage of a pod that ran for so many nanoseconds."""
        return Usage(ran, bounded(self.used * ran // self.covered) if self.covered else 0, bounded(self.peak))


NOT_MEASURED: Final = PodUse()


class PodUses:
    """What samples say of all our pods, by name. Names of pods are unique."""

    def __init__(self) -> None:
        self._pods: dict[str, PodUse] = {}

    def add(self, samples: Iterable[PodMetrics], known: Mapping[str, object]) -> None:
        """Count samples of pods that are known."""
        for sample in samples:
            name = sample.metadata.name
            if name in known:
                try:
                    self._pods.setdefault(name, PodUse()).add(sample)
                except ValueError:  # a quantity that is none: the next sample may be better
                    continue

    def over(self, name: str, ran: int) -> Usage:
        """Return the usage of a pod that ran for so many nanoseconds; only that if there was no sample."""
        ran = bounded(ran, MOST_RAN)
        return self._pods.get(name, NOT_MEASURED).over(ran)

    def last(self, name: str) -> int:
        """Return the time of the last sample of a pod; 0 if there was none."""
        return self._pods.get(name, NOT_MEASURED).last

    def forget(self, names: Iterable[str]) -> None:
        """Drop the samples of pods."""
        for name in names:
            self._pods.pop(name, None)


NO_USES: Final = PodUses()
