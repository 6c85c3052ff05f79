"""The state: everything that follows from the journal. Only `apply` changes it."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, Final, TypeVar

from spillover.core.learned.samples import About, Sample
from spillover.core.learned.sharing import KeptUsing, Using
from spillover.core.records.clusters import ClusterRecord, Condition
from spillover.core.records.facts import Facts
from spillover.core.records.jobs import Job, Kind, Placed, Queued, Running
from spillover.core.records.keys import Keys
from spillover.core.records.machines import Earmark, PoolRecord, PoolSpend, RentedMachine
from spillover.core.records.money import BudgetPeriod
from spillover.core.records.nodes import Node
from spillover.core.records.policies import PolicyHistory
from spillover.model.budget import Caps
from spillover.model.cluster import ClusterHealth, ClusterLife, ClusterSpec, Role
from spillover.model.ids import ClusterName, JobId
from spillover.model.job import AfterMembers, Terms
from spillover.model.pools import MachineId
from spillover.model.queues import Queues
from spillover.model.reservation import AdvanceReservation
from spillover.model.secrets import SecretRecord
from spillover.model.tokens import Token

MOST_SHARED = 100_000
START: Final = 3
"""The shortest prefix of an id: few jobs share it, and a short name is not taken for a prefix."""

Shared = TypeVar("Shared", str, bytes, Kind, Terms)


class Dirty(defaultdict[str, dict[str, None]]):
    """The keys of records that changed since the last checkpoint, by kind.

    There may be a million. Each one costs a dictionary entry and no object of its own, and the garbage collector does
    not scan dictionaries of strings.
    """

    def __init__(self) -> None:
        super().__init__(dict)

    @property
    def count(self) -> int:
        """The number of changed records."""
        return sum(map(len, self.values()))

    def copy(self) -> "Dirty":
        """Return an independent copy."""
        return Dirty().add(self)

    def add(self, others: "Dirty") -> "Dirty":
        """Add the keys of another instance."""
        for kind, keys in others.items():
            self[kind].update(keys)
        return self


class State:
    """The complete state, with the indexes that deciding needs for lookups."""

    def __init__(self) -> None:  # noqa: PLR0915 - the state has this many parts
        self.facts = Facts()
        self.jobs: dict[JobId, Job] = {}
        self.nodes: dict[str, Node] = {}
        self.agents: dict[str, Node] = {}
        """The nodes that run an agent, in the same order."""
        self.lost = 0
        """The number of lost agents."""
        self.registered: dict[int, str] = {}
        """Key of each agent by its latest incarnation."""
        self.clusters: dict[ClusterName, ClusterSpec] = {}
        self.conditions: dict[ClusterName, Condition] = {}
        """Conditions of external clusters."""
        self.lives: dict[ClusterName, ClusterRecord] = {}
        """Lifecycles of all clusters."""
        self.keys = Keys()
        """Idempotency keys of jobs that are not archived yet, and of some that were archived recently."""
        self.waiters: dict[JobId, dict[JobId, None]] = {}
        """For each job that others depend on, those other jobs."""
        self.member_waiters: dict[JobId, dict[JobId, None]] = {}
        """For each array for whose members those of other arrays wait, those other arrays."""
        self.members: dict[JobId, dict[JobId, None]] = {}
        """For each array, its members that have been placed and have not ended."""
        self.waiting_members: dict[JobId, dict[JobId, None]] = {}
        """Of those, the ones that are held, or came back to the queue and wait for other members."""
        self.budget_periods: dict[str, BudgetPeriod] = {}
        """By key. Past periods are dropped when nothing is held in them."""
        self.history: dict[About, Sample] = {}
        """Runtimes learned from ended jobs."""
        self.samples: dict[str, Sample] = {}
        """The same samples by the keys of their records."""
        self.usage: dict[str, Using] = {}
        """Current and past usage of each project, if the order policy needs it."""
        self.holders = 0
        """The number of projects that use something now."""
        self.uses = 0
        """How many times usage changed since this state was created."""
        self.caps = Caps()
        """The budgets, indexed for lookups."""
        self.queues = Queues()
        """The named queues, indexed for lookups."""
        self.policies = PolicyHistory()
        self.tokens: dict[str, Token] = {}
        """By id, in the order of creation; includes revoked and expired tokens for a while."""
        self.reservations: dict[str, AdvanceReservation] = {}
        """Advance reservations that have not ended, by name, in the order in which they were made."""
        self.secrets: dict[str, SecretRecord] = {}
        """Secrets by PROJECT/NAME, without their values."""
        self.machines: dict[MachineId, RentedMachine] = {}
        """Rented machines by id, in the order in which they were wanted, and some that are gone."""
        self.live_rented: dict[ClusterName, dict[MachineId, None]] = {}
        """The machines of each cluster that exist or may exist."""
        self.unsettled: dict[ClusterName, dict[MachineId, None]] = {}
        """Of those, all but ready ones that have tasks: a plan must look at them, and their order is not kept."""
        self.groups: dict[str, dict[MachineId, None]] = {}
        """For each job that machines were ordered for together, those machines, in the same order; no whole clusters."""
        self.earmarked: dict[JobId, dict[MachineId, None]] = {}
        """For each gang that a plan counted on machines for which were not ordered for it, those machines."""
        self.pools: dict[ClusterName, PoolRecord] = {}
        """What is known about pools besides their configuration."""
        self.spends: dict[str, PoolSpend] = {}
        """What machines cost that are gone, by pool and day."""
        self.rented = False
        """Whether machines or pools changed since the last cycle planned them."""
        self.loosened = False
        """Whether a cap leaves more than when the scheduling index last read the state."""
        self.queued = 0
        """Queued jobs; pending members of arrays count one by one."""
        self.granted_due = 0
        """The part of the tally's `granted` that belongs to jobs that may be rented, in nanoseconds."""
        self.partly_due: dict[JobId, None] = {}
        """Arrays of which only some members may be rented; some entries are out of date."""
        self.running = 0
        self.live: dict[str, int] = {}
        """Jobs of each project that have not ended; members of arrays count one by one."""
        self.alive = 0
        """The same for all projects."""
        self.live_in: dict[tuple[str, str], int] = {}
        """The same for each queue and user."""
        self.dirty = Dirty()
        self.moved: dict[str, None] = {}
        """Nodes that changed since the scheduling index last read the state."""
        self._shared: dict[Any, Any] = {}
        self._names: dict[str, dict[str, JobId | dict[JobId, None]]] = {}
        """By project and name, the job with that name, or all jobs with it."""
        self._starts: dict[str, dict[JobId, None]] = {}
        """Jobs by the first characters of their ids."""

    def share(self, value: Shared) -> Shared:
        """Return the shared copy of a value that many jobs have."""
        return self.shared().setdefault(value, value)  # type: ignore[no-any-return]

    def shared(self) -> dict[Any, Any]:
        """Return the shared values, each under itself."""
        if len(self._shared) >= MOST_SHARED:
            self._shared.clear()  # sharing saves memory, so the table itself must stay bounded
        return self._shared

    def enter(self, job: Job) -> None:
        """Index a job by name and by the start of its id; array members are not indexed."""
        job_id = job.id
        self._starts.setdefault(job_id[:START], {})[job_id] = None
        names = self._names.setdefault(job.kind.project, {})
        others = names.setdefault(job.name, job_id)
        if others is job_id:
            return
        if isinstance(others, str):
            others = names[job.name] = {others: None}
        others[job_id] = None

    def leave(self, job: Job) -> None:
        """Remove a job from the indexes of names and ids."""
        job_id, name, project = job.id, job.name, job.kind.project
        start = self._starts[job_id[:START]]
        del start[job_id]
        if not start:
            del self._starts[job_id[:START]]
        names = self._names[project]
        alike = names[name]
        if not isinstance(alike, str):
            del alike[job_id]
            if alike:
                return
        del names[name]
        if not names:
            del self._names[project]

    def called(self, name: str, project: str | None = None) -> Iterator[JobId]:
        """Return jobs with a name, without array members; of one project if it is given."""
        for names in self._names.values() if project is None else [self._names.get(project, {})]:
            alike = names.get(name, ())
            yield from (alike,) if isinstance(alike, str) else alike

    def starting(self, prefix: str) -> Iterator[JobId]:
        """Return jobs whose ids start with a prefix of at least START characters, without array members."""
        return (each for each in self._starts.get(prefix[:START], ()) if each.startswith(prefix))

    @property
    def findable(self) -> tuple[dict[JobId, tuple[str, str]], dict[JobId, str]]:
        """Everything in the indexes of names and ids, for the invariants."""
        named = {
            job: (project, name)
            for project, names in self._names.items()
            for name, alike in names.items()
            for job in ((alike,) if isinstance(alike, str) else alike)
        }
        return named, {job: start for start, jobs in self._starts.items() for job in jobs}

    def count_live(self, job: Job, count: int) -> None:
        """Count jobs that were submitted or, if negative, that have ended."""
        self.alive += count
        live, kind = self.live, job.kind
        project = kind.project
        left = live.get(project, 0) + count
        if left:
            live[project] = left
        else:
            del live[project]
        live_in, place = self.live_in, (kind.queue, job.user)
        left = live_in.get(place, 0) + count
        if left:
            live_in[place] = left
        else:
            del live_in[place]

    def latest(self, job: Job) -> int | None:
        """Return the latest start of a job on owned capacity, in steady time; None until admitted in this round.

        A change of policies gives all jobs new waits. It starts a new round, in which older waits are void, so that it
        need not touch a million jobs.
        """
        if job.round != self.facts.rounds and job.due is None and type(job.phase) is Queued:
            return None
        return job.latest

    def steady(self, now: int) -> int:
        """Convert to steady time, which leaves out the spans in which the server could not schedule."""
        return now - self.facts.jumped

    def no_longer_waits(self, job: JobId, on: JobId) -> None:
        """Record that a job no longer waits for the end of another."""
        if waiters := self.waiters.get(on):
            waiters.pop(job, None)
            if not waiters:
                del self.waiters[on]

    def wait_for_members(self, array: JobId, after: Iterable[AfterMembers]) -> None:
        """Record that members of an array wait for those of others."""
        for each in after:
            self.member_waiters.setdefault(each.job, {})[array] = None

    def no_longer_wait_for_members(self, array: JobId, on: JobId) -> None:
        """Record that no member of an array waits for one of another array any more."""
        if waiters := self.member_waiters.get(on):
            waiters.pop(array, None)
            if not waiters:
                del self.member_waiters[on]

    def is_rented(self, cluster: ClusterName) -> bool:
        """Return whether a cluster is paid for by use."""
        spec = self.clusters.get(cluster)
        return spec is not None and spec.role is Role.RENTED

    def cluster_of(self, job: Job) -> ClusterSpec | None:
        """Return the cluster of a placed job as it was at placement, which sets its price; None if it is not placed."""
        phase = job.phase
        if type(phase) is not Placed and type(phase) is not Running:
            return None
        return job.extra.placed_on or self.clusters.get(phase.cluster)

    def health(self, cluster: ClusterName) -> ClusterHealth | None:
        """Return the health of an external cluster; None for a cluster of agents, which have a status each."""
        spec = self.clusters.get(cluster)
        if spec is None or not spec.external:
            return None
        return self.conditions[cluster].health if cluster in self.conditions else ClusterHealth.UNOBSERVED

    def is_open(self, cluster: ClusterName) -> bool:
        """Return whether jobs may be placed on a cluster."""
        known = self.lives.get(cluster)
        return known is not None and known.life is ClusterLife.READY

    def pool(self, cluster: ClusterName) -> PoolRecord:
        """Return what is known about the pool of a cluster; nothing yet if it was never opened or used."""
        return self.pools.get(cluster) or PoolRecord(cluster)

    def made(self, cluster: ClusterName) -> RentedMachine | None:
        """Return the order of a whole cluster that a pool made; None for any other cluster."""
        found = self.machines.get(MachineId(cluster))
        return found if found is not None and found.is_cluster else None

    def put_machine(self, machine: RentedMachine) -> None:
        """Add or replace a rented machine."""
        id_, before = machine.id, self.machines.get(machine.id)
        if before is not None and before.earmark is not None and before.earmark is not machine.earmark:
            self._lift_earmark(id_, before.earmark)
        self.machines[id_] = machine
        if machine.earmark is not None:
            self.earmarked.setdefault(machine.earmark.gang, {})[id_] = None
        if machine.group and not machine.is_cluster:
            self.groups.setdefault(machine.group, {})[id_] = None
        live = self.live_rented.setdefault(machine.cluster, {})
        unsettled = self.unsettled.setdefault(machine.cluster, {})
        if machine.is_live:
            live[id_] = None
        else:
            live.pop(id_, None)
        if machine.is_live and not machine.is_busy:
            unsettled[id_] = None
        else:
            unsettled.pop(id_, None)

    def drop_machine(self, machine: RentedMachine) -> None:
        """Remove a rented machine."""
        del self.machines[machine.id]
        self.live_rented.get(machine.cluster, {}).pop(machine.id, None)
        self.unsettled.get(machine.cluster, {}).pop(machine.id, None)
        if machine.group and not machine.is_cluster:
            del self.groups[machine.group][machine.id]
            if not self.groups[machine.group]:
                del self.groups[machine.group]
        if machine.earmark is not None:
            self._lift_earmark(machine.id, machine.earmark)

    def _lift_earmark(self, id_: MachineId, earmark: Earmark) -> None:
        kept = self.earmarked[earmark.gang]
        kept.pop(id_, None)
        if not kept:
            del self.earmarked[earmark.gang]

    def live_machines(self, cluster: ClusterName) -> list[RentedMachine]:
        """Return the rented machines of a cluster that exist or may exist, in the order in which they were wanted."""
        return [self.machines[each] for each in self.live_rented.get(cluster, ())]

    def unsettled_machines(self, cluster: ClusterName) -> list[RentedMachine]:
        """Return those of them that are not ready or have no tasks, in the same order."""
        found = [self.machines[each] for each in self.unsettled.get(cluster, ())]
        # By number, without reading numbers: ids of one cluster differ in them alone.
        found.sort(key=lambda each: (each.wanted_at, len(each.id), each.id))
        return found

    def nodes_of(self, cluster: ClusterName) -> list[Node]:
        """Return the nodes of a cluster, but for those that are gone and still have tasks."""
        return [node for node in self.nodes.values() if node.cluster == cluster and node.status != "gone"]

    def jobs_on(self, cluster: ClusterName) -> list[JobId]:
        """Return the jobs placed or running on a cluster, each once."""
        nodes = [node for node in self.nodes.values() if node.cluster == cluster]
        return list(dict.fromkeys(job for node in nodes for job in node.jobs))

    def can_rent(self) -> bool:
        """Return whether any cluster is rented."""
        return any(spec.role is Role.RENTED for spec in self.facts.clusters)

    def record(  # noqa: C901, PLR0911, PLR0912 - one for each kind of record
        self, kind: str, key: str
    ) -> "Facts | Job | Node | Condition | ClusterRecord | BudgetPeriod | PolicyHistory | Sample | KeptUsing | Token | AdvanceReservation | SecretRecord | RentedMachine | PoolRecord | PoolSpend | None":
        """Return one record for a checkpoint; None if it was deleted."""
        match kind:
            case "job":
                return self.jobs.get(JobId(key))
            case "node":
                return self.nodes.get(key)
            case "cluster":
                return self.conditions.get(ClusterName(key))
            case "life":
                return self.lives.get(ClusterName(key))
            case "purse":
                return self.budget_periods.get(key)
            case "history":
                return self.samples.get(key)
            case "usage":
                return self.usage[key].kept if key in self.usage else None
            case "policies":
                return self.policies
            case "token":
                return self.tokens.get(key)
            case "reservation":
                return self.reservations.get(key)
            case "secret":
                return self.secrets.get(key)
            case "machine":
                return self.machines.get(MachineId(key))
            case "pool":
                return self.pools.get(ClusterName(key))
            case "spend":
                return self.spends.get(key)
            case _:
                return self.facts.kept

    def touch_job(self, job: JobId) -> None:
        """Mark the record of a job for the next checkpoint."""
        self.dirty["job"][job] = None

    def touch_node(self, node: str) -> None:
        """Mark the record of a node for the next checkpoint."""
        self.dirty["node"][node] = None
        self.moved[node] = None

    def touch_cluster(self, cluster: ClusterName) -> None:
        """Mark the condition of a cluster for the next checkpoint."""
        self.dirty["cluster"][cluster] = None

    def touch_life(self, cluster: ClusterName) -> None:
        """Mark the lifecycle of a cluster for the next checkpoint."""
        self.dirty["life"][cluster] = None

    def touch_budget_period(self, key: str) -> None:
        """Mark a budget period for the next checkpoint."""
        self.dirty["purse"][key] = None

    def touch_policies(self) -> None:
        """Mark the changes of policies for the next checkpoint."""
        self.dirty["policies"][""] = None

    def touch_token(self, token: str) -> None:
        """Mark a token for the next checkpoint."""
        self.dirty["token"][token] = None

    def touch_reservation(self, name: str) -> None:
        """Mark an advance reservation for the next checkpoint."""
        self.dirty["reservation"][name] = None

    def touch_secret(self, key: str) -> None:
        """Mark a secret for the next checkpoint."""
        self.dirty["secret"][key] = None

    def touch_machine(self, machine: MachineId) -> None:
        """Mark a rented machine for the next checkpoint, and for the next cycle."""
        self.dirty["machine"][machine] = None
        self.rented = True

    def touch_pool(self, cluster: ClusterName) -> None:
        """Mark what is known about a pool for the next checkpoint, and for the next cycle."""
        self.dirty["pool"][cluster] = None
        self.rented = True

    def touch_facts(self) -> None:
        """Mark the facts for the next checkpoint."""
        self.dirty["facts"][""] = None
