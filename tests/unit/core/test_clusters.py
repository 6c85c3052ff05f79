"""Clusters come, change, drain and go while jobs run; the index is not built anew for that."""

import msgspec
import pytest
from msgspec.structs import replace

from spillover.core.events import (
    ClusterAdded,
    ClusterRemoved,
    ClusterResumed,
    ClustersConfigured,
    ClusterUpdated,
    EpochStarted,
    Identified,
    JobState,
    SeenNode,
)
from spillover.core.proposals import (
    AddCluster,
    ClearedCluster,
    DrainCluster,
    OpenedCluster,
    Outcome,
    Proposal,
    Refusal,
    RefusalKind,
    RemoveCluster,
    ResumeCluster,
    SeeCluster,
    SeeNodes,
    StartEpoch,
    UpdateCluster,
)
from spillover.core.state import State
from spillover.deciding.explain.explain import explain
from spillover.model.cluster import ClusterHealth, ClusterLife, ClusterSpec, Leave, Price, Role
from spillover.model.ids import ClusterName, NodeName
from spillover.model.policy import Choice, PolicySet
from spillover.model.reasons import ClusterDrained
from spillover.model.resources import Resources
from spillover.model.units import MINUTE
from spillover.model.where import Where
from spillover.policies.loading import load
from spillover.testing.builders import a_job
from spillover.testing.world import OWNED, RENTED, World
from spillover.wire.journal import changed_records, load_state
from tests.support.sameness import Checkpoints, said_by

ONPREM, LAB, CLOUD = OWNED.name, ClusterName("lab"), RENTED.name
AGENTS = ClusterSpec(LAB, "agents", Role.OWNED)
KUBERNETES = ClusterSpec(LAB, "kubernetes", Role.OWNED, gangs=True, runs=("command",))
L = ClusterLife


@pytest.fixture
def w() -> World:
    """A cluster with a full machine, and a rented one."""
    world = World(load, PolicySet(wait=Choice("never")))
    world.agent("n1")
    world.submit(a_job("busy"))
    return world


def life(world: World, name: ClusterName = LAB) -> ClusterLife:
    return world.state.lives[name].life


def refusal(world: World, proposal: Proposal) -> Refusal:
    before = len(world.events)
    reply = world.propose(proposal)
    assert isinstance(reply, Refusal)
    assert len(world.events) == before
    return reply


def add(world: World, spec: ClusterSpec = AGENTS) -> None:
    world.propose(AddCluster(spec, "ada", '{"name": "lab"}'))
    world.propose(OpenedCluster(spec.name))


def test_a_cluster_of_agents_is_added_and_runs_jobs(w: World) -> None:
    w.submit(a_job("next"))
    w.propose(AddCluster(AGENTS, "ada", '{"name": "lab"}'))
    w.agent("m1", cluster="lab")
    assert life(w) is L.REQUESTED
    assert w.state_of("next") is JobState.QUEUED, "nothing is placed before it is open"
    w.propose(OpenedCluster(LAB))
    assert life(w) is L.READY
    assert w.state_of("next") is JobState.PLACED
    assert [spec.name for spec in w.state.facts.clusters] == [ONPREM, CLOUD, LAB]


def test_a_cluster_of_others_connects_first_and_may_be_unreachable(w: World) -> None:
    w.propose(AddCluster(KUBERNETES, "ada", "{}", identity="abc"))
    assert any(isinstance(each, Identified) for each in w.events)
    w.propose(OpenedCluster(LAB))
    assert life(w) is L.CONNECTING
    seen = SeenNode(NodeName("e1"), Resources(1000, 2**40), Resources())
    w.propose(SeeNodes(LAB, (seen,), whole=True))
    w.submit(a_job("next"))
    assert w.state_of("next") is JobState.QUEUED
    w.propose(SeeCluster(LAB, ClusterHealth.READY, ""))
    assert (life(w), w.state_of("next")) == (L.READY, JobState.PLACED)
    w.propose(SeeCluster(LAB, ClusterHealth.DEGRADED, "no answer"))
    assert life(w) is L.UNREACHABLE
    w.propose(DrainCluster(LAB, "ada"))
    w.propose(SeeCluster(LAB, ClusterHealth.READY, ""))
    assert life(w) is L.DRAINING
    w.propose(ResumeCluster(LAB, "ada"))
    assert life(w) is L.READY


def test_a_drained_cluster_runs_on_and_takes_nothing_more_until_it_is_resumed(w: World) -> None:
    w.propose(DrainCluster(ONPREM, "ada"))
    w.start("busy")
    w.submit(a_job("next"))
    w.finish("busy")
    assert (w.state_of("busy"), w.state_of("next")) == (JobState.SUCCEEDED, JobState.QUEUED)
    why = explain(w.engine, w.job("next")).reason
    assert why == ClusterDrained(ONPREM, "ada")
    assert str(why).startswith("onprem was drained by ada; resume it with `spill clusters resume onprem`")
    w.propose(StartEpoch(2, (OWNED, RENTED), w.state.policies.configured))
    w.agent("n1")
    assert (life(w, ONPREM), w.state_of("next")) == (L.DRAINING, JobState.QUEUED), "a restart resumes nothing"
    w.propose(ResumeCluster(ONPREM, "ada"))
    assert (life(w, ONPREM), w.state_of("next")) == (L.READY, JobState.PLACED)


def test_what_a_removed_cluster_runs_is_finished_first(w: World) -> None:
    add(w)
    w.agent("m1", cluster="lab")
    w.submit(a_job("there"))
    w.start("there")
    w.propose(RemoveCluster(LAB, "ada"))
    w.propose(ClearedCluster(LAB))
    assert (life(w), w.state.lives[LAB].leaving) == (L.DRAINING, Leave.FINISH)
    w.finish("there")
    w.propose(ClearedCluster(LAB))
    assert LAB not in w.state.clusters
    assert LAB not in w.state.lives
    assert not [node for node in w.state.nodes.values() if node.cluster == LAB]
    assert w.state_of("there") is JobState.SUCCEEDED


def test_or_moved(w: World) -> None:
    add(w)
    w.agent("m1", cluster="lab")
    w.submit(a_job("there"))
    w.start("there")
    w.propose(RemoveCluster(LAB, "ada"))
    w.propose(RemoveCluster(LAB, "ada", Leave.MOVE))
    w.finish("there", outcome=Outcome.STOPPED)
    assert (w.state_of("there"), w.job("there").attempt) == (JobState.QUEUED, 2)
    w.propose(ClearedCluster(LAB))
    assert LAB not in w.state.clusters


def test_or_cancelled(w: World) -> None:
    add(w)
    w.agent("m1", cluster="lab")
    w.submit(a_job("there"))
    w.start("there")
    w.propose(RemoveCluster(LAB, "ada", Leave.CANCEL))
    w.finish("there", outcome=Outcome.STOPPED)
    assert w.state_of("there") is JobState.CANCELLED
    w.propose(ClearedCluster(LAB))
    assert LAB not in w.state.clusters
    assert w.state_of("busy") is JobState.PLACED


def test_one_on_which_nothing_runs_is_gone_at_once(w: World) -> None:
    add(w)
    w.propose(RemoveCluster(LAB, "ada"))
    assert isinstance(w.events[-1], ClusterRemoved)
    add(w)
    assert life(w) is L.READY


def test_a_removal_is_taken_back_by_resuming_it(w: World) -> None:
    add(w)
    w.agent("m1", cluster="lab")
    w.submit(a_job("there"))
    w.propose(RemoveCluster(LAB, "ada"))
    w.propose(ResumeCluster(LAB, "ada"))
    w.finish("there")
    w.propose(ClearedCluster(LAB))
    assert (life(w), w.state.lives[LAB].leaving) == (L.READY, None)


def test_what_makes_no_sense_is_refused(w: World) -> None:
    nowhere = ClusterName("nowhere")
    for proposal in (
        DrainCluster(nowhere, "ada"),
        ResumeCluster(nowhere, "ada"),
        RemoveCluster(nowhere, "ada"),
        UpdateCluster(replace(AGENTS, name=nowhere), "ada"),
    ):
        unknown = refusal(w, proposal)
        assert (unknown.kind, unknown.message) == (
            RefusalKind.UNKNOWN,
            "there is no cluster 'nowhere'; known clusters: onprem, cloud",
        )
    named = refusal(w, AddCluster(OWNED, "ada", "{}"))
    assert named.message == "cluster 'onprem' already exists; change it in the configuration"
    assert "'onprem' belongs to the configuration" in refusal(w, RemoveCluster(ONPREM, "ada")).message
    add(w)
    assert refusal(w, AddCluster(AGENTS, "ada", "{}")).message.endswith("; remove it first")
    assert "is a cluster of kind agents" in refusal(w, UpdateCluster(KUBERNETES, "ada", "{}")).message
    w.agent("m1", cluster="lab")
    w.submit(a_job("there"))
    w.propose(RemoveCluster(LAB, "ada"))
    assert "it is being removed" in refusal(w, AddCluster(AGENTS, "ada", "{}")).message


def test_what_is_asked_twice_happens_once(w: World) -> None:
    add(w)
    w.propose(DrainCluster(LAB, "ada"))
    before = len(w.events)
    w.step(DrainCluster(LAB, "bob"), OpenedCluster(LAB), ClearedCluster(LAB), ResumeCluster(ONPREM, "ada"))
    assert len(w.events) == before


def test_a_job_pays_what_its_cluster_cost_when_it_was_placed(w: World) -> None:
    rented = replace(AGENTS, role=Role.RENTED, price=Price(cpu_hour=3_600_000_000))
    add(w, rented)
    w.agent("m1", cluster="lab")
    w.submit(a_job("there").where(Where(clusters=("lab",))))
    w.start("there")
    w.propose(UpdateCluster(replace(rented, price=Price(cpu_hour=1)), "ada", "{}"))
    w.now += MINUTE
    w.finish("there")
    assert w.job("there").cost == 1_000_000, "of the second that it says it ran"


def test_one_that_was_added_survives_a_restart_and_a_configuration_that_names_it_has_its_way(
    w: World,
) -> None:
    add(w)
    w.propose(StartEpoch(2, (OWNED, RENTED), w.state.policies.configured))
    assert [spec.name for spec in w.state.facts.clusters] == [ONPREM, CLOUD, LAB]
    assert w.state.lives[LAB].form == '{"name": "lab"}'
    labelled = replace(AGENTS, labels={"a": "b"})
    w.propose(StartEpoch(3, (OWNED, labelled, RENTED), w.state.policies.configured))
    assert [spec.name for spec in w.state.facts.clusters] == [ONPREM, LAB, CLOUD]
    assert (w.state.lives[LAB].form, w.state.clusters[LAB]) == ("", labelled)
    w.propose(StartEpoch(4, (OWNED, RENTED), w.state.policies.configured))
    assert [spec.name for spec in w.state.facts.clusters] == [ONPREM, CLOUD]


def test_one_that_is_being_removed_and_is_configured_again_stays(w: World) -> None:
    w.start("busy")
    w.propose(RemoveCluster(ONPREM, "ada", form='{"name": "onprem"}'))
    w.propose(StartEpoch(2, (RENTED,), w.state.policies.configured))
    assert [spec.name for spec in w.state.facts.clusters] == [CLOUD, ONPREM]
    w.propose(StartEpoch(3, (OWNED, RENTED), w.state.policies.configured))
    assert [type(each) for each in w.events[-4:]] == [
        EpochStarted,
        ClustersConfigured,
        ClusterResumed,
        ClusterUpdated,
    ]
    assert life(w, ONPREM) is L.READY


def test_the_index_takes_a_cluster_in_and_lets_it_go_without_being_built_anew(w: World) -> None:
    w.submit(a_job("huge").cpus(8), a_job("big").cpus(4), a_job("small"))
    index = w.engine.index
    lanes, queue, capacity = dict(index.lanes), index.queue, dict(index.capacity)
    huge = index.lane_of(w.job("huge"))
    waiting = queue.heaps[huge]
    assert len(lanes) == 3
    add(w)
    w.agent("m1", cluster="lab", cpus=4)
    w.propose(DrainCluster(LAB, "ada"))
    w.propose(ResumeCluster(LAB, "ada"))
    w.propose(UpdateCluster(replace(AGENTS, labels={"a": "b"}), "ada", "{}"))
    assert index.capacity[LAB].spec.labels == {"a": "b"}
    w.propose(RemoveCluster(LAB, "ada", Leave.MOVE))
    for name in ("big", "small"):
        if w.state_of(name) is JobState.PLACED:
            w.finish(name, outcome=Outcome.STOPPED)
    w.propose(ClearedCluster(LAB))
    assert LAB not in w.state.clusters
    assert w.engine.index is index
    assert index.queue is queue
    assert all(index.lanes[kind] is lane for kind, lane in lanes.items())
    assert queue.heaps[huge] is waiting
    assert index.capacity == capacity
    assert all(index.capacity[name] is each for name, each in capacity.items())


def test_the_first_rented_cluster_gives_everybody_a_new_wait() -> None:
    w = World(load, PolicySet(wait=Choice("constant", {"wait": MINUTE})), (OWNED,))
    w.agent("n1")
    w.submit(a_job("busy"), a_job("next"))
    before, index = w.state.facts.rounds, w.engine.index
    w.propose(AddCluster(RENTED, "ada", "{}"))
    (added,) = w.happened(ClusterAdded)
    assert added.anew
    assert w.state.facts.rounds == before + 1
    assert w.engine.index is not index
    w.propose(OpenedCluster(CLOUD))
    w.agent("v1", cluster="cloud")
    w.wait(seconds=61)
    assert w.state_of("next") is JobState.PLACED


def test_so_does_one_that_only_jobs_which_ask_for_it_could_use() -> None:
    w = World(load, PolicySet(wait=Choice("never")))
    w.submit(a_job("picky").where(Where(clusters=("lab",))))
    w.propose(AddCluster(replace(AGENTS, role=Role.RENTED), "ada", "{}"))
    w.propose(OpenedCluster(LAB))
    w.agent("m1", cluster="lab")
    assert w.state_of("picky") is JobState.PLACED


def test_a_checkpoint_keeps_lives_and_one_that_knew_none_gives_them(w: World) -> None:
    add(w, KUBERNETES)
    w.propose(DrainCluster(ONPREM, "ada"))
    checkpoints = Checkpoints()
    checkpoints.write(w.state)
    assert said_by(checkpoints.load()) == said_by(w.state)
    old = State()
    old.facts = msgspec.convert(msgspec.to_builtins(w.state.facts), type(w.state.facts))
    records = changed_records(old, {"facts": {"": None}})
    loaded = load_state([(kind, key, body) for (kind, key), body in records.items() if body is not None])
    assert [each.life for each in loaded.lives.values()] == [L.READY, L.READY, L.CONNECTING]
