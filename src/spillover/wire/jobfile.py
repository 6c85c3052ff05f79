"""The format of the job file, version 1, for people and for the API.

This module defines the fields and their types. `forms` checks their values. Quantities are kept as
they were written. Descriptions go into the JSON Schema.
"""

from typing import Annotated, Any, Final, Literal, TypeAlias

from msgspec import Meta, Struct, field

API_VERSION: Final = "spillover/v1"

Quantity: TypeAlias = str | int | float
"""A number, or a number with its unit."""

Count: TypeAlias = Annotated[int, Meta(ge=0, le=1000)]

Words: TypeAlias = str | Annotated[list[str], Meta(max_length=100)]
"""One word, or a list of alternatives."""


Pin: TypeAlias = Annotated[
    Literal["core", "numa", "socket"] | None,
    Meta(description="Whole cores for each task alone; `numa` or `socket`: in one, with its GPUs."),
]

GpuLink: TypeAlias = Annotated[
    str | None,
    Meta(description="Link between the GPUs of each task, such as nvlink; `any` is the fastest there is."),
]


class Metadata(Struct, frozen=True, forbid_unknown_fields=True):
    """The name of a job and its project."""

    name: Annotated[
        str | None, Meta(description="Name of the job; default: the first word of its command.")
    ] = None
    project: Annotated[str, Meta(description="Project that the job belongs to and that pays for it.")] = (
        "default"
    )
    labels: Annotated[dict[str, str], Meta(max_length=100, description="Labels of your choice.")] = field(
        default_factory=dict
    )


class PythonDoc(Struct, frozen=True, forbid_unknown_fields=True):
    """A call of a Python function."""

    call: Annotated[str | None, Meta(description="`module:function`.")] = None
    args: Annotated[list[Any], Meta(description="Arguments: plain JSON values.")] = field(
        default_factory=list
    )
    function: Annotated[
        str | None,
        Meta(description="SHA-256 of an uploaded pickled function; the client fills it in."),
    ] = None
    arguments: Annotated[
        bytes, Meta(description="Pickled arguments of `function`, in Base64; the client fills them in.")
    ] = b""
    items: Annotated[
        str | None,
        Meta(
            description="SHA-256 of pickled items, one for each member of the array; the client fills it in."
        ),
    ] = None
    first: Annotated[
        int, Meta(ge=0, le=2**31, description="Index of the member that gets the first item.")
    ] = 0
    values: Annotated[
        list[str],
        Meta(
            max_length=10_000,
            description="Full ids of earlier calls whose return values the arguments refer to; the client fills them in. The call runs after them.",
        ),
    ] = field(default_factory=list)


class ContainerDoc(Struct, frozen=True, forbid_unknown_fields=True):
    """A container to run."""

    image: Annotated[str, Meta(min_length=1, description="Name of the image.")]
    command: Annotated[
        list[str], Meta(description="Program and arguments; default: the entry point of the image.")
    ] = field(default_factory=list)
    manifest: Annotated[
        dict[str, Any] | None, Meta(description="The Kubernetes Job manifest that was submitted.")
    ] = None


class ResourcesDoc(Struct, frozen=True, forbid_unknown_fields=True):
    """Resources of each task."""

    cpu: Annotated[Quantity, Meta(description="CPUs: 2, 1.5 or 500m.")] = 1
    memory: Annotated[
        Quantity | None, Meta(description="Memory: 512Mi, 2Gi or 2G; default: no request, no limit.")
    ] = None
    gpu: Annotated[int, Meta(ge=0, le=100_000, description="Number of GPUs.")] = 0
    other: Annotated[
        dict[str, Quantity],
        Meta(max_length=100, description="Other resources of nodes by name, such as example.com/fpga: 1."),
    ] = field(default_factory=dict)


class WhereDoc(Struct, frozen=True, forbid_unknown_fields=True):
    """Which clusters a job may run on. A cluster must match all fields."""

    role: Annotated[
        Literal["owned", "rented"] | None, Meta(description="Only owned clusters, or only rented clusters.")
    ] = None
    kind: Annotated[Words, Meta(description="Kinds of clusters, such as agents or kubernetes.")] = field(
        default_factory=list
    )
    cluster: Annotated[Words, Meta(description="Names of clusters.")] = field(default_factory=list)
    region: Annotated[Words, Meta(description="Regions of clusters.")] = field(default_factory=list)
    labels: Annotated[
        dict[str, str], Meta(max_length=100, description="Labels that the cluster must have, all of them.")
    ] = field(default_factory=dict)
    avoid: Annotated[Words, Meta(description="Names of clusters that the job must not run on.")] = field(
        default_factory=list
    )


class WithinDoc(Struct, frozen=True, forbid_unknown_fields=True):
    """A wish for one vertex of a level."""

    prefer: Annotated[
        str, Meta(description="Level; if no vertex of it has room, the tasks start in as few as possible.")
    ]


class SpreadDoc(Struct, frozen=True, forbid_unknown_fields=True):
    """How tasks are spread over the vertices of a level."""

    over: Annotated[str, Meta(description="Level, such as rack or node.")]
    most: Annotated[int, Meta(ge=1, le=100_000, description="Most tasks in one vertex of the level.")] = 1
    exact: Annotated[
        bool, Meta(description="Whether each node that is used gets exactly `most` tasks; only over nodes.")
    ] = False


class RetryDoc(Struct, frozen=True, forbid_unknown_fields=True):
    """How often a job is retried."""

    exit: Annotated[Count, Meta(description="Retries after an exit code other than 0, or a signal.")] = 0
    lost: Annotated[Count, Meta(description="Retries after its machine was lost.")] = 3


class AfterDoc(Struct, frozen=True, forbid_unknown_fields=True):
    """A job that must end first."""

    job: Annotated[str, Meta(description="Name or id of the job; it may be in the same file.")]
    on: Annotated[
        Literal["success", "any", "failure"],
        Meta(
            description="`success`: the job must succeed, and this one is cancelled if it fails; `any`: it must end; `failure`: it must fail, and this one is cancelled if it succeeds."
        ),
    ] = "success"
    members: Annotated[
        Literal["same", "all"],
        Meta(
            description="If both are arrays: with `same`, each member of this one waits for the member with its index alone; with `all`, for the whole array."
        ),
    ] = "all"


class InputDoc(Struct, frozen=True, forbid_unknown_fields=True):
    """Files to copy to where the job runs."""

    path: Annotated[
        str,
        Meta(
            description="A file, folder or pattern, relative to the working directory; with `from`, among the outputs of that job."
        ),
    ]
    to: Annotated[
        str | None,
        Meta(
            description="Path where the job runs, or a folder if it ends with a slash; default: the same path."
        ),
    ] = field(name="as", default=None)
    digest: Annotated[
        str | None, Meta(description="SHA-256 of an uploaded file; the client fills it in.")
    ] = None
    size: Annotated[
        Annotated[int, Meta(ge=0, le=2**62)] | None,
        Meta(description="Size of the file in bytes; required with `digest`."),
    ] = None
    executable: Annotated[bool, Meta(description="Whether the file is executable; only with `digest`.")] = (
        False
    )
    source: Annotated[
        str | None,
        Meta(
            description="Name or id of a job whose outputs these are; it may be in the same file. This job waits for its success."
        ),
    ] = field(name="from", default=None)
    members: Annotated[
        Literal["same", "all"] | None,
        Meta(
            description="Of an array in `from`: `same`: each member of this array takes from the member with its index; `all`: from all members, into folders by index. Default: `same` if this job is an array, else `all`."
        ),
    ] = None


class StdinDoc(Struct, frozen=True, forbid_unknown_fields=True):
    """A file to read as standard input."""

    path: Annotated[str, Meta(description="Its path, relative to the working directory.")]
    digest: Annotated[
        str | None, Meta(description="SHA-256 of an uploaded file; the client fills it in.")
    ] = None
    size: Annotated[
        Annotated[int, Meta(ge=0, le=2**62)] | None,
        Meta(description="Size of the file in bytes; required with `digest`."),
    ] = None


class EnvironmentDoc(Struct, frozen=True, forbid_unknown_fields=True):
    """A Python environment. Set exactly one of `name`, `requirements` and `image`."""

    name: Annotated[str | None, Meta(description="Name of an environment that the agent has.")] = None
    requirements: Annotated[
        str | None,
        Meta(description="File with the packages of one that the agent builds, relative to `workdir`."),
    ] = None
    text: Annotated[
        Annotated[str, Meta(max_length=262_144)] | None,
        Meta(description="The content of that file; the client fills it in."),
    ] = None
    image: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        Meta(description="Container image for `python`: the call is made in a container of it."),
    ] = None


class SecretDoc(Struct, frozen=True, forbid_unknown_fields=True):
    """A secret of the project that the job gets."""

    name: Annotated[str, Meta(description="Name of the secret.")]
    to: Annotated[
        str | None,
        Meta(
            description="Variable with its value, or with the path of its file; default: the name in capitals, with `_FILE` for a file."
        ),
    ] = field(name="as", default=None)
    file: Annotated[
        bool, Meta(description="Whether the value is in a file, and the variable has its path.")
    ] = False


class NotifyDoc(Struct, frozen=True, forbid_unknown_fields=True):
    """Somebody to tell when the job begins or ends."""

    to: Annotated[str, Meta(description="A mail address, or the name of a webhook of the server.")]
    on: Annotated[
        Annotated[
            list[Literal["begin", "end", "fail", "time_limit", "requeue"]], Meta(min_length=1, max_length=10)
        ],
        Meta(description="What to tell: that it begins, ends, fails, times out, or returns to the queue."),
    ] = field(default_factory=lambda: ["end"])


class GroupDoc(Struct, frozen=True, forbid_unknown_fields=True):
    """Tasks of a job that are alike. Set exactly one of `run`, `command`, `python` and `container`."""

    name: Annotated[str, Meta(description="Name of the group; no two groups of a job have the same.")]
    tasks: Annotated[int, Meta(ge=1, le=100_000, description="Number of tasks in the group.")] = 1
    resources: Annotated[ResourcesDoc, Meta(description="Resources of each task.")] = ResourcesDoc()
    run: Annotated[str | None, Meta(description="A command line or script for /bin/sh.")] = None
    command: Annotated[
        list[str] | None, Meta(description="A program and its arguments, run without a shell.")
    ] = None
    python: Annotated[PythonDoc | None, Meta(description="A Python function to call.")] = None
    container: Annotated[ContainerDoc | None, Meta(description="A container to run.")] = None
    env: Annotated[
        dict[str, str],
        Meta(max_length=1000, description="Environment variables, in addition to those of the job."),
    ] = field(default_factory=dict)
    pin: Pin = None
    gpu_link: GpuLink = None


class SpecDoc(Struct, frozen=True, forbid_unknown_fields=True):
    """What to run, and how. Set exactly one of `run`, `command`, `python`, `container` and `groups`."""

    run: Annotated[str | None, Meta(description="A command line or script for /bin/sh.")] = None
    command: Annotated[
        list[str] | None, Meta(description="A program and its arguments, run without a shell.")
    ] = None
    python: Annotated[PythonDoc | None, Meta(description="A Python function to call.")] = None
    container: Annotated[ContainerDoc | None, Meta(description="A container to run.")] = None
    env: Annotated[dict[str, str], Meta(max_length=1000, description="Environment variables.")] = field(
        default_factory=dict
    )
    workdir: Annotated[
        str | None, Meta(description="Working directory; default: the folder it was submitted from.")
    ] = None
    tasks: Annotated[
        Annotated[int, Meta(ge=1, le=100_000)] | str,
        Meta(
            description="Number of tasks; all start together or none starts. A range such as 2..8: as many as fit at the start."
        ),
    ] = 1
    groups: Annotated[
        Annotated[list[GroupDoc], Meta(max_length=1000)] | None,
        Meta(
            description="Groups of unlike tasks that start together, in place of `tasks`, `resources` and what to run.",
        ),
    ] = None
    resources: Annotated[ResourcesDoc, Meta(description="Resources of each task.")] = ResourcesDoc()
    walltime: Annotated[
        Quantity | None,
        Meta(description="Time limit, such as 2h. Then the job gets TERM, and KILL after `grace`."),
    ] = None
    signal_before: Annotated[
        Quantity | None,
        Meta(
            description="How long before the walltime each task gets `signal`, such as 2m, so that it can save its work."
        ),
    ] = None
    signal: Annotated[
        str | None,
        Meta(description="The signal that comes before the walltime, such as USR1; default: TERM."),
    ] = None
    estimate: Annotated[
        Quantity | None,
        Meta(description="Expected runtime; default: the walltime, else predicted from past jobs."),
    ] = None
    deadline: Annotated[str | None, Meta(description="Latest end, as RFC 3339 with a time zone.")] = None
    not_before: Annotated[str | None, Meta(description="Earliest start, as RFC 3339 with a time zone.")] = (
        None
    )
    priority: Annotated[
        int, Meta(ge=-1_000_000, le=1_000_000, description="Jobs with a higher priority go first.")
    ] = 0
    queue: Annotated[str, Meta(description="Name of the queue.")] = "default"
    burst: Annotated[
        Literal["auto", "never", "always"], Meta(description="Whether the job may run on rented capacity.")
    ] = "auto"
    max_cost: Annotated[
        Quantity | None,
        Meta(description="The most the job may cost on rented capacity; for an array, each member."),
    ] = None
    data: Annotated[
        Quantity | None,
        Meta(
            description="Data transferred out of a rented cluster when the job ends, such as 20G; billed as egress."
        ),
    ] = None
    needs: Annotated[
        list[str], Meta(max_length=100, description="Words that the machine must offer, such as gpu:a100.")
    ] = field(default_factory=list)
    where: Annotated[
        WhereDoc | None, Meta(description="Which clusters the job may run on; default: any.")
    ] = None
    within: Annotated[
        str | WithinDoc | None,
        Meta(
            description="Level, such as rack: all tasks start in one rack. With `prefer`, only if possible."
        ),
    ] = None
    spread: Annotated[
        str | SpreadDoc | None,
        Meta(description="Level, such as node: each task starts on another node."),
    ] = None
    exclusive: Annotated[
        Literal["node"] | None,
        Meta(description="`node`: no other job uses the nodes of this one while it is there."),
    ] = None
    constraints: Annotated[
        dict[str, Any] | None,
        Meta(
            description="Nodes that its tasks may run on: `properties` and `hostlist`, combined with `and`, `or` and `not`."
        ),
    ] = None
    pin: Pin = None
    gpu_link: GpuLink = None
    reservation: Annotated[
        str | None,
        Meta(description="Advance reservation of its project: the job runs only there and then."),
    ] = None
    environment: Annotated[
        EnvironmentDoc | None,
        Meta(description="The Python environment that the job runs in; default: that of the agent."),
    ] = None
    keep_state: Annotated[
        bool,
        Meta(
            description="Whether each task has a folder, `SPILL_STATE`, that later attempts get with what is in it."
        ),
    ] = False
    secrets: Annotated[
        list[SecretDoc | str],
        Meta(
            max_length=100,
            description="Secrets of the project that each task gets as variables or files; in short `NAME` or `NAME=VARIABLE`.",
        ),
    ] = field(default_factory=list)
    retry: Annotated[RetryDoc, Meta(description="How often the job is retried.")] = RetryDoc()
    on_cluster_failure: Annotated[
        Literal["wait", "requeue", "cancel"],
        Meta(
            description="What to do when its cluster fails: wait for the cluster, requeue the job, or cancel it."
        ),
    ] = "wait"
    on_task_failure: Annotated[
        Literal["fail", "ignore", "restart"],
        Meta(
            description="What to do when a task of several fails: stop the others, let them go on until the last ends, or start it again."
        ),
    ] = "fail"
    on_task_success: Annotated[
        Literal["wait", "end"],
        Meta(
            description="What to do when the first task of several succeeds: wait for the others, or stop them and succeed."
        ),
    ] = "wait"
    lost_after: Annotated[
        Quantity | None,
        Meta(description="How long a started task keeps running while the server is unreachable."),
    ] = None
    grace: Annotated[Quantity | None, Meta(description="Time between TERM and KILL; default: 10s.")] = None
    array: Annotated[
        str | int | None,
        Meta(
            description="Indexes of the array's members: 1-100, 1-10,20 or 0-90:10. With %4 behind them, at most 4 members are placed at a time."
        ),
    ] = None
    after: Annotated[
        list[AfterDoc | str],
        Meta(max_length=10_000, description="Jobs that must end before this one starts."),
    ] = field(default_factory=list)
    singleton: Annotated[
        bool,
        Meta(
            description="Whether all your earlier jobs with the same name and project must end before this one starts."
        ),
    ] = False
    hold: Annotated[
        bool, Meta(description="Whether the job is held from the start, until `spill release`.")
    ] = False
    stdin: Annotated[
        StdinDoc | str | None,
        Meta(
            description="File that the job reads as standard input, relative to `workdir`; each attempt and each task reads all of it."
        ),
    ] = None
    terminal: Annotated[
        bool,
        Meta(description="Whether the job runs in a terminal, to which `spill attach` connects people."),
    ] = False
    stdout: Annotated[
        str | None,
        Meta(
            description="File on the machine that runs the job for its output, relative to `workdir`: res_%A_%a.out. %A: id of the job or array; %a: index; %j: id with index; %x: name; %N: node; %t: rank; %u: user of the agent; %%: a percent sign."
        ),
    ] = None
    stderr: Annotated[str | None, Meta(description="The same for its errors; it may be the same file.")] = (
        None
    )
    open_mode: Annotated[
        Literal["truncate", "append"],
        Meta(description="What happens to the files of `stdout` and `stderr` when the job starts."),
    ] = "truncate"
    key: Annotated[
        Annotated[str, Meta(min_length=1, max_length=256)] | None,
        Meta(description="Idempotency key: repeated submissions with the same key create one job."),
    ] = None
    inputs: Annotated[
        list[InputDoc | str],
        Meta(max_length=10_000, description="Files to copy to where the job runs: paths or patterns."),
    ] = field(default_factory=list)
    outputs: Annotated[
        list[str],
        Meta(max_length=1000, description="Files to copy back when the job has ended: paths or patterns."),
    ] = field(default_factory=list)
    notify: Annotated[
        Annotated[list[NotifyDoc | str], Meta(max_length=10)],
        Meta(
            description="Who is told when the job begins or ends: mail addresses, or webhooks of the server. `end:ada@example.org` for short."
        ),
    ] = field(default_factory=list)


class JobDoc(Struct, frozen=True, forbid_unknown_fields=True):
    """One job, or one array of jobs."""

    apiVersion: Literal["spillover/v1"]  # noqa: N815 - as Kubernetes spells it
    kind: Literal["Job"]
    spec: SpecDoc
    metadata: Metadata = Metadata()
