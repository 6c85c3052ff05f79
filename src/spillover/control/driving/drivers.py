"""All external clusters, for whoever asks about what is there."""

from collections.abc import AsyncGenerator, Iterable, Iterator

from spillover.control.controllers.driving import Driving
from spillover.core.jobs import Job, Placed, Running
from spillover.model.ids import ClusterName
from spillover.model.reasons import NotStarting, Reason, Stopping
from spillover.ports.cluster import OutputAsked, OutputGone
from spillover.ports.driver import DriverLink


class Drivers:
    """What is asked of external clusters."""

    def __init__(self, drivings: Iterable[Driving] = ()) -> None:
        self._drivings = {each.driver.cluster: each for each in drivings}

    def add(self, driving: Driving) -> None:
        """One more."""
        self._drivings[driving.driver.cluster] = driving

    def remove(self, cluster: ClusterName) -> None:
        """One less."""
        del self._drivings[cluster]

    def __contains__(self, cluster: str) -> bool:
        return cluster in self._drivings

    def __iter__(self) -> Iterator[ClusterName]:
        return iter(self._drivings)

    def is_up(self, cluster: ClusterName) -> bool:
        """Whether a cluster answers."""
        return self._drivings[cluster].driver.connection().link is DriverLink.UP

    def reason_of(self, job: Job) -> Reason | None:
        """Why a job on one of them does not start, or is still there, in that cluster's words; None if it does not say."""
        phase = job.phase
        if (
            isinstance(phase, Placed | Running)
            and phase.stopping is not None
            and phase.cluster in self._drivings
        ):
            held = self._drivings[phase.cluster].ledger.held(job.lease)
            return Stopping(phase.stopping, f"on {phase.cluster} {held}") if held else None
        if type(phase) is not Placed or phase.cluster not in self._drivings:
            return None
        pending = self._drivings[phase.cluster].ledger.pending(job.lease)
        return (
            None
            if pending is None
            else NotStarting(phase.cluster, pending.why, pending.message, pending.since)
        )

    def output(self, cluster: ClusterName, asked: OutputAsked) -> AsyncGenerator[bytes, None]:
        """Output of a task there. Both streams of a pod are one: all of it is what the task wrote to the first."""
        driving, wanted = self._drivings[cluster], asked.lease
        lease = driving.ledger.lease_of(wanted.job, wanted.attempt)
        if lease is None:
            return _gone(
                f"attempt {wanted.attempt} of {wanted.job} is not on {cluster} any more, and its output was not kept"
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
