from msgspec.structs import replace

from spillover.core.events import JobState
from spillover.core.proposals import Act, Done, RefusalKind, Submit, Submitted
from spillover.model.ids import JobId
from spillover.model.job import On
from spillover.model.reasons import DependencyFailed, DependencySucceeded
from spillover.policies.loading import load
from spillover.testing.builders import JobBuilder, a_job
from spillover.testing.world import World


def world() -> World:
    w = World(load)
    w.agent("n1", cpus=8)
    return w


def named(job: str, builder: JobBuilder) -> Submit:
    return Submit((replace(builder.build(), job=JobId(job)),), "ada")


def test_a_job_can_be_held_from_the_start() -> None:
    w = world()
    w.submit(a_job("a").held())
    assert w.state_of("a") is JobState.HELD
    assert w.act(Act.RELEASE, "a") == Done()
    assert w.where("a") == "onprem/n1"


def test_a_held_job_whose_dependency_ends_stays_held() -> None:
    w = world()
    w.submit(a_job("a"))
    w.submit(a_job("b").held().after("a"))
    w.finish("a")
    assert w.state_of("b") is JobState.HELD
    w.act(Act.RELEASE, "b")
    assert w.where("b") == "onprem/n1"


def test_a_job_can_wait_for_the_failure_of_another() -> None:
    w = world()
    w.submit(a_job("a"), a_job("clean").after("a", On.FAILURE))
    assert w.state_of("clean") is JobState.HELD
    w.finish("a", 1)
    assert w.where("clean") == "onprem/n1"


def test_a_job_that_waits_for_a_failure_is_cancelled_by_a_success() -> None:
    w = world()
    w.submit(a_job("a"), a_job("clean").after("a", On.FAILURE), a_job("more").after("clean"))
    w.finish("a")
    assert w.state_of("clean") is JobState.CANCELLED
    assert w.job("clean").phase.why == DependencySucceeded(JobId("a"))  # type: ignore[union-attr]
    assert w.job("more").phase.why == DependencyFailed(JobId("clean"))  # type: ignore[union-attr]


def test_a_dependency_that_has_ended_counts_by_how_it_ended() -> None:
    w = world()
    w.submit(a_job("good"), a_job("bad"))
    w.finish("good")
    w.finish("bad", 1)
    w.submit(a_job("a").after("good", On.FAILURE), a_job("b").after("bad", On.FAILURE))
    assert w.state_of("a") is JobState.CANCELLED
    assert w.where("b") == "onprem/n1"


def test_a_job_cannot_wait_for_both_ends_of_another() -> None:
    w = world()
    w.submit(a_job("a"))
    refused = w.refused(a_job("b").after("a").after("a", On.FAILURE))
    assert refused.kind is RefusalKind.INVALID
    assert refused.message == "`after` asks for both the success and the failure of a"


def test_of_jobs_with_one_name_a_singleton_runs_alone() -> None:
    w = world()
    for job in ("first", "second", "third"):
        reply = w.propose(named(job, a_job("train").singleton()))
        assert isinstance(reply, Submitted)
    w.submit(a_job("other").singleton())
    assert w.placed() == ["first", "other"]
    w.finish("first", 1)
    assert w.placed() == ["second", "other"]
    w.cancel("third")
    w.finish("second")
    assert w.state_of("third") is JobState.CANCELLED


def test_singletons_of_one_submission_run_one_after_the_other() -> None:
    w = world()
    jobs = tuple(replace(a_job("train").singleton().build(), job=JobId(job)) for job in ("x", "y"))
    w.propose(Submit(jobs, "ada"))
    assert w.placed() == ["x"]
    w.propose(Submit((replace(jobs[0], job=JobId("z")),), "bob"))
    assert w.placed() == ["x", "z"]  # of another user
