"""What holds for an agent whatever the server, the processes and the clock do."""

from random import Random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from spillover.agent.leases.state import AgentState
from spillover.agent.leases.values import (
    Answered,
    Exit,
    ForgetResult,
    Grant,
    Instruction,
    Recall,
    Renewal,
    Report,
    Signal,
    Source,
    StartTask,
    Task,
    Welcome,
)
from spillover.core.events import Lease, Usage
from spillover.core.proposals import Verdict, Yield
from spillover.model.ids import JobId
from spillover.model.job import Shell
from spillover.model.resources import Resources
from spillover.model.units import SECOND
from tests.support.tiers import examples

HEARTBEAT, SHORT = 2 * SECOND, 30 * SECOND
CAPACITY = Resources(4000, 100, 1)

leases = st.builds(Lease, st.sampled_from("abcdef").map(JobId), st.integers(1, 2), st.integers(1, 3))
tasks = st.builds(
    Task,
    st.just(Shell("true")),
    st.one_of(
        st.just(Resources(2000)),
        st.builds(Resources, st.integers(0, 5000), st.integers(0, 110), st.integers(0, 1)),
    ),
    walltime=st.sampled_from([0, SECOND, 100 * SECOND]),
    grace=st.sampled_from([0, SECOND]),
    lost_after=st.sampled_from([20 * SECOND, 60 * SECOND, 300 * SECOND]),
)
epochs = st.integers(1, 3)
picks = st.randoms(use_true_random=False)


class AgentMachine(RuleBasedStateMachine):
    """Random messages in random order, with repeats, delays and losses."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0
        self.state = AgentState(CAPACITY)
        self.incarnation = 0
        self.alive: dict[Lease, Task] = {}
        self.ever: set[Lease] = set()
        self.slots: dict[Lease, int] = {}
        """Of those that are alive and share room."""
        self.recalled: set[Lease] = set()
        self.killed: set[Lease] = set()
        self.sent = [0]
        self.renewed: int | None = None
        self.acknowledged: set[Lease] = set()
        self.under_way: Report | None = None
        self.given_up: dict[Lease, int] = {}
        """Leases that this agent said it would never start, and under which registration."""

    def carry_out(self, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case StartTask(lease, task, slot):
                    assert lease not in self.ever, "started twice"
                    assert lease not in self.given_up, "started what it gave up"
                    assert not any(
                        (other.job, other.task) == (lease.job, lease.task) for other in self.alive
                    ), "two leases of one task run at once"
                    self.ever.add(lease)
                    self.alive[lease] = task
                    if slot >= 0:
                        assert not any(
                            self.alive[other].need != task.need
                            for other, its in self.slots.items()
                            if its == slot
                        ), "tasks of different needs share room"
                        self.slots[lease] = slot
                    assert self.renewed is not None
                    assert self.now - self.renewed < SHORT - HEARTBEAT, "started an expired lease"
                case Signal(lease, kill):
                    assert lease in self.alive
                    if kill:
                        assert lease not in self.killed
                        self.killed.add(lease)
                case Recall(lease):
                    assert lease in self.slots
                    self.recalled.add(lease)
                case ForgetResult():
                    pass

    @rule(seconds=st.sampled_from([0, 1, 5, 20, 27, 28, 60, 400]))
    def time_passes(self, seconds: int) -> None:
        self.now += seconds * SECOND
        self.carry_out(self.state.tick(self.now))

    @rule(seconds=st.sampled_from([28, 400]))
    def the_agent_is_stopped_for_a_while(self, seconds: int) -> None:
        self.now += seconds * SECOND

    @rule(epoch=epochs, dice=picks, delay=st.sampled_from([0, 0, 1, 40]))
    def it_registers(self, epoch: int, dice: Random, delay: int) -> None:
        sent = self.now
        held, out = self.state.register(sent)
        self.carry_out(out)
        self.state.unreported()
        self.under_way = None
        self.now += delay * SECOND
        self.incarnation += 1
        keep = frozenset(lease for lease, _ in held if dice.random() < 0.7)
        accepted = epoch >= self.state.epoch
        if accepted:
            self.renewed = max(sent, self.renewed or 0)
        welcome = Welcome(epoch, self.incarnation, keep, HEARTBEAT, SHORT)
        self.carry_out(self.state.registered(self.now, sent, welcome))

    @rule(
        granted=st.lists(st.tuples(leases, tasks), max_size=6),
        epoch=epochs,
        back=st.sampled_from([0, 0, 0, 1]),
    )
    def leases_come(self, granted: list[tuple[Lease, Task]], epoch: int, back: int) -> None:
        # A server never hands out a lease again that it has handed out before on this agent's ground.
        fresh = [
            Grant(lease, task) if number % 2 else Grant(lease, source=Source("peer", b"", lease))
            for number, (lease, task) in enumerate(granted)
            if lease not in self.ever and self.given_up.get(lease, self.incarnation) == self.incarnation
        ]
        self.carry_out(self.state.granted(self.now, self.incarnation - back, epoch, fresh))

    @rule()
    def a_heartbeat_is_sent(self) -> None:
        self.sent.append(self.now)

    @rule(epoch=epochs, dice=picks, fenced=st.sampled_from([False, False, False, True]), drain=st.booleans())
    def a_heartbeat_is_answered(self, epoch: int, dice: Random, fenced: bool, drain: bool) -> None:
        if self.state.incarnation is None:
            return
        sent = self.sent[-1]
        held = [*self.state.waiting, *self.state.running]
        stops = tuple((lease, dice.random() < 0.5) for lease in held if dice.random() < 0.2)
        revoked = tuple(lease for lease in held if dice.random() < 0.2)
        asked = [*held, *self.state.fetching, Lease(JobId("z"), 1, 1)]
        yields = tuple((lease, b"ticket") for lease in asked if dice.random() < 0.2)
        if epoch >= self.state.epoch and not fenced:
            self.renewed = max(sent, self.renewed or 0)
        renewal = Renewal(epoch, fenced, stops, drain, revoked, yields)
        self.carry_out(self.state.renewed(self.now, sent, renewal))

    @rule(dice=picks, task=tasks, comes=st.booleans())
    def a_task_comes_from_a_peer(self, dice: Random, task: Task, comes: bool) -> None:
        wanted = [*self.state.fetching, Lease(JobId("y"), 1, 1)]
        lease = dice.choice(wanted)
        if comes:
            self.carry_out(self.state.fetched(self.now, lease, task))
        else:
            self.carry_out(self.state.unfetched(self.now, lease))

    @rule(dice=picks)
    def a_process_is_made(self, dice: Random) -> None:
        if self.alive:
            lease = dice.choice(list(self.alive))
            if self.state.running[lease].started is None:
                self.carry_out(self.state.started(self.now, lease, self.now))

    @rule(dice=picks)
    def a_process_ends(self, dice: Random) -> None:
        if self.alive:
            lease = dice.choice(list(self.alive))
            self.forget(lease)
            usage = Usage(dice.choice([SECOND // 1000, SECOND // 1000, SECOND]))
            self.carry_out(self.state.ended(self.now, lease, Exit(self.now, code=0, usage=usage)))

    @rule(dice=picks)
    def tasks_that_were_had_back_come(self, dice: Random) -> None:
        begun = {lease for lease, run in self.state.running.items() if run.started is not None}
        back = [
            lease for lease in self.state.running if lease in self.recalled - begun and dice.random() < 0.7
        ]
        for lease in back:
            self.forget(lease)
            self.ever.discard(lease)
        self.carry_out(self.state.returned(self.now, back))

    def forget(self, lease: Lease) -> None:
        """A task is no more."""
        del self.alive[lease]
        self.slots.pop(lease, None)
        self.recalled.discard(lease)

    @rule()
    def a_report_is_sent(self) -> None:
        report, out = self.state.report(self.now)
        self.carry_out(out)
        self.under_way = report or self.under_way
        for lease, answer in report.yielded if report is not None else ():
            if answer is not Yield.STARTED:
                self.given_up[lease] = self.incarnation

    @rule(verdict=st.sampled_from(list(Verdict)), epoch=epochs)
    def a_report_is_answered(self, verdict: Verdict, epoch: int) -> None:
        if self.under_way is None:
            return
        report, self.under_way = self.under_way, None
        verdicts = tuple((result.lease, verdict) for result in report.results)
        started = tuple(lease for lease, _ in report.started)
        yielded = tuple(lease for lease, _ in report.yielded)
        self.carry_out(self.state.reported(self.now, Answered(epoch, False, verdicts, started, yielded)))

    @rule()
    def a_report_is_lost(self) -> None:
        self.state.unreported()
        self.under_way = None

    @invariant()
    def what_runs_fits(self) -> None:
        rooms = {self.slots.get(lease, lease): task.need for lease, task in self.alive.items()}
        used = sum(rooms.values(), Resources())
        assert used.fits(CAPACITY)
        assert self.state.room.free == CAPACITY - used

    @invariant()
    def books_agree(self) -> None:
        assert set(self.state.running) == set(self.alive)
        assert not set(self.state.waiting) & set(self.state.running)
        assert not set(self.state.fetching) & {*self.state.running, *self.state.waiting}

    def teardown(self) -> None:
        """After a tick nothing is kept that has run out."""
        self.carry_out(self.state.tick(self.now))
        if self.renewed is None:
            return
        age = self.now - self.renewed + HEARTBEAT
        if age >= SHORT:
            assert not self.state.waiting
            assert not self.state.fetching
        for lease, run in self.state.running.items():
            term = run.task.lost_after if run.acknowledged else SHORT
            assert age < term or lease in self.killed, "kept an expired lease"


TestAgentMachine = AgentMachine.TestCase
TestAgentMachine.settings = settings(max_examples=examples(150), stateful_step_count=40)
