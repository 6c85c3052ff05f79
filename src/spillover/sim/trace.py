"""A list of jobs with what is known of each: the input of every simulation, whatever file it came from."""

from msgspec import Struct


class TraceJob(Struct, frozen=True, gc=False):
    """One job of a trace."""

    id: str
    submit: int
    """Nanoseconds from the trace's zero."""
    runtime: int
    """Nanoseconds that it ran, and will run."""
    gpus: int = 0
    """Of the whole job."""
    cpus: int = 0
    """Thousandths, of the whole job."""
    nodes: int = 0
    """Machines that it asks for; 0 if the trace does not say."""
    memory: int = 0
    """Bytes, of the whole job; 0 if it asks for none."""
    user: str = ""
    project: str = ""
    walltime: int | None = None
    """Nanoseconds that it may run at the most, as its owner asked; None if there is no limit."""
    estimate: int | None = None
    """Nanoseconds that the scheduler is told to expect; None tells it nothing but the walltime."""


class Happened(Struct, frozen=True, gc=False):
    """What became of a job when it really ran."""

    start: int
    """Nanoseconds from the trace's zero."""
    end: int
    """Nanoseconds from the trace's zero."""
    state: str = ""
    """As the trace calls it; empty if it does not say."""


class Trace(Struct, frozen=True):
    """Jobs in the order of their submission, ties in the order of rows."""

    jobs: tuple[TraceJob, ...]
    zero: int = 0
    """Nanoseconds UTC of the trace's zero; 0 if it has no dates."""
    happened: tuple[Happened | None, ...] = ()
    """For each job what really became of it, None where that is not known; empty if nothing is known of any."""
    left_out: int = 0
    """Rows that were wrong and skipped."""
    not_jobs: int = 0
    """Rows that are right but nothing to simulate: jobs that never ran, or that asked for nothing."""
