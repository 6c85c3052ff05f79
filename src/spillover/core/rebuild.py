"""Rebuilds a state from the records of a checkpoint, including the indexes derived from them."""

from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

from msgspec.structs import replace

from spillover.core.appliers.arrays import note_member
from spillover.core.appliers.clusters import update_lifecycles
from spillover.core.appliers.queue import granted, live_of, weight
from spillover.core.learned.samples import Sample
from spillover.core.learned.sharing import KeptUsing
from spillover.core.learned.tally import Tally
from spillover.core.records.clusters import ClusterRecord, Condition
from spillover.core.records.facts import Facts
from spillover.core.records.jobs import NO_EXTRA, Extra, Job, Kind, Placed, Queued, Running
from spillover.core.records.machines import PoolRecord, PoolSpend, RentedMachine
from spillover.core.records.money import BudgetPeriod
from spillover.core.records.nodes import Node
from spillover.core.records.policies import PolicyHistory
from spillover.core.records.tasks import asked_by, gang_on
from spillover.core.state import State
from spillover.core.transitions import TERMINAL
from spillover.model.budget import Caps
from spillover.model.ids import TaskKey, job_of_task, split_member, task_key
from spillover.model.pools import machine_number
from spillover.model.queues import Queues
from spillover.model.reservation import AdvanceReservation
from spillover.model.resources import Resources
from spillover.model.secrets import SecretRecord
from spillover.model.tokens import Token

AnyRecord: TypeAlias = (
    Facts
    | Job
    | Node
    | Condition
    | ClusterRecord
    | BudgetPeriod
    | PolicyHistory
    | Sample
    | KeptUsing
    | Token
    | AdvanceReservation
    | SecretRecord
    | RentedMachine
    | PoolRecord
    | PoolSpend
)

STEP: Final = 500
"""Jobs that are added before other work may run: some milliseconds."""
_NEAR: Final = 12
"""Jobs whose numbers differ only in this many last bits are sorted together."""


class Rebuilding:
    """Builds a state in slices, so that other work need not wait for a million jobs."""

    def __init__(self) -> None:
        self.state = State()
        """Complete when `index` has finished."""
        self._jobs: dict[int, list[Job]] = {}
        """Jobs by the leading bits of their numbers, because sorting all at once would take long."""
        self._nodes: list[Node] = []
        self._samples: list[Sample] = []
        self._tokens: list[Token] = []
        self._reservations: list[AdvanceReservation] = []
        self._machines: list[RentedMachine] = []

    def take(self, records: Iterable[AnyRecord]) -> None:  # noqa: C901, PLR0912 - one case for each kind of record
        """Add some records, in any order."""
        state = self.state
        for record in records:
            match record:
                case Facts():
                    state.facts = record
                    state.keys.begin(record.archived)
                    record.tally, record.sums = Tally(*[int(each, 16) for each in record.sums]), ()
                    state.clusters = {spec.name: spec for spec in record.clusters}
                    state.caps = Caps(record.budgets)
                    state.queues = Queues(record.queues)
                case Sample():
                    self._samples.append(record)
                case KeptUsing():
                    state.usage[record.project] = record.using
                    state.holders += record.rate > 0
                case Condition():
                    state.conditions[record.cluster] = record
                case ClusterRecord():
                    state.lives[record.cluster] = record
                case BudgetPeriod():
                    state.budget_periods[record.key] = record
                case PolicyHistory():
                    state.policies = record
                case Token():
                    self._tokens.append(record)
                case AdvanceReservation():
                    self._reservations.append(record)
                case SecretRecord():
                    state.secrets[record.key] = record
                case RentedMachine():
                    self._machines.append(record)
                case PoolRecord():
                    state.pools[record.cluster] = record
                case PoolSpend():
                    state.spends[record.key] = record
                case Node():
                    self._nodes.append(record)
                case Job():
                    self._jobs.setdefault(record.number >> _NEAR, []).append(record)

    def index(self) -> Iterator[None]:
        """Sort and index everything, a slice at a time: jobs by submission, nodes by joining."""
        state = self.state
        update_lifecycles(state, state.facts.now)  # for checkpoints from before clusters had lifecycles
        for sample in sorted(self._samples, key=lambda sample: int(sample.key)):
            state.history[sample.about] = state.samples[sample.key] = sample
        tokens = sorted(self._tokens, key=lambda each: (each.created, each.id))
        state.tokens = {token.id: token for token in tokens}
        made = sorted(self._reservations, key=lambda each: (each.made, each.name))
        state.reservations = {each.name: each for each in made}
        rented = sorted(self._machines, key=lambda each: (each.wanted_at, machine_number(each.id)))
        for machine in rented:
            state.put_machine(machine)
        nodes = sorted(self._nodes, key=lambda node: (node.number, node.key))
        state.nodes = {node.key: node for node in nodes}
        state.agents = {node.key: node for node in nodes if node.is_agent}
        state.lost = sum(node.status == "lost" for node in state.agents.values())
        state.registered = {node.incarnation: key for key, node in state.agents.items()}
        for near in sorted(self._jobs):
            jobs = sorted(self._jobs.pop(near), key=lambda job: (job.number, job.id))
            for start in range(0, len(jobs), STEP):
                for job in jobs[start : start + STEP]:
                    _index(state, job)
                yield
        for start in range(0, len(nodes), STEP):
            for node in nodes[start : start + STEP]:
                _hold_by_task(state, node)
            yield


def rebuild(records: Iterable[AnyRecord]) -> State:
    """Rebuild the state from all records at once."""
    rebuilding = Rebuilding()
    rebuilding.take(records)
    for _ in rebuilding.index():
        pass
    return rebuilding.state


def _index(state: State, job: Job) -> None:
    """Add a job to the state, and share the values that it has in common with others."""
    kind = job.kind
    job.kind = state.share(
        Kind(kind.shape, state.share(kind.queue), state.share(kind.project), kind.backing_off)
    )
    job.terms = state.share(job.terms)
    job.user = state.share(job.user)
    job.name = state.share(job.name)
    job.command = state.share(job.command)
    if job.extra == NO_EXTRA:
        job.extra = NO_EXTRA
    _give_tasks(job)
    state.jobs[job.id] = job
    if "." not in job.id:
        state.enter(job)
    if (count := live_of(job)) > 0:
        state.count_live(job, count)
    if type(job.phase) is Queued:
        state.queued += weight(job)
        if job.due is not None:
            state.granted_due += granted(state, job)
        if job.partly_due:
            state.partly_due[job.id] = None
    elif type(job.phase) is Running:
        state.running += 1
    if job.extra.key is not None:
        state.keys.take(job.kind.project, job.extra.key, job.id)
    for wanted in job.extra.after:
        state.waiters.setdefault(wanted.job, {})[job.id] = None
    if job.extra.members is not None:
        state.wait_for_members(job.id, job.extra.members.after)
    member = split_member(job.id)
    if member is not None and job.state not in TERMINAL:
        state.members.setdefault(member[0], {})[job.id] = None
        note_member(state, job)


def _give_tasks(job: Job) -> None:
    """Give tasks to a gang from a checkpoint of release 0.4 or older, which stored only nodes."""
    phase = job.phase
    if not isinstance(phase, Placed | Running) or not phase.others:
        return
    if job.extra is NO_EXTRA:
        job.extra = Extra()
    job.extra.gang = gang = gang_on((phase.node, *phase.others))
    if type(phase) is Running:
        gang.start((0,), phase.since)
    job.phase = replace(phase, others=())


def _hold_by_task(state: State, node: Node) -> None:
    """Convert what a node holds from jobs to tasks, for checkpoints of release 0.4 or older."""
    if not (node.more or any(_by_job(state, key) for key in node.held)):
        return
    node.more = 0
    node.holding = {
        task: asked for key, held in node.holding.items() for task, asked in _tasks(state, node, key, held)
    }
    node.ahead = {
        task: asked for key, held in node.ahead.items() for task, asked in _tasks(state, node, key, held)
    }


def _by_job(state: State, key: TaskKey) -> bool:
    """Return whether a key may stand for a whole job instead of one of its tasks."""
    job = state.jobs.get(job_of_task(key)) if "/" not in key else None
    return job is not None and (job.attempt != 1 or job.extra.gang is not None)


def _tasks(state: State, node: Node, key: TaskKey, held: Resources) -> Iterator[tuple[TaskKey, Resources]]:
    """Yield the tasks that hold the resources of a key, which may be the key of their job."""
    if not _by_job(state, key):
        yield key, held
        return
    job = state.jobs[job_of_task(key)]
    if job.extra.gang is None:
        yield task_key(job.id, job.attempt), held
        return
    for task in job.tasks:
        if task.lives and task.node == node.name:
            yield task_key(job.id, job.attempt, task.rank), asked_by(job.kind.shape, task.rank)
