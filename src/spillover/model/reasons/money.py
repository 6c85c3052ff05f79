"""Reasons why caps do not allow renting."""

from spillover.model.ids import ClusterName
from spillover.model.job import WALLTIME_SLACK
from spillover.model.reasons.base import Never, NotNow
from spillover.model.units import FOREVER, format_duration, format_moment, format_money


class OverMaxCost(NotNow, frozen=True, tag="over_max_cost"):
    """Renting it could cost more than its own `max_cost` leaves."""

    runs: int
    """Nanoseconds for which it would be rented: its walltime, or the shortest worthwhile time."""
    cost: int
    """Millionths that this could cost, including the grace and the time to confirm its end: the hold."""
    left: int
    """Millionths that earlier attempts left of the limit."""
    limit: int
    """Its `max_cost` in millionths."""
    grace: int = 0
    """Nanoseconds between TERM and KILL."""
    limited: bool = True
    """Whether it has a walltime of its own."""
    owned: bool = True
    """Whether owned capacity could run it too."""

    def __str__(self) -> str:
        spent = "" if self.left == self.limit else f", of which {format_money(max(0, self.left))} is left"
        waits = "; it waits for owned capacity" if self.owned else ""
        return f"{_to_rent(self)}; its max_cost is {format_money(self.limit)}{spent}{waits}"


class OverBudget(NotNow, frozen=True, tag="over_budget"):
    """Renting it could cost more than a budget leaves in its period."""

    whose: str
    """For example `project vision`."""
    per: str
    runs: int
    """Nanoseconds for which it would be rented: its walltime, or the shortest worthwhile time."""
    cost: int
    """Millionths that this could cost, including the grace and the time to confirm its end: the hold."""
    left: int
    """Millionths that are neither spent nor held."""
    limit: int
    """Millionths for the whole period."""
    until: int
    """When the period ends, nanoseconds UTC; FOREVER if it does not."""
    grace: int = 0
    """Nanoseconds between TERM and KILL."""
    limited: bool = True
    """Whether it has a walltime of its own."""
    owned: bool = True
    """Whether owned capacity could run it too."""
    holder: str = ""
    """The job without a walltime that holds most of the rest of the budget; empty if there is none."""
    held: int = 0
    """Millionths that it holds."""

    def __str__(self) -> str:
        when = "" if self.until >= FOREVER else f" until {format_moment(self.until)}"
        each = "" if self.per == "ever" else f" per {self.per}"
        return (
            f"{_to_rent(self)}; {self.whose} has {format_money(max(0, self.left))} of {format_money(self.limit)}{each} "
            f"left{when}{self._waits()}{self._held_by()}"
        )

    def _held_by(self) -> str:
        """Name the job that holds the rest of the budget, and what to do about it."""
        if not self.holder:
            return ""
        return (
            f"; {self.holder} holds {format_money(self.held)} of it until it ends because it has no walltime; "
            "wait, or cancel it and submit it with one"
        )

    def _waits(self) -> str:
        """Say what could let it run; the budget only if it can ever be enough."""
        enough = self.cost <= self.limit
        hopes = [*(["owned capacity"] if self.owned else []), *(["the budget"] if enough else [])]
        return f"; it waits for {' or '.join(hopes)}" if hopes else ", which is never enough"


class TooDear(Never, frozen=True, tag="too_dear"):
    """Only rented clusters could run it, and it could cost more there than a cap ever allows."""

    clusters: tuple[ClusterName, ...]
    runs: int
    """Nanoseconds for which it would be rented: its walltime, or the shortest worthwhile time."""
    cost: int
    """Millionths that this could cost on the cheapest cluster."""
    limit: int
    """The whole cap in millionths."""
    cap: str
    """For example `its max_cost` or `the budget of project vision`."""
    grace: int = 0
    """Nanoseconds between TERM and KILL."""
    limited: bool = True
    """Whether it has a walltime of its own."""

    def __str__(self) -> str:
        return (
            f"only {' or '.join(self.clusters)} could run it, and {_to_rent(self)}; "
            f"{self.cap} is {format_money(self.limit)}"
        )


def _to_rent(reason: OverMaxCost | OverBudget | TooDear) -> str:
    """Say what renting could cost, and how that is composed: at most, or at least for a job without a walltime."""
    runs, grace = format_duration(reason.runs), format_duration(reason.grace)
    most, what = ("up to ", "walltime") if reason.limited else ("at least ", "at least")
    ended = f"{format_duration(WALLTIME_SLACK)} to confirm its end"
    return f"renting it could cost {most}{format_money(reason.cost)} ({runs} {what}, {grace} grace, {ended})"


class NotRented(Never, frozen=True, tag="not_rented"):
    """Only rented clusters could run it, and the wait policy never lets it be rented."""

    clusters: tuple[ClusterName, ...]

    def __str__(self) -> str:
        return f"only {' or '.join(self.clusters)} could run it, and the wait policy never rents"
