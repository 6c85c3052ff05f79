"""Things that happen together are decided together."""

from spillover.core.events import Back, JobEnded, JobRequeued, JobState, MembersDropped
from spillover.core.proposals import (
    Act,
    Dependency,
    Jump,
    NewJob,
    Outcome,
    Reclaim,
    Refusal,
    Submit,
    Submitted,
)
from spillover.core.records.jobs import Ended
from spillover.model.ids import JobId, NodeKey
from spillover.model.job import On, Retry
from spillover.model.policy import Choice, PolicySet
from spillover.model.reasons import CancelledBy, OutOfMemory
from spillover.model.units import SECOND
from spillover.policies.loading import load
from spillover.testing.builders import JobBuilder, a_job
from spillover.testing.world import World


def world() -> World:
    return World(load, PolicySet(wait=Choice("never")))


def once() -> Retry:
    return Retry(0, 0)


def test_an_array_ends_when_its_last_members_are_lost_together() -> None:
    w = world()
    w.agent("n1", cpus=3)
    w.submit(a_job("arr").array(1, 3).terms(retry=once()), a_job("next").after("arr", On.ANY))
    for index in (1, 2, 3):
        w.start(f"arr.{index}")
    leases = tuple(w.job(f"arr.{index}").lease for index in (1, 2, 3))
    w.propose(Reclaim(NodeKey("onprem/n1"), leases))
    assert w.state_of("arr") is JobState.FAILED
    assert w.where("next") == "onprem/n1"


def test_an_array_ends_when_its_agent_comes_back_without_any_member() -> None:
    w = world()
    w.agent("n1", cpus=2)
    w.submit(a_job("arr").array(1, 2).terms(retry=once()))
    w.start("arr.1")
    w.start("arr.2")
    w.agent("n1", cpus=2)
    assert w.state_of("arr") is JobState.FAILED


def test_an_array_that_waits_for_two_jobs_of_a_chain_is_given_up_once() -> None:
    w = world()
    w.agent("n1")
    w.submit(
        a_job("a"),
        a_job("arr").array(1, 3).after("a").after("b"),
        a_job("b").after("a"),
    )
    w.finish("a", 1)
    assert w.state_of("arr") is JobState.CANCELLED
    assert len(list(w.happened(MembersDropped))) == 1


def test_jobs_that_are_cancelled_together_are_cancelled_by_who_did_it() -> None:
    w = world()
    w.submit(a_job("a"), a_job("arr").array(1, 3).after("a"))
    w.cancel("a", "arr")
    assert len(list(w.happened(MembersDropped))) == 1
    ends = {event.job: event.why for event in w.happened(JobEnded)}
    assert ends == {"a": CancelledBy("ada"), "arr": CancelledBy("ada")}


def test_an_array_counts_members_that_never_started_as_failed() -> None:
    w = world()
    w.agent("n1")
    w.submit(a_job("arr").array(1, 4))
    w.act(Act.REQUEUE, "arr.1")
    w.agent("n1", cpus=0.1)
    w.cancel("arr")
    ends = {event.job: event.why for event in w.happened(JobEnded)}
    assert ends[JobId("arr")] == CancelledBy("ada")
    members = w.job("arr").extra.members
    assert members is not None
    assert members.ended == {JobState.CANCELLED: 4}


def test_a_chain_behind_a_failed_job_is_cancelled_when_it_is_submitted() -> None:
    w = world()
    w.agent("n1")
    w.submit(a_job("a"))
    w.finish("a", 1)
    w.submit(a_job("c").after("b"), a_job("b").after("a").array(1, 2), a_job("d").after("b", On.ANY))
    assert w.state_of("b") is JobState.CANCELLED
    assert w.state_of("c") is JobState.CANCELLED
    assert w.where("d") == "onprem/n1"


def test_a_job_runs_after_one_that_is_there_already_under_its_key() -> None:
    w = world()
    w.agent("n1")
    w.submit(a_job("first").key("k"))
    reply = w.propose(Submit((renamed(a_job("again").key("k")), after("train", "again")), "ada"))
    assert reply == Submitted((JobId("first"), JobId("train")))
    w.finish("first")
    assert w.where("train") == "onprem/n1"


def renamed(builder: JobBuilder) -> NewJob:
    return builder.build()


def after(job: str, wanted: str) -> NewJob:
    built = a_job(job).build()
    return NewJob(built.job, built.spec, built.digest, (Dependency(JobId(wanted)),))


def test_after_the_same_job_twice_asks_for_success_if_either_does() -> None:
    w = world()
    w.agent("n1")
    w.submit(a_job("a"), a_job("b").after("a", On.ANY).after("a", On.SUCCESS))
    w.finish("a", 1)
    assert w.state_of("b") is JobState.CANCELLED


def test_requeueing_an_array_of_which_nothing_is_placed_is_refused() -> None:
    w = world()
    w.submit(a_job("arr").array(1, 2))
    assert isinstance(w.act(Act.REQUEUE, "arr"), Refusal)


def test_an_agent_that_comes_back_larger_has_room_for_what_it_was_given_ahead() -> None:
    w = world()
    w.agent("n1", queue=2)
    w.submit(a_job("a"), a_job("b"))
    w.finish("a", ran=0.01)
    w.submit(a_job("c"))
    assert list(w.state.nodes["onprem/n1"].ahead) == ["c"]
    held = (w.job("b").lease, w.job("c").lease)
    assert w.agent("n1", cpus=2, queue=2, held=held) == held
    assert list(w.state.nodes["onprem/n1"].holding) == ["b", "c"]


def test_an_agent_may_come_back_with_less_than_it_holds_and_is_given_nothing_more() -> None:
    w = world()
    w.agent("n1", cpus=2)
    w.submit(a_job("a"), a_job("b"))
    held = (w.job("a").lease, w.job("b").lease)
    assert w.agent("n1", cpus=1, held=held) == held
    w.submit(a_job("c"))
    w.finish("a")
    assert w.where("c") is None
    w.finish("b", outcome=Outcome.EXITED)
    assert w.where("c") == "onprem/n1"


def test_a_member_that_was_cancelled_before_its_array_is_given_up_once() -> None:
    w = world()
    w.agent("n1")
    w.submit(a_job("a"), a_job("arr").array(1, 5).after("a"))
    w.start("a")
    w.cancel("arr.3", "a")
    w.finish("a", outcome=Outcome.STOPPED)
    members = w.job("arr").extra.members
    assert members is not None
    assert members.ended == {JobState.CANCELLED: 5}


def test_a_jump_of_the_clock_is_not_paid_for() -> None:
    w = World(load, PolicySet(wait=Choice("zero")))
    w.agent("v1", cluster="cloud")
    w.submit(a_job("a"))
    w.start("a")
    w.wait(seconds=10)
    w.propose(Jump(3600 * SECOND))
    w.now += 3600 * SECOND
    w.agent("v1", cluster="cloud")  # names nothing: what it ran is lost
    assert w.job("a").cost == 10 * 1000  # ten seconds of one CPU at 3.6 an hour


def test_what_was_stopped_before_it_started_costs_nothing() -> None:
    w = World(load, PolicySet(wait=Choice("zero")))
    w.agent("v1", cluster="cloud")
    w.submit(a_job("a"))
    w.cancel("a")
    w.finish("a", outcome=Outcome.STOPPED, ran=0)
    assert w.job("a").cost == 0
    ended = w.job("a").phase
    assert isinstance(ended, Ended)
    assert ended.started is None


def test_a_task_that_fails_as_it_is_requeued_is_requeued() -> None:
    w = world()
    w.agent("n1")
    w.submit(a_job("a"))
    w.start("a")
    w.act(Act.REQUEUE, "a")
    w.finish("a", 1)
    assert w.job("a").attempt == 2


def test_an_agent_whose_leases_never_got_room_is_given_none_ahead() -> None:
    w = world()
    w.agent("n1", queue=4)
    w.submit(*(a_job(f"j{number}") for number in range(8)))
    w.finish("j0", ran=0.01)
    assert len(w.state.nodes["onprem/n1"].ahead) == 4
    for number in (2, 3, 4, 5):
        w.hand_back(f"j{number}")
    assert w.placed() == ["j1"]


def test_a_job_that_used_more_memory_than_it_asked_for_fails_and_says_so() -> None:
    w = world()
    w.agent("n1", cpus=2)
    w.submit(a_job("hog").memory(0).terms(retry=once()))
    w.start("hog")
    w.finish("hog", outcome=Outcome.OUT_OF_MEMORY)
    assert w.state_of("hog") is JobState.FAILED
    (ending,) = [event for event in w.events if isinstance(event, JobEnded)]
    assert ending.why == OutOfMemory(0, 2**20)
    assert str(ending.why) == "ran out of memory; it requested none; it used 1Mi when it was killed"


def test_being_out_of_memory_counts_as_an_exit_for_retries() -> None:
    w = world()
    w.agent("n1", cpus=2)
    w.submit(a_job("hog").terms(retry=Retry(1, 0)))
    for _ in range(2):
        w.start("hog")
        w.finish("hog", outcome=Outcome.OUT_OF_MEMORY)
    assert w.state_of("hog") is JobState.FAILED
    assert [event.why for event in w.events if isinstance(event, JobRequeued)] == [Back.EXIT]
