"""A list of jobs with what is known of each: the input of every simulation, whatever file it came from."""

from msgspec import Struct

from spillover.model.job import Shape


class Own(Struct, frozen=True, gc=False):
    """What only a job of our own history says of itself."""

    shape: Shape
    """In place of the totals, which a file has."""
    name: str = "job"
    queue: str = "default"
    priority: int = 0
    deadline: int | None = None
    """Latest finish, in nanoseconds of the trace's time; None is no deadline."""
    max_cost: int | None = None
    """Millionths; None is no limit."""
    data: int = 0
    """Bytes that leave the cluster."""


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
    own: Own | None = None
    """None for jobs of files."""

    def but(self, submit: int, estimate: int | None) -> "TraceJob":
        """The same job, submitted then, with this estimate; made by position, which is several times faster than a copy."""
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
        )


class Happened(Struct, frozen=True, gc=False):
    """What became of a job when it really ran."""

    start: int
    """Nanoseconds from the trace's zero."""
    end: int
    """Nanoseconds from the trace's zero."""
    state: str = ""
    """As the trace calls it; empty if it does not say."""
    ready: int | None = None
    """Since when it could have been started, nanoseconds from the trace's zero; None if that was at its submission, or is not known."""
    cluster: str = ""
    """Where it ran; empty if there was but one."""
    node: str = ""
    """The machine; empty if the trace does not say."""
    cost: int = 0
    """Millionths."""


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
    not_jobs_at: tuple[int, ...] = ()
    """When these were submitted, nanoseconds from the trace's zero, as far as the trace says."""
