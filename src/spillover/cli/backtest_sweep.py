"""The sweeps of a back-test: their points, their table and their plot, compared with the policies really in use."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from spillover.cli.printing.output import Output
from spillover.cli.sweeps import curve_names, draw_points, show_points
from spillover.forms.policystring import points, read_policies
from spillover.model.policy import PolicySet
from spillover.model.units import so_many
from spillover.sim.estimates import Known, Told
from spillover.sim.reports.plot import Origin
from spillover.sim.studies.backtest import Backtest, Run, run_fields
from spillover.sim.studies.study import StudyResult
from spillover.sim.studies.sweep import Point, dominated

REALLY: Final = "really"
"""The row of the policies that were in use, as simulated."""
ORIGIN: Final = Origin("as it was", "it was")


class Swept(NamedTuple):
    """The points of a back-test, after the policies that were in use."""

    points: Sequence[Point]
    results: Sequence[StudyResult]
    beaten: Sequence[bool]


def points_of(sweeps: Sequence[str], base: PolicySet) -> list[Point]:
    """Return the points of all sweeps, curve by curve; axes that a sweep does not name are those of `base`."""
    return [
        Point(number, step.label, step.value, read_policies(step.line, "--sweep", base=base), "")
        for number, sweep in enumerate(sweeps, 1)
        for step in points(sweep, "--sweep")
    ]


def swept_of(found: Backtest, asked: Sequence[Point], base: PolicySet, told: Told) -> Swept:
    """Return the results of all points, and which are dominated."""
    known = Known(told)
    first = Point(0, REALLY, "", base, "", known)
    every = [first, *(Point(one.curve, one.label, one.value, one.policies, "", known) for one in asked)]
    results = [_result(one, known) for one in (found.really, *found.swept)]
    return Swept(every, results, dominated(results))


def _result(one: Run, known: Known) -> StudyResult:
    return StudyResult(one.policy, one.statistics, one.failures, known)


def show_sweep(out: Output, swept: Swept) -> None:
    """Print a row for each point."""
    out.line()
    out.line("Policies of --sweep, compared with the simulation of the real policies:")
    show_points(out, *swept)


def sweep_fields(found: Backtest, swept: Swept) -> list[dict[str, Any]]:
    """Return the points as fields for JSON."""
    return [
        {**run_fields(one), "curve": point.curve, "label": point.label, "dominated": worse}
        for one, point, worse in zip(found.swept, swept.points[1:], swept.beaten[1:], strict=True)
    ]


def draw_sweep(picture: Path, swept: Swept, sweeps: Sequence[str], span: str, currency: str) -> None:
    """Draw the points; `span` says from when to when jobs were submitted."""
    title = f"{so_many(swept.results[0].statistics.jobs)} {span}"
    draw_points(picture, *swept, curve_names(sweeps), title, currency, ORIGIN)
