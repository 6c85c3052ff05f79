"""Agents in the state: which leases they hold, which are lost, and which may be forgotten."""

from spillover.core.events import JobState, Usage
from spillover.core.proposals import (
    AgentGone,
    Done,
    Forget,
    HandBack,
    Outcome,
    Reclaim,
    Refusal,
    Result,
    Started,
    StartEpoch,
    Verdict,
)
from spillover.model.ids import ClusterName, NodeKey, NodeName
from spillover.policies.loading import load
from spillover.testing.builders import a_job
from spillover.testing.world import World
from tests.support.sameness import Checkpoints

LAB, N1 = ClusterName("onprem"), NodeName("n1")


def test_an_agent_that_moves_to_another_cluster_under_its_name_keeps_no_lease_of_the_first() -> None:
    w = World(load)
    w.agent("n1")
    w.submit(a_job("a"))
    lease = w.job("a").lease
    assert w.agent("n1", cluster="cloud", held=(lease,)) == ()
    moved = NodeKey("cloud/n1")
    assert isinstance(w.propose(Started(moved, lease, 0)), Refusal)
    assert w.propose(Result(moved, lease, Outcome.EXITED, 0, None, Usage(), 0)) is Verdict.FENCED
    w.propose(HandBack(moved, (lease,)))
    w.propose(Reclaim(moved, (lease,)))
    assert (w.state_of("a"), w.job("a").lease) == (JobState.PLACED, lease)
    assert w.propose(Started(NodeKey("onprem/n1"), lease, 0)) == Done()


def test_an_agent_that_did_not_come_back_after_a_restart_can_be_forgotten() -> None:
    w = World(load)
    w.agent("n1")
    w.agent("n2")
    w.propose(StartEpoch(2, w.state.facts.clusters, w.state.facts.policies))
    w.agent("n2")
    assert w.state.agents["onprem/n1"].status == "unobserved"
    assert w.propose(Forget(LAB, N1, "ada")) == Done()
    assert list(w.state.agents) == ["onprem/n2"]
    assert isinstance(w.propose(Forget(LAB, NodeName("n2"), "ada")), Refusal)


def test_work_goes_on_beside_an_agent_that_is_forgotten_and_comes_back() -> None:
    w = World(load)
    w.agent("n1")
    w.agent("n2")
    w.propose(AgentGone(LAB, N1, w.state.agents["onprem/n1"].incarnation))
    w.propose(Forget(LAB, N1, "ada"))
    w.submit(a_job("a"))
    assert w.where("a") == "onprem/n2"
    w.agent("n1", cpus=64)
    w.submit(a_job("big").cpus(64))
    assert w.where("big") == "onprem/n1"


def test_since_when_an_agent_is_lost_outlives_a_restart_from_a_checkpoint() -> None:
    w = World(load)
    w.agent("n1")
    w.wait(seconds=60)
    w.propose(AgentGone(LAB, N1, w.state.agents["onprem/n1"].incarnation))
    missed = w.state.agents["onprem/n1"].missed
    assert missed == w.state.steady(w.now)
    w.wait(seconds=60)
    checkpoints = Checkpoints()
    checkpoints.write(w.state)
    again = checkpoints.load()
    assert (again.agents["onprem/n1"].missed, again.lost) == (missed, 1)
    w.agent("n1")
    assert (w.state.agents["onprem/n1"].missed, w.state.lost) == (None, 0)
