"""What is learned from jobs that ended, and what is expected of new ones because of it."""

import pytest
from msgspec.structs import replace

from spillover.core.events import JobEnded, JobState
from spillover.core.learned import runtimes as history
from spillover.core.learned.runtimes import FEW, predict
from spillover.core.proposals import Outcome, Submit, Submitted
from spillover.core.records.jobs import Job
from spillover.deciding.explain.explain import explain
from spillover.deciding.forecast.estimates import Estimate, estimate, expected_end
from spillover.model.ids import JobId
from spillover.model.policy import Choice, PolicySet
from spillover.model.units import HOUR, MINUTE, SECOND
from spillover.policies.loading import load
from spillover.testing.builders import JobBuilder, a_job
from spillover.testing.world import World
from tests.support.sameness import Checkpoints, said_by


def a_world(cpus: int = 64) -> World:
    world = World(load, PolicySet(wait=Choice("never")))
    world.agent("n1", cpus=cpus)
    return world


def submit(world: World, job: JobBuilder) -> Job:
    """One more job, of a name that others may have."""
    identity = JobId(f"job-{world.state.facts.numbered}")
    reply = world.propose(Submit((replace(job.build(), job=identity),), "ada"))
    assert isinstance(reply, Submitted), reply
    return world.job(identity)


def run_jobs(
    world: World, *ran: float, name: str = "train", cpus: int = 1, estimate: int | None = None
) -> None:
    """Jobs of one name run and succeed, each for so many seconds."""
    for seconds in ran:
        job = a_job(name).cpus(cpus).terms(estimate=estimate)
        submitted = submit(world, job)
        world.start(submitted.id)
        world.finish(submitted.id, ran=seconds)


def test_a_job_that_says_nothing_is_expected_to_run_as_those_like_it_did() -> None:
    world = a_world()
    run_jobs(world, 10, 20)
    assert submit(world, a_job("train")).predicted is None, "two are too few"
    run_jobs(world, 30)
    job = submit(world, a_job("train"))
    assert estimate(job, HOUR) == Estimate(20 * SECOND, "history")
    assert explain(world.engine, job).estimate.source == "history"
    run_jobs(world, 1000)
    assert job.predicted == 20 * SECOND, "what was predicted stays"


def test_ones_own_word_and_the_limit_come_first() -> None:
    world = a_world()
    run_jobs(world, 10, 10, 10)
    told = submit(world, a_job("train").terms(estimate=MINUTE))
    limited = submit(world, a_job("train").terms(walltime=2 * MINUTE))
    assert estimate(told, HOUR) == Estimate(MINUTE, "estimate")
    assert estimate(limited, HOUR) == Estimate(2 * MINUTE, "walltime")
    assert told.predicted is None


def test_what_was_never_seen_together_falls_back_to_the_name_then_to_the_shape() -> None:
    world = a_world()
    run_jobs(world, 10, 10, 10, cpus=1)
    run_jobs(world, 70, 70, 70, 70, 70, 70, name="other", cpus=2)
    user = "ada"
    assert predict(world.state, user, "train", a_job().cpus(2).build().spec.shape) == 10 * SECOND
    assert predict(world.state, user, "new", a_job().cpus(2).build().spec.shape) == 70 * SECOND
    assert predict(world.state, user, "new", a_job().cpus(3).build().spec.shape) is None
    assert predict(world.state, "bob", "train", a_job().cpus(1).build().spec.shape) is None


def test_a_job_that_runs_all_the_time_does_not_outweigh_the_others() -> None:
    world = a_world()
    run_jobs(world, *[1] * 40, cpus=1)
    run_jobs(world, 100, 100, 100, cpus=2)
    sample = world.state.history["name", "ada", "train", None]
    assert sample.count == 2 * FEW
    assert sample.mean == 50.5 * SECOND


def test_recent_runs_count_more_than_old_ones() -> None:
    world = a_world()
    run_jobs(world, *[10] * 200)
    run_jobs(world, *[100] * 200)
    predicted = submit(world, a_job("train")).predicted
    assert predicted is not None
    assert 75 * SECOND < predicted <= 100 * SECOND


def test_only_jobs_that_succeeded_or_ran_out_of_time_are_learned_from() -> None:
    world = a_world()
    jobs = world.submit(*[a_job(name) for name in ("fails", "stops", "late")])
    for job in jobs:
        world.start(job)
    world.finish("fails", exit_code=1, ran=5)
    world.cancel("stops")
    world.finish("stops", outcome=Outcome.STOPPED, ran=5)
    assert not world.state.history
    world.finish("late", outcome=Outcome.WALLTIME, ran=5)
    assert [event.state for event in world.happened(JobEnded)][-1] is JobState.TIMED_OUT
    assert world.state.history["job", "ada", "late", world.job("late").kind.shape].count == 1


def test_members_count_as_jobs_of_their_array() -> None:
    world = a_world()
    world.submit(a_job("sweep").array(1, 4))
    for number in range(1, 5):
        world.start(f"sweep.{number}")
        world.finish(f"sweep.{number}", ran=8)
    (following,) = world.submit(a_job("sweep2").array(1, 2))
    assert world.job(following).predicted == 8 * SECOND, "by its shape"
    assert world.job(f"{following}.1").predicted == 8 * SECOND
    assert world.state.history["name", "ada", "sweep", None].count == FEW


def test_the_longest_unused_is_forgotten_and_no_checkpoint_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "KEPT", 16)
    monkeypatch.setattr(history, "DROPPED", 4)
    world, checkpoints = a_world(), Checkpoints()
    for number in range(30):
        run_jobs(world, 1, name=f"name-{number}")
        run_jobs(world, 1, name="often")
        checkpoints.write(world.state)
    assert len(world.state.history) <= 16
    assert world.state.history["job", "ada", "often", a_job().build().spec.shape].count == 30
    assert ("job", "ada", "name-0", a_job().build().spec.shape) not in world.state.history
    assert said_by(checkpoints.load()) == said_by(world.state)


def test_a_job_that_outruns_its_estimate_ends_a_minute_from_now_again_and_again() -> None:
    world = a_world()
    (job,) = world.submit(a_job("train").terms(estimate=MINUTE))
    placed = world.now
    assert expected_end(world.job(job), world.now, HOUR) == placed + MINUTE
    world.wait(seconds=5)
    world.start(job)
    assert expected_end(world.job(job), world.now, HOUR) == placed + 5 * SECOND + MINUTE
    for _ in range(3):
        world.wait(seconds=70)
        assert expected_end(world.job(job), world.now, HOUR) == world.now + MINUTE
    world.finish(job)
    assert expected_end(world.job(job), world.now, HOUR) is None
