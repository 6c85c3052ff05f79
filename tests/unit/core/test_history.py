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
from spillover.forms.jobs.likeness import command_of
from spillover.model.budget import Budget, Of, Per
from spillover.model.ids import JobId
from spillover.model.job import Argv, Container, PythonCall, Shell, Work
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


def called(name: str) -> str:
    """How samples of jobs of a name are called, as all of them run the same."""
    return f"{name} {command_of(a_job().spec()).hex()}"


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
    assert job.evidence == Evidence(Like.JOB, 3, 3)
    run_jobs(world, *[10] * 6, 1000)
    later = submit(world, a_job("train"))
    assert (later.predicted, later.evidence) == (30 * SECOND, Evidence(Like.JOB, 10, 9)), "nine of ten"
    assert job.predicted == 30 * SECOND, "what was predicted stays"


def test_ones_own_word_and_the_limit_come_first() -> None:
    world = a_world()
    run_jobs(world, 10, 10, 10)
    told = submit(world, a_job("train").terms(estimate=MINUTE))
    limited = submit(world, a_job("train").terms(walltime=2 * MINUTE))
    assert estimate(told, HOUR) == Estimate(MINUTE, "estimate")
    assert estimate(limited, HOUR) == Estimate(2 * MINUTE, "walltime")
    assert told.predicted is None


def test_what_never_ran_before_falls_back_to_other_jobs_of_the_same_shape() -> None:
    world = a_world()
    run_jobs(world, 10, 10, 10, cpus=1)
    run_jobs(world, 7000, 7000, 7000, 7000, name="other", cpus=2)
    new = Argv(("./new",))
    assert said(world, "new", new, cpus=2) == (7000 * SECOND, Evidence(Like.SHAPE, 3, 3)), (
        "longer than what is unknown"
    )
    assert said(world, "new", new) == (HOUR, Evidence(Like.SHAPE, 3, 3)), "other jobs never make it short"
    assert said(world, "new", new, cpus=3) is None
    spec = a_job("train").spec()
    assert predict(world.state, "bob", "train", command_of(spec), spec.shape, spec.terms) is None


def test_a_simulated_job_has_a_name_and_no_command() -> None:
    world = a_world()
    for number in range(3):
        job = replace(a_job("train").build(), job=JobId(f"job-{number}"), command=b"")
        world.propose(Submit((job,), "ada"))
        world.start(job.job)
        world.finish(job.job, ran=10)
    for cpus in (1, 2):
        spec = a_job("train").cpus(cpus).spec()
        told = predict(world.state, "ada", "train", b"", spec.shape, spec.terms)
        assert told == (10 * SECOND, Evidence(Like.NAME, 3, 3))


def run(
    world: World,
    name: str,
    work: Work,
    *seconds: float,
    named: bool = True,
    cpus: int = 1,
    walltime: int | None = None,
) -> None:
    """Jobs of a user that run this succeed, each after so many seconds."""
    for each in seconds:
        job = a_job(name).cpus(cpus).terms(walltime=walltime).build()
        spec = replace(job.spec, work=work)
        identity = JobId(f"job-{world.state.facts.numbered}")
        new = replace(job, job=identity, spec=spec, named=named, command=command_of(spec))
        world.propose(Submit((new,), "ada"))
        world.start(identity)
        world.finish(identity, ran=each)


def said(
    world: World,
    name: str,
    work: Work,
    *,
    named: bool = True,
    cpus: int = 1,
    walltime: int | None = None,
) -> tuple[int, Evidence] | None:
    """What is expected of the next job that runs this."""
    spec = replace(a_job(name).cpus(cpus).terms(walltime=walltime).spec(), work=work)
    return predict(world.state, "ada", name, command_of(spec), spec.shape, spec.terms, named=named)


def test_names_of_programs_that_run_anything_say_nothing_but_the_very_same_job_does() -> None:
    world = a_world()
    quick, other = Argv(("python", "quick.py")), Argv(("python", "train.py"))
    run(world, "python", quick, 2, 2, 2, named=False)
    assert said(world, "python", quick, named=False) == (2 * SECOND, Evidence(Like.JOB, 3, 3))
    assert said(world, "python", other, named=False) == (HOUR, Evidence(Like.SHAPE, 3, 3))


def test_runs_of_a_program_do_not_make_another_run_of_it_short_but_the_very_same_job_does() -> None:
    """What nobody named is called like its program: `sleep 5` says nothing of `sleep 100`."""
    world = a_world()
    short, long, asked = (Argv(("sleep", seconds)) for seconds in ("5", "7200", "100"))
    run(world, "sleep", short, 5, 5, 5, named=False)
    assert said(world, "sleep", short, named=False) == (5 * SECOND, Evidence(Like.JOB, 3, 3))
    assert said(world, "sleep", asked, named=False) == (HOUR, Evidence(Like.PROGRAM, 3, 3)), (
        "not shorter than what is unknown"
    )
    run(world, "sleep", long, 7200, 7200, 7200, named=False)
    expected = (7200 * SECOND, Evidence(Like.PROGRAM, 6, 6))
    assert said(world, "sleep", asked, named=False) == expected, "but it may be longer"


@pytest.mark.parametrize(
    "other",
    [
        Argv(("sleep", "1000")),
        Argv(("python", "train.py")),
        Shell("make all"),
        PythonCall("m:train"),
        Container("ghcr.io/lab/blast:2"),
    ],
)
def test_a_name_that_another_command_had_before_does_not_make_a_job_short(other: Work) -> None:
    world = a_world()
    run(world, "nightly", Argv(("sleep", "1")), 1, 1, 1)
    assert said(world, "nightly", Argv(("sleep", "1"))) == (SECOND, Evidence(Like.JOB, 3, 3))
    found = said(world, "nightly", other)
    assert found is not None
    assert found[0] == HOUR, "as long as what is unknown"
    run(world, "nightly", other, 90, 90, 90)
    assert said(world, "nightly", other) == (90 * SECOND, Evidence(Like.JOB, 3, 3))
    assert said(world, "nightly", Argv(("sleep", "1"))) == (SECOND, Evidence(Like.JOB, 3, 3)), "nor the first"


def test_a_name_that_other_programs_had_says_nothing_however_many_they_were() -> None:
    world = a_world()
    for each in ("a", "b", "c", "d"):
        run(world, "test", Argv((f"./{each}.sh",)), 1, 1, 1)
    assert said(world, "test", Argv(("./train.sh",))) == (HOUR, Evidence(Like.SHAPE, 12, 12))


def test_a_name_whose_program_ran_with_several_arguments_tells_how_long_others_take() -> None:
    """As in a sweep: three different commands show that the arguments do not matter much."""
    world = a_world()

    def rate(value: str) -> Work:
        return Argv(("python", "train.py", "--rate", value))

    run(world, "train", rate("0.1"), 300, 300, 300)
    run(world, "train", rate("0.2"), 310)
    assert said(world, "train", rate("0.4")) == (HOUR, Evidence(Like.NAME, 4, 4)), "two are too few"
    run(world, "train", rate("0.3"), 320)
    assert said(world, "train", rate("0.4")) == (320 * SECOND, Evidence(Like.NAME, 5, 5))
    assert said(world, "train", rate("0.1")) == (300 * SECOND, Evidence(Like.JOB, 3, 3)), "its own runs"


def test_the_same_command_with_other_resources_is_the_same_job_until_it_has_run_with_them() -> None:
    world = a_world()
    train = Argv(("python", "train.py"))
    run(world, "train", train, 300, 300, 300)
    assert said(world, "train", train, cpus=2) == (300 * SECOND, Evidence(Like.JOB, 3, 3))
    run(world, "train", train, 160, 160, 160, cpus=2)
    assert said(world, "train", train, cpus=2) == (160 * SECOND, Evidence(Like.JOB, 3, 3))
    assert said(world, "train", train) == (300 * SECOND, Evidence(Like.JOB, 3, 3))


def test_a_job_with_a_walltime_believes_jobs_that_asked_for_as_much() -> None:
    """Its walltime says itself that it is longer or shorter, so that other jobs count."""
    world = a_world()
    run(world, "first", Argv(("./first",)), 60, 60, 60, walltime=2 * HOUR)
    assert said(world, "next", Argv(("./next",)), walltime=2 * HOUR) == (
        MINUTE,
        Evidence(Like.SHAPE, 3, 3),
    )
    assert said(world, "next", Argv(("./next",)), walltime=3 * HOUR) is None


def test_a_job_that_runs_all_the_time_does_not_outweigh_the_others() -> None:
    world = a_world()
    run_jobs(world, *[1] * 40, cpus=1)
    run_jobs(world, 100, 100, 100, cpus=2)
    sample = world.state.history["job", "ada", called("train"), None]
    assert sample.runs == [SECOND] * FEW + [100 * SECOND] * FEW
    program = world.state.history["name", "ada", called("train")[:-16], None]
    assert (program.runs, program.kinds) == ([SECOND] * FEW, 1), "and a command does not outweigh others"


def test_only_the_last_runs_count() -> None:
    world = a_world()
    run_jobs(world, *[100] * 200)
    run_jobs(world, *[10] * 20)
    assert submit(world, a_job("train")).predicted == 10 * SECOND
    assert len(world.state.history["job", "ada", called("train"), a_job().spec().shape].runs) == WINDOW


def test_what_an_older_release_learned_counts_until_jobs_run_again() -> None:
    world, shape = a_world(), a_job().spec().shape
    old = Sample("1", ("shape", "ada", "", shape), count=40, total=40 * 7200 * SECOND)
    world.state.history[old.about] = world.state.samples["1"] = old
    world.state.facts.sampled = 1
    assert submit(world, a_job("train")).predicted == 7200 * SECOND
    run_jobs(world, 9000)
    assert (old.runs, old.total) == ([7200 * SECOND] * FEW + [9000 * SECOND], 0)
    assert submit(world, a_job("train")).predicted == 9000 * SECOND


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
    assert world.state.history["job", "ada", called("late"), world.job("late").kind.shape].count == 1


def test_members_count_as_jobs_of_their_array() -> None:
    world = a_world()
    world.submit(a_job("sweep").array(1, 4))
    for number in range(1, 5):
        world.start(f"sweep.{number}")
        world.finish(f"sweep.{number}", ran=8)
    (following,) = world.submit(a_job("sweep2").array(1, 2))
    assert world.job(following).predicted == HOUR, "by its shape"
    assert world.job(f"{following}.1").evidence == Evidence(Like.SHAPE, 3, 3)
    assert world.state.history["job", "ada", called("sweep"), None].count == FEW


def test_the_longest_unused_is_forgotten_and_no_checkpoint_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "KEPT", 16)
    monkeypatch.setattr(history, "DROPPED", 4)
    world, checkpoints = a_world(), Checkpoints()
    for number in range(30):
        run_jobs(world, 1, name=f"name-{number}")
        run_jobs(world, 1, name="often")
        checkpoints.write(world.state)
    assert len(world.state.history) <= 16
    assert world.state.history["job", "ada", called("often"), a_job().spec().shape].count == 30
    assert ("job", "ada", called("name-0"), a_job().spec().shape) not in world.state.history
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


def test_the_digest_of_a_command_is_there_once_however_many_jobs_run_it() -> None:
    world = World(load, PolicySet(wait=Choice("never")))
    world.submit(a_job("one"))
    world.submit(a_job("two"))
    one, two = (world.state.jobs[JobId(each)] for each in ("one", "two"))
    assert one.command
    assert one.command is two.command
