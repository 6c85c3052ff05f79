"""Converts leases, tasks and results between the model and the agents' protocol, on the server's side.

All checks of what agents report are here. Numbers and text that only describe a task are limited to their bounds. An
invalid part that a user would miss makes the result unusable, and the job ends with that reason. A lease that no server
grants becomes NO_LEASE. So an invalid report affects only its own job, and the agent always gets an answer.
"""

from hashlib import sha256
from typing import Final

import msgspec

from spillover.core.events import Lease, Usage
from spillover.core.proposals import Outcome, Prepared, Result, Started, Verdict, Yield, Yielded
from spillover.core.records.tasks import group_of
from spillover.model import ranges
from spillover.model.bounds import MOST_EXIT_CODE, MOST_RAN, MOST_SIGNAL, bounded, plain
from spillover.model.files import File, is_digest
from spillover.model.ids import ClusterName, JobId, NodeKey, is_job_id
from spillover.model.inside import Domain, Inside, Link
from spillover.model.job import Argv, Container, JobSpec, OnTaskFailure, PythonCall, Shell, Work
from spillover.model.resources import Resources
from spillover.model.units import FOREVER
from spillover.wire import agents_pb2 as pb

_OUTCOMES: Final = {
    pb.EXITED: Outcome.EXITED,
    pb.WALLTIME: Outcome.WALLTIME,
    pb.STOPPED: Outcome.STOPPED,
    pb.LOST: Outcome.LOST,
    pb.NOT_STARTED: Outcome.NOT_STARTED,
    pb.OUT_OF_MEMORY: Outcome.OUT_OF_MEMORY,
    pb.UNKEPT: Outcome.UNKEPT,
}
MOST_QUEUE: Final = 10_000
"""Most leases that an agent may prefetch."""
MOST_VALUE: Final = 32 << 10
"""Most bytes of a value in a result: twice what agents send, as it goes into the journal."""
MOST_REPORTED: Final = 10_000
"""Most entries of one kind in a report: five times what agents send."""
MOST_HELD: Final = 100_000
"""Most leases that an agent may name when it registers."""
MOST_PORT: Final = 65535
MOST_SECRET: Final = 64
"""Most bytes of the secret of a gang."""
MOST_CHUNK: Final = 1 << 20
"""Most bytes of output in one message: many times what agents send."""
NO_LEASE: Final = Lease(JobId(""), 0, 0)
"""A lease that nobody holds."""
_YIELDS: Final = {pb.RELEASED: Yield.RELEASED, pb.STARTED: Yield.STARTED, pb.UNKNOWN: Yield.UNKNOWN}
_VERDICTS: Final = {
    Verdict.ACCEPTED: pb.ACCEPTED,
    Verdict.DUPLICATE: pb.DUPLICATE,
    Verdict.FENCED: pb.FENCED,
    Verdict.RESTART: pb.RESTART,
}


def task_digest(task: pb.Task) -> bytes:
    """Return the hash that identifies a task, whoever passes it on."""
    return sha256(task.SerializeToString(deterministic=True)).digest()


def lease_in(lease: pb.Lease) -> Lease:
    """Decode a lease; NO_LEASE if no server could have granted it."""
    if not is_job_id(lease.job) or lease.seq > FOREVER:
        return NO_LEASE
    return Lease(JobId(lease.job), lease.attempt, lease.seq, lease.task)


def lease_out(lease: Lease) -> pb.Lease:
    """Encode a lease."""
    return pb.Lease(job=lease.job, attempt=lease.attempt, seq=lease.seq, task=lease.task)


def resources_in(amount: pb.Resources) -> Resources:
    """Decode an amount of resources."""
    return Resources(amount.cpu, amount.memory, amount.gpu)


def inside_in(inside: pb.Inside) -> Inside:
    """Decode the inside of a machine."""
    return Inside(
        tuple([Domain(one.socket, tuple(one.cpus), tuple(one.gpus), one.memory) for one in inside.domains]),
        tuple(inside.gpus),
        tuple([Link(one.kind, tuple(one.gpus)) for one in inside.links]),
    )


def task_out(
    spec: JobSpec,
    cluster: ClusterName,
    outputs_limit: int = 0,
    rank: int = 0,
    state_limit: int = 0,
    saved: str = "",
) -> pb.Task:
    """Encode the task of a lease; raise ValueError if it cannot be sent to an agent."""
    asked, work, env = spec.shape.resources, spec.work, spec.env
    if spec.shape.groups:
        asked, work, env = _in_group(spec, rank)
    task = pb.Task(
        env={"SPILL_CLUSTER": cluster, **env},
        workdir=spec.workdir,
        resources=pb.Resources(cpu=asked.cpu, memory=asked.memory, gpu=asked.gpu),
        walltime=spec.terms.walltime or 0,
        grace=spec.terms.grace,
        lost_after=spec.terms.lost_after,
        name=spec.name,
        signal=spec.signal,
        signal_before=spec.signal_before,
        keep_state=spec.keep_state,
        state_limit=state_limit if spec.keep_state else 0,
        saved=saved,
    )
    _name(spec, task)
    if spec.stdout or spec.stderr:
        task.stdout, task.stderr, task.append = spec.stdout, spec.stderr, spec.append
    if spec.terminal:
        task.terminal = True
    _add_environment(task, spec)
    for use in spec.secrets:
        task.secrets.add(name=use.name, variable=use.variable, file=use.file)
    if spec.shape.is_gang:
        task.tasks = spec.shape.tasks
        task.restarts = spec.terms.on_task_failure is OnTaskFailure.RESTART
    if spec.files or spec.outputs:
        _add_files(task, spec, outputs_limit)
    match work:
        case Shell(run):
            task.shell = run
        case Argv(command):
            task.argv.words.extend(command)
        case Container(image, command, manifest):
            task.container.image = image
            task.container.command.extend(command)
            task.container.manifest = (manifest or "").encode()
        case PythonCall() as work:
            task.python.CopyFrom(
                pb.PythonCall(
                    call=work.call,
                    args=msgspec.json.encode(work.args) if work.args else b"",
                    function=work.function,
                    arguments=work.arguments,
                    items=work.items,
                    first=work.first,
                    values=[pb.EarlierValue(value=each.value, digest=each.digest) for each in work.values],
                )
            )
    return task


def _name(spec: JobSpec, task: pb.Task) -> None:
    """Add what a task is called by: its queue, project and array."""
    if spec.queue != "default":
        task.queue = spec.queue
    if spec.project != "default":
        task.project = spec.project
    if spec.array:
        task.array.first = spec.array[0].first
        task.array.last = spec.array[-1].last
        task.array.size = ranges.size(spec.array)


def _add_environment(task: pb.Task, spec: JobSpec) -> None:
    """Add the Python environment of a job to its task."""
    if (asked := spec.environment) is not None:
        task.environment.name, task.environment.requirements = asked.name, asked.text or ""
        task.environment.image, task.environment.lock = asked.image, asked.is_lock


def _add_files(task: pb.Task, spec: JobSpec, outputs_limit: int) -> None:
    """Add the files that move before and after a task."""
    task.inputs.extend(_file_out(one) for one in spec.inputs)
    if spec.stdin is not None:
        task.stdin.CopyFrom(_file_out(spec.stdin))
    if spec.inputs or spec.outputs:
        task.outputs.extend(spec.outputs)
        task.outputs_limit = outputs_limit


def _file_out(file: File) -> pb.File:
    return pb.File(path=file.path, digest=file.digest, size=file.size, executable=file.executable)


def _in_group(spec: JobSpec, rank: int) -> tuple[Resources, Work, dict[str, str]]:
    """Return resources, work and variables of a task of a gang with groups."""
    group, number = group_of(spec.shape, rank)
    own = spec.groups[spec.shape.groups.index(group)]
    known = {
        "SPILL_GROUP": group.name,
        "SPILL_GROUP_TASK": str(number),
        "SPILL_GROUP_TASKS": str(group.tasks),
    }
    return group.resources, own.work, {**spec.env, **own.env, **known}


def started_in(node: NodeKey, started: pb.StartedTask) -> Started:
    """Decode a start."""
    return Started(node, lease_in(started.lease), bounded(started.age))


def result_in(node: NodeKey, result: pb.TaskResult) -> Result:
    """Decode a result; an outcome that only newer agents know counts as lost, so that the report gets an answer."""
    outcome, message = _OUTCOMES.get(result.outcome), plain(result.message)
    if outcome is None:
        outcome = Outcome.LOST
        unknown = f"its agent reports outcome {result.outcome}, which this server does not know"
        message = f"{unknown}: {message}" if message else unknown
    if outcome is Outcome.EXITED and (wrong := _wrong(result)) is not None:
        outcome, message = Outcome.UNUSABLE, wrong
    signal = result.signal if result.HasField("signal") else None
    return Result(
        node,
        lease_in(result.lease),
        outcome,
        bounded(result.exit_code, MOST_EXIT_CODE, -MOST_EXIT_CODE) if result.HasField("exit_code") else None,
        signal if signal is not None and 0 < signal <= MOST_SIGNAL else None,
        Usage(
            bounded(result.ran, MOST_RAN),
            bounded(result.cpu),
            bounded(result.peak_memory),
            min(bounded(result.gpu), bounded(result.gpu_measured)),
            bounded(result.gpu_measured),
            bounded(result.gpu_memory),
        ),
        bounded(result.age),
        plain(message),
        result.value if len(result.value) <= MOST_VALUE else b"",
        result.value_digest if is_digest(result.value_digest) else "",
        result.outputs if is_digest(result.outputs) else "",
        run=result.run,
        waits=result.waits,
        saved=result.saved if is_digest(result.saved) else "",
    )


def _wrong(result: pb.TaskResult) -> str | None:
    """Return why a result cannot be used without losing data; None if it can."""
    if len(result.value) > MOST_VALUE:
        return f"its value has {len(result.value)} bytes; more than {MOST_VALUE} have to be uploaded"
    for name, digest in (("value_digest", result.value_digest), ("outputs", result.outputs)):
        if digest and not is_digest(digest):
            return f"{name} is {plain(digest, 80)!r}, which is not a SHA-256"
    return None


def prepared_in(prepared: pb.PreparedTask) -> Prepared:
    """Decode that a task of a gang is prepared."""
    return Prepared(
        lease_in(prepared.lease),
        bounded(prepared.port, MOST_PORT),
        bounded(prepared.shell, MOST_PORT),
        prepared.token[:MOST_SECRET],
    )


def yielded_in(node: NodeKey, yielded: pb.Yielded) -> Yielded:
    """Decode the answer to a yield order; an answer that only newer agents know moves nothing."""
    return Yielded(node, lease_in(yielded.lease), _YIELDS.get(yielded.answer, Yield.STARTED))


def chunk_in(chunk: pb.OutputChunk) -> pb.OutputChunk:
    """Return a chunk of output; replace one that is too large by an error."""
    if len(chunk.data) > MOST_CHUNK:
        told = f"its agent sent {len(chunk.data)} bytes of it at once; the maximum is {MOST_CHUNK}"
        return pb.OutputChunk(incarnation=chunk.incarnation, id=chunk.id, end=True, error=told)
    if chunk.error:
        chunk.error = plain(chunk.error)
    return chunk


def answer_out(result: pb.TaskResult, verdict: Verdict) -> pb.Answer:
    """Encode the verdict on a result."""
    return pb.Answer(lease=result.lease, verdict=_VERDICTS[verdict])
