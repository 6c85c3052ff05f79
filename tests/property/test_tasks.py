"""Gangs on agents, whose tasks are told of in any order, by anybody, and again: a model of them is kept beside, from events alone."""

from itertools import count
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from msgspec import structs

from spillover.core.events import (
    AnyEvent,
    GangPlaced,
    JobEnded,
    JobPlaced,
    JobRequeued,
    JobStarted,
    JobState,
    Lease,
    Outcome,
    TaskEnd,
    TasksEnded,
    TasksStarted,
    Usage,
)
from spillover.core.proposals import (
    Act,
    Change,
    HandBack,
    Reclaim,
    Refusal,
    Register,
    Registered,
    Result,
    Started,
    StartEpoch,
    Verdict,
)
from spillover.core.records.jobs import Placed, Running
from spillover.model.ids import JobId, NodeKey, NodeName, node_key, split_task
from spillover.model.job import Retry
from spillover.model.resources import Resources
from spillover.model.units import SECOND
from spillover.policies.loading import load
from spillover.testing.builders import a_job
from spillover.testing.world import OWNED, World
from tests.support.sameness import Checkpoints, said_by
from tests.support.tiers import examples

GANGS = structs.replace(OWNED, gangs=True)
NODES = [NodeName("n1"), NodeName("n2"), NodeName("n3")]
PICK = st.integers(0, 100)


class Model:
    """What events say of one attempt, and nothing else."""

    def __init__(self, attempt: int, seq: int, nodes: tuple[NodeName, ...]) -> None:
        self.attempt = attempt
        self.seq = seq
        self.nodes = nodes
        self.running: set[int] = set()
        self.ends: dict[int, TaskEnd] = {}

    def may_speak(self, node: str, lease: Lease) -> bool:
        """Whether a node may report the task of a lease."""
        return (
            (lease.attempt, lease.seq) == (self.attempt, self.seq)
            and 0 <= lease.task < len(self.nodes)
            and node == f"onprem/{self.nodes[lease.task]}"
        )


class Gangs(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.world = World(load, clusters=(GANGS,))
        self.live: dict[JobId, Model] = {}
        self.ended: dict[JobId, JobEnded] = {}
        self.leases: list[Lease] = []
        """All that ever were, so that old ones are used again."""
        self.numbers = count()
        self.seen = self.epochs = 0
        self.checkpoints = Checkpoints()
        for node in NODES:
            self.world.agent(node, cpus=3)
        self.submit([2, 1, 3], 1)

    # --- what happens

    @rule(tasks=st.lists(st.sampled_from([1, 2, 3, 5]), min_size=1, max_size=3), retries=st.integers(0, 1))
    def submit(self, tasks: list[int], retries: int) -> None:
        jobs = [
            a_job(f"j{'abcdefghij'[number // 10 % 10]}{'abcdefghij'[number % 10]}").tasks(size)
            for size, number in zip(tasks, self.numbers, strict=False)
        ]
        self.world.submit(*[job.terms(retry=Retry(retries, retries)) for job in jobs])
        self.follow()

    @rule(pick=PICK, node=st.one_of(st.none(), st.sampled_from(NODES)), age=st.sampled_from([0, SECOND]))
    def start(self, pick: int, node: NodeName | None, age: int) -> None:
        if (told := self.speaker(pick, node)) is None:
            return
        key, lease = told
        model = self.live.get(lease.job)
        may = model is not None and model.may_speak(key, lease)
        assert isinstance(self.world.propose(Started(key, lease, age)), Refusal) is not may
        self.follow()

    @rule(
        pick=PICK,
        node=st.one_of(st.none(), st.none(), st.sampled_from(NODES)),
        outcome=st.sampled_from(
            [*[Outcome.EXITED] * 4, Outcome.LOST, Outcome.STOPPED, Outcome.NOT_STARTED, Outcome.WALLTIME]
        ),
        code=st.sampled_from([0, 0, 0, 1]),
        age=st.sampled_from([0, 0, SECOND, 9 * SECOND]),
    )
    def result(self, pick: int, node: NodeName | None, outcome: Outcome, code: int, age: int) -> None:
        """Of a task by its own node as a rule, else by any."""
        if (told := self.speaker(pick, node)) is None:
            return
        key, lease = told
        model = self.live.get(lease.job)
        lives = model is not None and model.may_speak(key, lease) and lease.task not in model.ends
        exit_code = code if outcome is Outcome.EXITED else None
        said = Result(key, lease, outcome, exit_code, None, Usage(SECOND, SECOND, 1), age)
        assert (self.world.propose(said) is Verdict.ACCEPTED) is lives
        self.follow()
        assert self.world.propose(said) is not Verdict.ACCEPTED
        self.follow()

    @rule(pick=PICK, most=st.integers(1, 4), back=st.booleans(), node=st.sampled_from(NODES))
    def give_up(self, pick: int, most: int, back: bool, node: NodeName) -> None:
        """Leases of one node, with some of others among them."""
        leases = tuple(self.leases[pick % len(self.leases) :][:most]) + self.held(node)[:most]
        key = node_key(GANGS.name, node)
        self.world.propose(HandBack(key, leases) if back else Reclaim(key, leases))
        self.follow()

    @rule(node=st.sampled_from(NODES), keeps=st.integers(0, 9))
    def register(self, node: NodeName, keeps: int) -> None:
        """An agent comes back, with some of what it held."""
        before, held = self.held(node), self.held(node)[:keeps]
        incarnation = self.world.state.facts.incarnations + 1
        old = tuple(self.leases[-2:])
        said = Register(GANGS.name, node, incarnation, Resources(3000, 2**40), (), {}, 0, (*held, *old))
        reply = self.world.propose(said)
        assert isinstance(reply, Registered)
        assert set(held) <= set(reply.keep) <= set(before)
        self.follow()

    @rule(pick=PICK, act=st.sampled_from([Act.CANCEL, Act.REQUEUE]))
    def act(self, pick: int, act: Act) -> None:
        jobs = [
            job for job, each in self.world.state.jobs.items() if isinstance(each.phase, Placed | Running)
        ]
        if jobs:
            self.world.propose(Change(act, (jobs[pick % len(jobs)],), "ada"))
            self.follow()

    @rule(seconds=st.sampled_from([0, 1, 60]))
    def wait(self, seconds: int) -> None:
        self.world.wait(seconds=seconds)
        self.follow()

    @rule()
    def restart(self) -> None:
        """Another server; agents come back with all that they held."""
        held = {node: self.held(node) for node in NODES}
        self.epochs += 1
        self.world.propose(StartEpoch(1 + self.epochs, (GANGS,), self.world.state.facts.policies))
        for node in NODES:
            assert self.world.agent(node, cpus=3, held=held[node]) == held[node]
        self.follow()

    # --- what must hold

    @invariant()
    def nodes_hold_what_live_tasks_hold(self) -> None:
        if not hasattr(self, "world"):
            return
        for node in NODES:
            holding = self.world.state.nodes[f"onprem/{node}"].holding
            expected = {
                (job, model.attempt, rank)
                for job, model in self.live.items()
                for rank, name in enumerate(model.nodes)
                if name == node and rank not in model.ends
            }
            assert {split_task(key) for key in holding} == expected
            assert len(holding) == len(expected)
            assert all(asked == Resources(1000) for asked in holding.values())

    @invariant()
    def tasks_are_as_events_say(self) -> None:
        if not hasattr(self, "world"):
            return
        for job_id, model in self.live.items():
            tasks = self.world.state.jobs[job_id].tasks
            assert [task.node for task in tasks] == list(model.nodes)
            for task in tasks:
                running = task.rank in model.running and task.rank not in model.ends
                assert task.end == model.ends.get(task.rank)
                assert (task.state is JobState.RUNNING) is running

    @invariant()
    def a_checkpoint_says_the_same(self) -> None:
        if not hasattr(self, "world"):
            return
        self.checkpoints.write(self.world.state)
        assert said_by(self.checkpoints.load()) == said_by(self.world.state)

    def teardown(self) -> None:
        """Whoever is told to stop does, in the end, and nothing is held."""
        if not hasattr(self, "world"):
            return
        self.world.cancel(*[job for job in self.world.state.jobs if job not in self.ended])
        self.follow()
        for job_id, model in list(self.live.items()):
            for rank, node in enumerate(model.nodes):
                if rank not in model.ends:
                    lease = Lease(job_id, model.attempt, model.seq, rank)
                    key = node_key(GANGS.name, node)
                    self.world.propose(Result(key, lease, Outcome.STOPPED, None, 15, Usage(SECOND), 0))
        self.follow()
        assert not self.live
        assert set(self.ended) == set(self.world.state.jobs)
        assert all(not node.held for node in self.world.state.nodes.values())

    # --- the model

    def follow(self) -> None:
        """Take in what happened since."""
        for event in self.world.events[self.seen :]:
            self.take(event)
        self.seen = len(self.world.events)

    def take(self, event: AnyEvent) -> None:
        match event:
            case JobPlaced():
                self.grant(event.job, Model(event.attempt, event.seq, (event.node,)))
            case GangPlaced():
                self.grant(event.job, Model(event.attempt, event.seq, event.nodes))
            case JobStarted():
                self.live[event.job].running.add(event.rank)
            case TasksStarted():
                self.live[event.job].running.update(event.ranks)
            case TasksEnded():
                model = self.live[event.job]
                assert not model.ends.keys() & {end.rank for end in event.ends}, "a task ends once"
                model.ends.update({end.rank: end for end in event.ends})
            case JobRequeued():
                model = self.live.pop(event.job)
                assert len(model.nodes) in {1, len(model.ends)}, "a gang goes back when all of it has ended"
            case JobEnded():
                assert event.job not in self.ended, "a job ends once"
                self.ended[event.job] = event
                if (placed := self.live.pop(event.job, None)) is not None and len(placed.nodes) > 1:
                    check_rule(placed, event)
            case _:
                pass

    def grant(self, job: JobId, model: Model) -> None:
        assert job not in self.live
        self.live[job] = model
        self.leases += [Lease(job, model.attempt, model.seq, rank) for rank in range(len(model.nodes))]

    def held(self, node: NodeName) -> tuple[Lease, ...]:
        """Leases of tasks that go on on a node."""
        return tuple(
            Lease(job, model.attempt, model.seq, rank)
            for job, model in self.live.items()
            for rank, name in enumerate(model.nodes)
            if name == node and rank not in model.ends
        )

    def speaker(self, pick: int, node: NodeName | None) -> tuple[NodeKey, Lease] | None:
        """A lease that there is or was, with a node that speaks of it: its own if none is given."""
        if node is not None:
            lease = self.leases[-1 - pick % len(self.leases)]
            return node_key(GANGS.name, node), lease
        own: list[Any] = [(each, lease) for each in NODES for lease in self.held(each)]
        if not own:
            return None
        name, lease = own[pick % len(own)]
        return node_key(GANGS.name, name), lease


def check_rule(model: Model, event: JobEnded) -> None:
    """All succeed, and so does the gang; else it ends as the first that failed by itself, or as one that was stopped."""
    assert len(model.ends) == len(model.nodes)
    assert (event.state is JobState.SUCCEEDED) is all(
        end.state is JobState.SUCCEEDED for end in model.ends.values()
    )
    decided = model.ends[event.rank]
    assert (event.exit_code, event.signal) == (decided.exit_code, decided.signal)
    failed = [end for end in model.ends.values() if end.state is not JobState.SUCCEEDED]
    first = [end for end in failed if end.outcome is not Outcome.STOPPED] or failed
    if first:
        assert decided in first
        assert decided.at == min(end.at for end in first)


TestGangs = Gangs.TestCase
TestGangs.settings = settings(max_examples=examples(150), stateful_step_count=30, deadline=None)
