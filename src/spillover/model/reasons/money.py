"""Why renting is more than somebody pays."""

from spillover.model.ids import ClusterName
from spillover.model.job import WALLTIME_SLACK
from spillover.model.reasons.base import Never, NotNow
from spillover.model.units import FOREVER, format_duration, format_moment, format_money


class OverMaxCost(NotNow, frozen=True, tag="over_max_cost"):
    """Renting it could cost more than its own `max_cost` leaves."""

    runs: int
    """Nanoseconds that it would be rented for: its walltime, or the least that is worth it."""
    cost: int
    """Millionths that this could cost, with the grace and the time until it is surely ended: what would be held."""
    left: int
    """Millionths that earlier attempts left of the limit."""
    limit: int
    """Its `max_cost`."""
    grace: int = 0
    """Nanoseconds that it has to end."""
    limited: bool = True
    """Whether it has a walltime of its own."""
    owned: bool = True
    """Whether owned capacity could run it too."""

    def __str__(self) -> str:
        spent = "" if self.left == self.limit else f", of which {format_money(max(0, self.left))} is left"
        waits = ": it waits for owned capacity" if self.owned else ""
        return f"{_to_rent(self)}; its max_cost is {format_money(self.limit)}{spent}{waits}"


class OverBudget(NotNow, frozen=True, tag="over_budget"):
    """Renting it could cost more than a budget leaves in its period."""

    whose: str
    """As `project vision`."""
    per: str
    runs: int
    """Nanoseconds that it would be rented for: its walltime, or the least that is worth it."""
    cost: int
    """Millionths that this could cost, with the grace and the time until it is surely ended: what would be held."""
    left: int
    """Millionths that are neither spent nor held."""
    limit: int
    """Millionths for the whole period."""
    until: int
    """When the period ends, nanoseconds UTC; FOREVER if it does not."""
    grace: int = 0
    """Nanoseconds that it has to end."""
    limited: bool = True
    """Whether it has a walltime of its own."""
    owned: bool = True
    """Whether owned capacity could run it too."""
    holder: str = ""
    """A job without a walltime that holds what was left of the budget, the one that holds most; empty if none does."""
    held: int = 0
    """Millionths that it holds."""

    def __str__(self) -> str:
        when = "" if self.until >= FOREVER else f" until {format_moment(self.until)}"
        each = "" if self.per == "ever" else f" a {self.per}"
        return (
            f"{_to_rent(self)}; {self.whose} has {format_money(max(0, self.left))} of {format_money(self.limit)}{each} "
            f"left{when}{self._waits()}{self._held_by()}"
        )

    def _held_by(self) -> str:
        """Who holds the rest of the budget, and the way out."""
        if not self.holder:
            return ""
        return (
            f"; {self.holder} holds {format_money(self.held)} of it until it ends, as it has no walltime: "
            "cancel it and submit it with one, or wait"
        )

    def _waits(self) -> str:
        """What could let it run: the budget only if it is ever enough."""
        enough = self.cost <= self.limit
        hopes = [*(["owned capacity"] if self.owned else []), *(["the budget"] if enough else [])]
        return f": it waits for {', or for '.join(hopes)}" if hopes else ", which is never enough"


class TooDear(Never, frozen=True, tag="too_dear"):
    """Only rented clusters could run it, and it could cost more there than a cap ever allows."""

    clusters: tuple[ClusterName, ...]
    runs: int
    """Nanoseconds that it would be rented for: its walltime, or the least that is worth it."""
    cost: int
    """Millionths that this could cost, where it is cheapest."""
    limit: int
    """Millionths that the whole cap is."""
    cap: str
    """As `its max_cost` or `the budget of project vision`."""
    grace: int = 0
    """Nanoseconds that it has to end."""
    limited: bool = True
    """Whether it has a walltime of its own."""

    def __str__(self) -> str:
        return (
            f"only {' or '.join(self.clusters)} could run it, and {_to_rent(self)}; "
            f"{self.cap} is {format_money(self.limit)}"
        )


def _to_rent(reason: OverMaxCost | OverBudget | TooDear) -> str:
    """The most that renting could cost, and what that is made up of."""
    runs, grace = format_duration(reason.runs), format_duration(reason.grace)
    most, what = (" at the most", "walltime") if reason.limited else ("", "at the least")
    ended = f"{format_duration(WALLTIME_SLACK)} until it is surely ended"
    return (
        f"to rent it could cost {format_money(reason.cost)}{most} ({runs} {what}, {grace} grace and {ended})"
    )


class NotRented(Never, frozen=True, tag="not_rented"):
    """Only rented clusters could run it, and the wait policy never lets it be rented."""

    clusters: tuple[ClusterName, ...]

    def __str__(self) -> str:
        return f"only {' or '.join(self.clusters)} could run it, and the wait policy never rents"
