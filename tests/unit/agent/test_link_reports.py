"""When an agent tells what happened: together where that costs nobody anything, and at once where it would have nothing to do."""

from collections.abc import Iterator
from typing import Any, cast

import pytest

from spillover.agent.connection.calls import Calls
from spillover.agent.connection.finding import ServerFinder
from spillover.agent.connection.link import LINGER, LONGEST_LINGER, Link, LinkEnvironment, LinkOwner
from spillover.agent.leases.state import AgentState
from spillover.agent.leases.values import Exit, Grant, Instruction, Renewal, StartTask, Task, Welcome
from spillover.core.events import Lease, Usage
from spillover.core.proposals import Verdict
from spillover.model.ids import JobId
from spillover.model.job import Shell
from spillover.model.resources import Resources
from spillover.model.units import SECOND
from spillover.wire import agents_pb2 as pb
from spillover.wire.tasks import answer_out
from tests.support.faults.hosts import Host, Universe

MS = SECOND // 1000
TASK = Task(Shell("true"), Resources(1000))


class Agent:
    """The link of an agent and its state, with a server that agrees to all, in a time of their own."""

    def __init__(self, cpus: int) -> None:
        self.universe = Universe()
        self.host = Host(self.universe, "agent")
        self.state = AgentState(Resources(cpus * 1000))
        self.log_retention = 0
        self.outputs = None
        self.told: list[tuple[float, int, int]] = []
        """Milliseconds, and how many starts and results were told then."""
        self.begun: list[Lease] = []
        self.link = Link(
            cast("LinkOwner", self),
            pb.RegisterRequest(),
            cast("ServerFinder", None),
            LinkEnvironment(monotonic=self.host.monotonic),
        )
        self.state.register(0)
        self.state.registered(0, 0, Welcome(1, 1, frozenset(), 10 * SECOND, 30 * SECOND))
        self.host.create_task(self.link._report(cast("Calls", self)))

    def act(self, instructions: list[Instruction]) -> None:
        self.begun += [each.lease for each in instructions if isinstance(each, StartTask)]
        if self.state.news():
            self.link.ready()

    def flush(self) -> None:
        pass

    async def unary(self, _: str, request: pb.ReportRequest, *__: object) -> pb.ReportReply:
        now = self.host.monotonic()
        self.told.append((now / MS, len(request.started), len(request.results)))
        results = [answer_out(result, Verdict.ACCEPTED) for result in request.results]
        started = [each.lease for each in request.started]
        yielded = [each.lease for each in request.yielded]
        return pb.ReportReply(epoch=1, results=results, started=started, yielded=yielded)

    def at(self, ms: float, what: Any, *values: Any) -> None:
        self.universe.at(int(ms * MS), lambda: self.act(what(self.host.monotonic(), *values)))

    def gets(self, ms: float, *names: str) -> None:
        self.at(ms, self.state.granted, 1, 1, [Grant(a_lease(name), TASK) for name in names])

    def starts(self, ms: float, name: str) -> None:
        self.at(ms, self.state.started, a_lease(name), int(ms * MS))

    def ends(self, ms: float, name: str) -> None:
        self.at(ms, self.state.ended, a_lease(name), Exit(int(ms * MS), True, 0, None, Usage(ran=MS), ""))

    def passes(self, ms: float) -> list[tuple[float, int, int]]:
        self.universe.at(int(ms * MS), lambda: None)
        self.universe.run(lambda: self.universe.now >= ms * MS)
        return [(round(at), starts, results) for at, starts, results in self.told]


def a_lease(name: str) -> Lease:
    return Lease(JobId(name), 1, 1)


@pytest.fixture
def agent(request: pytest.FixtureRequest) -> Iterator[Agent]:
    agent = Agent(getattr(request, "param", 1))
    yield agent
    agent.host.kill()


def test_a_short_task_is_told_of_in_one_message(agent: Agent) -> None:
    agent.gets(100, "a")
    agent.starts(101, "a")
    agent.ends(104, "a")
    assert agent.passes(300) == [(104, 0, 1)]


def test_the_start_of_a_long_task_is_told_soon(agent: Agent) -> None:
    agent.gets(100, "a")
    agent.starts(101, "a")
    assert agent.passes(300) == [(101 + LINGER * 1000, 1, 0)]


def test_what_happens_while_others_wait_here_is_told_together(agent: Agent) -> None:
    names = "abcdefgh"
    agent.gets(100, *names)
    for number, name in enumerate(names):
        agent.ends(101 + number, name)
    told = agent.passes(300)
    assert [results for _, _, results in told] == [4, 4]  # half of them are enough to get more in time
    assert told[0][0] == 104


@pytest.mark.parametrize("agent", [8], indirect=True)
def test_a_result_is_told_at_once_where_nothing_follows_it(agent: Agent) -> None:
    agent.gets(100, *"abcdefgh")
    agent.ends(200, "a")
    agent.ends(220, "b")
    assert agent.passes(400) == [(200, 0, 1), (220, 0, 1)]


def test_a_result_waits_for_the_last_message_and_not_for_a_look_that_found_nothing(agent: Agent) -> None:
    agent.gets(100, "a", "b")
    agent.ends(101, "a")
    agent.ends(114, "b")  # at 111 there was nothing to tell
    assert agent.passes(300) == [(101, 0, 1), (114, 0, 1)]


def test_a_peer_that_has_nothing_to_do_is_answered_at_once(agent: Agent) -> None:
    agent.gets(100, *"abcdefgh")
    agent.at(150, agent.state.renewed, 150 * MS, Renewal(1, yields=((a_lease("h"), b"ticket"),)))
    assert [at for at, _, _ in agent.passes(300)] == [150]


def test_results_wait_no_longer_than_stated_for_others(agent: Agent) -> None:
    agent.gets(100, *"abcdefgh")
    agent.ends(101, "a")
    agent.ends(121, "b")
    linger, longest = LINGER * 1000, LONGEST_LINGER * 1000
    assert agent.passes(400) == [(101 + linger, 0, 1), (101 + linger + longest, 0, 1)]
