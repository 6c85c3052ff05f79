"""The book: everything that was decided, as `apply` left it."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any, Final, TypeVar

from spillover.core.clusters import ClusterRecord, Condition
from spillover.core.facts import Facts
from spillover.core.jobs import Job, Kind, Placed, Queued, Running
from spillover.core.keys import Keys
from spillover.core.money import BudgetPeriod
from spillover.core.nodes import Node
from spillover.core.policy_book import PolicyBook
from spillover.core.samples import About, Sample
from spillover.core.sharing import KeptUsing, Using
from spillover.model.budget import Caps
from spillover.model.cluster import ClusterHealth, ClusterLife, ClusterSpec, Role
from spillover.model.ids import ClusterName, JobId
from spillover.model.job import Terms
from spillover.model.tokens import Token

MOST_SHARED = 100_000
START: Final = 3
"""Letters that a prefix of an id has at the least: few jobs share them, and a short name is not taken for a prefix."""

Shared = TypeVar("Shared", str, bytes, Kind, Terms)


class Dirty(defaultdict[str, dict[str, None]]):
    """Records that differ from the last checkpoint: their keys by their kind.

    There may be a million. One costs an entry and no object of its own, and Python's collector does not look into mappings of strings.
    """

    def __init__(self) -> None:
        super().__init__(dict)

    @property
    def count(self) -> int:
        """How many there are."""
        return sum(map(len, self.values()))

    def copy(self) -> "Dirty":
        """The same, as they are now."""
        return Dirty().add(self)

    def add(self, others: "Dirty") -> "Dirty":
        """Have others too."""
        for kind, keys in others.items():
            self[kind].update(keys)
        return self


class State:
    """The whole book, with the indexes that deciding needs to look things up."""

    def __init__(self) -> None:  # noqa: PLR0915 - a book has so many parts
        self.facts = Facts()
        self.jobs: dict[JobId, Job] = {}
        self.nodes: dict[str, Node] = {}
        self.agents: dict[str, Node] = {}
        """Those of the nodes that run an agent of ours, in the same order."""
        self.lost = 0
        """Agents that are lost, of those."""
        self.registered: dict[int, str] = {}
        """The key of each agent by its last incarnation."""
        self.clusters: dict[ClusterName, ClusterSpec] = {}
        self.conditions: dict[ClusterName, Condition] = {}
        """Of the external clusters."""
        self.lives: dict[ClusterName, ClusterRecord] = {}
        """Of all clusters."""
        self.keys = Keys()
        """Idempotency keys of jobs that are not archived yet, and of some that were archived lately."""
        self.waiters: dict[JobId, dict[JobId, None]] = {}
        """For each job that others wait for the end of, those others."""
        self.members: dict[JobId, dict[JobId, None]] = {}
        """For each array that has any, its members that are jobs of their own and have not ended."""
        self.budget_periods: dict[str, BudgetPeriod] = {}
        """By key; those of periods that are over are forgotten when nothing is held in them."""
        self.history: dict[About, Sample] = {}
        """What was learned from jobs that ended."""
        self.samples: dict[str, Sample] = {}
        """The same by the keys of their records."""
        self.usage: dict[str, Using] = {}
        """What each project uses and has used, while an order asks for it."""
        self.holders = 0
        """Projects that use something now, of those."""
        self.uses = 0
        """How often any of that changed since this state was made."""
        self.caps = Caps()
        """The budgets, ready to be asked."""
        self.policies = PolicyBook()
        self.tokens: dict[str, Token] = {}
        """By id, in the order they were made; also those that have ended, for a while."""
        self.loosened = False
        """Whether a cap leaves more than when somebody who keeps up with the state last looked."""
        self.queued = 0
        """Queued jobs, pending members of arrays counted one by one."""
        self.granted_due = 0
        """Of the nanoseconds that queued jobs may wait, those of jobs that may be rented."""
        self.partly_due: dict[JobId, None] = {}
        """Arrays of which only some members may be rented; some are so no more."""
        self.running = 0
        self.live: dict[str, int] = {}
        """Jobs of each project that have not ended, members of arrays counted one by one."""
        self.alive = 0
        """Those of all projects."""
        self.dirty = Dirty()
        self.moved: dict[str, None] = {}
        """Nodes whose record changed since somebody who keeps up with the state last looked."""
        self._shared: dict[Any, Any] = {}
        self._names: dict[str, dict[str, JobId | dict[JobId, None]]] = {}
        """By project and name, the job that is called so, or all that are."""
        self._starts: dict[str, dict[JobId, None]] = {}
        """Jobs by the first letters of their ids."""

    def share(self, value: Shared) -> Shared:
        """The one copy of a value that many jobs have."""
        return self.shared().setdefault(value, value)  # type: ignore[no-any-return]

    def shared(self) -> dict[Any, Any]:
        """Each value that many jobs have, by itself."""
        if len(self._shared) >= MOST_SHARED:
            self._shared.clear()  # sharing saves memory; it must not become what uses it
        return self._shared

    def enter(self, job: Job) -> None:
        """Let a job be found by its name and by the first letters of its id; members of arrays are not."""
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
        """Let a job that leaves the book not be found any more."""
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
        """Jobs of a name, of one project if it is given; members of arrays left out."""
        for names in self._names.values() if project is None else [self._names.get(project, {})]:
            alike = names.get(name, ())
            yield from (alike,) if isinstance(alike, str) else alike

    def starting(self, prefix: str) -> Iterator[JobId]:
        """Jobs whose ids start so, with START letters or more; members of arrays left out."""
        return (each for each in self._starts.get(prefix[:START], ()) if each.startswith(prefix))

    @property
    def findable(self) -> tuple[dict[JobId, tuple[str, str]], dict[JobId, str]]:
        """What is found by project and name, and what by the first letters of its id: to check it."""
        named = {
            job: (project, name)
            for project, names in self._names.items()
            for name, alike in names.items()
            for job in ((alike,) if isinstance(alike, str) else alike)
        }
        return named, {job: start for start, jobs in self._starts.items() for job in jobs}

    def count_live(self, project: str, count: int) -> None:
        """Count jobs that came or, below 0, that have ended."""
        self.alive += count
        left = self.live.get(project, 0) + count
        if left:
            self.live[project] = left
        else:
            del self.live[project]

    def latest(self, job: Job) -> int | None:
        """Latest start of a job on owned capacity, in steady time; None until a cycle has given it one in this round.

        A change of policies gives all waits anew, of a million jobs too: it begins a round, and what was given before is void.
        """
        if job.round != self.facts.rounds and job.due is None and type(job.phase) is Queued:
            return None
        return job.latest

    def steady(self, now: int) -> int:
        """Time as waits count it: without the spans in which nothing could be decided."""
        return now - self.facts.jumped

    def no_longer_waits(self, job: JobId, on: JobId) -> None:
        """One job less waits for the end of another."""
        if waiters := self.waiters.get(on):
            waiters.pop(job, None)
            if not waiters:
                del self.waiters[on]

    def is_rented(self, cluster: ClusterName) -> bool:
        """Whether work there is paid for by use."""
        spec = self.clusters.get(cluster)
        return spec is not None and spec.role is Role.RENTED

    def cluster_of(self, job: Job) -> ClusterSpec | None:
        """The cluster of a placed job, as it was when it was placed: that is what it pays; None if it has no place."""
        phase = job.phase
        if type(phase) is not Placed and type(phase) is not Running:
            return None
        return job.extra.placed_on or self.clusters.get(phase.cluster)

    def health(self, cluster: ClusterName) -> ClusterHealth | None:
        """How an external cluster is; None for a cluster of agents, which are known one by one."""
        spec = self.clusters.get(cluster)
        if spec is None or not spec.external:
            return None
        return self.conditions[cluster].health if cluster in self.conditions else ClusterHealth.UNOBSERVED

    def is_open(self, cluster: ClusterName) -> bool:
        """Whether anything may be placed on a cluster."""
        known = self.lives.get(cluster)
        return known is not None and known.life is ClusterLife.READY

    def jobs_on(self, cluster: ClusterName) -> list[JobId]:
        """Jobs that are placed on a cluster, or run there, each once."""
        nodes = [node for node in self.nodes.values() if node.cluster == cluster]
        return list(dict.fromkeys(job for node in nodes for job in node.jobs))

    def can_rent(self) -> bool:
        """Whether any cluster is rented."""
        return any(spec.role is Role.RENTED for spec in self.facts.clusters)

    def record(  # noqa: PLR0911 - one for each kind of record
        self, kind: str, key: str
    ) -> "Facts | Job | Node | Condition | ClusterRecord | BudgetPeriod | PolicyBook | Sample | KeptUsing | Token | None":
        """One record as a checkpoint keeps it; None if it is gone."""
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
            case _:
                return self.facts.kept

    def touch_job(self, job: JobId) -> None:
        """Remember that a job's record has to be written at the next checkpoint."""
        self.dirty["job"][job] = None

    def touch_node(self, node: str) -> None:
        """Remember that a node's record has to be written at the next checkpoint."""
        self.dirty["node"][node] = None
        self.moved[node] = None

    def touch_cluster(self, cluster: ClusterName) -> None:
        """Remember that the condition of a cluster has to be written at the next checkpoint."""
        self.dirty["cluster"][cluster] = None

    def touch_life(self, cluster: ClusterName) -> None:
        """Remember that the life of a cluster has to be written at the next checkpoint."""
        self.dirty["life"][cluster] = None

    def touch_budget_period(self, key: str) -> None:
        """Remember that a period has to be written at the next checkpoint."""
        self.dirty["purse"][key] = None

    def touch_policies(self) -> None:
        """Remember that the changes of policies have to be written at the next checkpoint."""
        self.dirty["policies"][""] = None

    def touch_token(self, token: str) -> None:
        """Remember that a token has to be written at the next checkpoint."""
        self.dirty["token"][token] = None

    def touch_facts(self) -> None:
        """Remember that the single facts have to be written at the next checkpoint."""
        self.dirty["facts"][""] = None
