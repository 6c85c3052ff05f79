"""Converts between messages of the protocol and the agent's own types."""

from functools import lru_cache
from typing import Final

import msgspec

from spillover.agent.leases.values import (
    Answered,
    CallInImage,
    GangStart,
    Grant,
    NewTerms,
    Phase,
    Renewal,
    Report,
    Source,
    Task,
    TaskResult,
    Welcome,
)
from spillover.core.events import Lease
from spillover.core.proposals import Outcome, Verdict, Yield
from spillover.model.files import File
from spillover.model.ids import JobId, is_job_id, is_name
from spillover.model.inside import Granted, Inside, held_with
from spillover.model.job import (
    PYLOCK,
    Argv,
    Container,
    EarlierValue,
    Environment,
    PythonCall,
    SecretUse,
    Shell,
    Work,
)
from spillover.model.resources import Resources
from spillover.model.units import MINUTE
from spillover.wire import agents_pb2 as pb

DEFAULT_LOST_AFTER: Final = 5 * MINUTE
_OUTCOMES: Final = {
    Outcome.EXITED: pb.EXITED,
    Outcome.WALLTIME: pb.WALLTIME,
    Outcome.STOPPED: pb.STOPPED,
    Outcome.LOST: pb.LOST,
    Outcome.NOT_STARTED: pb.NOT_STARTED,
    Outcome.OUT_OF_MEMORY: pb.OUT_OF_MEMORY,
    Outcome.UNKEPT: pb.UNKEPT,
}
_YIELDS: Final = {Yield.RELEASED: pb.RELEASED, Yield.STARTED: pb.STARTED, Yield.UNKNOWN: pb.UNKNOWN}
_VERDICTS: Final = {
    pb.ACCEPTED: Verdict.ACCEPTED,
    pb.DUPLICATE: Verdict.DUPLICATE,
    pb.FENCED: Verdict.FENCED,
    pb.RESTART: Verdict.RESTART,
}


class InvalidMessage(ValueError):
    """The server sent something that the protocol does not allow."""


def checked_job(job: str) -> JobId:
    """Return a job id; raise InvalidMessage if it is none, because the id becomes part of file names."""
    if not is_job_id(job):
        raise InvalidMessage(f"the server named a job {job[:100]!r}, which is not an id")
    return JobId(job)


def lease_in(lease: pb.Lease) -> Lease:
    """Decode a lease."""
    return Lease(checked_job(lease.job), lease.attempt, lease.seq, lease.task)


def lease_out(lease: Lease) -> pb.Lease:
    """Encode a lease."""
    return pb.Lease(job=lease.job, attempt=lease.attempt, seq=lease.seq, task=lease.task)


def resources_out(amount: Resources) -> pb.Resources:
    """Encode an amount of resources."""
    return pb.Resources(cpu=amount.cpu, memory=amount.memory, gpu=amount.gpu)


def inside_out(inside: Inside) -> pb.Inside:
    """Encode the inside of the machine."""
    return pb.Inside(
        domains=[
            pb.Domain(socket=each.socket, cpus=each.cpus, gpus=each.gpus, memory=each.memory)
            for each in inside.domains
        ],
        gpus=inside.gpus,
        links=[pb.Link(kind=each.kind, gpus=each.gpus) for each in inside.links],
    )


def grant_in(grant: pb.Grant) -> Grant:
    """Decode a lease with its task, or with the peer that has the task."""
    if grant.HasField("peer") and not grant.HasField("task"):
        peer = grant.peer
        source = Source(peer.address, peer.ticket, lease_in(peer.source), peer.digest)
        return Grant(lease_in(grant.lease), source=source)
    task = _task_in(grant.task.SerializeToString(deterministic=True))
    if grant.cpus or grant.gpus:
        task = _granted(task, grant.cpus, tuple(grant.gpus), binds=grant.binds_memory)
    return Grant(lease_in(grant.lease), task)


def _granted(task: Task, cpus: str, gpus: tuple[str, ...], *, binds: bool) -> Task:
    """Return a task with the cores and GPUs that it has for itself."""
    try:
        need = held_with(task.need, Granted(cpus, gpus))
    except ValueError as error:
        raise InvalidMessage(f"the server granted CPUs {cpus[:100]!r}: {error}") from None
    return msgspec.structs.replace(task, need=need, cpus=cpus, gpus=gpus, binds_memory=binds)


@lru_cache(maxsize=128)
def _task_in(body: bytes) -> Task:
    """Decode a task. The cache saves decoding the same task for each member of an array."""
    task = pb.Task.FromString(body)
    need = Resources(task.resources.cpu, task.resources.memory, task.resources.gpu)
    lost_after = task.lost_after or DEFAULT_LOST_AFTER
    return Task(
        _work_in(task),
        need,
        dict(task.env),
        task.workdir,
        task.walltime,
        task.grace,
        lost_after,
        tuple([File(each.path, each.digest, each.size, each.executable) for each in task.inputs]),
        tuple(task.outputs),
        task.outputs_limit,
        task.tasks,
        restarts=task.restarts,
        name=task.name,
        queue=task.queue or "default",
        project=task.project or "default",
        array=(task.array.first, task.array.last, task.array.size) if task.HasField("array") else None,
        stdout=task.stdout,
        stderr=task.stderr,
        append=task.append,
        signal=task.signal,
        signal_before=task.signal_before,
        stdin=File(task.stdin.path, task.stdin.digest, task.stdin.size) if task.HasField("stdin") else None,
        keep_state=task.keep_state,
        state_limit=task.state_limit,
        saved=task.saved,
        terminal=task.terminal,
        environment=_environment_in(task),
        secrets=tuple([_secret_in(use) for use in task.secrets]),
    )


def _environment_in(task: pb.Task) -> Environment | None:
    if not task.HasField("environment") or task.environment.image:
        return None
    asked = task.environment
    return Environment(asked.name, PYLOCK if asked.lock else "", asked.requirements)


def _secret_in(use: pb.SecretUse) -> SecretUse:
    """Decode a secret that a task gets; raise InvalidMessage for one whose name cannot be that of a file."""
    if not is_name(use.name):
        raise InvalidMessage(f"the server named a secret {use.name[:100]!r}, which is not a name")
    return SecretUse(use.name, use.variable, use.file)


def gang_start_in(start: pb.GangStart) -> GangStart:
    """Decode the word that a gang may start."""
    if not 0 < len(start.nodes) == len(start.hosts) == len(start.ports):
        raise InvalidMessage(
            f"the server named {len(start.nodes)} nodes of a gang, and {len(start.hosts)} hosts"
        )
    return GangStart(
        checked_job(start.job),
        start.attempt,
        start.seq,
        tuple(start.nodes),
        tuple(start.hosts),
        start.port,
        tuple(start.ports),
        start.token,
    )


def _work_in(task: pb.Task) -> Work | CallInImage:
    """Decode what a task runs."""
    match task.WhichOneof("work"):
        case "shell":
            return Shell(task.shell)
        case "python":
            call = task.python
            try:
                args: list[object] = msgspec.json.decode(call.args or b"[]", type=list)
            except msgspec.DecodeError as error:
                raise InvalidMessage(f"the server sent arguments that are not JSON: {error}") from None
            values = tuple([EarlierValue("", each.value, each.digest) for each in call.values])
            work = PythonCall(
                call.call, tuple(args), call.function, call.arguments, call.items, call.first, values
            )
            return CallInImage(work, task.environment.image) if task.environment.image else work
        case "container":
            it = task.container
            return Container(it.image, tuple(it.command), it.manifest.decode() or None)
        case _:
            return Argv(tuple(task.argv.words) or ("",))


def held_out(held: tuple[tuple[Lease, Phase], ...]) -> list[pb.Held]:
    """Encode the leases that a registration lists."""
    return [pb.Held(lease=lease_out(lease), phase=pb.Phase.Name(phase.value)) for lease, phase in held]


def welcome_in(reply: pb.RegisterReply) -> Welcome:
    """Decode the answer to a registration."""
    return Welcome(
        epoch=reply.epoch,
        incarnation=reply.incarnation,
        keep=frozenset(map(lease_in, reply.keep)),
        heartbeat=reply.heartbeat,
        short_term=reply.short_term,
        log_retention=reply.log_retention,
        now=reply.now,
        keep_output=reply.keep_output,
        stream=reply.stream,
        spread=reply.spread,
    )


def _terms_in(terms: pb.Terms) -> NewTerms:
    return NewTerms(terms.number, terms.heartbeat, terms.short_term)


def renewal_in(reply: pb.HeartbeatReply) -> Renewal:
    """Decode the answer to a heartbeat."""
    return Renewal(
        epoch=reply.epoch,
        fenced=reply.fenced,
        stops=tuple((lease_in(order.lease), order.kill) for order in reply.stops),
        drain=reply.drain,
        revoked=tuple(map(lease_in, reply.revoked)),
        yields=tuple((lease_in(order.lease), order.ticket) for order in reply.yields),
        overdue=frozenset(lease_in(order.lease) for order in reply.stops if order.overdue),
        terms=_terms_in(reply.terms) if reply.HasField("terms") else None,
        walltimes=tuple((lease_in(order.lease), order.walltime) for order in reply.walltimes),
    )


def report_out(report: Report, now: int) -> pb.ReportRequest:
    """Encode a report. Times become ages, because the clocks of agent and server differ."""
    return pb.ReportRequest(
        incarnation=report.incarnation,
        started=[
            pb.StartedTask(lease=lease_out(lease), age=max(0, now - at)) for lease, at in report.started
        ],
        results=[_result_out(result, now, waits=result.lease in report.waiting) for result in report.results],
        released=[lease_out(lease) for lease in report.released],
        leaving=report.leaving,
        yielded=[
            pb.Yielded(lease=lease_out(lease), answer=_YIELDS[answer]) for lease, answer in report.yielded
        ],
        prepared=[
            pb.PreparedTask(lease=lease_out(lease), port=ready.port, shell=ready.shell, token=ready.token)
            for lease, ready in report.prepared
        ],
        taken_back=report.taken_back,
    )


def _result_out(result: TaskResult, now: int, *, waits: bool) -> pb.TaskResult:
    """Encode the result of one task."""
    return pb.TaskResult(
        lease=lease_out(result.lease),
        outcome=_OUTCOMES[result.outcome],
        exit_code=result.exit_code,
        signal=result.signal,
        ran=result.usage.ran,
        cpu=result.usage.cpu,
        peak_memory=result.usage.peak_memory,
        gpu=result.usage.gpu,
        gpu_measured=result.usage.gpu_measured,
        gpu_memory=result.usage.gpu_memory,
        age=max(0, now - result.ended),
        message=result.message,
        value=result.value,
        value_digest=result.value_digest,
        outputs=result.outputs,
        run=result.run,
        waits=waits,
        saved=result.saved,
    )


def answered_in(reply: pb.ReportReply) -> Answered:
    """Decode the answer to a report."""
    return Answered(
        epoch=reply.epoch,
        fenced=reply.fenced,
        verdicts=tuple(
            (lease_in(answer.lease), _VERDICTS.get(answer.verdict, Verdict.FENCED))
            for answer in reply.results
        ),
        started=tuple(map(lease_in, reply.started)),
        yielded=tuple(map(lease_in, reply.yielded)),
    )
