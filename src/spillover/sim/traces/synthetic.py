"""Generates synthetic jobs from a recipe.

Arrivals, runtimes, sizes and users have separate random generators, so that a change of one leaves the others
unchanged. Times are whole milliseconds, so that the last digit of a logarithm, which differs between machines, has no
effect.
"""

from bisect import bisect
from collections.abc import Sequence
from itertools import accumulate
from math import exp
from typing import Final

from spillover.model.units import HOUR
from spillover.sim.dice import dice_of
from spillover.sim.setting import Fleet
from spillover.sim.trace import Trace, TraceJob
from spillover.sim.traces.opening import read_trace
from spillover.sim.traces.recipe import Recipe, refused
from spillover.sim.traces.rows import MOST

_MS: Final = 10**6


def make_trace(recipe: Recipe, fleet: Fleet, seed: int, *, skip_bad: bool = False) -> Trace:
    """Generate the jobs of a recipe; the result depends only on recipe, fleet and seed."""
    bodies = _resampled(recipe, seed, skip_bad=skip_bad) if recipe.like else _drawn(recipe, seed)
    gap = HOUR / recipe.rate if recipe.rate else _gap(recipe, bodies, fleet)
    dice = dice_of(seed, "arrivals")
    jobs: list[TraceJob] = []
    clock, shape = 0.0, 1 / recipe.burstiness**2 if recipe.burstiness else 0.0
    for number, body in enumerate(bodies):
        submit = round(clock / _MS) * _MS
        if submit > MOST:
            raise refused(
                "the last job would arrive after more than a million days; use fewer jobs or a higher load"
            )
        jobs.append(
            TraceJob(
                str(number),
                submit,
                body.runtime,
                body.gpus,
                body.cpus,
                body.nodes,
                body.memory,
                body.user,
                body.project,
                body.walltime,
                topology=body.topology,
            )
        )
        clock += dice.gammavariate(shape, gap / shape) if shape else gap
    return Trace(tuple(jobs))


def _drawn(recipe: Recipe, seed: int) -> list[TraceJob]:
    """Draw runtimes, sizes and users independently; submission times come later."""
    runtimes, sizes, users = (dice_of(seed, what) for what in ("runtimes", "sizes", "users"))
    names = [f"u{number + 1}" for number in range(recipe.users)]
    upto = list(accumulate(1 / (number + 1) for number in range(recipe.users)))
    most = recipe.max_runtime or MOST // 2
    median = recipe.mean / exp(recipe.sigma**2 / 2)
    bodies: list[TraceJob] = []
    for _ in range(recipe.jobs):
        if recipe.kind == "lognormal":
            runtime = median * exp(runtimes.gauss(0.0, recipe.sigma))
        elif recipe.kind == "exponential":
            runtime = runtimes.expovariate(1.0) * recipe.mean
        else:
            runtime = float(recipe.mean)
        whole = min(most, max(_MS, round(min(runtime, most) / _MS) * _MS))
        gpus = recipe.gpus.draw(sizes) if recipe.gpus else 0
        cpus = recipe.cpus.draw(sizes) if recipe.cpus else 0
        user = names[bisect(upto, users.random() * upto[-1], hi=recipe.users - 1)]
        bodies.append(TraceJob("", 0, whole, gpus, cpus, user=user, project=user))
    return bodies


def _resampled(recipe: Recipe, seed: int, *, skip_bad: bool) -> list[TraceJob]:
    """Draw whole jobs of another trace."""
    like = read_trace(recipe.like or "", skip_bad=skip_bad).jobs
    dice = dice_of(seed, "like")
    most = recipe.max_runtime or MOST // 2
    drawn = (like[int(dice.random() * len(like))] for _ in range(recipe.jobs))
    return [_cut(job, most) for job in drawn]


def _cut(job: TraceJob, most: int) -> TraceJob:
    """Cut the runtime of a job to a limit."""
    if job.runtime <= most:
        return job
    sizes = (job.gpus, job.cpus, job.nodes, job.memory)
    return TraceJob("", 0, most, *sizes, job.user, job.project, job.walltime, topology=job.topology)


def _no_load(requested: str | None) -> str:
    """Return why jobs have no load, given the resource that they request; None is neither GPUs nor CPUs."""
    rate = "so load has no meaning; set rate=... (jobs per hour)"
    if requested is None:
        return f"the jobs request neither GPUs nor CPUs, {rate}"
    return f"the jobs request {requested}, but --owned has none, {rate}, or add {requested} to --owned"


def _gap(recipe: Recipe, bodies: Sequence[TraceJob], fleet: Fleet) -> float:
    """Return the mean nanoseconds between arrivals that give the load of the recipe on owned machines."""
    gpus, cpus = any(body.gpus for body in bodies), any(body.cpus for body in bodies)
    total = fleet.total
    by_gpu = total.gpu > 0 and gpus
    if not by_gpu and not (fleet.limits_cpu and cpus):
        raise refused(_no_load("GPUs" if gpus else "CPUs" if cpus else None))
    work = sum((body.gpus if by_gpu else body.cpus) * body.runtime for body in bodies)
    return work / (len(bodies) * (total.gpu if by_gpu else total.cpu) * (recipe.load or 1.0))
