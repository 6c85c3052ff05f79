"""The server's side of the agents' protocol: leases, tasks and results, between the model and the wire; and what both sides hold to.

What agents say is checked here and nowhere else. A number or a text that only describes a task is brought within its bounds. What a
user would miss if it were left out makes the report unusable, and its job ends with that as the reason. A lease that no server grants is
one that nobody holds. So what is wrong with one report costs its own job, and the agent has an answer.
"""

from hashlib import sha256
from typing import Final

import msgspec

from spillover.core.events import Lease, Usage
from spillover.core.proposals import Outcome, Result, Started, Verdict, Yield, Yielded
from spillover.model.bounds import MOST_EXIT_CODE, MOST_RAN, MOST_SIGNAL, bounded, plain
from spillover.model.files import is_digest
from spillover.model.ids import ClusterName, JobId, NodeKey, is_job_id
from spillover.model.job import Argv, Container, JobSpec, PythonCall, Shell
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
"""Leases that an agent may prefetch."""
MOST_VALUE: Final = 32 << 10
"""Bytes of a value within a result: twice what agents send so, as it goes into the journal."""
MOST_REPORTED: Final = 10_000
"""Entries of one kind in a report: five times what agents send."""
MOST_HELD: Final = 100_000
"""Leases that an agent may name when it registers."""
MOST_CHUNK: Final = 1 << 20
"""Bytes of output in one message: many times what agents send."""
NO_LEASE: Final = Lease(JobId(""), 0, 0)
"""One that nobody holds."""
_YIELDS: Final = {pb.RELEASED: Yield.RELEASED, pb.STARTED: Yield.STARTED, pb.UNKNOWN: Yield.UNKNOWN}
_VERDICTS: Final = {Verdict.ACCEPTED: pb.ACCEPTED, Verdict.DUPLICATE: pb.DUPLICATE, Verdict.FENCED: pb.FENCED}


def task_digest(task: pb.Task) -> bytes:
    """What tells a task from any other, whoever hands it on."""
    return sha256(task.SerializeToString(deterministic=True)).digest()


def lease_in(lease: pb.Lease) -> Lease:
    """A lease from the wire; NO_LEASE for what no server grants."""
    if not is_job_id(lease.job) or lease.seq > FOREVER:
        return NO_LEASE
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
    return Started(node, lease_in(started.lease), bounded(started.age))


def result_in(node: NodeKey, result: pb.TaskResult) -> Result:
    """A result from the wire; an outcome that only a newer agent knows is a task lost, or the report would never be answered."""
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
        Usage(bounded(result.ran, MOST_RAN), bounded(result.cpu), bounded(result.peak_memory)),
        bounded(result.age),
        plain(message),
        result.value if len(result.value) <= MOST_VALUE else b"",
        result.value_digest if is_digest(result.value_digest) else "",
        result.outputs if is_digest(result.outputs) else "",
    )


def _wrong(result: pb.TaskResult) -> str | None:
    """What of a result cannot be used that whoever waits for it would miss; None if nothing."""
    if len(result.value) > MOST_VALUE:
        return f"its value has {len(result.value)} bytes; more than {MOST_VALUE} have to be uploaded"
    for name, digest in (("value_digest", result.value_digest), ("outputs", result.outputs)):
        if digest and not is_digest(digest):
            return f"{name} is {plain(digest, 80)!r}, which is not the SHA-256 of anything"
    return None


def yielded_in(node: NodeKey, yielded: pb.Yielded) -> Yielded:
    """What an agent says of a lease that another one wants; an answer that only a newer agent knows moves nothing."""
    return Yielded(node, lease_in(yielded.lease), _YIELDS.get(yielded.answer, Yield.STARTED))


def chunk_in(chunk: pb.OutputChunk) -> pb.OutputChunk:
    """Output from the wire; of a chunk that is too large to be kept for its reader nothing but that."""
    if len(chunk.data) > MOST_CHUNK:
        told = f"its agent sent {len(chunk.data)} bytes of it at once; the most is {MOST_CHUNK}"
        return pb.OutputChunk(incarnation=chunk.incarnation, id=chunk.id, end=True, error=told)
    if chunk.error:
        chunk.error = plain(chunk.error)
    return chunk


def answer_out(result: pb.TaskResult, verdict: Verdict) -> pb.Answer:
    """What became of a result, for the wire."""
    return pb.Answer(lease=result.lease, verdict=_VERDICTS[verdict])
