"""The server's side of the agents' protocol: leases, tasks and results, between the model and the wire; and what both sides hold to."""

from hashlib import sha256
from typing import Final

import msgspec

from spillover.core.events import Lease, Usage
from spillover.core.proposals import Outcome, Result, Started, Verdict, Yield, Yielded
from spillover.model.files import is_digest
from spillover.model.ids import ClusterName, JobId, NodeKey
from spillover.model.job import Argv, Container, JobSpec, PythonCall, Shell
from spillover.model.resources import Resources
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
"""Leases that an agent may ask for ahead of room."""
MOST_VALUE: Final = 32 << 10
"""Bytes of a value within a result: twice what agents send so, as it goes into the journal."""
_YIELDS: Final = {pb.RELEASED: Yield.RELEASED, pb.STARTED: Yield.STARTED, pb.UNKNOWN: Yield.UNKNOWN}
_VERDICTS: Final = {Verdict.ACCEPTED: pb.ACCEPTED, Verdict.DUPLICATE: pb.DUPLICATE, Verdict.FENCED: pb.FENCED}


def task_digest(task: pb.Task) -> bytes:
    """What tells a task from any other, whoever hands it on."""
    return sha256(task.SerializeToString(deterministic=True)).digest()


def lease_in(lease: pb.Lease) -> Lease:
    """A lease from the wire."""
    return Lease(JobId(lease.job), lease.attempt, lease.seq, lease.task)


def lease_out(lease: Lease) -> pb.Lease:
    """A lease for the wire."""
    return pb.Lease(job=lease.job, attempt=lease.attempt, seq=lease.seq, task=lease.task)


def resources_in(amount: pb.Resources) -> Resources:
    """An amount from the wire."""
    return Resources(amount.cpu, amount.memory, amount.gpu)


def task_out(spec: JobSpec, cluster: ClusterName, outputs_limit: int = 0) -> pb.Task:
    """What a lease is to run, for the wire; raises ValueError with why an agent cannot be sent it."""
    asked = spec.shape.resources
    task = pb.Task(
        env={"SPILL_CLUSTER": cluster, **spec.env},
        workdir=spec.workdir,
        resources=pb.Resources(cpu=asked.cpu, memory=asked.memory, gpu=asked.gpu),
        walltime=spec.terms.walltime or 0,
        grace=spec.terms.grace,
        lost_after=spec.terms.lost_after,
        name=spec.name,
    )
    if spec.inputs or spec.outputs:
        task.inputs.extend(
            pb.File(path=one.path, digest=one.digest, size=one.size, executable=one.executable)
            for one in spec.inputs
        )
        task.outputs.extend(spec.outputs)
        task.outputs_limit = outputs_limit
    match spec.work:
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
                )
            )
    return task


def started_in(node: NodeKey, started: pb.StartedTask) -> Started:
    """A start from the wire."""
    return Started(node, lease_in(started.lease), started.age)


def result_in(node: NodeKey, result: pb.TaskResult) -> Result:
    """A result from the wire; an outcome that only a newer agent knows is a task lost, or the report would never be answered."""
    outcome, message = _OUTCOMES.get(result.outcome), result.message
    if outcome is None:
        outcome = Outcome.LOST
        unknown = f"its agent reports outcome {result.outcome}, which this server does not know"
        message = f"{unknown}: {message}" if message else unknown
    return Result(
        node,
        lease_in(result.lease),
        outcome,
        result.exit_code if result.HasField("exit_code") else None,
        result.signal if result.HasField("signal") else None,
        Usage(result.ran, result.cpu, result.peak_memory),
        result.age,
        message[:500],
        result.value if len(result.value) <= MOST_VALUE else b"",
        result.value_digest,
        result.outputs if is_digest(result.outputs) else "",
    )


def yielded_in(node: NodeKey, yielded: pb.Yielded) -> Yielded:
    """What an agent says of a lease that another one wants; an answer that only a newer agent knows moves nothing."""
    return Yielded(node, lease_in(yielded.lease), _YIELDS.get(yielded.answer, Yield.STARTED))


def answer_out(result: pb.TaskResult, verdict: Verdict) -> pb.Answer:
    """What became of a result, for the wire."""
    return pb.Answer(lease=result.lease, verdict=_VERDICTS[verdict])
