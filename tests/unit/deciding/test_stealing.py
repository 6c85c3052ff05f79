"""Which leases idle agents ask busy ones for."""

import pytest

from spillover.core.proposals import AskSteal, Drain, Resume, Yield, Yielded
from spillover.deciding.stealing import MOVING, choose
from spillover.model.ids import ClusterName, JobId, NodeKey, NodeName
from spillover.model.policy import Choice, PolicySet
from spillover.model.units import SECOND
from spillover.policies.loading import load
from spillover.testing.builders import JobBuilder, a_job
from spillover.testing.world import World

LAB = ClusterName("onprem")


class Lab(World):
    """Agents of one CPU that were given short jobs; the one that runs on each turns out to be long."""

    def __init__(self, *busy: str, queue: int = 8, backfill: str = "out_of_order") -> None:
        super().__init__(load, PolicySet(wait=Choice("never"), backfill=Choice(backfill)))
        for name in busy:
            self.agent(name, queue=queue)
        for name in busy:
            self.submit(a_job(f"warm-{name}"))
        for name in busy:
            self.start(f"warm-{name}")
            self.finish(f"warm-{name}", ran=0.01)

    def hand_out(self, *jobs: JobBuilder) -> None:
        """Give the agents more than they have room for, and let the first ones run for a while."""
        for job in jobs:
            self.submit(job)
        for node in self.state.nodes.values():
            for each in list(node.holding):
                self.start(each)
        self.now += SECOND
        self.engine.step(self.now)

    def chosen(self, seed: int = 0, **more: object) -> list[tuple[str, str, str]]:
        """Job, from whom and for whom."""
        asked = choose(self.state, self.engine.index, self.now, seed, **more)  # type: ignore[arg-type]
        return [(ask.lease.job, ask.node, ask.thief) for ask in asked]


def jobs(count: int) -> list[JobBuilder]:
    return [a_job(f"j{number}") for number in range(count)]


def test_nobody_asks_while_there_is_no_backlog_or_nobody_idle() -> None:
    lab = Lab("busy")
    lab.hand_out(*jobs(6))
    assert lab.chosen() == []
    lab = Lab("one", "two")
    lab.hand_out(*jobs(2))
    assert lab.chosen() == []


def test_the_idle_ask_for_what_would_wait_the_longest_as_much_as_they_have_room_for() -> None:
    lab = Lab("busy")
    lab.hand_out(*jobs(6))
    lab.agent("idle", cpus=2)
    assert lab.chosen() == [("j5", "busy", "idle"), ("j4", "busy", "idle")]


def test_at_most_half_is_asked_for_and_never_what_starts_next() -> None:
    lab = Lab("busy")
    lab.hand_out(*jobs(6))
    lab.agent("idle", cpus=16)
    assert [job for job, _, _ in lab.chosen()] == ["j5", "j4"], "of the five that wait"
    lab = Lab("busy")
    lab.hand_out(*jobs(2))
    lab.agent("idle", cpus=16)
    assert lab.chosen() == [], "the only one that waits starts next"


def test_what_was_asked_for_counts_until_it_is_answered() -> None:
    lab = Lab("busy")
    lab.hand_out(*jobs(6))
    lab.agent("idle", cpus=1)
    (ask,) = choose(lab.state, lab.engine.index, lab.now, 0)
    lab.propose(ask)
    assert lab.chosen() == [], "its room is spoken for"
    lab.agent("other", cpus=8)
    assert lab.chosen() == [("j4", "busy", "other")], "half of five, and one was asked for"


def test_nobody_asks_for_what_starts_before_it_could_be_moved() -> None:
    lab = Lab("busy")
    lab.submit(*jobs(6))
    lab.start("j0")
    lab.now += MOVING // 100
    lab.agent("idle", cpus=2)
    quick = [job for job, _, _ in lab.chosen()]
    assert quick == ["j5", "j4"], "each takes ten milliseconds"
    assert lab.chosen(carrying=lambda _: SECOND) == []


def test_spared_jobs_and_those_that_do_not_fit_are_left_out() -> None:
    lab = Lab("busy")
    lab.agent("idle", cpus=1)
    lab.propose(Drain(LAB, NodeName("idle"), "ada"))
    lab.agent("busy", cpus=1, queue=8, offers=("gpu:a",))
    lab.hand_out(*jobs(3), a_job("needs").needing("gpu:a"), *[a_job(f"k{at}") for at in range(3)])
    lab.propose(Drain(LAB, NodeName("busy"), "ada"))
    assert lab.chosen() == []
    lab = Lab("busy")
    lab.hand_out(*jobs(6))
    lab.agent("idle", cpus=1)
    assert lab.chosen(spared=frozenset({JobId("j5")})) == [("j4", "busy", "idle")]
    lab = Lab("busy")
    lab.agent("busy", cpus=1, queue=8, offers=("gpu:a",))
    lab.hand_out(*[a_job(f"j{at}").needing("gpu:a") for at in range(6)])
    lab.agent("idle", cpus=1)
    assert lab.chosen() == []


def test_jobs_that_are_to_be_stopped_stay() -> None:
    lab = Lab("busy")
    lab.hand_out(*jobs(6))
    lab.cancel("j5")
    lab.agent("idle", cpus=1)
    assert lab.chosen() == [("j4", "busy", "idle")]


@pytest.mark.parametrize("state", ["draining", "lost"])
def test_agents_that_may_not_work_neither_ask_nor_are_asked(state: str) -> None:
    lab = Lab("busy")
    lab.hand_out(*jobs(6))
    lab.agent("idle", cpus=1)
    lab.state.nodes["onprem/idle"].status = state
    assert lab.chosen() == []
    lab.state.nodes["onprem/idle"].status = "ready"
    lab.state.nodes["onprem/busy"].status = state
    assert lab.chosen() == []


def test_what_is_queued_comes_before_what_others_hold() -> None:
    lab = Lab("busy", queue=4, backfill="strict")
    lab.hand_out(*jobs(4), a_job("huge").cpus(4), a_job("small"))
    lab.agent("idle", cpus=1)
    assert lab.state_of("small") == "QUEUED"
    assert lab.chosen() == [], "the head of the queue may need the room"


def test_the_longest_backlog_of_those_drawn_is_asked_first() -> None:
    lab = Lab("one", "two")
    lab.hand_out(*[a_job(f"j{at}").terms(estimate=SECOND if at % 2 else 9 * SECOND) for at in range(10)])
    by_node = {str(node.name): node for node in lab.state.nodes.values()}
    assert len(by_node["one"].ahead) == len(by_node["two"].ahead) == 4
    lab.agent("idle", cpus=1)
    asked = {lab.chosen(seed)[0][1] for seed in range(20)}
    assert len(asked) == 1, "both are drawn, and one of them has more to do"


def test_the_same_seed_asks_for_the_same() -> None:
    names = [f"n{at}" for at in range(8)]
    lab = Lab(*names)
    lab.hand_out(*jobs(40))
    for at in range(3):
        lab.agent(f"idle{at}", cpus=1)
    first = [lab.chosen(seed) for seed in range(10)]
    assert first == [lab.chosen(seed) for seed in range(10)]
    assert len({tuple(each) for each in first}) > 1
    for asked in first:
        assert len({job for job, _, _ in asked}) == len(asked) == 3


def test_all_that_is_chosen_is_granted() -> None:
    lab = Lab("one", "two")
    lab.hand_out(*jobs(14))
    lab.agent("idle", cpus=3)
    asks = choose(lab.state, lab.engine.index, lab.now, 3)
    assert asks
    for ask in asks:
        assert isinstance(ask, AskSteal)
        lab.propose(ask)
        phase = lab.job(ask.lease.job).phase
        assert getattr(phase, "thief", None) == "idle"


def test_an_agent_whose_tasks_are_short_takes_some_ahead_of_room_while_they_start_sooner_there() -> None:
    lab = Lab("busy", queue=9)
    lab.agent("idle", queue=9)
    lab.submit(a_job("once"), a_job("more"))
    for name in ("once", "more"):
        lab.start(name)
        lab.finish(name, ran=0.01)
    lab.propose(Drain(LAB, NodeName("idle"), "ada"))
    lab.hand_out(*jobs(10))
    lab.propose(Resume(LAB, NodeName("idle"), "ada"))
    assert [job for job, _, _ in lab.chosen()] == ["j9", "j8", "j7", "j6"], "half of nine"
    lab.state.nodes["onprem/idle"].queue = 2
    assert [job for job, _, _ in lab.chosen()] == ["j9", "j8", "j7"], "one runs, and two wait"
    for ask in choose(lab.state, lab.engine.index, lab.now, 0):
        lab.propose(ask)
        lab.propose(Yielded(NodeKey("onprem/busy"), ask.lease, Yield.RELEASED))
    node = lab.state.nodes["onprem/idle"]
    assert (list(node.holding), list(node.ahead)) == (["j9"], ["j8", "j7"])
