"""Simulates jobs that really ran, under the policies of the time and under others."""

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict, replace

from spillover.forms.problems import BadForm, FormProblem
from spillover.model.ids import ClusterName
from spillover.model.policy import PolicySet
from spillover.model.policy_options import write_policies
from spillover.model.units import MONEY, format_time
from spillover.sim.estimates import Told, with_estimates
from spillover.sim.outcome import JobOutcome
from spillover.sim.pools import PoolNumbers
from spillover.sim.reports.failures import JobFailure
from spillover.sim.reports.statistics import Statistics, summarize, with_machines
from spillover.sim.runner import simulate
from spillover.sim.setting import Scene
from spillover.sim.studies.comparing import Deviation, ProjectChange, by_project, deviation
from spillover.sim.studies.past import PastJobs
from spillover.sim.studies.served import Ruling


class Run(Struct, frozen=True):
    """The jobs as they happened, or as simulated under some policies."""

    name: str
    """`happened`, `really`, or the policy as written."""
    policy: str
    """The full policy in one line (the first one if it changed); empty for what happened."""
    statistics: Statistics
    outcomes: tuple[JobOutcome, ...]
    projects: tuple[ProjectChange, ...] = ()
    """The change for each project; only for other policies."""
    failures: tuple[JobFailure, ...] = ()
    """Policies of installed packages that failed; if any did, the numbers are not valid."""


class Backtest(Struct, frozen=True):
    """What really happened, its simulation, and simulations under other policies."""

    happened: Run
    really: Run
    error: Deviation
    policies: tuple[Run, ...]
    swept: tuple[Run, ...] = ()
    """The points of sweeps."""


def run(
    history: PastJobs,
    ruling: Ruling,
    policies: Sequence[tuple[str, PolicySet]],
    told: Told,
    warmup: int = 0,
    done: Callable[[str], None] = lambda _: None,
    swept: Sequence[tuple[str, PolicySet]] = (),
) -> Backtest:
    """Simulate the real policies, each of the others and the points of sweeps; call `done` after each."""
    count = len(history.counted())
    if not count:
        raise BadForm([FormProblem("", None, "", "no job ran in this time range; choose another one")])
    if count <= 2 * warmup:
        few = f"leaves none of the {count} jobs; the maximum is {(count - 1) // 2}"
        raise BadForm([FormProblem("--warmup", None, "", f"{warmup} {few}")])
    counted = history.counted(warmup)
    lives = _Lives(history, told, counted)
    happened = Run("happened", "", lives.told_of(history.happened), history.happened)
    really = lives.simulated("really", ruling)
    done("what really ran")
    others: list[Run] = []
    for name, chosen in (*policies, *swept):
        other = lives.simulated(name, Ruling(chosen))
        changes = by_project(history.jobs, history.happened, really.outcomes, other.outcomes, counted)
        kept = other.outcomes if len(others) < len(policies) else ()  # those of many points need much memory
        others.append(replace(other, projects=tuple(changes), outcomes=kept))
        done(name)
    # What happened has the shares that jobs paid of machines of pools, so shares are compared.
    shares = lives.told_of(really.outcomes)
    error = deviation(history.happened, really.outcomes, happened.statistics, shares, counted)
    count = len(policies)
    return Backtest(happened, really, error, tuple(others[:count]), tuple(others[count:]))


class _Lives:
    """Simulates the jobs of a history, and computes statistics."""

    def __init__(self, history: PastJobs, told: Told, counted: range) -> None:
        self._history = history
        self._jobs = with_estimates(history.jobs, told, 0)
        self._counted = counted
        some = history.happened[counted.start : counted.stop]
        self._window = some[0].submit, max(one.end for one in some)
        """From the first counted submission to the last end, as it happened; the same for all runs."""
        paid = {one.cluster for one in history.happened if one.cost}
        self._rented = history.site.rented | paid
        """Includes clusters that no longer exist, if they had costs."""

    def simulated(self, name: str, ruling: Ruling) -> Run:
        """Simulate the jobs under some policies."""
        history = self._history
        begin = history.jobs[0].submit
        scene = Scene(
            history.site,
            ruling.first,
            history.fleet,
            begin,
            ruling.changes,
            history.budgets,
            queues=history.queues,
        )
        failures: list[JobFailure] = []
        pools: dict[ClusterName, PoolNumbers] = {}
        outcomes = tuple(simulate(self._jobs, scene, failures=failures, pools=pools))
        first, last = self._counted[0], self._counted[-1]
        by_use = [one.cost for one in outcomes if first <= one.job <= last and one.cluster not in pools]
        numbers = with_machines(self.told_of(outcomes), pools, sum(by_use) / MONEY)
        return Run(name, write_policies(ruling.first), numbers, outcomes, failures=tuple(failures))

    def told_of(self, outcomes: Sequence[JobOutcome]) -> Statistics:
        """Compute the statistics of outcomes."""
        return summarize(
            self._history.jobs, outcomes, self._history.site, self._counted, self._window, self._rented
        )


def fields(found: Backtest, history: PastJobs, ruling: Ruling, told: Told, warmup: int) -> dict[str, Any]:
    """Return the result as fields for JSON."""
    return {
        "jobs": len(history.counted()),
        "standing": history.standing,
        "first_at": format_time(history.jobs[history.standing].submit),
        "last_at": format_time(history.jobs[-1].submit),
        "warmup": warmup,
        "estimates": told,
        "never_ran": history.never_ran,
        "left_out": history.left_out,
        "remarks": history.remarks,
        "happened": asdict(found.happened.statistics),
        "really": {
            "policy": found.really.policy,
            "changes": [
                {"at": format_time(at), "policy": write_policies(policies)} for at, policies in ruling.changes
            ],
            **asdict(found.really.statistics),
            "policy_failures": [asdict(each) for each in found.really.failures],
        },
        "error": asdict(found.error),
        "policies": [run_fields(one) for one in found.policies],
    }


def run_fields(one: Run) -> dict[str, Any]:
    """Return the result under one of the other policies as fields for JSON."""
    return {
        "policy": one.policy,
        "written": one.name,
        **asdict(one.statistics),
        "policy_failures": [asdict(each) for each in one.failures],
        "projects": [asdict(each) for each in one.projects],
    }
