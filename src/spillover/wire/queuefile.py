"""The form of `queues` in spill.yaml. `config` checks the values."""

from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, Struct, field

from spillover.wire.jobfile import Quantity

Amount: TypeAlias = Annotated[int, Meta(ge=1, le=1_000_000_000)] | None
Names: TypeAlias = Annotated[list[str], Meta(max_length=10_000)]


class QueueResourcesDoc(Struct, frozen=True, forbid_unknown_fields=True):
    """Resources of each task that jobs get by default."""

    cpu: Annotated[Quantity | None, Meta(description="CPUs, for jobs of 1 CPU.")] = None
    memory: Annotated[Quantity | None, Meta(description="Memory, for jobs that request none.")] = None
    gpu: Annotated[int, Meta(ge=0, le=100_000, description="GPUs, for jobs that request none.")] = 0


class QueueDefaultsDoc(Struct, frozen=True, forbid_unknown_fields=True):
    """What a job of a queue gets that asks for nothing else."""

    walltime: Annotated[Quantity | None, Meta(description="Walltime; default: the longest of the queue.")] = (
        None
    )
    estimate: Annotated[Quantity | None, Meta(description="Expected runtime.")] = None
    resources: Annotated[QueueResourcesDoc, Meta(description="Resources of each task.")] = QueueResourcesDoc()
    priority: Annotated[
        int, Meta(ge=-1_000_000, le=1_000_000, description="Priority, for jobs of priority 0.")
    ] = 0
    burst: Annotated[
        Literal["auto", "never", "always"], Meta(description="Whether jobs may be rented, for `burst: auto`.")
    ] = "auto"
    max_cost: Annotated[
        Quantity | None, Meta(description="The most that renting a job may cost, in the currency.")
    ] = None


class QueueLimitsDoc(Struct, frozen=True, forbid_unknown_fields=True):
    """How much of the jobs of a queue may be there at a time."""

    running: Annotated[
        Amount, Meta(description="Most placed and running jobs; each member of an array counts.")
    ] = None
    cpu: Annotated[Quantity | None, Meta(description="Most CPUs that they use.")] = None
    memory: Annotated[Quantity | None, Meta(description="Most memory that they use.")] = None
    gpu: Annotated[Amount, Meta(description="Most GPUs that they use.")] = None
    queued: Annotated[
        Amount,
        Meta(description="Most jobs that wait, with those that are held; each member of an array counts."),
    ] = None


class QueueSizeDoc(Struct, frozen=True, forbid_unknown_fields=True):
    """The largest job of a queue, all tasks together."""

    cpu: Annotated[Quantity | None, Meta(description="Most CPUs of a job.")] = None
    memory: Annotated[Quantity | None, Meta(description="Most memory of a job.")] = None
    gpu: Annotated[
        Annotated[int, Meta(ge=0, le=100_000)] | None, Meta(description="Most GPUs of a job; 0: none.")
    ] = None
    tasks: Annotated[Amount, Meta(description="Most tasks of a job.")] = None


class QueueDoc(Struct, frozen=True, forbid_unknown_fields=True):
    """A named queue."""

    name: Annotated[str, Meta(description="Name of the queue.")]
    description: Annotated[str, Meta(max_length=200, description="What it is for, in one line.")] = ""
    default: Annotated[bool, Meta(description="Whether jobs that name no queue go there.")] = False
    defaults: Annotated[QueueDefaultsDoc, Meta(description="What jobs get that ask for nothing else.")] = (
        QueueDefaultsDoc()
    )
    limits: Annotated[QueueLimitsDoc, Meta(description="Limits for all of its jobs together.")] = (
        QueueLimitsDoc()
    )
    user_limits: Annotated[QueueLimitsDoc, Meta(description="Limits for the jobs of each user.")] = (
        QueueLimitsDoc()
    )
    walltime: Annotated[Quantity | None, Meta(description="Longest walltime; default: any.")] = None
    size: Annotated[QueueSizeDoc, Meta(description="The largest job.")] = QueueSizeDoc()
    projects: Annotated[Names, Meta(description="Projects that may use it; default: all.")] = field(
        default_factory=list
    )
    users: Annotated[Names, Meta(description="Users who may use it; default: all.")] = field(
        default_factory=list
    )
    clusters: Annotated[Names, Meta(description="Clusters that its jobs may run on; default: all.")] = field(
        default_factory=list
    )
    priority: Annotated[
        int, Meta(ge=-1_000_000, le=1_000_000, description="Added to the priority of its jobs.")
    ] = 0
