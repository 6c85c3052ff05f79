"""Prints a back-test: the results of all policies, the error of the simulation, and which projects gain and lose."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from spillover.cli.printing.output import Cell, Column, Output, Row
from spillover.cli.printing.shown import NOTHING, money
from spillover.model.units import format_moment, so_many
from spillover.sim.estimates import Known, Told
from spillover.sim.pools import PoolNumbers
from spillover.sim.reports.report import COLUMNS, rows, span, write_csv
from spillover.sim.reports.statistics import Statistics
from spillover.sim.studies.backtest import Backtest, Run
from spillover.sim.studies.comparing import Deviation, ProjectChange
from spillover.sim.studies.past import PastJobs
from spillover.sim.studies.served import Ruling

TOP: Final = 5
"""Projects to show of the winners, and of the losers."""
_STYLES: Final = {"wins": "green", "loses": "red", "same": "", "unclear": "bright_black"}
_MEASURES: Final[tuple[tuple[str, Callable[[Statistics], str]], ...]] = (
    ("jobs", lambda one: f"{one.jobs:,}"),
    ("rented jobs", lambda one: f"{one.rented_jobs:,}"),
    ("cost", lambda one: money(one.rented_cost)),
    ("mean wait", lambda one: span(one.mean_wait_s)),
    ("median wait", lambda one: span(one.p50_wait_s)),
    ("p90 wait", lambda one: span(one.p90_wait_s)),
    ("p99 wait", lambda one: span(one.p99_wait_s)),
    ("mean completion", lambda one: span(one.mean_completion_s)),
    ("owned machines busy", lambda one: f"{one.owned_utilization:.1%}"),
)
_MACHINES: Final[tuple[tuple[str, Callable[[PoolNumbers], str]], ...]] = (
    ("machines rented", lambda pool: f"{pool.machines:,}"),
    ("machine hours paid", lambda pool: f"{pool.paid_hours:,.1f}"),
    ("of these useful", lambda pool: f"{pool.useful_hours / (pool.paid_hours or 1.0):.0%}"),
)
"""Rows for machines of pools."""


class Shown(NamedTuple):
    """A back-test, and how much of it to show."""

    found: Backtest
    history: PastJobs
    ruling: Ruling
    currency: str
    """Empty if unknown."""
    warmup: int
    all_projects: bool
    assumed: bool
    """Whether the policy that really decided is only assumed."""
    told: Told = Told.THEN
    """What the simulated policies know about runtimes."""


def show(out: Output, shown: Shown) -> None:
    """Print the whole back-test."""
    found = shown.found
    names = _names(found.policies)
    out.sheet(_facts(shown, names))
    out.line()
    runs = (found.happened, found.really, *found.policies)
    columns = [Column(""), *(Column(name.upper(), right=True) for name in ("happened", "simulated", *names))]
    out.table(columns, list(_numbers(runs, shown.currency)))
    out.line()
    out.line("Difference between the simulation of the real policies and what happened:")
    out.sheet(error_facts(found.error, shown.currency))
    for name, one in zip(names, found.policies, strict=True):
        out.line()
        out.line(f"Projects under {name}, compared with what happened:")
        _projects(out, one.projects, all_of_them=shown.all_projects)


def error_facts(error: Deviation, currency: str = "") -> list[tuple[str, str]]:
    """Describe the error of the simulation."""
    wait = span(abs(error.mean_wait_s))
    told = [
        ("mean wait", _off(error.mean_wait_s, error.mean_wait_share, wait, ("too short", "too long"))),
        (
            "cost",
            _off(error.cost, error.cost_share, money(abs(error.cost), currency), ("too little", "too much")),
        ),
        ("starts", _starts(error)),
        ("places", _places(error)),
    ]
    if error.never_ran:
        told.append(
            ("never run", f"{so_many(error.never_ran)} that ran in reality; no machine is large enough")
        )
    if any(text != _SAME for _, text in told):
        told.append(("so", "ignore differences between policies that are smaller than this error"))
    return told


_SAME: Final = "as it happened"


def _off(difference: float, share: float | None, size: str, words: tuple[str, str]) -> str:
    """Describe how far a number is off, and in which direction."""
    if not difference:
        return _SAME
    relative = ""
    if share is not None:
        relative = f" ({abs(share):.1%})" if abs(share) < 10 else f" ({1 + share:,.0f} times as much)"
    return f"{size} {words[difference > 0]}{relative}"


def _starts(error: Deviation) -> str:
    """Describe how far start times are off."""
    if not error.mean_start_s:
        return _SAME
    return f"{span(error.mean_start_s)} off on average; median {span(error.p50_start_s)}, p90 {span(error.p90_start_s)}"


def _places(error: Deviation) -> str:
    """Describe how many jobs run on another cluster."""
    if not error.elsewhere_jobs:
        return _SAME
    return (
        f"{error.elsewhere:.1%} of the jobs ({error.elsewhere_jobs:,}) run on another cluster than in reality"
    )


def _names(policies: Sequence[Run]) -> list[str]:
    """Return short names for columns, because written policies are too long."""
    return ["policy"] if len(policies) == 1 else [f"policy {at}" for at in range(1, len(policies) + 1)]


def _facts(shown: Shown, names: Sequence[str]) -> list[tuple[str, str]]:
    """Return the facts about the simulated history."""
    history, found = shown.history, shown.found
    first, last = (format_moment(history.jobs[at].submit) for at in (history.standing, -1))
    without = f", without {shown.warmup:,} at both ends" if shown.warmup else ""
    told = [("history", f"{so_many(len(history.counted()))} from {first} to {last}{without}")]
    if history.standing:
        told.append(
            (
                "besides",
                f"{so_many(history.standing)} already running or queued at the start; they use capacity but are not counted",
            )
        )
    parts = [f"{so_many(history.never_ran)} that never ran"] if history.never_ran else []
    parts += [so_many(history.left_out, "wrong row")] if history.left_out else []
    told += [("left out", ", ".join(parts))] if parts else []
    really = found.really.policy
    if shown.assumed:
        really += " (assumed; set it with --really)"
    if changes := len(shown.ruling.changes):
        times = "once" if changes == 1 else f"{changes} times"
        really += f" at first, then changed {times}; the simulation changes too (see spill policy history)"
    told.append(("estimates", f"policies know {Known(shown.told)}"))
    told.append(("really ran", really))
    return told + [(name, one.policy) for name, one in zip(names, found.policies, strict=True)]


def _numbers(runs: Sequence[Run], currency: str) -> Iterator[Row]:
    """Yield the rows of the table."""
    for name, tell in _MEASURES:
        title = f"cost ({currency})" if name == "cost" and currency else name
        yield (title, *(tell(one.statistics) for one in runs))
    if any(one.statistics.pool for one in runs):
        for name, of_pool in _MACHINES:
            yield (
                name,
                *(NOTHING if (pool := one.statistics.pool) is None else of_pool(pool) for one in runs),
            )
    if any(one.statistics.never_ran for one in runs):
        yield ("never run", *(f"{one.statistics.never_ran:,}" for one in runs))


def _projects(out: Output, changes: Sequence[ProjectChange], *, all_of_them: bool) -> None:
    """Print the projects, from the largest gain to the largest loss."""
    some = changes
    if not all_of_them and len(changes) > 2 * TOP:
        some = [*changes[:TOP], *changes[-TOP:]]
    columns = (
        Column("PROJECT", gives=True),
        Column("JOBS", right=True),
        Column("WAITED", right=True),
        Column("WOULD WAIT", right=True),
        Column("CHANGE", right=True),
        Column("COST", right=True),
        Column("WOULD COST", right=True),
        Column("CHANGE", right=True),
        Column(""),
    )
    out.table(columns, [_project(one) for one in some])
    if len(some) < len(changes):
        out.line(f"and {len(changes) - len(some):,} more with smaller changes; --all-projects shows them")


def _project(one: ProjectChange) -> Row:
    """Return the row of one project."""
    return (
        one.project or NOTHING,
        f"{one.jobs:,}",
        *waits(one),
        money(one.cost),
        money(one.cost_then),
        _signed(one.cost_change, money),
        Cell("within error" if one.verdict == "unclear" else one.verdict, _STYLES[one.verdict]),
    )


def waits(one: ProjectChange) -> tuple[str, str, str]:
    """Format real wait, simulated wait and change, in tenths of seconds where whole seconds would not add up."""
    longest = max(one.wait_s, one.wait_then_s)
    before, then = round(10 * one.wait_s), round(10 * one.wait_then_s)
    if not 10 <= longest < 3600 or abs(one.wait_change_s) >= 10 or before == then:
        return span(one.wait_s), span(one.wait_then_s), _signed(one.wait_change_s, span)
    return _tenths(before), _tenths(then), _signed(then - before, _tenths)


def _tenths(count: float) -> str:
    """Format tenths of seconds, for durations below an hour."""
    minutes, tenths = divmod(round(count), 600)
    seconds = f"{tenths / 10:.1f}".removesuffix(".0")
    return f"{minutes}m{seconds}s" if minutes else f"{seconds}s"


def _signed(value: float, tell: Callable[[float], str]) -> str:
    """Format a change with its sign."""
    return f"{'-' if value < 0 else '+'}{tell(abs(value))}" if value else NOTHING


def write_rows(path: str, history: PastJobs, found: Backtest) -> None:
    """Write a row for each job under each policy, and as it happened; times are seconds since 1970, UTC."""
    lines = (
        (name, *row)
        for name, outcomes in (
            ("happened", found.happened.outcomes),
            ("really", found.really.outcomes),
            *((one.policy, one.outcomes) for one in found.policies),
        )
        for row in rows(history.jobs, outcomes)
    )
    write_csv(path, ("policy", *COLUMNS), lines)
