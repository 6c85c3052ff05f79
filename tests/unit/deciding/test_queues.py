"""Named queues: who may run how much in them, and what happens to the rest."""

import pytest
from msgspec.structs import replace

from spillover.core.events import JobSubmitted
from spillover.core.proposals import Act, Configure, RefusalKind
from spillover.deciding.explain.explain import explain
from spillover.model.job import Burst
from spillover.model.policy import Choice, PolicySet
from spillover.model.queues import QueueDefaults, QueueLimits, QueueSize, QueueSpec
from spillover.model.reasons import Fresh, NoRoom, QueueAtLimit, QueueOverLimit
from spillover.model.resources import Resources
from spillover.model.units import HOUR, MINUTE
from spillover.model.where import Where
from spillover.policies.loading import load
from spillover.testing.builders import a_job
from spillover.testing.world import OWNED, RENTED, World

SHORT = QueueSpec("short", each=QueueLimits(running=2), walltime=HOUR)
LONG = QueueSpec("long")


def world(*queues: QueueSpec, cpus: int = 64, policies: PolicySet | None = None) -> World:
    w = World(load, policies, (replace(OWNED, gangs=True), RENTED), queues=queues)
    w.agent("n1", cpus=cpus)
    return w


def why(w: World, job: str) -> str:
    return str(explain(w.engine, w.job(job)).reason)


def test_each_user_runs_as_many_jobs_as_the_queue_lets_them() -> None:
    w = world(SHORT)
    w.submit(*[a_job(f"a{at}").queue("short") for at in range(4)], user="ann")
    w.submit(*[a_job(f"b{at}").queue("short") for at in range(3)], user="bob")
    assert w.placed() == ["a0", "a1", "b0", "b1"]
    assert explain(w.engine, w.job("a2")).reason == QueueAtLimit("short", "jobs", 2, 2, 1, "ann")
    assert why(w, "a2") == "queue short: 2 of 2 running jobs of ann"
    w.finish("a1")
    assert w.placed() == ["a0", "a2", "b0", "b1"]


def test_all_jobs_of_a_queue_together_use_no_more_than_it_has() -> None:
    w = world(QueueSpec("gpu", total=QueueLimits(resources=Resources(8000))))
    w.submit(a_job("a").queue("gpu").cpus(6), user="ann")
    w.submit(a_job("b").queue("gpu").cpus(4), user="bob")
    w.submit(a_job("c").queue("gpu").cpus(2), user="cat")
    assert w.placed() == ["a", "c"], "what is left is for jobs that fit"
    assert why(w, "b") == "queue gpu: jobs use 8 of 8 CPU, and it asks for 4"
    w.finish("a")
    assert w.placed() == ["b", "c"]


def test_jobs_behind_a_limit_delay_no_others() -> None:
    w = world(SHORT, LONG, cpus=4, policies=PolicySet(wait=Choice("never"), backfill=Choice("strict")))
    w.submit(*[a_job(f"s{at}").queue("short") for at in range(9)], a_job("l").queue("long"))
    assert w.placed() == ["s0", "s1", "l"]


@pytest.mark.parametrize("backfill", ["easy", "conservative", "out_of_order"])
def test_jobs_behind_a_limit_get_no_reservation(backfill: str) -> None:
    w = world(SHORT, LONG, cpus=4, policies=PolicySet(wait=Choice("never"), backfill=Choice(backfill)))
    w.submit(*[a_job(f"s{at}").queue("short").cpus(2).expected(minutes=9) for at in range(4)])
    assert w.placed() == ["s0", "s1"]
    w.submit(a_job("wide").queue("long").cpus(4).expected(minutes=9))
    w.finish("s0")
    assert w.placed() == ["s1", "s2"]


def test_members_of_arrays_and_tasks_of_gangs_count() -> None:
    w = world(QueueSpec("q", each=QueueLimits(running=3), total=QueueLimits(resources=Resources(8000))))
    w.submit(a_job("arr").queue("q").array(1, 9))
    assert w.placed() == ["arr.1", "arr.2", "arr.3"]
    w.submit(a_job("gang").queue("q").tasks(6), user="bob")
    assert why(w, "gang") == "queue q: jobs use 3 of 8 CPU, and it asks for 6"
    w.cancel("arr")
    for member in ("arr.1", "arr.2", "arr.3"):
        w.finish(member)
    assert w.placed() == ["gang"]


def test_an_elastic_gang_grows_up_to_the_limit() -> None:
    w = world(QueueSpec("q", each=QueueLimits(resources=Resources(5000))))
    w.submit(a_job("gang").queue("q").tasks(2, most=16))
    assert len(w.job("gang").tasks) == 5


def test_a_job_that_came_back_counts_again() -> None:
    w = world(QueueSpec("q", total=QueueLimits(running=1)))
    w.submit(a_job("a").queue("q"), a_job("b").queue("q"))
    w.start("a")
    w.act(Act.REQUEUE, "a")
    w.finish("a")
    assert len(w.placed()) == 1


def test_rented_capacity_counts_too_and_no_more_is_rented() -> None:
    w = world(SHORT, cpus=1, policies=PolicySet(wait=Choice("zero")))
    w.agent("c1", cpus=64, cluster="cloud")
    w.submit(*[a_job(f"j{at}").queue("short") for at in range(9)])
    assert len(w.placed()) == 2


def test_new_limits_hold_from_then_on() -> None:
    w = world(SHORT)
    w.submit(*[a_job(f"a{at}").queue("short") for at in range(6)])
    assert len(w.placed()) == 2
    more = QueueSpec("short", each=QueueLimits(running=4))
    w.propose(Configure("root", w.state.facts.policies, queues=(more,)))
    assert len(w.placed()) == 4
    w.propose(Configure("root", w.state.facts.policies, queues=(SHORT,)))
    w.finish("a0")
    w.finish("a1")
    assert w.placed() == ["a2", "a3"], "two run, which is as many as may"
    w.finish("a2")
    assert w.placed() == ["a3", "a4"]
    w.propose(Configure("root", w.state.facts.policies, queues=()))
    assert w.placed() == ["a3", "a4", "a5"], "without queues they are labels"


def test_a_limit_that_was_lowered_too_far_is_told() -> None:
    w = world(QueueSpec("q", each=QueueLimits(resources=Resources(8000))), cpus=4)
    w.submit(a_job("a").queue("q").cpus(4), a_job("b").queue("q").cpus(4))
    low = QueueSpec("q", each=QueueLimits(resources=Resources(2000)))
    w.propose(Configure("root", w.state.facts.policies, queues=(low,)))
    reason = explain(w.engine, w.job("b")).reason
    assert reason == QueueOverLimit("q", "cpu", 4000, 2000, "ada")
    assert str(reason) == "requests 4 CPU in total; queue q runs 2 CPU for each user"


def test_jobs_get_the_defaults_of_their_queue() -> None:
    given = QueueDefaults(30 * MINUTE, 10 * MINUTE, Resources(4000, 2**30, 1), 7, Burst.NEVER, 500)
    w = world(QueueSpec("gpu", default=True, defaults=given, walltime=HOUR, clusters=("onprem",)), LONG)
    w.submit(a_job("plain"), a_job("own").queue("gpu").cpus(2).terms(walltime=HOUR).priority(1))
    plain, own = w.happened(JobSubmitted)
    assert (plain.queue, plain.priority) == ("gpu", 7)
    assert plain.shape.resources == Resources(4000, 2**30, 1)
    assert plain.shape.burst is Burst.NEVER
    assert plain.shape.where == Where(clusters=("onprem",))
    assert (plain.terms.walltime, plain.terms.estimate, plain.terms.max_cost) == (
        30 * MINUTE,
        10 * MINUTE,
        500,
    )
    assert (own.shape.resources.cpu, own.terms.walltime, own.priority) == (2000, HOUR, 1)


def test_without_a_walltime_a_job_gets_the_longest_of_its_queue() -> None:
    w = world(SHORT)
    w.submit(a_job("a").queue("short"))
    assert w.job("a").terms.walltime == HOUR


def test_the_priority_of_a_queue_is_added() -> None:
    policies = PolicySet(wait=Choice("never"), order=Choice("priority"))
    fast = QueueSpec("fast", priority=10)
    w = world(fast, LONG, cpus=1, policies=policies)
    w.submit(a_job("first").queue("long"))
    w.submit(a_job("plain").queue("long").priority(5), a_job("urgent").queue("fast"))
    w.finish("first")
    assert w.placed() == ["urgent"]
    w.submit(a_job("very").queue("long").priority(11), a_job("more").queue("fast"))
    w.finish("urgent")
    assert w.placed() == ["very"]
    w.propose(Configure("root", w.state.facts.policies, queues=(QueueSpec("fast"), LONG)))
    w.finish("very")
    assert w.placed() == ["plain"], "the queue adds nothing any more"


LIMITED = QueueSpec(
    "q",
    total=QueueLimits(resources=Resources(cpu=32000)),
    each=QueueLimits(resources=Resources(cpu=16000, gpu=2), queued=3),
    walltime=HOUR,
    size=QueueSize(cpu=24000, memory=2**34, gpu=0, tasks=4),
    projects=("vision", "nlp"),
    users=("ada",),
    clusters=("onprem",),
)


@pytest.mark.parametrize(
    ("job", "told"),
    [
        (a_job().queue("fast"), "job: there is no queue 'fast'; write one of q, long"),
        (a_job().queue("q"), "job: queue q is for project vision or nlp, not for default"),
        (
            a_job().queue("q").project("nlp").terms(walltime=2 * HOUR),
            "job: a walltime of 2h is more than the 1h of queue q",
        ),
        (
            a_job().queue("q").project("nlp").terms(estimate=2 * HOUR),
            "job: 2h is longer than the walltime of 1h in queue q; write a walltime",
        ),
        (
            a_job().queue("q").project("nlp").cpus(30),
            "job: requests 30 CPU in total; a job in queue q may have 24 CPU",
        ),
        (
            a_job().queue("q").project("nlp").cpus(20),
            "job: requests 20 CPU in total; queue q runs 16 CPU for each user",
        ),
        (
            a_job().queue("q").project("nlp").gpus(1),
            "job: requests 1 GPU in total; a job in queue q may have 0 GPU",
        ),
        (a_job().queue("q").project("nlp").tasks(5), "job: has 5 tasks; a job in queue q may have 4"),
        (
            a_job().queue("q").project("nlp").array(1, 9),
            "job: has 9 members; queue q holds 3 queued jobs of each user",
        ),
        (
            a_job().queue("q").project("nlp").where(Where(clusters=("cloud",))),
            "job: queue q runs jobs on onprem only, not on cloud",
        ),
    ],
)
def test_a_job_that_can_never_run_in_its_queue_is_refused(job: object, told: str) -> None:
    w = world(LIMITED, LONG)
    refusal = w.refused(job)  # type: ignore[arg-type]
    assert (refusal.kind, refusal.message) == (RefusalKind.INVALID, told)


def test_a_queue_is_only_for_its_users() -> None:
    w = world(LIMITED)
    assert w.refused(a_job().project("nlp"), user="bob").message == "job: queue q is for ada, not for bob"


def test_a_queue_holds_no_more_queued_jobs_than_it_may() -> None:
    w = world(QueueSpec("q", each=QueueLimits(running=1, queued=3), total=QueueLimits(queued=5)))
    w.submit(*[a_job(f"a{at}") for at in range(3)])  # one runs
    w.submit(a_job("a3"))
    full = w.refused(a_job("a4"))
    assert (full.kind, full.message) == (
        RefusalKind.QUEUE_FULL,
        "queue q holds 3 of at most 3 jobs of ada; 1 more would exceed that, so none was accepted",
    )
    w.submit(*[a_job(f"b{at}") for at in range(2)], user="bob")
    w.submit(a_job("b2"), user="bob")
    assert "queue q holds 5 of at most 5 jobs; 1 more" in w.refused(a_job("b3"), user="bob").message


def test_jobs_of_a_queue_that_is_gone_run_without_limits() -> None:
    w = world(SHORT, LONG)
    w.submit(*[a_job(f"a{at}").queue("short") for at in range(3)])
    w.propose(Configure("root", w.state.facts.policies, queues=(LONG,)))
    assert len(w.placed()) == 3


def test_jobs_of_the_old_kind_have_no_limits() -> None:
    w = world()
    w.submit(a_job("a").queue("whatever"))
    assert w.placed() == ["a"]


def test_jobs_behind_a_limit_do_not_make_others_be_rented() -> None:
    policies = PolicySet(wait=Choice("compute", {"coefficient": 10.0, "max_queue": 3}))
    w = world(SHORT, LONG, cpus=2, policies=policies)
    w.agent("c1", cpus=64, cluster="cloud")
    w.submit(*[a_job(f"s{at}").queue("short").expected(minutes=9) for at in range(20)])
    w.submit(a_job("l").queue("long").expected(minutes=9))
    assert w.placed() == ["s0", "s1"]
    assert isinstance(explain(w.engine, w.job("l")).reason, NoRoom | Fresh)


def test_a_limit_that_is_reached_ends_all_lanes_under_it_at_once() -> None:
    """Whatever the number of jobs and of their sizes, a cycle looks at none of them."""
    for order in ("fifo", "fair_share"):
        w = world(SHORT, LONG, policies=PolicySet(wait=Choice("never"), order=Choice(order)))
        w.submit(*[a_job(f"a{at}").queue("short").memory(at + 1) for at in range(400)], user="ann")
        assert len(w.placed()) == 2
        queue = w.engine.index.queue
        assert len(queue.first) == 398
        assert list(queue.startable()) == []
        assert len(list(queue.lanes())) == 398
        w.submit(a_job("b").queue("short").cpus(3), user="bob")
        w.submit(a_job("l").queue("long"))
        assert w.placed() == ["a0", "a1", "b", "l"]
        w.finish("a0")
        assert w.placed() == ["a1", "a2", "b", "l"]
