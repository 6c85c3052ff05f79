"""External clusters: their nodes, their health, and where tasks are bound."""

from msgspec.structs import replace

from spillover.core.events import (
    Back,
    BackoffEnded,
    ClusterChanged,
    JobEnded,
    JobRequeued,
    JobState,
    Lease,
    NodesSeen,
    SeenNode,
    TasksBound,
    Usage,
)
from spillover.core.proposals import (
    DRIVER,
    AgentGone,
    Done,
    Drain,
    Forget,
    HandBack,
    Outcome,
    Refusal,
    Register,
    Reply,
    Result,
    Resume,
    SeeBound,
    SeeCluster,
    SeeNodes,
    Started,
    StartEpoch,
    Verdict,
)
from spillover.core.records.jobs import Running
from spillover.deciding.explain.explain import explain
from spillover.model.cluster import ClusterHealth, ClusterSpec, Price, Role, Taint
from spillover.model.ids import ClusterName, JobId, NodeKey, NodeName
from spillover.model.job import OnFailure, Retry, Terms
from spillover.model.policy import Choice, PolicySet
from spillover.model.reasons import (
    AtLimit,
    BackingOff,
    CancelledBy,
    ClusterDown,
    ClusterFailed,
    LostTooOften,
    NoNodeReady,
    NoRoom,
    Reason,
)
from spillover.model.resources import Resources
from spillover.model.units import SECOND
from spillover.policies.loading import load
from spillover.testing.builders import JobBuilder, a_job
from spillover.testing.world import World
from tests.support.sameness import Checkpoints, said_by

ONPREM = ClusterSpec(ClusterName("onprem"), "kubernetes", Role.OWNED, gangs=True)
CLOUD = ClusterSpec(ClusterName("cloud"), "kubernetes", Role.RENTED, Price(3_600_000), gangs=True)
NOTHING = Resources()


class Watched(World):
    """Two external clusters."""

    def __init__(
        self, wait: str = "never", clusters: tuple[ClusterSpec, ...] = (ONPREM, CLOUD), **options: float
    ) -> None:
        super().__init__(load, PolicySet(wait=Choice(wait, {**options})), clusters)

    def see(self, *nodes: SeenNode, cluster: str = "onprem", gone: str = "", whole: bool = False) -> Reply:
        names = tuple(NodeName(name) for name in gone.split())
        return self.propose(SeeNodes(ClusterName(cluster), nodes, names, whole))

    def healthy(
        self, health: ClusterHealth = ClusterHealth.READY, why: str = "", cluster: str = "onprem"
    ) -> Reply:
        return self.propose(SeeCluster(ClusterName(cluster), health, why))

    def fails(self, *unsent: str, why: str = "it does not answer") -> Reply:
        leases = tuple(self.job(job).lease for job in unsent)
        return self.propose(SeeCluster(ONPREM.name, ClusterHealth.FAILED, why, leases))

    def bound(self, job: str, *nodes: str) -> Reply:
        names = tuple(NodeName(node) for node in nodes)
        return self.propose(SeeBound(ONPREM.name, (self.job(job).lease,), (names,)))

    def back(self, job: str, because: str = "", *, backoff: float = 0) -> Reply:
        return self.propose(HandBack(DRIVER, (self.job(job).lease,), because, int(backoff * SECOND)))

    def used(self, node: str, cluster: str = "onprem") -> int:
        """Thousandths of a CPU that the book holds on a node."""
        return self.state.nodes[f"{cluster}/{node}"].used.cpu

    def why(self, job: str) -> Reason | None:
        return explain(self.engine, self.job(job)).reason

    def last(self, kind: type) -> object:
        return list(self.happened(kind))[-1]


def a_node(
    name: str,
    cpus: float = 2,
    *,
    foreign: float = 0,
    tasks: int = -1,
    ready: bool = True,
    labels: dict[str, str] | None = None,
) -> SeenNode:
    used = Resources(int(foreign * 1000))
    return SeenNode(
        NodeName(name), Resources(int(cpus * 1000), 2**40), used, tasks, (), labels or {}, (), ready
    )


def a_watched(*nodes: SeenNode) -> Watched:
    w = Watched()
    w.see(*nodes, whole=True)
    w.healthy()
    return w


def on_failure(job: JobBuilder, what: OnFailure, lost: int = 3) -> JobBuilder:
    job._terms = replace(job._terms, on_cluster_failure=what, retry=Retry(lost=lost))
    return job


# --- nodes


def test_jobs_are_placed_on_nodes_that_were_seen_once_their_cluster_is_ready() -> None:
    w = Watched()
    w.submit(a_job("a"))
    w.see(a_node("n1"), whole=True)
    assert w.where("a") is None
    w.healthy()
    assert w.where("a") == "onprem/n1"


def test_what_others_use_is_no_room_and_what_they_leave_is() -> None:
    w = a_watched(a_node("n1", 2, foreign=1.5))
    w.submit(a_job("a"))
    assert w.where("a") is None
    assert isinstance(w.why("a"), NoRoom)
    w.see(a_node("n1", 2, foreign=1))
    assert w.where("a") == "onprem/n1"
    w.submit(a_job("b"))
    assert w.where("b") is None


def test_a_node_takes_no_more_tasks_than_it_has_places_for() -> None:
    w = a_watched(a_node("n1", 8, tasks=2))
    w.submit(a_job("a"), a_job("b"), a_job("c"))
    assert w.placed() == ["a", "b"]
    w.finish("a")
    assert w.placed() == ["b", "c"]
    w.see(a_node("n1", 8, tasks=3))
    w.submit(a_job("d"))
    assert w.where("d") == "onprem/n1"
    w.see(a_node("n1", 8, tasks=1))
    w.finish("b")
    w.submit(a_job("e"))
    assert w.where("e") is None, "two of its tasks are there, and it takes one"


def test_a_job_that_waits_for_a_place_is_told_of_the_limit_of_tasks_and_not_of_cpus() -> None:
    w = a_watched(a_node("n1", 8, tasks=2), a_node("n2", 1, tasks=5))
    w.submit(a_job("a").cpus(2), a_job("b").cpus(2), a_job("c").cpus(2))
    assert w.why("c") == AtLimit(ONPREM.name, "tasks", 2, 2)
    assert str(w.why("c")) == "nodes of onprem with room for it take at most 2 tasks (2 tasks there)"
    w.submit(a_job("d").cpus(5))
    assert isinstance(w.why("d"), NoRoom), "CPUs are missing too"
    w.submit(a_job("g").cpus(1).tasks(3))
    assert w.why("g") == AtLimit(ONPREM.name, "tasks", 2, 2), "the other node has places left"
    w.see(a_node("n1", 8, tasks=0))
    assert str(w.why("c")) == "nodes of onprem with room for it take at most 0 tasks (2 tasks there)"


def test_a_cluster_that_gave_a_job_back_is_told_before_its_limit_of_tasks() -> None:
    w = a_watched(a_node("n1", 8, tasks=1))
    w.submit(a_job("a"))
    w.back("a", backoff=60)
    w.submit(a_job("b"))
    assert isinstance(w.why("a"), BackingOff)


def test_the_tasks_of_a_gang_take_a_place_each() -> None:
    w = a_watched(a_node("n1", 8, tasks=2), a_node("n2", 8, tasks=2))
    w.submit(a_job("g").tasks(3))
    assert [task.node for task in w.job("g").tasks] == ["n1", "n1", "n2"]
    w.submit(a_job("h").tasks(2))
    assert w.where("h") is None
    w.submit(a_job("one"))
    assert w.where("one") == "onprem/n2"
    w.finish("g")
    assert w.placed() == ["h", "one"]


def test_only_what_differs_is_written_down() -> None:
    n1, n2 = a_node("n1", labels={"zone": "a"}), a_node("n2")
    w = a_watched(n1, n2)
    before = len(w.events)
    assert w.see(n1, n2, whole=True) == Done()
    assert w.see(n1) == Done()
    assert len(w.events) == before
    w.see(replace(n1, foreign=Resources(100)), n2)
    seen = w.last(NodesSeen)
    assert isinstance(seen, NodesSeen)
    assert (seen.nodes, [use.name for use in seen.used], seen.same, seen.gone) == ((), ["n1"], (), ())
    tainted = replace(n2, taints=(Taint("gpu", "", "NoSchedule"),))
    w.see(tainted)
    seen = w.last(NodesSeen)
    assert isinstance(seen, NodesSeen)
    assert seen.nodes == (tainted,)
    assert w.state.nodes["onprem/n2"].taints == tainted.taints


def test_a_cordoned_node_is_given_nothing_until_it_is_open_again() -> None:
    w = a_watched(a_node("n1"))
    w.submit(a_job("a"))
    w.see(a_node("n1", ready=False))
    w.submit(a_job("b"))
    assert (w.where("a"), w.where("b")) == ("onprem/n1", None)
    assert w.why("b") == NoNodeReady((ONPREM.name,))
    w.see(a_node("n1"))
    assert w.where("b") == "onprem/n1"


def test_a_node_that_is_gone_leaves_the_book_with_the_last_of_our_tasks() -> None:
    w = a_watched(a_node("n1"), a_node("n2"))
    w.submit(a_job("a").cpus(2))
    w.see(gone="n1 n2 n3")
    assert list(w.state.nodes) == ["onprem/n1"]
    w.submit(a_job("b"))
    assert w.where("b") is None
    w.propose(Result(DRIVER, w.job("a").lease, Outcome.LOST, None, None, Usage(), 0, "its node is gone"))
    assert not w.state.nodes
    assert w.state_of("a") is JobState.QUEUED
    w.see(a_node("n1", 3))
    assert w.placed() == ["a", "b"]


def test_nodes_that_a_whole_list_does_not_name_are_gone() -> None:
    w = a_watched(a_node("n1"), a_node("n2"))
    w.see(a_node("n2"), whole=True)
    assert list(w.state.nodes) == ["onprem/n2"]


def test_a_node_of_a_name_that_was_there_before_is_another_one() -> None:
    w = a_watched(a_node("n1"), a_node("n2"))
    w.step(
        SeeNodes(ONPREM.name, (), (NodeName("n1"),)),
        SeeNodes(ONPREM.name, (a_node("n1"),)),
    )
    w.submit(a_job("a"))
    assert w.where("a") == "onprem/n2", "the other one is the first now"


def test_after_a_restart_nothing_is_placed_before_it_was_seen_and_little_is_written() -> None:
    nodes = a_node("n1", labels={"zone": "a"}), a_node("n2"), a_node("n3"), a_node("n4", ready=False)
    w = a_watched(*nodes)
    w.propose(StartEpoch(2, (ONPREM, CLOUD), w.state.facts.policies))
    w.submit(a_job("a"))
    assert w.state.health(ONPREM.name) is ClusterHealth.UNOBSERVED
    assert {node.status for node in w.state.nodes.values()} == {"unobserved"}
    w.healthy()
    assert w.where("a") is None
    w.see(nodes[0], replace(nodes[1], foreign=Resources(500)), nodes[3], whole=True)
    seen = w.last(NodesSeen)
    assert isinstance(seen, NodesSeen)
    assert ([each.name for each in seen.nodes], [each.name for each in seen.used]) == (["n4"], ["n2"])
    assert (seen.same, seen.gone) == (("n1",), ("n3",))
    assert [node.status for node in w.state.nodes.values()] == ["ready", "ready", "closed"]
    assert w.where("a") == "onprem/n2", "where less is free"


def test_nodes_of_a_cluster_that_is_not_configured_any_more_are_forgotten() -> None:
    w = a_watched(a_node("n1"), a_node("n2"))
    w.submit(a_job("a"))
    w.propose(StartEpoch(2, (CLOUD,), w.state.facts.policies))
    assert [(key, node.status) for key, node in w.state.nodes.items()] == [("onprem/n1", "gone")]
    assert not w.state.conditions
    w.propose(StartEpoch(3, (ONPREM, CLOUD), w.state.facts.policies))
    w.see(a_node("n1"), whole=True)
    assert w.state.nodes["onprem/n1"].status == "ready"
    assert w.used("n1") == 1000


def test_nobody_else_speaks_for_such_nodes_and_nothing_is_seen_of_agents() -> None:
    agents = ClusterSpec(ClusterName("requests"), "agents", Role.OWNED)
    w = Watched(clusters=(ONPREM, agents))
    w.see(a_node("n1"), whole=True)
    onprem, n1 = ONPREM.name, NodeName("n1")
    for proposal in (Drain(onprem, n1, "ada"), Resume(onprem, n1, "ada"), Forget(onprem, n1, "ada")):
        refused = w.propose(proposal)
        assert isinstance(refused, Refusal)
        assert "a node of an external cluster" in refused.message
    assert isinstance(w.propose(Register(onprem, n1, 1, NOTHING, (), {}, 0, ())), Refusal)
    assert w.propose(AgentGone(onprem, n1, 0)) == Done()
    assert w.state.nodes["onprem/n1"].status == "ready"
    for refused in (
        w.see(a_node("n1"), cluster="requests"),
        w.healthy(cluster="requests"),
        w.healthy(cluster="moon"),
    ):
        assert isinstance(refused, Refusal)
    assert w.agent("n1", cluster="requests") == (), "a name is taken only within its cluster"


def test_a_cluster_of_agents_that_others_run_from_now_on_has_their_nodes_and_no_agents() -> None:
    agents = ClusterSpec(ONPREM.name, "agents", Role.OWNED)
    w = Watched(clusters=(agents, CLOUD))
    for name in ("n1", "n2", "n3"):
        w.agent(name)
    w.submit(a_job("a"))
    assert w.where("a") == "onprem/n1"
    w.propose(StartEpoch(2, (ONPREM, CLOUD), w.state.facts.policies))
    w.see(a_node("n1"), a_node("n2"), whole=True)
    w.healthy()
    assert [(key, node.is_agent) for key, node in w.state.nodes.items()] == [
        ("onprem/n1", True),
        ("onprem/n2", False),
    ], "an agent that jobs are on is known until they are not"
    assert list(w.state.agents) == ["onprem/n1"]
    assert w.bound("a", "n2") == Done()
    assert w.where("a") == "onprem/n1"
    w.finish("a")
    w.propose(AgentGone(ONPREM.name, NodeName("n1"), 1))
    assert w.propose(Forget(ONPREM.name, NodeName("n1"), "ada")) == Done()
    w.see(a_node("n1"), a_node("n2"), whole=True)
    assert not w.state.agents
    assert [node.status for node in w.state.nodes.values()] == ["ready", "ready"]


def test_an_agent_does_not_take_the_place_of_a_node_that_jobs_are_on() -> None:
    w = a_watched(a_node("n1"), a_node("n2"))
    w.submit(a_job("a"))
    w.propose(StartEpoch(2, (replace(ONPREM, kind="agents"), CLOUD), w.state.facts.policies))
    refused = w.propose(Register(ONPREM.name, NodeName("n1"), 1, Resources(1000), (), {}, 0, ()))
    assert isinstance(refused, Refusal)
    assert "onprem/n1 is still known as a node of an external cluster" in refused.message
    assert w.agent("n2") == ()
    w.submit(a_job("b"))
    assert w.where("b") == "onprem/n2"


def test_a_node_with_more_of_something_in_use_than_it_has_takes_jobs_that_do_not_ask_for_it() -> None:
    fpga = Resources(2000, 2**40, 0, (("fpga", 1),))
    w = a_watched(*[SeenNode(NodeName(name), fpga, NOTHING) for name in ("n1", "n2")])
    w.submit(a_job("a").cpus(0.5).others(fpga=1), a_job("b").cpus(0.5).others(fpga=1))
    w.bound("a", "n1")
    w.bound("b", "n1")  # what was there has ended, and that is not told yet
    assert w.state.nodes["onprem/n1"].used.other == (("fpga", 2),)
    w.submit(a_job("c").cpus(1), a_job("d").cpus(2))
    assert (w.where("c"), w.where("d")) == ("onprem/n1", "onprem/n2")


# --- health


def test_only_ready_clusters_take_new_jobs_and_what_runs_goes_on() -> None:
    w = a_watched(a_node("n1"))
    w.submit(a_job("a"))
    w.start("a")
    w.healthy(ClusterHealth.DEGRADED, "connection refused")
    w.submit(a_job("b"))
    assert (w.where("a"), w.where("b")) == ("onprem/n1", None)
    down = w.why("b")
    assert down == ClusterDown(ONPREM.name, ClusterHealth.DEGRADED, w.now, "connection refused")
    assert "onprem does not answer since" in str(down)
    w.wait(seconds=5)
    w.healthy(ClusterHealth.DEGRADED, "timed out")
    assert w.state.conditions[ONPREM.name].since == w.now - 5 * SECOND
    w.healthy()
    assert w.where("b") == "onprem/n1"
    assert not list(w.happened(JobRequeued))


def test_a_cluster_changes_as_its_table_says_and_nothing_is_written_twice() -> None:
    w = a_watched(a_node("n1"))
    before = len(list(w.happened(ClusterChanged)))
    assert w.healthy() == Done()
    assert len(list(w.happened(ClusterChanged))) == before
    assert isinstance(w.healthy(ClusterHealth.CLEARING), Refusal)
    assert w.healthy(ClusterHealth.FAILED, "away") == Done()
    assert isinstance(w.healthy(ClusterHealth.DEGRADED), Refusal)
    assert w.healthy(ClusterHealth.CLEARING) == Done()
    w.submit(a_job("a"))
    assert w.where("a") is None
    assert w.healthy() == Done()
    assert w.where("a") == "onprem/n1"


def test_that_a_cluster_is_still_unobserved_is_no_news() -> None:
    w = a_watched(a_node("n1"))
    w.propose(StartEpoch(2, (ONPREM, CLOUD), w.state.facts.policies))
    before = len(w.events)
    assert w.healthy(ClusterHealth.UNOBSERVED, "nobody has seen it") == Done()
    assert w.events[before:] == []
    assert w.healthy() == Done()
    assert len(w.events) > before


def test_when_a_cluster_fails_its_jobs_do_as_they_say() -> None:
    w = a_watched(a_node("n1", 8))
    w.submit(
        a_job("waits"),
        on_failure(a_job("again"), OnFailure.REQUEUE),
        on_failure(a_job("spent"), OnFailure.REQUEUE, lost=0),
        on_failure(a_job("ends"), OnFailure.CANCEL),
        on_failure(a_job("unsent"), OnFailure.CANCEL),
        on_failure(a_job("stopped"), OnFailure.CANCEL),
    )
    for job in ("waits", "again", "spent", "stopped"):
        w.start(job)
    w.cancel("stopped")
    w.wait(seconds=10)
    w.fails("unsent")
    assert (w.where("waits"), w.state_of("waits")) == ("onprem/n1", JobState.RUNNING)
    assert (w.state_of("again"), w.job("again").attempt, w.job("again").lost) == (JobState.QUEUED, 2, 1)
    assert (w.state_of("unsent"), w.job("unsent").attempt) == (JobState.QUEUED, 1)
    because = [event.because for event in w.happened(JobRequeued) if event.job == "again"]
    assert because == ["onprem has failed: it does not answer"]
    ends = {event.job: (event.state, event.why) for event in w.happened(JobEnded)}
    assert ends == {
        "spent": (JobState.FAILED, LostTooOften(1, "onprem has failed: it does not answer")),
        "ends": (JobState.CANCELLED, ClusterFailed(ONPREM.name, "it does not answer")),
        "stopped": (JobState.CANCELLED, CancelledBy("ada")),
    }
    assert w.used("n1") == 1000


def test_a_result_of_a_fenced_attempt_does_not_count_when_its_cluster_is_back() -> None:
    w = a_watched(a_node("n1"))
    w.submit(on_failure(a_job("a"), OnFailure.REQUEUE))
    w.start("a")
    old = w.job("a").lease
    w.fails()
    w.healthy(ClusterHealth.CLEARING)
    assert w.propose(Result(DRIVER, old, Outcome.EXITED, 0, None, Usage(), 0)) is Verdict.FENCED
    w.healthy()
    assert w.state_of("a") is JobState.PLACED
    assert w.finish("a") is Verdict.ACCEPTED


def test_a_running_job_is_never_taken_to_be_unsent() -> None:
    w = a_watched(a_node("n1"))
    w.submit(on_failure(a_job("a"), OnFailure.CANCEL), a_job("b"))
    w.start("a")
    w.start("b")
    w.fails("a", "b")
    assert w.state_of("a") is JobState.CANCELLED
    assert w.state_of("b") is JobState.RUNNING


# --- where tasks are


def test_the_book_follows_where_a_task_is_bound() -> None:
    w = a_watched(a_node("n1"), a_node("n2"))
    w.submit(a_job("a"))
    lease = w.job("a").lease
    assert w.bound("a", "n1") == Done()
    assert not list(w.happened(TasksBound))
    w.bound("a", "n2")
    assert (w.where("a"), w.used("n1"), w.used("n2")) == ("onprem/n2", 0, 1000)
    assert w.job("a").lease == lease
    w.start("a")
    w.bound("a", "n1")
    assert isinstance(w.job("a").phase, Running)
    assert (w.where("a"), w.used("n1"), w.used("n2")) == ("onprem/n1", 1000, 0)
    w.finish("a")
    assert (w.used("n1"), w.used("n2")) == (0, 0)


def test_a_task_may_be_bound_where_the_book_has_no_room() -> None:
    w = a_watched(a_node("n1"), a_node("n2", foreign=1.5))
    w.submit(a_job("a"))
    w.bound("a", "n2")
    assert w.used("n2") == 1000
    w.submit(a_job("b").cpus(0.5))
    assert w.where("b") == "onprem/n1"


def test_tasks_of_a_gang_follow_one_by_one() -> None:
    w = a_watched(a_node("n1"), a_node("n2"), a_node("n3"))
    w.submit(a_job("g").tasks(3))
    assert [task.node for task in w.job("g").tasks] == ["n1", "n1", "n2"]
    w.bound("g", "n3")
    assert (w.used("n1"), w.used("n2"), w.used("n3")) == (2000, 0, 1000)
    w.bound("g", "n3", "n2", "n3")
    assert (w.used("n1"), w.used("n2"), w.used("n3")) == (0, 1000, 2000)
    w.finish("g")
    assert (w.used("n1"), w.used("n2"), w.used("n3")) == (0, 0, 0)


def test_leases_that_are_void_and_nodes_that_nobody_saw_move_nothing() -> None:
    w = a_watched(a_node("n1"), a_node("n2"))
    w.submit(a_job("a"))
    old = w.job("a").lease
    w.back("a")
    w.bound("a", "n9")
    w.propose(SeeBound(ONPREM.name, (old, Lease(JobId("x"), 1, 1)), ((NodeName("n2"),), (NodeName("n2"),))))
    assert not list(w.happened(TasksBound))


def test_a_driver_speaks_for_all_nodes_of_its_cluster_and_no_agent_does() -> None:
    agents = ClusterSpec(ClusterName("requests"), "agents", Role.OWNED)
    w = Watched(clusters=(ONPREM, agents))
    w.see(a_node("n1"), whole=True)
    w.healthy()
    w.submit(a_job("a"))
    for key in ("onprem/n1", "onprem/n2", "requests/n1"):  # an agent may have the name of a node there
        assert isinstance(w.propose(Started(NodeKey(key), w.job("a").lease, 0)), Refusal)
    assert w.propose(Started(DRIVER, w.job("a").lease, 0)) == Done()
    assert (
        w.propose(Result(DRIVER, w.job("a").lease, Outcome.EXITED, 0, None, Usage(), 0)) is Verdict.ACCEPTED
    )
    w.agent("m1", cluster="requests")
    w.submit(a_job("b").cpus(1), a_job("c").cpus(2))
    w.see(a_node("n1", ready=False))
    w.submit(a_job("d"))
    assert w.where("d") == "requests/m1"
    assert isinstance(w.propose(Started(DRIVER, w.job("d").lease, 0)), Refusal)


# --- jobs that are given back


def test_a_job_that_is_given_back_is_tried_elsewhere_and_there_after_a_while() -> None:
    w = Watched("zero")
    w.see(a_node("n1"), whole=True)
    w.see(a_node("v1"), cluster="cloud", whole=True)
    w.healthy()
    w.healthy(cluster="cloud")
    w.submit(a_job("a"))
    assert w.where("a") == "onprem/n1"
    w.back("a", "0/3 nodes are available", backoff=60)
    requeued = w.last(JobRequeued)
    assert isinstance(requeued, JobRequeued)
    assert (requeued.why, requeued.attempt, requeued.because) == (Back.RELEASED, 1, "0/3 nodes are available")
    assert (requeued.backing_off, requeued.until) == (ONPREM.name, w.now + 60 * SECOND)
    assert w.where("a") == "cloud/v1"
    w.back("a", "quota", backoff=30)
    backing_off = w.why("a")
    assert backing_off == BackingOff(CLOUD.name, w.now + 30 * SECOND, "quota")
    said = explain(w.engine, w.job("a")).verdicts
    assert [type(each.reason) for each in said] == [BackingOff, BackingOff]
    w.submit(a_job("b"))
    assert w.where("b") == "onprem/n1", "others are not concerned"
    w.wait(seconds=31)
    assert w.where("a") == "cloud/v1"
    w.wait(seconds=31)
    assert w.job("a").kind.backing_off == ()
    assert [event.cluster for event in w.happened(BackoffEnded)] == ["cloud", "onprem"]


def test_a_running_job_is_not_given_back_and_nothing_is_shunned_without_a_time() -> None:
    w = a_watched(a_node("n1"))
    w.submit(a_job("a"))
    w.back("a", "never mind")
    assert (w.where("a"), w.job("a").kind.backing_off) == ("onprem/n1", ())
    w.start("a")
    w.back("a", "too late", backoff=60)
    assert w.state_of("a") is JobState.RUNNING


def test_what_a_cluster_says_of_a_lost_attempt_reaches_people() -> None:
    w = a_watched(a_node("n1"))
    w.submit(a_job("a").terms(retry=Retry(lost=1)))
    for attempt in (1, 2):
        w.start("a")
        lost = Result(DRIVER, w.job("a").lease, Outcome.LOST, None, None, Usage(), 0, f"evicted {attempt}")
        w.propose(lost)
    requeued = w.last(JobRequeued)
    assert isinstance(requeued, JobRequeued)
    assert requeued.because == "evicted 1"
    ended = w.last(JobEnded)
    assert isinstance(ended, JobEnded)
    assert str(ended.why) == "its machine was lost 2 times, more than `retry.lost` allows: evicted 2"


# --- keeping it


def test_a_checkpoint_keeps_all_of_it() -> None:
    w = a_watched(a_node("n1", foreign=0.5, tasks=10, labels={"zone": "a"}), a_node("n2", ready=False))
    w.submit(a_job("g").tasks(1), a_job("a"))
    w.back("a", "quota", backoff=60)
    w.healthy(ClusterHealth.DEGRADED, "away")
    kept = Checkpoints()
    kept.write(w.state)
    assert said_by(kept.load()) == said_by(w.state)


def test_terms_say_what_becomes_of_a_job_whose_cluster_fails() -> None:
    assert Terms().on_cluster_failure is OnFailure.WAIT


def test_who_looks_ahead_does_not_take_a_job_to_start_on_a_cluster_that_it_shuns() -> None:
    w = Watched("break_even", coefficient=0.2)
    w.see(a_node("n1"), whole=True)
    w.see(a_node("c1", 8), whole=True, cluster="cloud")
    w.healthy()
    w.healthy(cluster="cloud")
    w.submit(a_job("runs").expected(minutes=1), a_job("shuns").expected(minutes=10))
    w.start("runs")
    w.step(
        SeeNodes(ONPREM.name, (a_node("n1", foreign=1),)),
        HandBack(DRIVER, (w.job("shuns").lease,), "no node takes it", 3000 * SECOND),
    )
    w.submit(a_job("next").expected(minutes=10))
    assert (w.where("shuns"), w.where("next")) == ("cloud/c1", None)
    w.wait(seconds=59)
    w.finish("runs")
    assert w.where("next") == "onprem/n1"
