"""Jobs made up by a recipe, and what the scheduler is told of them."""

from itertools import pairwise
from pathlib import Path
from statistics import fmean, pstdev

import pytest

from spillover.forms.problems import BadForm
from spillover.model.units import HOUR, SECOND
from spillover.sim.estimates import Told, with_estimates
from spillover.sim.fleet import read_owned
from spillover.sim.trace import TraceJob
from spillover.sim.traces.recipe import read_recipe
from spillover.sim.traces.synthetic import make_trace

FLEET = read_owned("64x8gpu")


def make(recipe: str, seed: int = 1, owned: str = "64x8gpu") -> tuple[TraceJob, ...]:
    return make_trace(read_recipe(f"synthetic:{recipe}"), read_owned(owned), seed).jobs


def gaps(jobs: tuple[TraceJob, ...]) -> list[int]:
    return [later.submit - job.submit for job, later in pairwise(jobs)]


def test_the_same_seed_makes_the_same_jobs_and_another_one_others() -> None:
    recipe = "jobs=200,load=1.1,burstiness=2,runtime=lognormal(2h,1.5),gpus=1:0.7|8:0.3,users=5"
    assert make(recipe) == make(recipe)
    assert make(recipe) != make(recipe, seed=2)


def test_a_change_of_arrivals_leaves_the_jobs_as_they_were() -> None:
    calm, wild = make("jobs=100,burstiness=0"), make("jobs=100,burstiness=3,load=0.5")
    assert [(job.runtime, job.gpus) for job in calm] == [(job.runtime, job.gpus) for job in wild]
    assert len(set(gaps(calm))) <= 2
    assert len(set(gaps(wild))) > 50


@pytest.mark.parametrize("burstiness", [0.5, 1.0, 2.0])
def test_arrivals_have_the_burstiness_that_was_asked_for(burstiness: float) -> None:
    between = gaps(make(f"jobs=20000,rate=60,burstiness={burstiness},runtime=constant(1h)"))
    assert fmean(between) == pytest.approx(60 * SECOND, rel=0.05)
    assert pstdev(between) / fmean(between) == pytest.approx(burstiness, rel=0.05)


@pytest.mark.parametrize("runtime", ["exponential(2h)", "lognormal(2h,0.8)", "constant(2h)"])
def test_jobs_are_the_load_and_the_runtimes_that_were_asked_for(runtime: str) -> None:
    jobs = make(f"jobs=20000,load=1.2,runtime={runtime}")
    work = sum(job.gpus * job.runtime for job in jobs)
    assert work / (jobs[-1].submit * 64 * 8) == pytest.approx(1.2, rel=0.05)
    assert fmean(job.runtime for job in jobs) == pytest.approx(2 * HOUR, rel=0.05)


def test_sizes_are_drawn_by_weight() -> None:
    jobs = make("jobs=10000,gpus=1:3|4:1,cpus=0.5|2")
    assert sum(job.gpus == 4 for job in jobs) == pytest.approx(2500, rel=0.1)
    assert {job.cpus for job in jobs} == {500, 2000}


def test_users_differ_in_how_much_they_submit() -> None:
    users = [job.user for job in make("jobs=5000,users=3")]
    assert users.count("u1") > users.count("u2") > users.count("u3") > 500


def test_runtimes_can_be_cut() -> None:
    jobs = make("jobs=1000,max_runtime=3h")
    assert max(job.runtime for job in jobs) == 3 * HOUR


def test_jobs_can_be_drawn_from_a_trace(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("submit_s,runtime_s,gpus,user\n0,10,1,a\n5,20,2,b\n")
    jobs = make(f"jobs=100,rate=60,like={path}")
    assert {(job.runtime // SECOND, job.gpus, job.user) for job in jobs} == {(10, 1, "a"), (20, 2, "b")}
    assert [job.id for job in jobs] == [str(at) for at in range(100)]


def test_jobs_without_gpus_are_a_load_on_cpus() -> None:
    jobs = make("jobs=5000,load=0.8,cpus=1|4,runtime=constant(1h)", owned="100x4cpu")
    assert sum(job.cpus * job.runtime for job in jobs) / (jobs[-1].submit * 400_000) == pytest.approx(
        0.8, rel=0.05
    )


@pytest.mark.parametrize(
    ("recipe", "problem"),
    [
        ("job=5", "'job=5' is not a field of a recipe; did you mean `jobs`?"),
        ("jobs=0", "jobs: '0' is not a whole number from 1"),
        ("jobs=1,jobs=2", "jobs: is given twice"),
        ("load=x", "load: 'x' is not a number"),
        ("load=1,rate=1", "rate: excludes load"),
        ("runtime=weibull(1h)", "runtime: 'weibull(1h)' is not a distribution; write exponential(2h)"),
        ("runtime=exponential(1h,2)", "runtime: 'exponential(1h,2)' is not a distribution"),
        ("runtime=lognormal(1h,9)", "runtime: sigma 9 is too large"),
        ("runtime=constant(5)", "runtime: '5' is not a duration"),
        ("gpus=a:1", "gpus: 'a:1' is not a size"),
        ("gpus=0.5", "gpus: '0.5' is not a size"),
        ("gpus=0", "gpus: has no size above 0"),
        ("gpus=0:1|1:1", "has jobs without GPUs"),
        ("like=x,gpus=1", "gpus: comes from the jobs of like"),
        ("like=", "like: needs a file"),
        ("burstiness=-1", "burstiness: '-1' is not a number"),
    ],
)
def test_a_recipe_that_is_none_is_told(recipe: str, problem: str) -> None:
    with pytest.raises(BadForm) as error:
        read_recipe(f"synthetic:{recipe}")
    assert str(error.value).startswith(f"--trace: {problem}")


@pytest.mark.parametrize(
    ("recipe", "owned", "kind"), [("cpus=4", "64x8gpu", "CPUs"), ("gpus=1", "64x8cpu", "GPUs")]
)
def test_a_load_of_nothing_that_is_owned_is_refused(recipe: str, owned: str, kind: str) -> None:
    with pytest.raises(BadForm) as error:
        make(recipe, owned=owned)
    assert str(error.value).endswith(
        f"the jobs request {kind}, but --owned has none, so load has no meaning; "
        f"set rate=... (jobs per hour), or add {kind} to --owned"
    )


def test_a_load_of_jobs_that_are_counted_in_nodes_is_refused(tmp_path: Path) -> None:
    trace = tmp_path / "nodes.csv"
    trace.write_text("id,submit_s,runtime_s,nodes\na,0,60,1\n")
    with pytest.raises(
        BadForm, match="the jobs request neither GPUs nor CPUs, so load has no meaning; set rate="
    ):
        make(f"like={trace}")


JOBS = [TraceJob(str(at), at, 100 * SECOND, 1, walltime=HOUR) for at in range(2000)]


def test_the_scheduler_is_told_the_truth_the_walltime_or_nothing() -> None:
    assert {job.estimate for job in with_estimates(JOBS, Told.RUNTIME, 1)} == {100 * SECOND}
    assert {(job.estimate, job.walltime) for job in with_estimates(JOBS, Told.WALLTIME, 1)} == {(None, HOUR)}
    assert {(job.estimate, job.walltime) for job in with_estimates(JOBS, Told.NOTHING, 1)} == {(None, None)}


def test_errors_of_estimates_are_as_large_as_asked_for_and_repeatable() -> None:
    normal = [job.estimate or 0 for job in with_estimates(JOBS, Told.RUNTIME, 1, normal=0.25)]
    assert fmean(normal) == pytest.approx(100 * SECOND, rel=0.02)
    assert pstdev(normal) == pytest.approx(25 * SECOND, rel=0.1)
    assert min(job.estimate or 0 for job in with_estimates(JOBS, Told.RUNTIME, 1, normal=2.0)) == 0
    spread = [job.estimate or 0 for job in with_estimates(JOBS, Told.RUNTIME, 1, lognormal=0.5)]
    assert sorted(spread)[1000] == pytest.approx(100 * SECOND, rel=0.05)
    assert spread == [job.estimate for job in with_estimates(JOBS, Told.RUNTIME, 1, lognormal=0.5)]
