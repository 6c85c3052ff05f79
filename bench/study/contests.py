"""What all chapters of the study use: the base case, contests of two policies, and how results are formatted."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from bench.study.cases import Case
from bench.study.curves import Gain, gain
from bench.study.simulating import Results

OOO: Final = "backfill=out_of_order"
PHILLY: Final = Case("philly_2017", "64x8gpu", "gpu=1", "", warmup=5000)
LEVELS: Final = {"known": 0.0, "error 0.5": 0.5, "error 1.0": 1.0}
"""Lognormal errors of estimates."""
POLICIES: Final = {
    "zero": "wait=zero,backfill=out_of_order",
    "constant": "wait=constant(1h),backfill=strict",
    "compute": f"wait=compute(0.076,max_queue=30),{OOO}",
    "budget": f"wait=budget(0.05),{OOO}",
    "break_even": f"wait=break_even(0.076),{OOO}",
}


class Chapter(NamedTuple):
    """A part of the page."""

    cases: Sequence[Case]
    table: Callable[[Results], str]


class Contest(NamedTuple):
    """break_even with several coefficients, compared with compute with one."""

    compute: Case
    curve: tuple[Case, ...]

    def gain(self, results: Results) -> Gain:
        """Return the gain of break_even."""
        return gain(results[self.compute].statistics, [results[case].statistics for case in self.curve])

    @property
    def cases(self) -> tuple[Case, ...]:
        """All simulations of the contest."""
        return (self.compute, *self.curve)


def contest(base: Case, coefficient: float, curve: Iterable[float], scale: float = 1.0) -> Contest:
    """Return a contest, with coefficients divided by `scale`."""
    return Contest(
        replace(base, policy=f"wait=compute({coefficient / scale:.8g}),{OOO}", variant=""),
        tuple(replace(base, policy=f"wait=break_even({each / scale:.8g}),{OOO}") for each in curve),
    )


def markdown(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Format a table."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def percent(share: float | None, digits: int = 1) -> str:
    """Format a share in percent; a dash if it is unknown."""
    return "-" if share is None else f"{100 * share:.{digits}f}"


def both(found: Gain) -> str:
    """Format how much less waiting at equal cost / how much less cost at equal time."""
    return f"{percent(found.wait, 0)} / {percent(found.cost, 0)}"


def all_of(contests: Iterable[Contest]) -> list[Case]:
    """Return all simulations of contests."""
    return [case for one in contests for case in one.cases]
