"""What is learned from jobs that ended, and what is expected of new ones because of it."""

import pytest
from msgspec.structs import replace

from spillover.core.events import Evidence, JobEnded, JobState, Like
from spillover.core.learned import runtimes as history
from spillover.core.learned.runtimes import FEW, predict
from spillover.core.learned.samples import WINDOW, Sample
from spillover.core.proposals import Outcome, Submit, Submitted
from spillover.core.records.jobs import Job
from spillover.deciding.explain.explain import explain
from spillover.deciding.forecast.estimates import Estimate, estimate, expected_end
from spillover.model.budget import Budget, Of, Per
from spillover.model.ids import JobId
from spillover.model.policy import Choice, PolicySet
from spillover.model.units import DAY, HOUR, MINUTE, MONEY, SECOND
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


def test_short_jobs_of_others_names_do_not_make_an_unknown_job_short() -> None:
    compute = PolicySet(wait=Choice("compute", {"coefficient": 0.076}))
    world = World(load, compute, budgets=(Budget(Of.PROJECT, "*", Per.DAY, 5 * MONEY),))
    world.agent("n1", cpus=1)
    world.agent("v1", cpus=1, cluster="cloud")
    run_jobs(world, 0.002, 0.002, 0.002, name="echo")
    submit(world, a_job("other").terms(estimate=DAY))
    unknown = submit(world, a_job("train"))
    assert estimate(unknown, HOUR).runtime >= HOUR, "nothing is known about it"
    world.wait(seconds=60)
    assert world.job(unknown.id).state is JobState.QUEUED, "it is not rented after milliseconds"


def test_a_job_that_says_nothing_is_expected_to_run_as_long_as_nearly_all_of_its_earlier_runs() -> None:
    world = a_world()
    run_jobs(world, 10, 20)
    assert submit(world, a_job("train")).predicted is None, "two are too few"
    run_jobs(world, 30)
    job = submit(world, a_job("train"))
    assert estimate(job, HOUR) == Estimate(30 * SECOND, "history"), "of so few runs, the longest"
    assert explain(world.engine, job).estimate.source == "history"
    assert job.evidence == Evidence(Like.NAME, 3, 3)
    run_jobs(world, *[10] * 6, 1000)
    later = submit(world, a_job("train"))
    assert (later.predicted, later.evidence) == (30 * SECOND, Evidence(Like.NAME, 10, 9)), "nine of ten"
    assert job.predicted == 30 * SECOND, "what was predicted stays"


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
    run_jobs(world, 7000, 7000, 7000, 7000, name="other", cpus=2)

    def said(name: str, cpus: int, user: str = "ada") -> tuple[int, Evidence] | None:
        new = a_job(name).cpus(cpus).build().spec
        return predict(world.state, user, name, b"", new.shape, new.terms)

    assert said("train", 2) == (10 * SECOND, Evidence(Like.NAME, 3, 3))
    assert said("new", 2) == (7000 * SECOND, Evidence(Like.SHAPE, 3, 3)), "longer than what is unknown"
    assert said("new", 1) == (HOUR, Evidence(Like.SHAPE, 3, 3)), "other jobs never make it short"
    assert said("new", 3) is None
    assert said("train", 1, "bob") is None


def test_names_of_programs_that_run_anything_say_nothing_but_the_very_same_job_does() -> None:
    world = a_world()
    for _ in range(3):
        quick = replace(a_job("python").build(), digest=b"quick")
        identity = JobId(f"job-{world.state.facts.numbered}")
        world.propose(Submit((replace(quick, job=identity),), "ada"))
        world.start(identity)
        world.finish(identity, ran=2)
    spec = quick.spec
    assert predict(world.state, "ada", "python", b"quick", spec.shape, spec.terms) == (
        2 * SECOND,
        Evidence(Like.JOB, 3, 3),
    )
    other = predict(world.state, "ada", "python", b"train", spec.shape, spec.terms)
    assert other == (HOUR, Evidence(Like.SHAPE, 3, 3))


def test_runs_of_a_program_do_not_make_another_run_of_it_short_but_the_very_same_job_does() -> None:
    """What nobody named is called like its program: `sleep 5` says nothing of `sleep 100`."""
    world = a_world()

    def said(digest: bytes) -> tuple[int, Evidence] | None:
        spec = a_job("sleep").build().spec
        return predict(world.state, "ada", "sleep", digest, spec.shape, spec.terms, named=False)

    def run(digest: bytes, seconds: float) -> None:
        identity = JobId(f"job-{world.state.facts.numbered}")
        new = replace(a_job("sleep").build(), job=identity, digest=digest, named=False)
        world.propose(Submit((new,), "ada"))
        world.start(identity)
        world.finish(identity, ran=seconds)

    for _ in range(3):
        run(b"sleep 5", 5)
    assert said(b"sleep 5") == (5 * SECOND, Evidence(Like.JOB, 3, 3))
    assert said(b"sleep 100") == (HOUR, Evidence(Like.PROGRAM, 3, 3)), "not shorter than what is unknown"
    for _ in range(3):
        run(b"sleep 7200", 7200)
    assert said(b"sleep 100") == (7200 * SECOND, Evidence(Like.PROGRAM, 6, 6)), "but it may be longer"


def test_a_job_that_runs_all_the_time_does_not_outweigh_the_others() -> None:
    world = a_world()
    run_jobs(world, *[1] * 40, cpus=1)
    run_jobs(world, 100, 100, 100, cpus=2)
    sample = world.state.history["name", "ada", "train", None]
    assert sample.runs == [SECOND] * FEW + [100 * SECOND] * FEW


def test_only_the_last_runs_count() -> None:
    world = a_world()
    run_jobs(world, *[100] * 200)
    run_jobs(world, *[10] * 20)
    assert submit(world, a_job("train")).predicted == 10 * SECOND
    assert len(world.state.history["job", "ada", "train", a_job().build().spec.shape].runs) == WINDOW


def test_what_an_older_release_learned_counts_until_jobs_run_again() -> None:
    world, shape = a_world(), a_job().build().spec.shape
    old = Sample("1", ("job", "ada", "train", shape), count=40, total=40 * 7 * SECOND)
    world.state.history[old.about] = world.state.samples["1"] = old
    world.state.facts.sampled = 1
    assert submit(world, a_job("train")).predicted == 7 * SECOND
    run_jobs(world, 60)
    assert (old.runs, old.total) == ([7 * SECOND] * FEW + [60 * SECOND], 0)
    assert submit(world, a_job("train")).predicted == 60 * SECOND


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
    assert world.job(following).predicted == HOUR, "by its shape"
    assert world.job(f"{following}.1").evidence == Evidence(Like.SHAPE, 3, 3)
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
