"""Leases that move while messages are lost, repeated and late: no job is lost, none runs twice, and the books agree once quiet.

The real state machines of both sides: the engine, and one `AgentState` for each agent. What is between them is written here.
"""

from random import Random

import pytest

from spillover.agent.leases.state import AgentState
from spillover.agent.leases.values import (
    Answered,
    Exit,
    Fetch,
    ForgetResult,
    Grant,
    HandOver,
    Instruction,
    Phase,
    Recall,
    Reconnect,
    Renewal,
    Report,
    Signal,
    Source,
    StartTask,
    Task,
    TaskResult,
    Welcome,
)
from spillover.core.events import (
    AnyEvent,
    JobEnded,
    JobPlaced,
    Lease,
    LeaseMoved,
    StealAsked,
    StealRefused,
    Usage,
)
from spillover.core.proposals import (
    Act,
    AskSteal,
    Change,
    Drain,
    HandBack,
    Outcome,
    Proposal,
    Register,
    Registered,
    Reply,
    Resume,
    Started,
    StartEpoch,
    Submit,
    Verdict,
    Yielded,
)
from spillover.core.proposals import Result as Said
from spillover.core.records.jobs import Placed, Running
from spillover.deciding.replay import Replay
from spillover.deciding.stealing import choose
from spillover.model.ids import ClusterName, NodeName, node_key
from spillover.model.job import Retry, Shell
from spillover.model.policy import Choice, PolicySet
from spillover.model.resources import Resources
from spillover.model.units import SECOND
from spillover.policies.loading import load
from spillover.testing.builders import a_job
from spillover.testing.world import OWNED, World
from tests.support.tiers import few_of

LAB = ClusterName("onprem")
ROUTES = ("least_loaded", "round_robin", "power_of_two", "biased")
TASK = Task(Shell("true"), Resources(1000))


class Host:
    """One agent, with what runs on it and what is on its way to it."""

    def __init__(self, name: str, cpus: int, queue: int) -> None:
        self.name = NodeName(name)
        self.key = node_key(LAB, self.name)
        self.capacity, self.queue = Resources(cpus * 1000, 1), queue
        self.state = AgentState(self.capacity)
        self.incarnation = 0
        self.stream: list[Grant] = []
        self.late: list[tuple[int, Renewal]] = []
        """Answers to heartbeats that are still under way, with when those were sent."""
        self.alive: dict[Lease, bool] = {}
        """Tasks, and whether their start was seen."""
        self.offered: dict[Lease, Task] = {}


class Story:
    """A server, its agents, and a network that cannot be relied on."""

    def __init__(self, seed: int) -> None:
        self.dice = Random(seed)
        route = Choice(ROUTES[seed % len(ROUTES)])
        self.world = World(load, PolicySet(wait=Choice("never"), route=route))
        self.world.propose(StartEpoch(2, (OWNED,), self.world.state.facts.policies, ahead=10 * SECOND))
        self.hosts = [
            Host(f"n{at}", self.dice.choice([1, 1, 2]), self.dice.choice([2, 6, 6])) for at in range(3)
        ]
        self.seen = 0
        self.jobs = 0
        self.runs: dict[str, int] = {}
        for host in self.hosts:
            self.register(host)

    # --- the server

    def propose(self, *proposals: Proposal) -> list[Reply]:
        step = self.world.engine.step(self.world.now, proposals)
        self.world.events += step.events
        for event in step.events:
            self.grant(event)
        for node in self.world.state.nodes.values():
            assert len(node.ahead) <= node.queue
        return step.replies

    def grant(self, event: AnyEvent) -> None:
        """What a server says for an event that is durable."""
        if isinstance(event, JobPlaced):
            lease = Lease(event.job, event.attempt, event.seq)
            self.host(event.node).stream.append(Grant(lease, TASK))
        elif isinstance(event, LeaseMoved):
            old = Lease(event.job, event.attempt, event.seq - 1)
            lease = Lease(event.job, event.attempt, event.seq)
            self.host(event.thief).stream.append(Grant(lease, source=Source(event.node, b"", old)))

    def host(self, name: str) -> Host:
        return next(host for host in self.hosts if host.name == name)

    def orders(self, host: Host) -> Renewal:
        """What a heartbeat is answered now."""
        node = self.world.state.nodes[f"{LAB}/{host.name}"]
        stops, yields = [], []
        for each in node.jobs:
            job = self.world.state.jobs[each]
            if isinstance(job.phase, Placed | Running) and job.phase.stopping is not None:
                stops.append((job.lease, True))
            elif isinstance(job.phase, Placed) and job.phase.thief is not None:
                yields.append((job.lease, b"ticket"))
        return Renewal(1, False, tuple(stops), node.status == "draining", (), tuple(yields))

    # --- what agents do

    def carry_out(self, host: Host, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case StartTask(lease):
                    others = [
                        (other.name, each)
                        for other in self.hosts
                        for each in other.alive
                        if each.job == lease.job
                    ]
                    assert not others, f"{lease} starts on {host.name} while {others} run"
                    host.alive[lease] = False
                case Signal(lease, kill=True) if lease in host.alive:
                    del host.alive[lease]
                    self.carry_out(
                        host, host.state.ended(self.world.now, lease, Exit(self.world.now, signal=9))
                    )
                case Recall(lease) if not host.alive.get(lease, True):
                    del host.alive[lease]
                    self.carry_out(host, host.state.returned(self.world.now, [lease]))
                case HandOver(lease):
                    host.offered[lease] = TASK
                case Signal() | Recall() | ForgetResult() | Fetch() | Reconnect():
                    pass

    def register(self, host: Host) -> None:
        now = self.world.now
        held, out = host.state.register(now)
        self.carry_out(host, out)
        host.state.unreported()
        host.stream = []
        number = self.world.state.facts.incarnations + 1
        named = tuple(lease for lease, _ in held)
        waiting = tuple(lease for lease, phase in held if phase is Phase.WAITING)
        register = Register(LAB, host.name, number, host.capacity, (), {}, host.queue, named, waiting=waiting)
        (reply,) = self.propose(register)
        assert isinstance(reply, Registered)
        host.incarnation = number
        if self.dice.random() < 0.2:
            return self.register(host)  # the answer was lost
        welcome = Welcome(1, number, frozenset(reply.keep), 2 * SECOND, 30 * SECOND)
        return self.carry_out(host, host.state.registered(now, now, welcome))

    def crash(self, host: Host) -> None:
        """The agent dies with its tasks, and the next one tells of those that had started."""
        lost = [TaskResult(lease, Outcome.LOST, self.world.now) for lease in host.alive]
        lost += host.state.results.values()
        host.alive, host.late, host.offered = {}, [], {}
        host.state = AgentState(host.capacity, lost)
        self.register(host)

    def listen(self, host: Host, *, again: bool = False) -> None:
        """Some of what is on the stream arrives, now and then twice."""
        some, host.stream = host.stream[:3], host.stream[3:]
        for _ in range(1 + again):
            self.carry_out(host, host.state.granted(self.world.now, host.incarnation, 1, some))

    def beat(self, host: Host) -> None:
        host.late.append((self.world.now, self.orders(host)))

    def renew(self, host: Host, at: int = 0) -> None:
        if host.late:
            sent, renewal = host.late.pop(at % len(host.late))
            self.carry_out(host, host.state.renewed(self.world.now, sent, renewal))

    def report(self, host: Host, *, lost: bool = False, twice: bool = False) -> None:
        report, out = host.state.report(self.world.now)
        self.carry_out(host, out)
        if report is None:
            return
        answer = self.answer(host, report)
        if twice:
            self.answer(host, report)
        if lost:
            host.state.unreported()
        else:
            self.carry_out(host, host.state.reported(self.world.now, answer))

    def answer(self, host: Host, report: Report) -> Answered:
        started = [Started(host.key, lease, 0) for lease, _ in report.started]
        results = [
            Said(host.key, each.lease, each.outcome, each.exit_code, each.signal, Usage(10**6), 0)
            for each in report.results
        ]
        yielded = [Yielded(host.key, lease, answer) for lease, answer in report.yielded]
        replies = self.propose(*started, *results, *yielded, HandBack(host.key, report.released))
        accepted = [
            each.lease for each, reply in zip(started, replies, strict=False) if "Done" in repr(reply)
        ]
        verdicts = [
            (each.lease, reply)
            for each, reply in zip(results, replies[len(started) :], strict=False)
            if isinstance(reply, Verdict)
        ]
        leases = tuple(lease for lease, _ in report.yielded)
        return Answered(1, False, tuple(verdicts), tuple(accepted), leases)

    def fetch(self, host: Host, *, fails: bool = False) -> None:
        for lease, source in list(host.state.fetching.items()):
            told = self.host(source.address).offered.get(source.lease, TASK)
            now = self.world.now
            fetched = host.state.unfetched(now, lease) if fails else host.state.fetched(now, lease, told)
            self.carry_out(host, fetched)

    def run(self, host: Host) -> None:
        """One task that was started begins, or ends well."""
        if not host.alive:
            return
        lease = self.dice.choice(list(host.alive))
        if not host.alive[lease]:
            host.alive[lease] = True
            self.carry_out(host, host.state.started(self.world.now, lease, self.world.now))
            return
        del host.alive[lease]
        self.runs[lease.job] = self.runs.get(lease.job, 0) + 1
        end = Exit(self.world.now, code=0, usage=Usage(10**8))  # too long for others to be chained behind it
        self.carry_out(host, host.state.ended(self.world.now, lease, end))

    # --- the story

    def step(self) -> None:
        dice = self.dice
        self.world.now += dice.choice([0, 10**6, 10**7, 10**8])
        # One of them is slow, and so is left with work while the others have none.
        self.work(dice.choice(self.hosts) if dice.random() < 0.1 else dice.choice(self.hosts[1:]))
        host = dice.choice(self.hosts)
        match dice.randrange(24):
            case 0:
                count = dice.choice([1, 6, 12])
                new = [a_job(f"j{self.jobs + at}").terms(retry=Retry(0, 50)) for at in range(count)]
                self.jobs += count
                self.propose(Submit(tuple(job.build() for job in new), "ada"))
            case 1 | 2 | 3 | 4:
                self.beat(host)
            case 5 | 6 | 7 | 8:
                self.renew(host, dice.randrange(4))
            case 9 | 10 | 11:
                self.report(host, lost=dice.random() < 0.3, twice=dice.random() < 0.3)
            case 12 | 13 | 14:
                self.listen(host, again=dice.random() < 0.3)
            case 15 | 16 | 17:
                state = self.world.state
                asks = choose(state, self.world.engine.index, self.world.now, dice.randrange(1000))
                if asks:
                    self.propose(*asks)
                for victim in dict.fromkeys(ask.node for ask in asks):
                    self.beat(self.host(victim))
                    if dice.random() < 0.6:
                        self.renew(self.host(victim), len(self.host(victim).late) - 1)
            case 18:
                self.ask_for_anything()
            case 19 | 20:
                self.fetch(host, fails=dice.random() < 0.2)
            case 21:
                if dice.random() < 0.2:
                    self.crash(host) if dice.random() < 0.3 else self.register(host)
            case 22:
                who = dice.choice(["", "ada"])
                drains = dice.random() < 0.2
                self.propose(Drain(LAB, host.name, who) if drains else Resume(LAB, host.name, "bob"))
            case _:
                live = [
                    job.id for job in self.world.state.jobs.values() if not isinstance(job.phase, Running)
                ]
                if live and dice.random() < 0.2:
                    self.propose(Change(Act.CANCEL, (dice.choice(live),), "ada"))

    def work(self, host: Host) -> None:
        """What an agent does all the time, on a network that works."""
        for does in (self.listen, self.run, self.run, self.report):
            if self.dice.random() < 0.7:
                does(host)

    def ask_for_anything(self) -> None:
        """Somebody asks for a lease that no sensible server would."""
        placed = [job for job in self.world.state.jobs.values() if isinstance(job.phase, Placed)]
        if placed:
            job = self.dice.choice(placed)
            assert isinstance(job.phase, Placed)
            thief = self.dice.choice(self.hosts).name
            self.propose(AskSteal(LAB, job.phase.node, job.lease, thief))

    def becomes_quiet(self) -> None:
        """Everything that is under way arrives, and everything that runs ends."""
        for host in self.hosts:
            self.propose(Resume(LAB, host.name, "bob"))
        for _ in range(400):
            for host in self.hosts:
                if (
                    self.world.state.nodes[f"{LAB}/{host.name}"].status != "ready"
                    or host.state.incarnation is None
                ):
                    self.register(host)
                host.late.clear()
                self.beat(host)
                self.renew(host)
                self.listen(host)
                self.fetch(host)
                self.run(host)
                self.report(host)
            if all(
                isinstance(job.phase, Placed | Running) is False for job in self.world.state.jobs.values()
            ):
                break


@pytest.mark.parametrize("block", few_of(1, range(8)))
def test_no_job_is_lost_or_doubled(block: int) -> None:
    for seed in range(block * 25, block * 25 + 25):
        story = Story(seed)
        for _ in range(250):
            story.step()
        story.becomes_quiet()
        state = story.world.state
        ends = [event.job for event in story.world.events if isinstance(event, JobEnded)]
        assert len(ends) == len(set(ends)) == story.jobs, f"seed {seed}"
        for node in state.nodes.values():
            assert not node.holding, f"seed {seed}"
            assert not node.ahead, f"seed {seed}"
        for host in story.hosts:
            assert not host.state.waiting, f"seed {seed}"
            assert not host.state.running, f"seed {seed}"
            assert not host.state.fetching, f"seed {seed}"
        assert sum(node.taken for node in state.nodes.values()) == sum(
            node.given for node in state.nodes.values()
        )
        replay = Replay(load)
        for revision, event in enumerate(story.world.events, 1):
            replay.take(revision, event)
        replay.end(len(story.world.events))
        assert replay.difference is None, f"seed {seed}"
        twice = [job for job, count in story.runs.items() if count > 1]
        assert not twice, f"seed {seed}: {twice} ran to their end twice"


def test_the_stories_are_about_leases_that_move() -> None:
    kinds: dict[type, int] = {}
    for seed in range(60):
        story = Story(seed)
        for _ in range(250):
            story.step()
        for event in story.world.events:
            kinds[type(event)] = kinds.get(type(event), 0) + 1
    assert kinds[StealAsked] > 60
    assert kinds[LeaseMoved] > 15
    assert kinds[StealRefused] > 5
