"""Defines a trace: jobs with what is known of each, the input of every simulation."""

from msgspec import Struct

from spillover.model.job import Shape
from spillover.model.topology import Topology


class Own(Struct, frozen=True, gc=False):
    """Fields that only jobs of a Spillover history have."""

    shape: Shape
    """Replaces the total sizes that jobs from files have."""
    name: str = "job"
    queue: str = "default"
    priority: int = 0
    deadline: int | None = None
    """Latest end, in nanoseconds on the clock of the trace; None means no deadline."""
    max_cost: int | None = None
    """Millionths; None means no limit."""
    data: int = 0
    """Bytes that leave the cluster."""


class TraceJob(Struct, frozen=True, gc=False):
    """One job of a trace."""

    id: str
    submit: int
    """Nanoseconds since the zero of the trace."""
    runtime: int
    """Nanoseconds that the job ran, and will run in simulations."""
    gpus: int = 0
    """Total of all tasks."""
    cpus: int = 0
    """Thousandths, total of all tasks."""
    nodes: int = 0
    """Requested machines; 0 if unknown."""
    memory: int = 0
    """Bytes, total of all tasks; 0 if none are requested."""
    user: str = ""
    project: str = ""
    walltime: int | None = None
    """Longest runtime in nanoseconds, as requested by the owner; None means no limit."""
    estimate: int | None = None
    """Nanoseconds that the scheduler expects; None leaves it only the walltime."""
    own: Own | None = None
    """None for jobs from files."""
    topology: Topology | None = None
    """Where its tasks must be, for jobs from files; None is anywhere."""

    def but(self, submit: int, estimate: int | None) -> "TraceJob":
        """Copy the job with another submission and estimate; by position, which is much faster than `replace`."""
        return TraceJob(
            self.id,
            submit,
            self.runtime,
            self.gpus,
            self.cpus,
            self.nodes,
            self.memory,
            self.user,
            self.project,
            self.walltime,
            estimate,
            self.own,
            self.topology,
        )


class Happened(Struct, frozen=True, gc=False):
    """What really happened to a job."""

    start: int
    """Nanoseconds since the zero of the trace."""
    end: int
    """Nanoseconds since the zero of the trace."""
    state: str = ""
    """State as written in the trace; empty if unknown."""
    ready: int | None = None
    """Nanoseconds since the zero of the trace at which it could start; None means at submission, or unknown."""
    cluster: str = ""
    """Cluster where it ran; empty if there was only one."""
    node: str = ""
    """Machine where it ran; empty if unknown."""
    cost: int = 0
    """Millionths."""


class Trace(Struct, frozen=True):
    """Jobs in the order of submission, ties in the order of rows."""

    jobs: tuple[TraceJob, ...]
    zero: int = 0
    """Nanoseconds UTC of the zero of the trace; 0 if it has no dates."""
    happened: tuple[Happened | None, ...] = ()
    """What really happened to each job, None if unknown; empty if unknown for all."""
    left_out: int = 0
    """Invalid rows that were skipped."""
    not_jobs: int = 0
    """Valid rows that cannot be simulated: jobs that never ran or requested nothing."""
    not_jobs_at: tuple[int, ...] = ()
    """Their submissions, in nanoseconds since the zero of the trace, as far as known."""
