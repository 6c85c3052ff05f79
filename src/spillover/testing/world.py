"""Runs a whole scheduler without processes: the real engine on a virtual clock, with obedient agents."""

from collections.abc import Callable, Iterator
from typing import TypeVar

from spillover.core.events import AnyEvent, JobState, Lease, Usage
from spillover.core.proposals import (
    DRIVER,
    Act,
    Change,
    Done,
    HandBack,
    Outcome,
    Proposal,
    Refusal,
    Register,
    Registered,
    Reply,
    Reserve,
    Result,
    Started,
    StartEpoch,
    Submit,
    Submitted,
)
from spillover.core.records.jobs import Job, Placed, Running
from spillover.core.state import State
from spillover.deciding.engine import Engine, Step
from spillover.deciding.protocols import Policies
from spillover.model.budget import Budget
from spillover.model.cluster import Billing, ClusterSpec, Price, Role
from spillover.model.ids import ClusterName, JobId, NodeKey, NodeName, node_key
from spillover.model.inside import Inside
from spillover.model.policy import Choice, PolicySet
from spillover.model.queues import QueueSpec
from spillover.model.reasons import Reason
from spillover.model.reservation import AdvanceReservation
from spillover.model.resources import Resources
from spillover.model.units import FOREVER, SECOND
from spillover.testing.builders import JobBuilder

E = TypeVar("E")

OWNED = ClusterSpec(ClusterName("onprem"), "agents", Role.OWNED)
RENTED = ClusterSpec(
    ClusterName("cloud"), "agents", Role.RENTED, Price(cpu_hour=3_600_000), Billing(step=SECOND)
)
START = 1_800_000_000 * SECOND


class World:
    """Lets a test act as agents and users, and inspect the result. Checks invariants after every step."""

    def __init__(
        self,
        load: Callable[[PolicySet], Policies],
        policies: PolicySet | None = None,
        clusters: tuple[ClusterSpec, ...] = (OWNED, RENTED),
        budgets: tuple[Budget, ...] = (),
        queues: tuple[QueueSpec, ...] = (),
    ) -> None:
        self.now = START
        self.engine = Engine(State(), load, now=self.now, debug=True)
        self.events: list[AnyEvent] = []
        self._policies = policies or PolicySet(wait=Choice("never"))
        self._incarnation = 0
        self.propose(StartEpoch(1, clusters, self._policies, budgets=budgets, queues=queues))

    @property
    def state(self) -> State:
        """The state of the engine."""
        return self.engine.state

    def step(self, *proposals: Proposal) -> Step:
        """Run one step of the engine, now."""
        step = self.engine.step(self.now, proposals)
        self.events += step.events
        return step

    def propose(self, proposal: Proposal) -> Reply:
        """Propose one thing and return its reply."""
        return self.step(proposal).replies[0]

    def wait(self, *, seconds: float) -> None:
        """Let time pass, with a step at every time that the engine asks for."""
        until = self.now + int(seconds * SECOND)
        while (wake := self.engine.next_time()) <= until < FOREVER:
            self.now = max(self.now, wake)
            self.step()
            if self.engine.next_time() <= wake:
                raise AssertionError("the engine asks for the same moment again and again")
        self.now = until
        self.step()

    # --- agents

    def agent(
        self,
        node: str,
        *,
        cpus: float = 1,
        memory: int = 2**40,
        gpus: int = 0,
        cluster: str = "onprem",
        offers: tuple[str, ...] = (),
        held: tuple[Lease, ...] = (),
        queue: int = 0,
        labels: dict[str, str] | None = None,
        inside: Inside | None = None,
        gangs: bool = True,
    ) -> tuple[Lease, ...]:
        """Register an agent; return the leases that it may keep."""
        self._incarnation += 1
        reply = self.propose(
            Register(
                ClusterName(cluster),
                NodeName(node),
                self._incarnation,
                Resources(int(cpus * 1000), memory, gpus),
                offers,
                labels or {},
                queue,
                held,
                inside=inside,
                gangs=gangs,
            )
        )
        assert isinstance(reply, Registered), reply
        return reply.keep

    def start(self, job: str, *ranks: int) -> None:
        """Report as its agents that a job runs: all of its tasks, or those with these ranks."""
        found = self.job(job)
        for task in found.tasks:
            if task.rank in (ranks or range(len(found.tasks))):
                self.propose(Started(self.speaker(found, task.rank), found.lease_of(task.rank), 0))

    def finish(
        self, job: str, exit_code: int = 0, *, outcome: Outcome = Outcome.EXITED, ran: float = 1
    ) -> Reply:
        """Report as its agents how a job ended, the same for every task; a driver reports all tasks at once."""
        found = self.job(job)
        assert isinstance(found.phase, Placed | Running), found
        reply: Reply = Done()
        lease = found.lease
        for task in tuple(found.tasks):
            if task.lives and found.lease == lease and isinstance(found.phase, Placed | Running):
                reply = self.finish_task(job, task.rank, exit_code, outcome=outcome, ran=ran)
        return reply

    def finish_task(
        self, job: str, rank: int, exit_code: int = 0, *, outcome: Outcome = Outcome.EXITED, ran: float = 1
    ) -> Reply:
        """Report as its agent how one task of a job ended."""
        found = self.job(job)
        code = exit_code if outcome is Outcome.EXITED else None
        usage = Usage(int(ran * SECOND), int(ran * SECOND), 2**20)
        lease, run = found.lease_of(rank), found.tasks[rank].run
        return self.propose(Result(self.speaker(found, rank), lease, outcome, code, None, usage, 0, run=run))

    def speaker(self, job: Job, rank: int = 0) -> NodeKey:
        """Return who reports on a placed task: its agent, or the driver of its cluster."""
        assert isinstance(job.phase, Placed | Running), job
        cluster = job.phase.cluster
        return node_key(cluster, job.tasks[rank].node) if self.state.health(cluster) is None else DRIVER

    def hand_back(self, job: str) -> None:
        """Return an unstarted job to the queue, as its agent."""
        found = self.job(job)
        assert isinstance(found.phase, Placed), found
        lease = found.lease
        for task in tuple(found.tasks):
            if task.lives and found.lease == lease:
                self.propose(HandBack(self.speaker(found, task.rank), (found.lease_of(task.rank),)))

    # --- users

    def submit(self, *jobs: JobBuilder, user: str = "ada") -> tuple[JobId, ...]:
        """Submit jobs together."""
        reply = self.propose(Submit(tuple(job.build() for job in jobs), user))
        assert isinstance(reply, Submitted), reply
        return reply.jobs

    def refused(self, *jobs: JobBuilder, user: str = "ada") -> Refusal:
        """Submit jobs that the engine must refuse."""
        reply = self.propose(Submit(tuple(job.build() for job in jobs), user))
        assert isinstance(reply, Refusal), reply
        return reply

    def act(self, act: Act, *jobs: str) -> Reply:
        """Apply an act to jobs."""
        return self.propose(Change(act, tuple(JobId(job) for job in jobs), "ada"))

    def cancel(self, *jobs: str) -> Reply:
        """Cancel jobs."""
        return self.act(Act.CANCEL, *jobs)

    def reserve(
        self,
        name: str,
        *nodes: str,
        after: float,
        lasting: float,
        project: str = "",
        cluster: str = "onprem",
    ) -> Reply:
        """Reserve nodes in so many seconds and for so many seconds, for a project or else for maintenance."""
        start = self.now + int(after * SECOND)
        end, named = start + int(lasting * SECOND), tuple(NodeName(node) for node in nodes)
        reservation = AdvanceReservation(name, ClusterName(cluster), named, start, end, project, who="ada")
        return self.propose(Reserve(reservation))

    # --- results

    def job(self, job: str) -> Job:
        """Return a job."""
        return self.state.jobs[JobId(job)]

    def state_of(self, job: str) -> JobState:
        """Return the state of a job."""
        return self.job(job).state

    def where(self, job: str) -> str | None:
        """Return the cluster and node of a job; None if it is not placed."""
        phase = self.job(job).phase
        return f"{phase.cluster}/{phase.node}" if isinstance(phase, Placed | Running) else None

    def placed_because(self, job: str) -> Reason:
        """Return why a job is placed where it is."""
        phase = self.job(job).phase
        assert isinstance(phase, Placed | Running), phase
        return phase.why

    def placed(self) -> list[str]:
        """Return all placed and running jobs, in the order of submission."""
        return [job.id for job in self.state.jobs.values() if isinstance(job.phase, Placed | Running)]

    def happened(self, kind: type[E]) -> Iterator[E]:
        """Yield the events of one type."""
        return (event for event in self.events if isinstance(event, kind))
