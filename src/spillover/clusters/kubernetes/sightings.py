"""All that is known of one attempt on a cluster: its Job, its pods, and what was noted about them."""

from collections.abc import Iterator
from datetime import datetime
from typing import Final

from msgspec import Struct

from spillover.clusters.kubernetes.naming import INDEX
from spillover.clusters.kubernetes.objects import (
    ContainerStatus,
    KubeEvent,
    KubeJob,
    ObjectCondition,
    Pod,
    Terminated,
    moment_of,
)

NO_INDEX: Final = -1
MOST_INDEX: Final = 10
"""Digits."""


class Sighting(Struct, frozen=True):
    """A pod as it was last seen."""

    pod: Pod
    there: bool = True
    """False once it was deleted: how it was then is how it ended."""

    @property
    def name(self) -> str:
        """What the pod is called."""
        return self.pod.metadata.name

    @property
    def lives(self) -> bool:
        """Whether something of it runs, or may yet."""
        return self.there and not self.pod.is_over

    @property
    def failed(self) -> bool:
        """Whether it did not end well."""
        phase = self.pod.status.phase
        return phase == "Failed" or not (self.there or phase == "Succeeded")

    @property
    def index(self) -> int:
        """Which task of its Job it is; NO_INDEX if the Job does not count them."""
        text = self.pod.metadata.labels.get(INDEX, "")
        return int(text) if text.isascii() and text.isdigit() and len(text) <= MOST_INDEX else NO_INDEX

    @property
    def containers(self) -> Iterator[ContainerStatus]:
        """Its containers, in the order in which they begin."""
        yield from self.pod.status.init_container_statuses
        yield from self.pod.status.container_statuses

    @property
    def restarted(self) -> bool:
        """Whether one of its containers was started again."""
        return any(one.restart_count for one in self.containers)

    @property
    def started(self) -> int | None:
        """When the first of it began to run; None if nothing did."""
        times = [begun for one in self.containers for begun in _begun(one)]
        if not times and self.pod.status.phase == "Running" and self.pod.status.start_time is not None:
            times = [self.pod.status.start_time]
        return moment_of(min(times)) if times else None

    @property
    def finished(self) -> int | None:
        """When the last of it ended; None if something runs, or nothing is known."""
        ends = [end.finished_at for one in self.containers if (end := last_end(one)) and end.finished_at]
        return moment_of(max(ends)) if ends else None

    def condition(self, kind: str) -> ObjectCondition | None:
        """A condition of it."""
        return find(self.pod.status.conditions, kind)


class KnownObject(Struct, frozen=True):
    """What is known of an attempt."""

    job: KubeJob | None
    """None if there is none, or none any more."""
    pods: tuple[Sighting, ...] = ()
    """By index, and by age."""
    notes: tuple[KubeEvent, ...] = ()
    """What Kubernetes has noted that keeps it from starting, the newest last."""
    settled: bool = False
    """Whether its pods were asked for after its Job had ended: there are no others."""
    silent: frozenset[str] = frozenset()
    """Nodes of its pods that do not answer."""

    @property
    def living(self) -> list[Sighting]:
        """Pods that run, or may yet."""
        return [each for each in self.pods if each.lives]

    def condition(self, kind: str) -> ObjectCondition | None:
        """A condition of its Job that holds."""
        found = find(self.job.status.conditions, kind) if self.job is not None else None
        return found if found is not None and found.holds else None

    @property
    def over(self) -> ObjectCondition | None:
        """The condition that says that its Job has ended; None if it has not."""
        return self.condition("Complete") or self.condition("Failed")

    @property
    def lacks_pods(self) -> bool:
        """Whether its Job is over, and of its pods none was heard of, or fewer than the Job counts.

        One that lives may be any of those that it counts: its end is still to be heard.
        """
        if self.job is None or self.over is None or self.settled:
            return False
        living, failed = len(self.living), sum(each.failed for each in self.pods)
        well = len(self.pods) - living - failed
        status = self.job.status
        lacking = max(0, status.succeeded - well) + max(0, status.failed - failed)
        return not self.pods or lacking > living


def find(conditions: tuple[ObjectCondition, ...], kind: str) -> ObjectCondition | None:
    """The condition of a kind."""
    return next((one for one in conditions if one.type == kind), None)


def last_end(one: ContainerStatus) -> Terminated | None:
    """How a container ended the last time, if it does not run."""
    if one.state.running is not None:
        return None
    return one.state.terminated or one.last_state.terminated


def _begun(one: ContainerStatus) -> Iterator[datetime]:
    """When a container began, this time and the time before."""
    for state in (one.state, one.last_state):
        began = state.running or state.terminated
        if began is not None and began.started_at is not None:
            yield began.started_at
