"""The chapters about machines of pools, beside ideal capacity: what boots, idle time and whole machines leave of the savings."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from bench.study.cases import Case
from bench.study.contests import (
    LEVELS,
    PHILLY,
    POLICIES,
    Chapter,
    Contest,
    both,
    contest,
    markdown,
    percent,
)
from bench.study.simulating import Results
from bench.study.variants import UNSEEN
from spillover.sim.reports.statistics import Statistics

IDEAL: Final = "ideal"
MACHINES: Final = {
    IDEAL: "gpu=1",
    "90 s, by the second": "pool:8gpu,hour=8,boot=90s",
    "5 min, by the second": "pool:8gpu,hour=8,boot=5m",
    "90 s, by the hour": "pool:8gpu,hour=8,boot=90s,step=1h",
    "5 min, by the hour": "pool:8gpu,hour=8,boot=5m,step=1h",
}
"""By boot time and billing, machines of 8 GPUs at the price of the ideal for a GPU."""
EXTREMES: Final = (IDEAL, "90 s, by the second", "5 min, by the hour")
"""The machines of the variations."""
PART: Final = "philly_2017[40000:55000]"
"""Jobs of 13 days with much renting. All of Philly on a pool takes some minutes for each case."""
SAME: Final = 0.08
"""The coefficient of break_even that is shown; others only give its curve."""
# All machines are paid for, also those of the first jobs, so there is no warm-up to leave out.
BASE: Final = replace(PHILLY, trace=PART, warmup=0)
VARIATIONS: Final = {
    "estimates with error 0.5": replace(BASE, lognormal=LEVELS["error 0.5"]),
    "48 nodes": replace(BASE, owned="48x8gpu"),
    "96 nodes": replace(BASE, owned="96x8gpu"),
}
"""What differs from 64 nodes with known runtimes."""


class Compared(NamedTuple):
    """The simulations of one row."""

    zero: Case
    contest: Contest
    unseen: Case | None
    """break_even without seeing machines; None on ideal capacity."""

    @property
    def same(self) -> Case:
        """The simulation of break_even that is shown."""
        return next(case for case in self.contest.curve if f"({SAME})" in case.policy)

    @property
    def cases(self) -> list[Case]:
        """All of them."""
        return [self.zero, *self.contest.cases, *([] if self.unseen is None else [self.unseen])]


def _compared(base: Case, machines: str) -> Compared:
    base = replace(base, rented=MACHINES[machines])
    one = contest(base, 0.076, (0.03, SAME, 0.24) if machines == IDEAL else (SAME, 0.24))
    row = Compared(replace(base, policy=POLICIES["zero"]), one, None)
    return row if machines == IDEAL else row._replace(unseen=replace(row.same, variant=UNSEEN))


_POOLS: Final = {machines: _compared(BASE, machines) for machines in MACHINES}
_VARIED: Final = {
    name: {machines: _compared(base, machines) for machines in EXTREMES} for name, base in VARIATIONS.items()
}
COLUMNS: Final = (
    "zero wait: cost ÷ ideal",
    "compute(0.076)",
    f"break_even({SAME})",
    "the same without seeing machines",
    "break_even against compute",
    "useful, %",
)


def _cells(found: Mapping[str, Compared], machines: str, results: Results) -> list[str]:
    """Format costs of zero wait, of compute and of break_even on one kind of machines."""
    row, ideal = found[machines], results[found[IDEAL].zero].statistics.rented_cost
    zero, compute = results[row.zero].statistics, results[row.contest.compute].statistics
    same = results[row.same].statistics
    return [
        f"{zero.rented_cost / ideal:.2f}",
        _cell(zero, compute),
        _cell(zero, same),
        "" if row.unseen is None else _cell(zero, results[row.unseen].statistics),
        both(row.contest.gain(results)),
        " · ".join(_useful(each) for each in (zero, compute, same) if each.pool is not None),
    ]


def _pools(results: Results) -> str:
    rows = [[machines, *_cells(_POOLS, machines, results)] for machines in MACHINES]
    return markdown(["machines", *COLUMNS], rows)


def _varied(results: Results) -> str:
    rows = [
        [name, machines, *_cells(found, machines, results)]
        for name, found in _VARIED.items()
        for machines in EXTREMES
    ]
    return markdown(["", "machines", *COLUMNS], rows)


def _cell(zero: Statistics, found: Statistics) -> str:
    """Format the cost saved / the change of completion time, compared with zero wait."""
    saved = 1 - found.rented_cost / zero.rented_cost
    return f"{percent(saved)} / {100 * (found.mean_completion_s / zero.mean_completion_s - 1):+.1f}"


def _useful(found: Statistics) -> str:
    """Format the share of the paid machine hours that completed jobs used."""
    return "" if found.pool is None else percent(found.pool.useful_hours / found.pool.paid_hours, 0)


def _all(rows: Sequence[Compared]) -> list[Case]:
    return [case for row in rows for case in row.cases]


POOLS: Final = Chapter(_all(list(_POOLS.values())), _pools)
VARIED: Final = Chapter(_all([row for found in _VARIED.values() for row in found.values()]), _varied)
