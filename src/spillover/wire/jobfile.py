"""The job file, version 1, as people write it and as the API takes it.

Only form is said here: what may stand where. What it means, and what is absurd, is checked in `forms`. Quantities are kept as
they were written. Descriptions go into the JSON schema.
"""

from typing import Annotated, Any, Final, Literal, TypeAlias

from msgspec import Meta, Struct, field

API_VERSION: Final = "spillover/v1"

Quantity: TypeAlias = str | int | float
"""A number, or a number with its unit."""

Count: TypeAlias = Annotated[int, Meta(ge=0, le=1000)]

Words: TypeAlias = str | Annotated[list[str], Meta(max_length=100)]
"""One word, or several of which one counts."""


class Metadata(Struct, frozen=True, forbid_unknown_fields=True):
    """What a job is called and whom it belongs to."""

    name: Annotated[str | None, Meta(description="Default: the first word of its command.")] = None
    project: Annotated[str, Meta(description="Who pays for it.")] = "default"
    labels: Annotated[
        dict[str, str], Meta(max_length=100, description="Words of your own, to find it again.")
    ] = field(default_factory=dict)


class PythonDoc(Struct, frozen=True, forbid_unknown_fields=True):
    """A call of a Python function."""

    call: Annotated[str | None, Meta(description="`module:function`.")] = None
    args: Annotated[list[Any], Meta(description="Plain values to call it with.")] = field(
        default_factory=list
    )
    function: Annotated[
        str | None,
        Meta(description="SHA-256 of a pickled function that the server has; the client fills it in."),
    ] = None
    arguments: Annotated[
        bytes, Meta(description="Pickled arguments for that, Base64; the client fills them in.")
    ] = b""
    items: Annotated[
        str | None,
        Meta(description="SHA-256 of pickled items, one for each member of the array; likewise."),
    ] = None
    first: Annotated[
        int, Meta(ge=0, le=2**31, description="The index of the member that gets the first item.")
    ] = 0


class ContainerDoc(Struct, frozen=True, forbid_unknown_fields=True):
    """A command in an image."""

    image: Annotated[str, Meta(min_length=1, description="Name of the image.")]
    command: Annotated[
        list[str], Meta(description="Program and arguments; default: the image's own entry point.")
    ] = field(default_factory=list)
    manifest: Annotated[
        dict[str, Any] | None, Meta(description="The Kubernetes Job that it was written as.")
    ] = None


class ResourcesDoc(Struct, frozen=True, forbid_unknown_fields=True):
    """What each task needs of a machine."""

    cpu: Annotated[Quantity, Meta(description="CPUs: 2, 1.5 or 500m.")] = 1
    memory: Annotated[
        Quantity | None, Meta(description="Bytes: 512Mi, 2Gi, 2G; default: it does not matter.")
    ] = None
    gpu: Annotated[int, Meta(ge=0, le=100_000, description="Whole GPUs.")] = 0
    other: Annotated[
        dict[str, Quantity],
        Meta(max_length=100, description="Whatever else nodes have, by its name, as example.com/fpga: 1."),
    ] = field(default_factory=dict)


class WhereDoc(Struct, frozen=True, forbid_unknown_fields=True):
    """Which clusters a job may run on. All that is written must hold."""

    role: Annotated[
        Literal["owned", "rented"] | None, Meta(description="Only owned clusters, or only rented ones.")
    ] = None
    kind: Annotated[Words, Meta(description="Kinds of clusters, as agents or kubernetes.")] = field(
        default_factory=list
    )
    cluster: Annotated[Words, Meta(description="Names of clusters.")] = field(default_factory=list)
    region: Annotated[Words, Meta(description="Regions of clusters.")] = field(default_factory=list)
    labels: Annotated[
        dict[str, str], Meta(max_length=100, description="Labels that its cluster must have, all of them.")
    ] = field(default_factory=dict)
    avoid: Annotated[Words, Meta(description="Names of clusters that it must not run on.")] = field(
        default_factory=list
    )


class RetryDoc(Struct, frozen=True, forbid_unknown_fields=True):
    """How often a job is tried again."""

    exit: Annotated[Count, Meta(description="After an exit code that is not 0, or a signal.")] = 0
    lost: Annotated[Count, Meta(description="After its machine was lost.")] = 3


class AfterDoc(Struct, frozen=True, forbid_unknown_fields=True):
    """A job that must have ended first."""

    job: Annotated[str, Meta(description="Its name or id; a job of the same file may be named.")]
    on: Annotated[
        Literal["success", "any"], Meta(description="Which end counts; after a failure `success` cancels.")
    ] = "success"


class InputDoc(Struct, frozen=True, forbid_unknown_fields=True):
    """Files that are brought to where the job runs."""

    path: Annotated[str, Meta(description="A file, a folder or a pattern, from the working directory.")]
    to: Annotated[
        str | None,
        Meta(description="What it is called there, or, as folder/, what it is put into; default: the same."),
    ] = field(name="as", default=None)
    digest: Annotated[
        str | None, Meta(description="SHA-256 of a file that the server has; the client fills it in.")
    ] = None
    size: Annotated[
        Annotated[int, Meta(ge=0, le=2**62)] | None, Meta(description="Bytes, with a digest.")
    ] = None
    executable: Annotated[bool, Meta(description="Whether it is a program, with a digest.")] = False


class SpecDoc(Struct, frozen=True, forbid_unknown_fields=True):
    """What runs, and how. Exactly one of `run`, `command`, `python` and `container` says what."""

    run: Annotated[str | None, Meta(description="A line or a script for /bin/sh.")] = None
    command: Annotated[list[str] | None, Meta(description="A program and its arguments, as they are.")] = None
    python: Annotated[PythonDoc | None, Meta(description="A function to call.")] = None
    container: Annotated[ContainerDoc | None, Meta(description="An image to run.")] = None
    env: Annotated[dict[str, str], Meta(max_length=1000, description="Environment variables.")] = field(
        default_factory=dict
    )
    workdir: Annotated[str | None, Meta(description="Default: where it was submitted.")] = None
    tasks: Annotated[
        int, Meta(ge=1, le=100_000, description="More than one is a gang: all start or none.")
    ] = 1
    resources: Annotated[ResourcesDoc, Meta(description="Of each task.")] = ResourcesDoc()
    walltime: Annotated[Quantity | None, Meta(description="Limit such as 2h; then TERM, grace, KILL.")] = None
    estimate: Annotated[
        Quantity | None, Meta(description="Expected time to run; default: the walltime, else predicted.")
    ] = None
    deadline: Annotated[str | None, Meta(description="Latest finish, RFC 3339 with a zone.")] = None
    not_before: Annotated[str | None, Meta(description="Earliest start, RFC 3339 with a zone.")] = None
    priority: Annotated[int, Meta(ge=-1_000_000, le=1_000_000, description="Higher first.")] = 0
    queue: Annotated[str, Meta(description="The queue it waits in.")] = "default"
    burst: Annotated[
        Literal["auto", "never", "always"], Meta(description="Whether it may run on rented capacity.")
    ] = "auto"
    max_cost: Annotated[
        Quantity | None,
        Meta(description="The most that renting it may cost, of an array each member, in the currency."),
    ] = None
    data: Annotated[
        Quantity | None,
        Meta(description="What leaves a rented cluster at its end, such as 20G, to be paid for."),
    ] = None
    needs: Annotated[
        list[str], Meta(max_length=100, description="Words that its cluster must offer, as gpu:a100.")
    ] = field(default_factory=list)
    where: Annotated[WhereDoc | None, Meta(description="Which clusters it may run on; default: any.")] = None
    retry: Annotated[RetryDoc, Meta(description="When it is tried again.")] = RetryDoc()
    on_cluster_failure: Annotated[
        Literal["wait", "requeue", "cancel"],
        Meta(
            description="What becomes of it when its cluster fails: it waits there, runs elsewhere, or ends."
        ),
    ] = "wait"
    lost_after: Annotated[
        Quantity | None, Meta(description="How long a started task outlives an unreachable server.")
    ] = None
    grace: Annotated[Quantity | None, Meta(description="Between TERM and KILL; default 10s.")] = None
    array: Annotated[
        str | int | None, Meta(description="One member for each index: 1-100, 1-10,20 or 0-90:10.")
    ] = None
    after: Annotated[
        list[AfterDoc | str],
        Meta(max_length=10_000, description="Jobs that must have ended before it starts."),
    ] = field(default_factory=list)
    key: Annotated[
        Annotated[str, Meta(min_length=1, max_length=256)] | None,
        Meta(description="Idempotency key: what is repeated under it is submitted once."),
    ] = None
    inputs: Annotated[
        list[InputDoc | str],
        Meta(max_length=10_000, description="Files that are brought to where it runs: paths or patterns."),
    ] = field(default_factory=list)
    outputs: Annotated[
        list[str],
        Meta(max_length=1000, description="Files that are brought back when it ended: paths or patterns."),
    ] = field(default_factory=list)


class JobDoc(Struct, frozen=True, forbid_unknown_fields=True):
    """One job, or one array of jobs."""

    apiVersion: Literal["spillover/v1"]  # noqa: N815 - as Kubernetes spells it
    kind: Literal["Job"]
    spec: SpecDoc
    metadata: Metadata = Metadata()
