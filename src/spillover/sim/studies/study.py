"""Runs one study: a trace on a setting, under one set of policies at a time."""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from spillover.forms.problems import BadForm, FormProblem
from spillover.model.ids import ClusterName
from spillover.model.policy import Choice, PolicySet
from spillover.model.policy_options import write_policies
from spillover.sim.estimates import Known, Told, with_estimates
from spillover.sim.outcome import JobOutcome
from spillover.sim.pools import PoolNumbers
from spillover.sim.reports.failures import JobFailure
from spillover.sim.reports.statistics import Statistics, summarize, with_machines
from spillover.sim.runner import Ended, simulate
from spillover.sim.setting import Fleet, Rent, ReservedNodes, Setting
from spillover.sim.trace import Trace, TraceJob
from spillover.sim.traces.opening import SYNTHETIC, read_trace
from spillover.sim.traces.places import check_levels


class Study(Struct, frozen=True):
    """Everything but the policies; the same study always gives the same numbers."""

    trace: str
    """A path, or a recipe after `synthetic:`."""
    fleet: Fleet
    rent: Rent
    seed: int = 0
    """Seed of the recipe and of errors of estimates."""
    warmup: int = 0
    """Jobs to leave out of the statistics at each end."""
    skip_bad: bool = False
    """Whether to skip invalid rows."""
    told: Told = Told.RUNTIME
    normal: float = 0.0
    """Standard deviation of the relative error of estimates."""
    lognormal: float = 0.0
    """Standard deviation of the error of the logarithm of estimates."""
    reserved: tuple[ReservedNodes, ...] = ()


class StudyResult(Struct, frozen=True):
    """The result of a study under one set of policies."""

    policy: str
    """In the format of `write_policies`."""
    statistics: Statistics
    failures: tuple[JobFailure, ...] = ()
    """Policies of installed packages that failed; if any did, the numbers are not valid."""
    known: Known = Known()
    """What the policies knew about runtimes."""


def read_jobs(study: Study) -> Trace:
    """Read or generate the jobs of a study."""
    if study.trace.startswith(SYNTHETIC):
        from spillover.sim.traces.recipe import read_recipe  # noqa: PLC0415 - most studies read a file
        from spillover.sim.traces.synthetic import make_trace  # noqa: PLC0415 - likewise

        recipe = read_recipe(study.trace)
        trace = make_trace(recipe, study.fleet, study.seed, skip_bad=study.skip_bad)
    else:
        trace = read_trace(study.trace, skip_bad=study.skip_bad)
    check_levels(study.trace, trace.jobs, study.fleet)
    if len(trace.jobs) <= 2 * study.warmup:
        few = f"leaves none of the {len(trace.jobs)} jobs; the maximum is {(len(trace.jobs) - 1) // 2}"
        raise BadForm([FormProblem("--warmup", None, "", f"{study.warmup} {few}")])
    return trace


def run(
    study: Study, jobs: Sequence[TraceJob], policies: PolicySet, ended: Ended | None = None
) -> tuple[StudyResult, Sequence[JobOutcome]]:
    """Simulate and summarise; `ended` is called from time to time with the number of ended jobs."""
    asked, _ = for_engine(policies)
    known = known_to(study, policies)
    told = with_estimates(jobs, known.told, study.seed, normal=known.normal, lognormal=known.lognormal)
    failures: list[JobFailure] = []
    setting = Setting(study.fleet, study.rent, asked, study.reserved)
    pools: dict[ClusterName, PoolNumbers] = {}
    outcomes = simulate(told, setting, failures=failures, ended=ended, pools=pools)
    counted = range(study.warmup, len(jobs) - study.warmup)
    numbers = with_machines(summarize(jobs, outcomes, study.fleet, counted), pools)
    return StudyResult(write_policies(policies), numbers, tuple(failures), known), outcomes


def known_to(study: Study, policies: PolicySet) -> Known:
    """Return what policies know about runtimes; an `estimate_error` among their options comes before the study."""
    _, normal = for_engine(policies)
    return Known(normal=normal) if normal else Known(study.told, study.normal, study.lognormal)


def for_engine(policies: PolicySet) -> tuple[PolicySet, float]:
    """Separate policies as the engine takes them from the `estimate_error` option, which is for the study."""
    options = policies.wait.options
    if "estimate_error" not in options:
        return policies, 0.0
    rest = {name: value for name, value in options.items() if name != "estimate_error"}
    return replace(policies, wait=Choice(policies.wait.name, rest)), float(options["estimate_error"])
