"""One study: a trace on a setting, and what becomes of it under one set of policies or another."""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from spillover.forms.problems import BadForm, FormProblem
from spillover.model.policy import Choice, PolicySet
from spillover.model.policy_options import write_policies
from spillover.sim.estimates import Told, with_estimates
from spillover.sim.failing import JobFailure
from spillover.sim.outcome import JobOutcome
from spillover.sim.runner import Ended, simulate
from spillover.sim.setting import Fleet, Rent, Setting
from spillover.sim.statistics import Statistics, summarize
from spillover.sim.trace import Trace, TraceJob
from spillover.sim.traces.opening import SYNTHETIC, read_trace


class Study(Struct, frozen=True):
    """Everything but the policies; the same study gives the same numbers."""

    trace: str
    """A path, or a recipe behind `synthetic:`."""
    fleet: Fleet
    rent: Rent
    seed: int = 0
    """Of all dice: those of a recipe and of errors of estimates."""
    warmup: int = 0
    """Jobs left out of the statistics at both ends."""
    skip_bad: bool = False
    """Whether rows that are wrong are left out."""
    told: Told = Told.RUNTIME
    normal: float = 0.0
    """Relative error of estimates, normally distributed."""
    lognormal: float = 0.0
    """Error of the logarithm of estimates."""


class StudyResult(Struct, frozen=True):
    """What became of a study under one set of policies."""

    policy: str
    """As `write_policies` writes it."""
    statistics: Statistics
    failures: tuple[JobFailure, ...] = ()
    """Policies of installed packages that failed: then the numbers are not theirs."""


def read_jobs(study: Study) -> Trace:
    """The jobs of a study, as the trace has them."""
    if study.trace.startswith(SYNTHETIC):
        from spillover.sim.traces.recipe import read_recipe  # noqa: PLC0415 - most studies have a file
        from spillover.sim.traces.synthetic import make_trace  # noqa: PLC0415 - likewise

        recipe = read_recipe(study.trace)
        trace = make_trace(recipe, study.fleet, study.seed, skip_bad=study.skip_bad)
    else:
        trace = read_trace(study.trace, skip_bad=study.skip_bad)
    if len(trace.jobs) <= 2 * study.warmup:
        few = f"leaves none of {len(trace.jobs)} jobs; the most is {(len(trace.jobs) - 1) // 2}"
        raise BadForm([FormProblem("--warmup", None, "", f"{study.warmup} {few}")])
    return trace


def run(
    study: Study, jobs: Sequence[TraceJob], policies: PolicySet, ended: Ended | None = None
) -> tuple[StudyResult, Sequence[JobOutcome]]:
    """Simulate, and say what came of it; `ended` hears now and then how many jobs have ended."""
    asked, normal = for_engine(policies)
    told = with_estimates(
        jobs,
        study.told,
        study.seed,
        normal=normal or study.normal,
        lognormal=0.0 if normal else study.lognormal,
    )
    failures: list[JobFailure] = []
    setting = Setting(study.fleet, study.rent, asked)
    outcomes = simulate(told, setting, failures=failures, ended=ended)
    counted = range(study.warmup, len(jobs) - study.warmup)
    numbers = summarize(jobs, outcomes, study.fleet, counted)
    return StudyResult(write_policies(policies), numbers, tuple(failures)), outcomes


def for_engine(policies: PolicySet) -> tuple[PolicySet, float]:
    """The policies as the engine takes them, and the error of estimates that was written among their options."""
    options = policies.wait.options
    if "estimate_error" not in options:
        return policies, 0.0
    rest = {name: value for name, value in options.items() if name != "estimate_error"}
    return replace(policies, wait=Choice(policies.wait.name, rest)), float(options["estimate_error"])
