"""How a job came to its end, or is about to."""

from spillover.model.ids import ClusterName, JobId
from spillover.model.reasons.base import Never, NotNow
from spillover.model.units import (
    format_duration,
    format_memory,
)


class Stopping(NotNow, frozen=True, tag="stopping"):
    """It is being stopped; its capacity is held until the end is confirmed."""

    why: str
    kept_by: str = ""
    """What keeps it there, in the words of an external cluster; empty if nothing is said."""

    def __str__(self) -> str:
        return f"is being stopped: {self.why}" + (f"; {self.kept_by}" if self.kept_by else "")


class DependencyFailed(Never, frozen=True, tag="dependency_failed"):
    """A job that it waited for did not succeed."""

    job: JobId

    def __str__(self) -> str:
        return f"{self.job}, which it was to run after, did not succeed"


class CancelledBy(Never, frozen=True, tag="cancelled"):
    """Somebody cancelled it."""

    who: str

    def __str__(self) -> str:
        return f"cancelled by {self.who}"


class PastDeadline(Never, frozen=True, tag="past_deadline"):
    """Its deadline passed."""

    def __str__(self) -> str:
        return "its deadline passed"


class PastWalltime(Never, frozen=True, tag="past_walltime"):
    """It ran as long as it was allowed to."""

    def __str__(self) -> str:
        return "it ran longer than its walltime"


class PastCap(Never, frozen=True, tag="past_cap"):
    """It ran, on rented capacity, as long as its cap could pay for."""

    walltime: int
    """Nanoseconds that it was given, as it has no walltime of its own."""

    def __str__(self) -> str:
        return f"it ran longer than {format_duration(self.walltime)}, which is what its cap could pay for"


class LostTooOften(Never, frozen=True, tag="lost"):
    """The machine it ran on was lost more often than its budget allows."""

    times: int
    because: str = ""
    """What was said of it the last time; empty if nothing."""

    def __str__(self) -> str:
        times = f"{self.times} time{'s' if self.times != 1 else ''}"
        because = f": {self.because}" if self.because else ""
        return f"its machine was lost {times}, more than `retry.lost` allows{because}"


class ClusterFailed(Never, frozen=True, tag="cluster_failed"):
    """Its cluster failed while it was there, and it says `on_cluster_failure: cancel`."""

    cluster: ClusterName
    because: str

    def __str__(self) -> str:
        return f"{self.cluster} failed ({self.because}), and it says `on_cluster_failure: cancel`"


class Exited(Never, frozen=True, tag="exited"):
    """Its own process ended with an exit code that is not 0, or a signal."""

    exit_code: int | None
    signal: int | None

    def __str__(self) -> str:
        return f"killed by signal {self.signal}" if self.signal else f"exited with code {self.exit_code}"


class OutOfMemory(Never, frozen=True, tag="out_of_memory"):
    """It was killed because it used more memory than it asked for."""

    asked: int
    """Bytes that its task asked for; 0 if it did not say."""
    peak: int
    """Bytes that it used at most before it was killed; 0 if nobody saw."""

    def __str__(self) -> str:
        peak = f"; it used {format_memory(self.peak)} when it was killed" if self.peak else ""
        if not self.asked:
            return f"ran out of memory, of which it asked for none{peak}"
        return f"used more memory than the {format_memory(self.asked)} that it asked for{peak}"


class OutputsNotKept(Never, frozen=True, tag="outputs_not_kept"):
    """It ended well, and what it made could not be brought back."""

    message: str

    def __str__(self) -> str:
        return f"its outputs could not be brought back: {self.message}"


class ReportUnusable(Never, frozen=True, tag="report_unusable"):
    """It ended, and what its agent or its cluster reported of that cannot be used."""

    message: str
    agent: str
    """As CLUSTER/NAME; empty if nobody knows."""

    def __str__(self) -> str:
        agent = self.agent or "its agent"
        return f"it ended, and the result that {agent} reported cannot be used: {self.message}"


class CouldNotStart(Never, frozen=True, tag="could_not_start"):
    """The agent could not start its process."""

    message: str
    agent: str = ""
    """As CLUSTER/NAME; empty where an earlier version did not note it."""

    def __str__(self) -> str:
        where = f" on {self.agent}" if self.agent else ""
        # Some agents begin with the same words.
        return f"could not be started{where}: {self.message.removeprefix('could not be started: ')}{self._hint()}"

    def _hint(self) -> str:
        """What to do about a folder that the machine does not have, which an agent tells like this."""
        if not self.message.startswith("workdir "):
            return ""
        return "; give it a `workdir` that is there, or `inputs`, with which it runs in a folder of its own"


class MembersFailed(Never, frozen=True, tag="members_failed"):
    """Some members of the array did not succeed."""

    count: int

    def __str__(self) -> str:
        return f"{self.count} of its members did not succeed"
