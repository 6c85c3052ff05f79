"""Budgets of projects and users in calendar periods, and which of them concern a job.

Periods are in UTC. Amounts are counted under the key of a period, such as `project/vision/month/2027-01`.
"""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from typing import Final, Literal, NamedTuple, TypeAlias

from msgspec import Struct

from spillover.model.units import DAY, FOREVER, time_of

CostBy: TypeAlias = Literal["project", "user", "cluster", "day", "week", "month"]
"""What costs are grouped by."""
UsageBy: TypeAlias = Literal["project", "user", "cluster", "queue", "day", "week", "month"]
"""What usage is grouped by."""
USAGE_BY: Final[tuple[UsageBy, ...]] = ("project", "user", "cluster", "queue", "day", "week", "month")
MachinesBy: TypeAlias = Literal["pool", "day", "week", "month"]
"""What costs of machines are grouped by."""
EVERY: Final = "*"
"""Stands for every project or user, each with its own budget."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Per(StrEnum):
    """The period after which a budget renews."""

    DAY = "day"
    WEEK = "week"
    """Starts on Monday."""
    MONTH = "month"
    YEAR = "year"
    EVER = "ever"
    """It never renews."""


class Of(StrEnum):
    """Whose costs a budget limits."""

    PROJECT = "project"
    USER = "user"


class Budget(Struct, frozen=True, array_like=True, gc=False):
    """The most that renting may cost a project or user in a period."""

    of: Of
    name: str
    """Name of the project or user; EVERY means each one without an entry of its own for the same period."""
    per: Per
    limit: int
    """Millionths."""


class Period(NamedTuple):
    """One day, week, month or year."""

    label: str
    """For example `2027-01`."""
    until: int
    """When the next period begins, nanoseconds UTC; FOREVER if none does."""
    since: int
    """When it began, nanoseconds UTC; 0 if it is all time."""


class Cap(NamedTuple):
    """A budget that concerns a job, in the current period."""

    key: str
    """Key of the period that counts spent and held amounts."""
    budget: Budget
    name: str
    """Name of the project or user, even if the budget is for every one."""
    until: int


class Caps:
    """All budgets, with a lookup of those that concern a job."""

    def __init__(self, budgets: Iterable[Budget] = ()) -> None:
        self.budgets = tuple(budgets)
        self._named: dict[tuple[Of, str], list[Budget]] = {}
        for each in self.budgets:
            self._named.setdefault((each.of, each.name), []).append(each)
        self._found: dict[tuple[str, str], tuple[tuple[str, str, Budget], ...]] = {}

    def __bool__(self) -> bool:
        return bool(self.budgets)

    def on(self, project: str, user: str, now: int) -> list[Cap]:
        """Return the caps on a job of this project and user at a time."""
        found = self._found.get((project, user))
        if found is None:
            if len(self._found) >= 10_000:
                self._found.clear()
            found = tuple(self._of(Of.PROJECT, project)) + tuple(self._of(Of.USER, user))
            self._found[project, user] = found
        caps = []
        for prefix, name, budget in found:
            period = period_of(budget.per, now)
            caps.append(Cap(f"{prefix}/{period.label}", budget, name, period.until))
        return caps

    def limit(self, of: str, name: str, per: str) -> int | None:
        """Return the limit of a project or user in periods of this length, in millionths; None if there is none."""
        of = Of(of)
        budgets = [*self._named.get((of, name), []), *self._named.get((of, EVERY), [])]
        return next((each.limit for each in budgets if each.per == per), None)

    def _of(self, of: Of, name: str) -> Iterable[tuple[str, str, Budget]]:
        """Yield the budgets of one project or user; its own replace those for every one, period by period."""
        own = self._named.get((of, name), [])
        there = {each.per for each in own}
        common = [each for each in self._named.get((of, EVERY), []) if each.per not in there]
        for each in (*own, *common):
            yield period_prefix(of, name, each.per), name, each


def period_prefix(of: Of, name: str, per: Per) -> str:
    """Return the key of a period without its label."""
    return f"{of}/{name}/{per}"


def period_of(per: Per, now: int) -> Period:
    """Return the period of a time."""
    return Period("ever", FOREVER, 0) if per is Per.EVER else _period(per, now // DAY)


@lru_cache(maxsize=256)
def _period(per: Per, day: int) -> Period:
    """Return the period of a day, counted from 1970."""
    date = _EPOCH + timedelta(days=day)
    match per:
        case Per.DAY:
            label, first, following = f"{date:%Y-%m-%d}", date, date + timedelta(days=1)
        case Per.WEEK:
            year, week, weekday = date.isocalendar()
            label, first = f"{year:04}-W{week:02}", date - timedelta(days=weekday - 1)
            following = first + timedelta(days=7)
        case Per.MONTH:
            label, first = f"{date:%Y-%m}", date.replace(day=1)
            following = (first + timedelta(days=32)).replace(day=1)
        case _:
            label, first = f"{date:%Y}", date.replace(month=1, day=1)
            following = first.replace(year=date.year + 1)
    return Period(label, time_of(following), time_of(first))
