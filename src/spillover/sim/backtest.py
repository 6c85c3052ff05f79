"""A back-test: jobs that really ran, once more under the policies that decided then, and under others."""

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict, replace

from spillover.forms.problems import BadForm, FormProblem
from spillover.model.policy import PolicySet
from spillover.model.policy_options import write_policies
from spillover.model.units import format_time
from spillover.sim.comparing import Deviation, ProjectChange, by_project, deviation
from spillover.sim.estimates import Told, with_estimates
from spillover.sim.failing import JobFailure
from spillover.sim.outcome import JobOutcome
from spillover.sim.past import PastJobs
from spillover.sim.runner import simulate
from spillover.sim.served import Ruling
from spillover.sim.setting import Scene
from spillover.sim.statistics import Statistics, summarize


class Run(Struct, frozen=True):
    """One life of the jobs."""

    name: str
    """`happened`, `really`, or the policy as it was written."""
    policy: str
    """All of it in a line; the first where others took over; empty for what happened."""
    statistics: Statistics
    outcomes: tuple[JobOutcome, ...]
    projects: tuple[ProjectChange, ...] = ()
    """Of a policy: what it changes for whom."""
    failures: tuple[JobFailure, ...] = ()
    """Policies of installed packages that failed: then the numbers are not theirs."""


class Backtest(Struct, frozen=True):
    """What really happened, the same simulated, and what other policies would have made of it."""

    happened: Run
    really: Run
    error: Deviation
    policies: tuple[Run, ...]


def run(
    history: PastJobs,
    ruling: Ruling,
    policies: Sequence[tuple[str, PolicySet]],
    told: Told,
    warmup: int = 0,
    done: Callable[[str], None] = lambda _: None,
) -> Backtest:
    """Simulate what really ran and each of the policies; `done` hears of each."""
    count = len(history.counted())
    if not count:
        raise BadForm(
            [FormProblem("", None, "", "there are no jobs that ran in this span; choose another one")]
        )
    if count <= 2 * warmup:
        few = f"leaves none of {count} jobs; the most is {(count - 1) // 2}"
        raise BadForm([FormProblem("--warmup", None, "", f"{warmup} {few}")])
    counted = history.counted(warmup)
    lives = _Lives(history, told, counted)
    happened = Run("happened", "", lives.told_of(history.happened), history.happened)
    really = lives.simulated("really", ruling)
    done("what really ran")
    others: list[Run] = []
    for name, chosen in policies:
        other = lives.simulated(name, Ruling(chosen))
        changes = by_project(history.jobs, history.happened, really.outcomes, other.outcomes, counted)
        others.append(replace(other, projects=tuple(changes)))
        done(name)
    error = deviation(history.happened, really.outcomes, happened.statistics, really.statistics, counted)
    return Backtest(happened, really, error, tuple(others))


class _Lives:
    """Simulates the jobs of a history, and sums up."""

    def __init__(self, history: PastJobs, told: Told, counted: range) -> None:
        self._history = history
        self._jobs = with_estimates(history.jobs, told, 0)
        self._counted = counted
        some = history.happened[counted.start : counted.stop]
        self._window = some[0].submit, max(one.end for one in some)
        """The same for all: from the first job that counts to the end of the last one, as it happened."""
        paid = {one.cluster for one in history.happened if one.cost}
        self._rented = history.site.rented | paid
        """Also clusters that are not there any more, if they cost something."""

    def simulated(self, name: str, ruling: Ruling) -> Run:
        """One life under some policies."""
        history = self._history
        begin = history.jobs[0].submit
        scene = Scene(history.site, ruling.first, history.fleet, begin, ruling.changes, history.budgets)
        failures: list[JobFailure] = []
        outcomes = tuple(simulate(self._jobs, scene, failures=failures))
        policy = write_policies(ruling.first)
        return Run(name, policy, self.told_of(outcomes), outcomes, failures=tuple(failures))

    def told_of(self, outcomes: Sequence[JobOutcome]) -> Statistics:
        """A life in numbers."""
        return summarize(
            self._history.jobs, outcomes, self._history.site, self._counted, self._window, self._rented
        )


def fields(found: Backtest, history: PastJobs, ruling: Ruling, told: Told, warmup: int) -> dict[str, Any]:
    """The result for a program."""
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
        "policies": [
            {
                "policy": one.policy,
                "written": one.name,
                **asdict(one.statistics),
                "policy_failures": [asdict(each) for each in one.failures],
                "projects": [asdict(each) for each in one.projects],
            }
            for one in found.policies
        ],
    }
