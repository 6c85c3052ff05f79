"""The known Job, pods and Kubernetes events of one attempt."""

from collections import deque
from collections.abc import Iterator
from datetime import datetime
from typing import Final

from msgspec import Struct

from spillover.clusters.kubernetes.api.objects import (
    ContainerStatus,
    KubeEvent,
    KubeJob,
    ObjectCondition,
    Pod,
    Terminated,
    moment_of,
)
from spillover.clusters.kubernetes.attempts.naming import INDEX
from spillover.clusters.kubernetes.attempts.usage import NO_USES, PodUses

NO_INDEX: Final = -1
MOST_INDEX: Final = 10
"""Most digits of an index."""


class Sighting(Struct, frozen=True):
    """A pod as it was last seen."""

    pod: Pod
    there: bool = True
    """False once it was deleted; `pod` is then its last state."""

    @property
    def name(self) -> str:
        """Name of the pod."""
        return self.pod.metadata.name

    @property
    def lives(self) -> bool:
        """Whether it runs, or may still run."""
        return self.there and not self.pod.is_over

    @property
    def failed(self) -> bool:
        """Whether it failed, or was deleted before it succeeded."""
        phase = self.pod.status.phase
        return phase == "Failed" or not (self.there or phase == "Succeeded")

    @property
    def succeeded(self) -> bool:
        """Whether it succeeded."""
        return self.pod.status.phase == "Succeeded"

    @property
    def index(self) -> int:
        """Which task of its Job it is; NO_INDEX if the Job is not indexed."""
        text = self.pod.metadata.labels.get(INDEX, "")
        return int(text) if text.isascii() and text.isdigit() and len(text) <= MOST_INDEX else NO_INDEX

    @property
    def containers(self) -> Iterator[ContainerStatus]:
        """Its containers in the order in which they start."""
        yield from self.pod.status.init_container_statuses
        yield from self.pod.status.container_statuses

    @property
    def restarted(self) -> bool:
        """Whether one of its containers was restarted."""
        return any(one.restart_count for one in self.containers)

    @property
    def started(self) -> int | None:
        """When its first container started, nanoseconds UTC; None if none did."""
        times = [begun for one in self.containers for begun in _begun(one)]
        if not times and self.pod.status.phase == "Running" and self.pod.status.start_time is not None:
            times = [self.pod.status.start_time]
        return moment_of(min(times)) if times else None

    @property
    def finished(self) -> int | None:
        """When its last container ended, nanoseconds UTC; None if that is unknown."""
        ends = [end.finished_at for one in self.containers if (end := last_end(one)) and end.finished_at]
        return moment_of(max(ends)) if ends else None

    def condition(self, kind: str) -> ObjectCondition | None:
        """Return a condition of the pod; None if it has none of this type."""
        return find(self.pod.status.conditions, kind)


class KnownObject(Struct, frozen=True):
    """All known objects of an attempt."""

    job: KubeJob | None
    """None if it does not exist, or no longer."""
    pods: tuple[Sighting, ...] = ()
    """By index, then by age."""
    notes: tuple[KubeEvent, ...] = ()
    """Kubernetes events about what keeps it from starting, the newest last."""
    settled: bool = False
    """Whether the pods were fetched after the Job ended, so that there are no others."""
    silent: frozenset[str] = frozenset()
    """Nodes of its pods that do not answer."""
    uses: PodUses = NO_USES
    """What pods use, as far as it was measured."""

    @property
    def living(self) -> list[Sighting]:
        """Pods that run, or may still run."""
        return [each for each in self.pods if each.lives]

    def condition(self, kind: str) -> ObjectCondition | None:
        """Return a condition of the Job if it is true."""
        found = find(self.job.status.conditions, kind) if self.job is not None else None
        return found if found is not None and found.holds else None

    @property
    def size(self) -> int:
        """How many pods run at a time: the tasks of a gang."""
        if self.job is None:
            return 1
        spec = self.job.spec
        return max(
            1, spec.parallelism if spec.completions is None else min(spec.parallelism, spec.completions)
        )

    @property
    def ranked(self) -> dict[int, Sighting]:
        """The last pod of each task by rank: its index, or for a Job without indexes its place by age.

        A pod that replaces another one has its rank.
        """
        ranked: dict[int, Sighting] = {}
        size, failed, well = self.size, deque[int](), deque[int]()
        for each in self.pods:
            if each.index != NO_INDEX:
                ranked[each.index] = each
                continue
            if len(ranked) < size:
                rank = len(ranked)
            elif failed or well:
                rank = (failed or well).popleft()
            else:
                continue  # Kubernetes created one pod too many
            ranked[rank] = each
            if not each.lives:
                (failed if each.failed else well).append(rank)
        return ranked

    @property
    def over(self) -> ObjectCondition | None:
        """The condition that ended the Job; None if it has not ended."""
        return self.condition("Complete") or self.condition("Failed")

    @property
    def lacks_pods(self) -> bool:
        """Whether the Job has ended, and fewer pods are known than the Job counts, or none at all.

        A pod that still seems to run may be any of those that the Job counts: only its end is missing.
        """
        if self.job is None or self.over is None or self.settled:
            return False
        living, failed = len(self.living), sum(each.failed for each in self.pods)
        well = len(self.pods) - living - failed
        status = self.job.status
        lacking = max(0, status.succeeded - well) + max(0, status.failed - failed)
        return not self.pods or lacking > living


def find(conditions: tuple[ObjectCondition, ...], kind: str) -> ObjectCondition | None:
    """Return the condition of a type."""
    return next((one for one in conditions if one.type == kind), None)


def last_end(one: ContainerStatus) -> Terminated | None:
    """Return the last end of a container; None if it runs or never ended."""
    if one.state.running is not None:
        return None
    return one.state.terminated or one.last_state.terminated


def _begun(one: ContainerStatus) -> Iterator[datetime]:
    """Yield when a container started, the current and the previous time."""
    for state in (one.state, one.last_state):
        began = state.running or state.terminated
        if began is not None and began.started_at is not None:
            yield began.started_at
