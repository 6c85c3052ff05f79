"""Answers questions about attempts on all external clusters."""

from collections.abc import AsyncGenerator, Iterable, Iterator

from spillover.control.controllers.driving import Driving
from spillover.core.records.jobs import Job, Placed, Running
from spillover.model.ids import ClusterName
from spillover.model.reasons import NotStarting, Reason, Stopping
from spillover.ports.cluster import OutputAsked, OutputGone
from spillover.ports.driver import DriverLink


class Drivers:
    """The open external clusters, by name."""

    def __init__(self, drivings: Iterable[Driving] = ()) -> None:
        self._drivings = {each.driver.cluster: each for each in drivings}

    def add(self, driving: Driving) -> None:
        """Add a cluster."""
        self._drivings[driving.driver.cluster] = driving

    def remove(self, cluster: ClusterName) -> None:
        """Remove a cluster."""
        del self._drivings[cluster]

    def __contains__(self, cluster: str) -> bool:
        return cluster in self._drivings

    def __iter__(self) -> Iterator[ClusterName]:
        return iter(self._drivings)

    def is_up(self, cluster: ClusterName) -> bool:
        """Return whether a cluster answers."""
        return self._drivings[cluster].driver.connection().link is DriverLink.UP

    def problem(self, cluster: str) -> str | None:
        """Return why an open cluster sends no reports: its driver failed and will be retried; None if it did not fail."""
        driving = self._drivings.get(ClusterName(cluster))
        failure = None if driving is None else driving.failure
        return None if failure is None else f"its driver failed, and the server retries: {failure}"

    def reason_of(self, job: Job) -> Reason | None:
        """Return why a job does not start or stop there, in the cluster's words; None if it gives no reason."""
        phase = job.phase
        if (
            isinstance(phase, Placed | Running)
            and phase.stopping is not None
            and phase.cluster in self._drivings
        ):
            held = self._drivings[phase.cluster].ledger.held(job.lease)
            return Stopping(phase.stopping, f"on {phase.cluster} {held}") if held else None
        if not isinstance(phase, Placed | Running) or phase.cluster not in self._drivings:
            return None
        if (
            type(phase) is Running and job.extra.gang is None
        ):  # only of a gang, some tasks may run and others not
            return None
        pending = self._drivings[phase.cluster].ledger.pending(job.lease)
        return (
            None
            if pending is None
            else NotStarting(phase.cluster, pending.why, pending.message, pending.since)
        )

    def output(self, cluster: ClusterName, asked: OutputAsked) -> AsyncGenerator[bytes, None]:
        """Stream the output of a task; a pod has one stream for both outputs, so stderr is empty."""
        driving, wanted = self._drivings[cluster], asked.lease
        lease = driving.ledger.lease_of(wanted.job, wanted.attempt)
        if lease is None:
            return _gone(
                f"attempt {wanted.attempt} of {wanted.job} is no longer on {cluster}, and its output was not saved"
            )
        if asked.stderr:
            return _nothing()
        return driving.driver.output(lease, wanted.task, asked.offset, follow=asked.follow)


async def _nothing() -> AsyncGenerator[bytes, None]:
    pieces: tuple[bytes, ...] = ()
    for piece in pieces:
        yield piece


async def _gone(why: str) -> AsyncGenerator[bytes, None]:
    async for piece in _nothing():
        yield piece
    raise OutputGone(why)
