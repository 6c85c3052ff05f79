"""What an agent does with leases that others want, and with those that it takes over."""

from spillover.agent.leases.state import AgentState
from spillover.agent.leases.values import (
    Answered,
    Exit,
    Fetch,
    Grant,
    HandOver,
    Instruction,
    Phase,
    Renewal,
    Report,
    Source,
    StartTask,
    Task,
    Welcome,
)
from spillover.core.events import Lease
from spillover.core.proposals import Outcome, Yield
from spillover.model.ids import JobId
from spillover.model.job import Shell
from spillover.model.resources import Resources
from spillover.model.units import SECOND

HEARTBEAT, SHORT = 2 * SECOND, 30 * SECOND
TASK = Task(Shell("true"), Resources(1000))
A, B, C = (Lease(JobId(name), 1, 1) for name in "abc")
TICKET = b"ticket"


class Agent:
    """An agent of one CPU that runs `a` and holds `b`."""

    def __init__(self) -> None:
        self.now = 100 * SECOND
        self.state = AgentState(Resources(1000))
        self.incarnation = 0
        self.registers()
        assert self.gets(Grant(A, TASK), Grant(B, TASK)) == [StartTask(A, TASK)]

    def registers(self, keep: tuple[Lease, ...] | None = None) -> tuple[tuple[Lease, Phase], ...]:
        held, _ = self.state.register(self.now)
        self.incarnation += 1
        kept = frozenset(lease for lease, _ in held) if keep is None else frozenset(keep)
        self.state.registered(self.now, self.now, Welcome(1, self.incarnation, kept, HEARTBEAT, SHORT))
        return held

    def gets(self, *grants: Grant) -> list[Instruction]:
        return self.state.granted(self.now, self.incarnation, 1, grants)

    def asked(self, *leases: Lease, **more: object) -> list[Instruction]:
        yields = tuple((lease, TICKET) for lease in leases)
        renewal = Renewal(1, yields=yields, **more)  # type: ignore[arg-type]
        return self.state.renewed(self.now, self.now, renewal)

    def told(self) -> Report:
        report, _ = self.state.report(self.now)
        assert report is not None
        return report

    def answered(self, report: Report) -> None:
        leases = tuple(lease for lease, _ in report.yielded)
        self.state.reported(self.now, Answered(1, False, (), (), leases))


def a_source(lease: Lease) -> Source:
    return Source("127.0.0.1:1", TICKET, Lease(lease.job, lease.attempt, lease.seq - 1, lease.task))


def test_a_lease_that_waits_is_taken_away_before_that_is_told() -> None:
    agent = Agent()
    assert agent.asked(B) == [HandOver(B, TICKET)]
    assert B not in agent.state.waiting
    assert agent.state.news()
    assert agent.told().yielded == ((B, Yield.RELEASED),)


def test_an_answer_is_told_until_it_is_acknowledged() -> None:
    agent = Agent()
    agent.asked(B)
    agent.told()
    agent.state.unreported()
    assert agent.asked(B) == [], "asked again, the answer is the same"
    report = agent.told()
    assert report.yielded == ((B, Yield.RELEASED),)
    agent.answered(report)
    assert not agent.state.news()


def test_a_running_or_ended_task_has_started() -> None:
    agent = Agent()
    assert agent.asked(A) == []
    assert agent.told().yielded == ((A, Yield.STARTED),)
    agent = Agent()
    agent.state.ended(agent.now, A, Exit(agent.now, code=0))
    agent.asked(A)
    assert agent.told().yielded == ((A, Yield.STARTED),)


def test_what_was_given_up_is_refused_should_it_come_again() -> None:
    agent = Agent()
    agent.asked(B)
    agent.answered(agent.told())
    assert agent.gets(Grant(B, TASK)) == []
    assert B not in agent.state.waiting
    assert agent.told().released == (B,)


def test_what_was_never_seen_is_refused_should_it_come() -> None:
    agent = Agent()
    assert agent.asked(C) == []
    report = agent.told()
    assert report.yielded == ((C, Yield.UNKNOWN),)
    agent.answered(report)
    assert agent.gets(Grant(C, TASK)) == []
    assert agent.told().released == (C,)


def test_a_later_lease_of_the_same_task_is_another_one() -> None:
    agent = Agent()
    agent.asked(B)
    later = Lease(B.job, B.attempt, B.seq + 2)
    agent.gets(Grant(later, TASK))
    assert later in agent.state.waiting


def test_what_was_handed_back_before_is_given_up_too() -> None:
    agent = Agent()
    agent.state.renewed(agent.now, agent.now, Renewal(1, revoked=(B,)))
    agent.asked(B)
    report = agent.told()
    assert (report.released, report.yielded) == ((B,), ((B, Yield.RELEASED),))


def test_a_new_registration_does_not_name_what_was_given_up_and_says_no_more_of_it() -> None:
    agent = Agent()
    agent.asked(A, B)
    held = agent.registers()
    assert held == ((A, Phase.RUNNING),)
    assert not agent.state.news()
    agent.gets(Grant(B, TASK))
    assert B in agent.state.waiting, "whatever a new registration is given is its own"


def test_a_lease_to_be_stopped_is_not_given_up() -> None:
    agent = Agent()
    agent.asked(B, stops=((B, False),))
    report = agent.told()
    assert report.yielded == ((B, Yield.STARTED),)
    assert report.results[0].outcome is Outcome.STOPPED


# --- taking over


def test_a_lease_that_was_taken_over_waits_for_its_task() -> None:
    agent = Agent()
    source = a_source(C)
    assert agent.gets(Grant(C, source=source)) == [Fetch(C, source)]
    assert agent.gets(Grant(C, source=source)) == [], "it is on its way"
    assert (C, Phase.WAITING) in agent.registers()
    assert agent.state.fetched(agent.now, C, TASK) == []
    assert list(agent.state.waiting) == [B, C]


def test_a_task_that_comes_to_an_idle_agent_starts() -> None:
    agent = Agent()
    agent.asked(B)
    agent.state.ended(agent.now, A, Exit(agent.now, code=0))
    agent.gets(Grant(C, source=a_source(C)))
    assert agent.state.fetched(agent.now, C, TASK) == [StartTask(C, TASK)]


def test_a_task_that_nobody_gives_is_handed_back() -> None:
    agent = Agent()
    agent.gets(Grant(C, source=a_source(C)))
    assert agent.state.unfetched(agent.now, C) == []
    assert agent.told().released == (C,)
    assert agent.state.fetched(agent.now, C, TASK) == []
    assert C not in agent.state.waiting


def test_a_task_larger_than_the_agent_is_not_started() -> None:
    agent = Agent()
    agent.gets(Grant(C, source=a_source(C)))
    agent.state.fetched(agent.now, C, Task(Shell("true"), Resources(9000)))
    assert agent.state.results[C].outcome is Outcome.NOT_STARTED


def test_while_its_task_comes_a_lease_is_stopped_revoked_drained_wanted_and_lost_like_any_other() -> None:
    for renewal in (
        Renewal(1, stops=((C, False),)),
        Renewal(1, revoked=(C,)),
        Renewal(1, drain=True),
        Renewal(1, yields=((C, TICKET),)),
        Renewal(1, fenced=True),
    ):
        agent = Agent()
        agent.gets(Grant(C, source=a_source(C)))
        agent.state.renewed(agent.now, agent.now, renewal)
        assert C not in agent.state.fetching
        assert agent.state.fetched(agent.now, C, TASK) == []
        assert C not in agent.state.waiting


def test_a_lease_whose_task_comes_too_late_is_void() -> None:
    agent = Agent()
    agent.gets(Grant(C, source=a_source(C)))
    wake = agent.state.wake()
    assert wake is not None
    agent.now += SHORT
    agent.state.fetched(agent.now, C, TASK)
    assert C not in agent.state.waiting


def test_a_lease_that_the_server_does_not_keep_is_dropped_with_its_task() -> None:
    agent = Agent()
    agent.gets(Grant(C, source=a_source(C)))
    agent.registers(keep=(A, B))
    agent.state.fetched(agent.now, C, TASK)
    assert C not in agent.state.waiting


def test_an_agent_that_leaves_hands_it_back() -> None:
    agent = Agent()
    agent.gets(Grant(C, source=a_source(C)))
    agent.state.leave(agent.now)
    assert C in agent.told().released
