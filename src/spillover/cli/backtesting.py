"""A back-test as a person reads it: numbers side by side, the simulation's own error in words, and who wins and loses."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from spillover.cli.output import Cell, Column, Output, Row
from spillover.cli.shown import NOTHING, money
from spillover.model.units import format_moment
from spillover.sim.backtest import Backtest, Run
from spillover.sim.comparing import Deviation, ProjectChange
from spillover.sim.past import PastJobs
from spillover.sim.report import COLUMNS, rows, so_many, span, write_csv
from spillover.sim.served import Ruling
from spillover.sim.statistics import Statistics

TOP: Final = 5
"""Projects that are shown of those that win, and of those that lose."""
_STYLES: Final = {"wins": "green", "loses": "red", "same": "", "unclear": "bright_black"}
_MEASURES: Final[tuple[tuple[str, Callable[[Statistics], str]], ...]] = (
    ("jobs", lambda one: f"{one.jobs:,}"),
    ("rented jobs", lambda one: f"{one.rented_jobs:,}"),
    ("cost", lambda one: money(one.rented_cost)),
    ("mean wait", lambda one: span(one.mean_wait_s)),
    ("half wait up to", lambda one: span(one.p50_wait_s)),
    ("90 % wait up to", lambda one: span(one.p90_wait_s)),
    ("99 % wait up to", lambda one: span(one.p99_wait_s)),
    ("mean completion", lambda one: span(one.mean_completion_s)),
    ("owned machines busy", lambda one: f"{one.owned_utilization:.1%}"),
)


class Shown(NamedTuple):
    """What is to be shown, and how much of it."""

    found: Backtest
    history: PastJobs
    ruling: Ruling
    currency: str
    """Empty if nobody says which."""
    warmup: int
    all_projects: bool
    assumed: bool
    """Whether nobody knows what really decided."""


def show(out: Output, shown: Shown) -> None:
    """All of it."""
    found = shown.found
    names = _names(found.policies)
    out.sheet(_facts(shown, names))
    out.line()
    runs = (found.happened, found.really, *found.policies)
    columns = [Column(""), *(Column(name.upper(), right=True) for name in ("happened", "simulated", *names))]
    out.table(columns, list(_numbers(runs, shown.currency)))
    out.line()
    out.line("How far the simulation of what really ran is from what happened:")
    out.sheet(error_facts(found.error, shown.currency))
    for name, one in zip(names, found.policies, strict=True):
        out.line()
        out.line(f"Projects under {name}, against what happened:")
        _projects(out, one.projects, all_of_them=shown.all_projects)


def error_facts(error: Deviation, currency: str = "") -> list[tuple[str, str]]:
    """The simulation's own error in words."""
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
        told.append(("never run", f"{so_many(error.never_ran)} that did: nothing there is large enough"))
    if any(text != _SAME for _, text in told):
        told.append(
            ("so", "a policy that differs by less than this from what happened may not differ at all")
        )
    return told


_SAME: Final = "as it happened"


def _off(difference: float, share: float | None, size: str, words: tuple[str, str]) -> str:
    """How far a number is off, and to which side."""
    if not difference:
        return _SAME
    relative = ""
    if share is not None:
        relative = f" ({abs(share):.1%})" if abs(share) < 10 else f" ({1 + share:,.0f} times what it was)"
    return f"{size} {words[difference > 0]}{relative}"


def _starts(error: Deviation) -> str:
    """How far starts are off."""
    if not error.mean_start_s:
        return _SAME
    return (
        f"{span(error.mean_start_s)} too early or too late on average; "
        f"half within {span(error.p50_start_s)}, 90 % within {span(error.p90_start_s)}"
    )


def _places(error: Deviation) -> str:
    """How many jobs run elsewhere."""
    if not error.elsewhere_jobs:
        return _SAME
    return (
        f"{error.elsewhere:.1%} of the jobs ({error.elsewhere_jobs:,}) run on another cluster than they did"
    )


def _names(policies: Sequence[Run]) -> list[str]:
    """What columns are called: policies themselves are too long."""
    return ["policy"] if len(policies) == 1 else [f"policy {at}" for at in range(1, len(policies) + 1)]


def _facts(shown: Shown, names: Sequence[str]) -> list[tuple[str, str]]:
    """What was simulated."""
    history, found = shown.history, shown.found
    first, last = (format_moment(history.jobs[at].submit) for at in (history.standing, -1))
    without = f", without {shown.warmup:,} at both ends" if shown.warmup else ""
    told = [("history", f"{so_many(len(history.counted()))} from {first} to {last}{without}")]
    if history.standing:
        told.append(
            ("besides", f"{so_many(history.standing)} that ran or waited when it began: they take room only")
        )
    parts = [f"{so_many(history.never_ran)} that never ran"] if history.never_ran else []
    parts += [so_many(history.left_out, "wrong row")] if history.left_out else []
    told += [("left out", ", ".join(parts))] if parts else []
    really = found.really.policy
    if shown.assumed:
        really += " (assumed; --really says otherwise)"
    if changes := len(shown.ruling.changes):
        times = "once" if changes == 1 else f"{changes} times"
        really += f" at first; changed {times}, and so in the simulation (spill policy history has them)"
    told.append(("really ran", really))
    return told + [(name, one.policy) for name, one in zip(names, found.policies, strict=True)]


def _numbers(runs: Sequence[Run], currency: str) -> Iterator[Row]:
    """The rows of the table."""
    for name, tell in _MEASURES:
        title = f"cost ({currency})" if name == "cost" and currency else name
        yield (title, *(tell(one.statistics) for one in runs))
    if any(one.statistics.never_ran for one in runs):
        yield ("never run", *(f"{one.statistics.never_ran:,}" for one in runs))


def _projects(out: Output, changes: Sequence[ProjectChange], *, all_of_them: bool) -> None:
    """Projects that gain most first, those that lose most last."""
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
        out.line(f"and {len(changes) - len(some):,} more that change less; --all-projects shows them")


def _project(one: ProjectChange) -> Row:
    """One project."""
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
    """What jobs waited, would wait, and the change: to tenths of seconds where whole ones would not lead to that change."""
    longest = max(one.wait_s, one.wait_then_s)
    before, then = round(10 * one.wait_s), round(10 * one.wait_then_s)
    if not 10 <= longest < 3600 or abs(one.wait_change_s) >= 10 or before == then:
        return span(one.wait_s), span(one.wait_then_s), _signed(one.wait_change_s, span)
    return _tenths(before), _tenths(then), _signed(then - before, _tenths)


def _tenths(count: float) -> str:
    """So many tenths of seconds, below an hour."""
    minutes, tenths = divmod(round(count), 600)
    seconds = f"{tenths / 10:.1f}".removesuffix(".0")
    return f"{minutes}m{seconds}s" if minutes else f"{seconds}s"


def _signed(value: float, tell: Callable[[float], str]) -> str:
    """A change with its sign."""
    return f"{'-' if value < 0 else '+'}{tell(abs(value))}" if value else NOTHING


def write_rows(path: str, history: PastJobs, found: Backtest) -> None:
    """A row for each job in each of its lives; times are seconds since 1970, UTC."""
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
