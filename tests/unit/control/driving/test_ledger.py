"""What is asked of an external cluster, and what is told of it, case by case."""

from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from spillover.control.driving.attempts import LASTS
from spillover.control.driving.cases import DriverOrders
from spillover.control.driving.drivers import Drivers
from spillover.control.driving.gaps import spread_out
from spillover.control.driving.ledger import LATE, Ledger
from spillover.control.views.jobs import why_view
from spillover.core.events import (
    Back,
    JobEnded,
    JobRequeued,
    JobState,
    JobStopping,
    Lease,
    SeenNode,
    Stop,
    TaskEnd,
    Usage,
)
from spillover.core.proposals import (
    DRIVER,
    GangOverdue,
    HandBack,
    Outcome,
    Result,
    SeeBound,
    SeeCluster,
    SeeNodes,
    Started,
)
from spillover.core.records.jobs import Running
from spillover.model.cluster import ClusterHealth, ClusterSpec, Role
from spillover.model.ids import ClusterName, JobId, NodeName
from spillover.model.job import Retry
from spillover.model.resources import Resources
from spillover.model.units import MINUTE, SECOND
from spillover.policies.loading import load
from spillover.ports.driver import (
    Answer,
    Changes,
    Ending,
    Gap,
    Hindrance,
    Made,
    Patience,
    Pending,
    Seen,
    Stage,
)
from spillover.testing.builders import a_job
from spillover.testing.world import World

CLUSTER = ClusterName("onprem")
N1, N2 = NodeName("n1"), NodeName("n2")
PATIENCE = Patience(bind=30 * SECOND, start=10 * MINUTE, backoff=5 * MINUTE, keep=10 * MINUTE)


class Bench:
    """A core with one such cluster of two nodes, a ledger, and what is to be done."""

    def __init__(self, *, keep_output: bool = False) -> None:
        self.world = World(load, clusters=(ClusterSpec(CLUSTER, "kubernetes", Role.OWNED, gangs=True),))
        nodes = tuple(SeenNode(name, Resources(2000), Resources()) for name in (N1, N2))
        self.world.step(SeeNodes(CLUSTER, nodes, whole=True), SeeCluster(CLUSTER, ClusterHealth.READY))
        self.ledger = Ledger(CLUSTER, PATIENCE, keep_output=keep_output)
        self.ledger.adopt(self.world.state)
        self.ledger.take(Changes(True, nodes), self.now)
        self.ledger.nodes.proposal()
        self._noted = len(self.world.events)

    @property
    def now(self) -> int:
        return self.world.now

    def job(self) -> Lease:
        """A job that was placed there."""
        (job,) = self.world.submit(a_job(f"job{len(self.world.state.jobs)}"))
        self.note()
        return self.world.job(job).lease

    def note(self) -> None:
        events = self.world.events
        self.ledger.note(events[self._noted :])
        self._noted = len(events)

    def see(self, *seen: Seen, gone: tuple[Lease, ...] = (), whole: bool = False) -> None:
        self.ledger.take(Changes(whole, attempts=seen, gone=gone), self.now)

    def orders(self) -> DriverOrders:
        return self.ledger.orders(self.world.state, self.now, self.now)

    def do(self) -> DriverOrders:
        """Have what is to be said decided."""
        orders = self.orders()
        self.world.step(*orders.proposals)
        self.note()
        return orders

    def made(self, lease: Lease) -> None:
        """Have an attempt asked for and made."""
        assert self.orders().starts == [lease]
        self.ledger.asking(lease)
        self.ledger.answered(lease, Answer(Made.MADE), self.now, self.now)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def running(lease: Lease, since: int, *nodes: NodeName) -> Seen:
    uses = tuple((node, Resources(1000)) for node in nodes)
    return Seen(lease, Stage.RUNNING, started=since, nodes=nodes, uses=uses)


def waiting(lease: Lease, why: Hindrance, since: int) -> Seen:
    return Seen(lease, Stage.PENDING, pending=Pending(why, "so it says", since))


def ended(lease: Lease, since: int, at: int, code: int = 0) -> Seen:
    ending = Ending(Outcome.EXITED, code, None, Usage(at - since), at)
    return Seen(lease, Stage.ENDED, started=since, nodes=(N1,), ending=ending)


def test_a_job_is_asked_for_once_it_is_placed(bench: Bench) -> None:
    lease = bench.job()
    assert bench.orders().starts == [lease]
    bench.ledger.asking(lease)
    assert bench.orders().starts == []


def test_it_starts_runs_and_ends(bench: Bench) -> None:
    lease = bench.job()
    bench.made(lease)
    began = bench.now
    bench.see(running(lease, began, N1))
    assert any(isinstance(each, Started) for each in bench.do().proposals)
    assert bench.world.state_of(lease.job) is JobState.RUNNING
    bench.world.wait(seconds=5)
    bench.see(ended(lease, began, bench.now))
    bench.do()
    assert bench.world.state_of(lease.job) is JobState.SUCCEEDED


def test_the_book_follows_to_the_node_that_the_cluster_chose(bench: Bench) -> None:
    lease = bench.job()
    bench.made(lease)
    chosen = N2 if bench.world.where(lease.job) == "onprem/n1" else N1
    bench.see(running(lease, bench.now, chosen))
    orders = bench.do()
    assert orders.proposals[-1] == SeeBound(CLUSTER, (lease,), ((chosen,),))
    assert bench.world.where(lease.job) == f"onprem/{chosen}"
    assert bench.do().proposals == []


def gang(bench: Bench) -> Lease:
    """A gang of three: ranks 0 and 1 on the first node, 2 on the second."""
    (job,) = bench.world.submit(a_job("gang").tasks(3))
    bench.note()
    assert [task.node for task in bench.world.job(job).tasks] == [N1, N1, N2]
    lease = bench.world.job(job).lease
    bench.made(lease)
    return lease


def test_the_tasks_of_a_gang_start_one_by_one(bench: Bench) -> None:
    lease = gang(bench)
    bench.see(replace(running(lease, bench.now, N1, N1, N2), began=(1,)))
    bench.do()
    assert [task.state for task in bench.world.job("gang").tasks] == ["PLACED", "RUNNING", "PLACED"]
    bench.see(replace(running(lease, bench.now, N1, N1, N2), began=(0, 1, 2)))
    bench.do()
    assert [task.state for task in bench.world.job("gang").tasks] == ["RUNNING"] * 3
    bench.see(replace(running(lease, bench.now, N1, N1, N2), began=(0, 1, 2)))
    assert bench.do().proposals == []


def test_the_book_knows_which_task_of_a_gang_is_where(bench: Bench) -> None:
    lease = gang(bench)
    bench.see(running(lease, bench.now, N2, N1, N1))
    bench.do()
    assert [task.node for task in bench.world.job("gang").tasks] == [N2, N1, N1]
    assert bench.do().proposals == []


def test_the_ends_of_the_tasks_of_a_gang_are_told_with_its_own(bench: Bench) -> None:
    lease, began = gang(bench), bench.now
    bench.world.wait(seconds=5)
    tasks = (
        TaskEnd(0, bench.now, JobState.CANCELLED, Outcome.STOPPED),
        TaskEnd(2, bench.now, JobState.FAILED, Outcome.EXITED, 3),
    )
    seen = ended(lease, began, bench.now, 3)
    assert seen.ending is not None
    bench.see(replace(seen, ending=replace(seen.ending, tasks=tasks)))
    bench.do()
    assert [task.state for task in bench.world.job("gang").tasks] == ["CANCELLED", "CANCELLED", "FAILED"]


def test_what_ended_is_left_for_a_while_and_then_deleted(bench: Bench) -> None:
    lease = bench.job()
    bench.made(lease)
    bench.see(ended(lease, bench.now, bench.now))
    bench.do()
    assert bench.do().stops == []
    bench.world.wait(seconds=601)
    assert bench.do().stops == [(lease, 0)]


def test_what_others_deleted_is_lost(bench: Bench) -> None:
    lease = bench.job()
    bench.made(lease)
    bench.see(running(lease, bench.now, N1))
    bench.do()
    bench.see(gone=(lease,))
    (result,) = bench.do().proposals
    assert isinstance(result, Result)
    assert result.outcome is Outcome.LOST
    assert "deleted by someone else" in result.message
    again = bench.world.job(lease.job)
    assert again.attempt == 2


def test_what_had_ended_before_it_was_deleted_has_ended(bench: Bench) -> None:
    lease = bench.job()
    bench.made(lease)
    bench.see(ended(lease, bench.now, bench.now, code=3))
    bench.see(gone=(lease,))
    bench.do()
    assert bench.world.state_of(lease.job) is JobState.FAILED


def test_what_was_made_and_is_never_seen_is_lost_after_a_while(bench: Bench) -> None:
    lease = bench.job()
    bench.made(lease)
    assert bench.do().proposals == []
    bench.world.wait(seconds=LATE / SECOND)
    bench.do()
    assert bench.world.job(lease.job).attempt == 2


def test_a_job_that_is_cancelled_is_deleted_and_ends_when_it_is_gone(bench: Bench) -> None:
    lease = bench.job()
    bench.made(lease)
    bench.see(running(lease, bench.now, N1))
    bench.do()
    bench.world.cancel(lease.job)
    bench.note()
    grace = bench.world.job(lease.job).terms.grace
    assert bench.do().stops == [(lease, grace)]
    assert bench.world.state_of(lease.job) is JobState.RUNNING
    bench.see(gone=(lease,))
    bench.do()
    assert bench.world.state_of(lease.job) is JobState.CANCELLED


def test_what_is_still_there_is_asked_again_to_go(bench: Bench) -> None:
    lease = bench.job()
    bench.made(lease)
    bench.see(running(lease, bench.now, N1))
    bench.world.cancel(lease.job)
    bench.note()
    assert len(bench.do().stops) == 1
    assert bench.do().stops == []
    bench.world.wait(seconds=16)
    assert len(bench.do().stops) == 1


def test_what_cannot_be_deleted_is_asked_for_again_soon_and_not_at_every_look(bench: Bench) -> None:
    lease = bench.job()
    bench.made(lease)
    bench.see(running(lease, bench.now, N1))
    bench.world.cancel(lease.job)
    bench.note()
    assert len(bench.do().stops) == 1
    bench.ledger.not_stopped(lease, bench.now)
    assert bench.do().stops == []
    following = bench.ledger.next_look()
    assert following is not None
    bench.world.wait(seconds=(following - bench.now) / SECOND)
    assert len(bench.do().stops) == 1


def test_however_often_a_job_is_looked_at_it_is_waited_for_once(bench: Bench) -> None:
    lease = bench.job()
    bench.made(lease)
    for _ in range(100):
        bench.see(waiting(lease, Hindrance.UNSCHEDULABLE, bench.now))
        bench.do()
        bench.world.wait(seconds=0.1)
    assert len(bench.ledger._timers) < 5


def test_what_no_node_takes_goes_back_and_is_not_tried_there_for_a_while(bench: Bench) -> None:
    lease = bench.job()
    bench.made(lease)
    bench.see(waiting(lease, Hindrance.UNSCHEDULABLE, bench.now))
    assert bench.do().stops == []
    bench.world.wait(seconds=31)
    assert bench.do().stops == [(lease, 0)]
    bench.see(gone=(lease,))
    (given,) = bench.do().proposals
    assert given == HandBack(DRIVER, (lease,), "so it says", 5 * MINUTE)
    job = bench.world.job(lease.job)
    assert (job.state, job.attempt) == (JobState.QUEUED, 1)
    bench.world.wait(seconds=301)
    assert bench.world.state_of(lease.job) is JobState.PLACED


def test_what_cannot_have_its_image_fails_in_the_end(bench: Bench) -> None:
    lease = bench.job()
    bench.made(lease)
    bench.see(waiting(lease, Hindrance.IMAGE, bench.now))
    bench.world.wait(seconds=31)
    assert bench.do().stops == []
    bench.world.wait(seconds=600)
    assert bench.do().stops == [(lease, 0)]
    bench.see(gone=(lease,))
    bench.do()
    assert bench.world.state_of(lease.job) is JobState.FAILED


def test_what_began_while_it_was_taken_away_is_lost(bench: Bench) -> None:
    lease = bench.job()
    bench.made(lease)
    bench.see(waiting(lease, Hindrance.UNSCHEDULABLE, bench.now))
    bench.world.wait(seconds=31)
    bench.do()
    bench.see(running(lease, bench.now, N1))
    bench.do()
    bench.see(gone=(lease,))
    (result,) = bench.do().proposals
    assert isinstance(result, Result)
    assert result.message == "it started while it was being withdrawn: so it says"
    assert bench.world.job(lease.job).attempt == 2


def test_what_runs_by_the_book_is_not_taken_away_because_it_waits_for_a_node_again(bench: Bench) -> None:
    """Kubernetes may have put another pod in the place of one that it evicted, and a server that was not there did not see that one."""
    lease = bench.job()
    bench.made(lease)
    bench.see(running(lease, bench.now, N1))
    bench.do()
    bench.ledger = Ledger(CLUSTER, PATIENCE)
    bench.ledger.adopt(bench.world.state)
    bench.see(waiting(lease, Hindrance.UNSCHEDULABLE, bench.now), whole=True)
    bench.world.wait(seconds=600)
    assert bench.do() == DriverOrders.none()


def test_a_refusal_ends_the_job_with_its_message(bench: Bench) -> None:
    lease = bench.job()
    bench.ledger.asking(lease)
    bench.ledger.answered(lease, Answer(Made.REFUSED, "spec.x: is wrong"), bench.now, bench.now)
    bench.do()
    job = bench.world.job(lease.job)
    assert job.state is JobState.FAILED
    assert "spec.x: is wrong" in str(job.phase.why)  # type: ignore[union-attr]


def test_a_quota_is_waited_for_and_then_the_job_goes_back(bench: Bench) -> None:
    lease = bench.job()
    for _ in range(20):
        if lease in bench.orders().starts:
            bench.ledger.asking(lease)
            bench.ledger.answered(lease, Answer(Made.NOT_NOW, "over quota"), bench.now, bench.now)
        bench.world.wait(seconds=4)
        orders = bench.do()
        if orders.proposals:
            break
        bench.ledger.recheck(lease.job for lease in orders.starts)
    assert isinstance(orders.proposals[0], HandBack)
    assert orders.proposals[0].because == "over quota"


def test_another_server_adopts_what_runs_and_deletes_what_it_does_not_know(bench: Bench) -> None:
    lease = bench.job()
    bench.made(lease)
    bench.see(running(lease, bench.now, N1))
    bench.do()
    other = Ledger(CLUSTER, PATIENCE)
    other.adopt(bench.world.state)
    stranger = Lease(lease.job, 7, 9)
    bench.ledger = other
    bench.see(running(lease, bench.now, N1), running(stranger, bench.now, N2), whole=True)
    orders = bench.do()
    assert (orders.starts, orders.stops) == ([], [(stranger, 0)])
    assert other.leftovers(bench.now) == 1
    assert type(bench.world.job(lease.job).phase) is Running


def test_another_server_starts_what_was_only_placed_and_gives_up_what_ran(bench: Bench) -> None:
    placed, ran = bench.job(), bench.job()
    bench.ledger.asking(ran)
    bench.ledger.answered(ran, Answer(Made.MADE), bench.now, bench.now)
    bench.see(running(ran, bench.now, N1))
    bench.do()
    bench.ledger = Ledger(CLUSTER, PATIENCE)
    bench.ledger.adopt(bench.world.state)
    bench.see(whole=True)
    orders = bench.do()
    assert orders.starts == [placed]
    assert bench.world.job(ran.job).attempt == 2


def test_only_what_was_surely_never_asked_for_is_unsent(bench: Bench) -> None:
    never, unsure, refused = bench.job(), bench.job(), bench.job()
    for lease, answer in ((unsure, Made.UNKNOWN), (refused, Made.UNSENT)):
        bench.ledger.asking(lease)
        assert lease not in bench.ledger.unsent()
        bench.ledger.answered(lease, Answer(answer), bench.now, bench.now)
    assert bench.ledger.unsent() == (never, refused)


def test_what_is_ours_counts_by_the_book_and_what_is_left_over_as_foreign(bench: Bench) -> None:
    lease = bench.job()
    bench.made(lease)
    stray = Lease(lease.job, 9, 9)
    bench.see(running(lease, bench.now, N1), running(stray, bench.now, N2))
    seen = bench.ledger.nodes.proposal()
    assert seen is not None
    assert {node.name: node.foreign.cpu for node in seen.nodes} == {N1: 0, N2: 1000}
    bench.see(gone=(stray,))
    seen = bench.ledger.nodes.proposal()
    assert seen is not None
    assert [(node.name, node.foreign.cpu) for node in seen.nodes] == [(N2, 0)]
    assert bench.ledger.nodes.proposal() is None


def test_output_is_kept_before_the_end_is_told() -> None:
    bench = Bench(keep_output=True)
    lease = bench.job()
    bench.made(lease)
    bench.see(ended(lease, bench.now, bench.now))
    orders = bench.do()
    assert (orders.keeps, orders.proposals) == ([lease], [])
    assert bench.do().keeps == []
    bench.ledger.kept(lease, "ab" * 32)
    (result,) = bench.do().proposals
    assert isinstance(result, Result)
    assert result.outputs == "ab" * 32


def test_what_is_left_over_on_a_node_that_does_not_answer_is_not_waited_for_without_end(bench: Bench) -> None:
    lease = bench.job()
    stray = Lease(lease.job, 9, 9)
    bench.see(running(stray, bench.now, N2))
    bench.world.wait(seconds=120)
    assert bench.ledger.leftovers(bench.now) == 1
    bench.see(replace(running(stray, bench.now, N2), going=True))
    bench.world.wait(seconds=59)
    assert bench.ledger.leftovers(bench.now) == 1
    bench.world.wait(seconds=1)
    assert bench.ledger.leftovers(bench.now) == 0
    seen = bench.ledger.nodes.proposal()
    assert seen is not None
    assert {node.name: node.foreign.cpu for node in seen.nodes} == {N2: 1000}


def test_a_cancelled_job_whose_objects_somebody_keeps_gives_its_room_back_after_a_while(bench: Bench) -> None:
    lease = bench.job()
    bench.made(lease)
    bench.see(running(lease, bench.now, N1))
    bench.do()
    bench.world.cancel(lease.job)
    bench.note()
    bench.do()
    kept = "pod p is being deleted but blocked by its finalizers example.com/hold"
    bench.see(Seen(lease, Stage.RUNNING, going=True, started=bench.now, vacant=True, held=kept))
    bench.do()
    assert bench.world.state_of(lease.job) is JobState.RUNNING
    assert bench.ledger.held(lease) == kept
    assert bench.ledger.next_look() is not None
    bench.world.wait(seconds=LASTS / SECOND)
    bench.do()
    assert bench.world.state_of(lease.job) is JobState.CANCELLED


def test_what_somebody_else_deleted_and_keeps_is_lost_once_nothing_of_it_runs(bench: Bench) -> None:
    lease = bench.job()
    bench.made(lease)
    bench.see(running(lease, bench.now, N1))
    bench.do()
    bench.see(Seen(lease, Stage.RUNNING, going=True, started=bench.now, vacant=True))
    bench.world.wait(seconds=LASTS / SECOND)
    bench.do()
    assert bench.world.job(lease.job).attempt == 2


def test_what_is_deleted_and_may_still_run_keeps_its_room(bench: Bench) -> None:
    lease = bench.job()
    bench.made(lease)
    bench.see(running(lease, bench.now, N1))
    bench.do()
    bench.world.cancel(lease.job)
    bench.note()
    bench.do()
    bench.see(replace(running(lease, bench.now, N1), going=True, held="its node n1 does not answer"))
    bench.world.wait(seconds=3600)
    bench.do()
    assert bench.world.state_of(lease.job) is JobState.RUNNING


def test_why_says_who_keeps_what_was_deleted(bench: Bench) -> None:
    lease = bench.job()
    bench.made(lease)
    bench.see(replace(running(lease, bench.now, N1), going=True, held="its node n1 does not answer"))
    bench.do()
    bench.world.cancel(lease.job)
    driving: Any = SimpleNamespace(driver=SimpleNamespace(cluster=CLUSTER), ledger=bench.ledger)
    job = bench.world.job(lease.job)
    said = why_view(bench.world.engine, job, bench.now, cluster_reason=Drivers([driving]).reason_of)
    assert said.reason is not None
    assert said.reason.code == "stopping"
    assert said.reason.message == "is being stopped: cancel; on onprem its node n1 does not answer"


def test_an_error_after_a_refusal_is_not_shown_as_a_refusal(bench: Bench) -> None:
    lease = bench.job()
    bench.ledger.answered(lease, Answer(Made.NOT_NOW, "over quota"), bench.now, bench.now)
    assert bench.ledger.pending(lease) == Pending(Hindrance.REFUSED, "over quota", bench.now)
    bench.ledger.answered(lease, Answer(Made.UNSENT, "connection refused"), bench.now, bench.now)
    assert bench.ledger.pending(lease) == Pending(Hindrance.UNANSWERED, "connection refused", bench.now)


# --- gangs that run in part


NO_NODE = "0/2 nodes are available"


def half(lease: Lease, since: int, *, pending: Pending | None = None, bound: int = 2) -> Seen:
    """Two tasks of three run; the third has no node, or does not run."""
    gap = Gap(3, bound, 2, since, since)
    seen = replace(running(lease, since, N1, N1), began=(0, 1), gap=gap)
    return replace(seen, pending=pending)


def unbound(since: int) -> Pending:
    return Pending(Hindrance.UNSCHEDULABLE, NO_NODE, since)


def another_server(bench: Bench) -> None:
    bench.ledger = Ledger(CLUSTER, PATIENCE)
    bench.ledger.adopt(bench.world.state)


def test_a_gang_of_which_a_pod_finds_no_node_gives_all_its_room_back(bench: Bench) -> None:
    lease, began = gang(bench), bench.now
    bench.see(half(lease, began, pending=unbound(began)))
    bench.do()
    bench.world.wait(seconds=29)
    assert bench.do() == DriverOrders.none()
    bench.world.wait(seconds=2)
    assert bench.do().proposals == [GangOverdue(lease, external=True)]
    (stopping,) = bench.world.happened(JobStopping)
    assert stopping.why is Stop.UNPREPARED
    ((stopped, _),) = bench.do().stops
    assert stopped == lease
    assert not list(bench.world.happened(JobRequeued)), "it is still there"
    bench.see(gone=(lease,))
    bench.do()
    (back,) = bench.world.happened(JobRequeued)
    words = "only 2 of its 3 pods had a node within 30s: 0/2 nodes are available"
    assert (back.why, back.because, back.attempt) == (Back.UNPREPARED, words, 2)
    assert back.backing_off == CLUSTER
    assert 5 * MINUTE <= back.until - bench.now < 10 * MINUTE
    job = bench.world.job("gang")
    assert (job.state, job.lost) == (JobState.QUEUED, 1)
    assert all(node.used == Resources() for node in bench.world.state.nodes.values())


def test_a_gang_whose_pods_all_have_nodes_has_longer_to_run_as_a_whole(bench: Bench) -> None:
    lease, began = gang(bench), bench.now
    bench.see(half(lease, began, bound=3))
    bench.do()
    bench.world.wait(seconds=540)
    assert bench.do() == DriverOrders.none()
    bench.world.wait(seconds=60)
    assert bench.do().proposals == [GangOverdue(lease, external=True)]
    bench.do()
    bench.see(gone=(lease,))
    bench.do()
    (back,) = bench.world.happened(JobRequeued)
    assert back.because == "only 2 of its 3 pods ran within 10m"


def test_the_time_of_a_gang_that_runs_in_part_goes_on_when_the_server_restarts(bench: Bench) -> None:
    lease, began = gang(bench), bench.now
    bench.see(half(lease, began, bound=3))
    bench.do()
    bench.world.wait(seconds=540)
    another_server(bench)
    bench.see(half(lease, began, bound=3), whole=True)
    bench.do()
    bench.world.wait(seconds=60)
    assert bench.do().proposals == [GangOverdue(lease, external=True)]


def test_a_gang_that_was_stopped_as_overdue_goes_back_also_under_another_server(bench: Bench) -> None:
    lease, began = gang(bench), bench.now
    bench.see(half(lease, began, pending=unbound(began)))
    bench.do()
    bench.world.wait(seconds=31)
    bench.do()
    another_server(bench)
    bench.see(whole=True)
    bench.do()
    (back,) = bench.world.happened(JobRequeued)
    assert (back.why, back.backing_off) == (Back.UNPREPARED, CLUSTER)
    assert back.because == "only 2 of its 3 tasks had started in time"


def test_a_cluster_whose_clock_is_ahead_does_not_keep_a_gang_for_longer(bench: Bench) -> None:
    lease = gang(bench)
    bench.see(half(lease, bench.now + 60 * MINUTE, bound=3))
    bench.do()
    bench.world.wait(seconds=600)
    assert GangOverdue(lease, external=True) in bench.do().proposals


def test_a_gang_that_ran_as_a_whole_and_lost_a_pod_has_its_time_from_then_on(bench: Bench) -> None:
    lease, began = gang(bench), bench.now
    bench.see(replace(running(lease, began, N1, N1, N2), began=(0, 1, 2)))
    bench.do()
    bench.world.wait(seconds=3600)
    lost = replace(half(lease, began, pending=unbound(bench.now)), gap=Gap(3, 2, 2, began, bench.now))
    bench.see(lost)
    bench.do()
    bench.world.wait(seconds=540)
    assert bench.do() == DriverOrders.none(), "Kubernetes may still find a node for it"
    bench.world.wait(seconds=60)
    assert bench.do().proposals == [GangOverdue(lease, external=True)]


def test_a_gang_that_becomes_whole_in_time_runs_on(bench: Bench) -> None:
    lease, began = gang(bench), bench.now
    bench.see(half(lease, began, pending=unbound(began)))
    bench.do()
    bench.world.wait(seconds=20)
    bench.see(replace(running(lease, began, N1, N1, N2), began=(0, 1, 2)))
    bench.do()
    bench.world.wait(seconds=3600)
    assert bench.do() == DriverOrders.none()


def test_a_gang_that_never_becomes_whole_fails_once_its_tries_are_used_up(bench: Bench) -> None:
    (job,) = bench.world.submit(a_job("gang").tasks(3).terms(retry=Retry(0, 0)))
    bench.note()
    lease = bench.world.job(job).lease
    bench.made(lease)
    bench.see(half(lease, bench.now, pending=unbound(bench.now)))
    bench.do()
    bench.world.wait(seconds=31)
    bench.do()
    bench.see(gone=(lease,))
    bench.do()
    (ended_,) = bench.world.happened(JobEnded)
    assert ended_.state is JobState.FAILED
    assert "only 2 of its 3 pods had a node within 30s" in str(ended_.why)


def test_a_gang_of_which_nothing_ran_goes_back_without_a_try(bench: Bench) -> None:
    lease = gang(bench)
    gap = Gap(3, 2, 0, bench.now, bench.now)
    bench.see(replace(waiting(lease, Hindrance.UNSCHEDULABLE, bench.now), gap=gap))
    bench.world.wait(seconds=31)
    assert bench.do().stops == [(lease, 0)]
    bench.see(gone=(lease,))
    bench.do()
    (back,) = bench.world.happened(JobRequeued)
    words = "only 2 of its 3 pods had a node within 30s: so it says"
    assert (back.why, back.because, back.attempt) == (Back.RELEASED, words, 1)


def test_a_gang_whose_image_one_node_cannot_pull_goes_back(bench: Bench) -> None:
    lease, began = gang(bench), bench.now
    no_image = Pending(Hindrance.IMAGE, "ErrImagePull: no such image", began)
    bench.see(half(lease, began, pending=no_image, bound=3))
    bench.do()
    bench.world.wait(seconds=600)
    assert bench.do().proposals == [GangOverdue(lease, external=True)]
    bench.do()
    bench.see(gone=(lease,))
    bench.do()
    (back,) = bench.world.happened(JobRequeued)
    assert back.because == "only 2 of its 3 pods ran within 10m: ErrImagePull: no such image"


def test_a_gang_with_pods_on_a_node_that_does_not_answer_gives_its_room_back(bench: Bench) -> None:
    lease, began = gang(bench), bench.now
    bench.see(half(lease, began, pending=unbound(began)))
    bench.do()
    bench.world.wait(seconds=31)
    bench.do()
    left = replace(running(lease, began, N2), going=True, stranded=True)
    bench.see(left)
    bench.do()
    assert not list(bench.world.happened(JobRequeued))
    bench.world.wait(seconds=61)
    bench.do()
    (back,) = bench.world.happened(JobRequeued)
    assert back.why is Back.UNPREPARED
    bench.see(left)
    assert [stopped for stopped, _ in bench.do().stops] == [lease], "what is left is still to be deleted"


def test_why_says_how_much_of_a_gang_has_a_node(bench: Bench) -> None:
    lease, began = gang(bench), bench.now
    bench.see(half(lease, began, pending=unbound(began)))
    bench.do()
    driving: Any = SimpleNamespace(driver=SimpleNamespace(cluster=CLUSTER), ledger=bench.ledger)
    job = bench.world.job(lease.job)
    said = why_view(bench.world.engine, job, bench.now, cluster_reason=Drivers([driving]).reason_of)
    assert "only 2 of its 3 pods have a node: 0/2 nodes are available" in said.sentence


def test_two_gangs_that_went_back_at_the_same_time_do_not_come_again_at_the_same_time(bench: Bench) -> None:
    backoffs = {spread_out(Lease(JobId(f"job{n}"), 1, 1), 5 * MINUTE) for n in range(20)}
    assert len(backoffs) == 20
    assert all(5 * MINUTE <= each < 10 * MINUTE for each in backoffs)
