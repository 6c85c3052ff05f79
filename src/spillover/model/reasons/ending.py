"""Reasons why a job ended or is about to end."""

from spillover.model.ids import ClusterName, JobId
from spillover.model.reasons.base import Never, NotNow
from spillover.model.units import (
    format_duration,
    format_memory,
)


class Stopping(NotNow, frozen=True, tag="stopping"):
    """It is being stopped. It holds its capacity until the end is confirmed."""

    why: str
    kept_by: str = ""
    """What delays its end, as an external cluster reports it; empty if nothing is reported."""

    def __str__(self) -> str:
        return f"is being stopped: {self.why}" + (f"; {self.kept_by}" if self.kept_by else "")


class DependencyFailed(Never, frozen=True, tag="dependency_failed"):
    """A job that it depends on did not succeed."""

    job: JobId

    def __str__(self) -> str:
        return f"its dependency {self.job} did not succeed"


class DependencySucceeded(Never, frozen=True, tag="dependency_succeeded"):
    """A job whose failure it waits for succeeded."""

    job: JobId

    def __str__(self) -> str:
        return f"it runs only if {self.job} fails, which succeeded"


class CancelledBy(Never, frozen=True, tag="cancelled"):
    """A person cancelled it."""

    who: str

    def __str__(self) -> str:
        return f"cancelled by {self.who}"


class PastDeadline(Never, frozen=True, tag="past_deadline"):
    """Its deadline passed."""

    def __str__(self) -> str:
        return "its deadline passed"


class PastWalltime(Never, frozen=True, tag="past_walltime"):
    """It reached its walltime."""

    def __str__(self) -> str:
        return "it exceeded its walltime"


class PastCap(Never, frozen=True, tag="past_cap"):
    """It ran on rented capacity for as long as its cap could pay for."""

    walltime: int
    """The time that it got, in nanoseconds, because it has no walltime."""

    def __str__(self) -> str:
        return f"it ran longer than {format_duration(self.walltime)}, the most that its cap could pay for"


class LostTooOften(Never, frozen=True, tag="lost"):
    """Its machine was lost more often than `retry.lost` allows."""

    times: int
    because: str = ""
    """The message of the last loss; empty if there is none."""

    def __str__(self) -> str:
        times = f"{self.times} time{'s' if self.times != 1 else ''}"
        because = f": {self.because}" if self.because else ""
        return f"its machine was lost {times}, more than `retry.lost` allows{because}"


class ClusterFailed(Never, frozen=True, tag="cluster_failed"):
    """Its cluster failed while it was there, and the job has `on_cluster_failure: cancel`."""

    cluster: ClusterName
    because: str

    def __str__(self) -> str:
        return f"{self.cluster} failed ({self.because}), and the job has `on_cluster_failure: cancel`"


class Exited(Never, frozen=True, tag="exited"):
    """Its process ended with a nonzero exit code or a signal."""

    exit_code: int | None
    signal: int | None
    task: int | None = None
    """The rank of the task in its gang; null for a job with one task."""

    def __str__(self) -> str:
        how = f"killed by signal {self.signal}" if self.signal else f"exited with code {self.exit_code}"
        return how if self.task is None else f"task {self.task} {'was ' if self.signal else ''}{how}"


class OutOfMemory(Never, frozen=True, tag="out_of_memory"):
    """It was killed because it used more memory than it asked for."""

    asked: int
    """Bytes that its task asked for; 0 if it did not ask."""
    peak: int
    """Peak memory in bytes before it was killed; 0 if unknown."""

    def __str__(self) -> str:
        peak = f"; it used {format_memory(self.peak)} when it was killed" if self.peak else ""
        if not self.asked:
            return f"ran out of memory; it requested none{peak}"
        return f"used more memory than the {format_memory(self.asked)} it requested{peak}"


class OutputsNotKept(Never, frozen=True, tag="outputs_not_kept"):
    """It succeeded, but its output files could not be stored."""

    message: str

    def __str__(self) -> str:
        return f"its outputs could not be saved: {self.message}"


class ReportUnusable(Never, frozen=True, tag="report_unusable"):
    """It ended, but the report of its agent or cluster cannot be used."""

    message: str
    agent: str
    """CLUSTER/NAME; empty if unknown."""

    def __str__(self) -> str:
        agent = self.agent or "its agent"
        return f"it ended, but {agent} reported an invalid result: {self.message}"


class CouldNotStart(Never, frozen=True, tag="could_not_start"):
    """The agent could not start its process."""

    message: str
    agent: str = ""
    """CLUSTER/NAME; empty if an earlier version did not record it."""

    def __str__(self) -> str:
        where = f" on {self.agent}" if self.agent else ""
        # Some agents begin with the same words.
        return f"could not be started{where}: {self.message.removeprefix('could not be started: ')}{self._hint()}"

    def _hint(self) -> str:
        """Suggest what to do about a folder that does not exist on the machine."""
        if not self.message.startswith("workdir "):
            return ""
        return "; set `workdir` to an existing folder, or use `inputs` to run it in a folder of its own"


class NoSecret(Never, frozen=True, tag="no_secret"):
    """When it was to start, one of its secrets was gone, or was not for its user any more."""

    message: str

    def __str__(self) -> str:
        return f"could not get its secrets: {self.message}"


class MembersFailed(Never, frozen=True, tag="members_failed"):
    """Some members of the array did not succeed."""

    count: int

    def __str__(self) -> str:
        return f"{self.count} of its members did not succeed"
