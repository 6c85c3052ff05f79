"""Records of money: cost holds, the costs of attempts, and what is used of budgets."""

from msgspec import Struct

from spillover.model.ids import ClusterName


class Hold(Struct, frozen=True, array_like=True, gc=False):
    """An amount held for an attempt on rented capacity."""

    amount: int
    """Millionths."""
    limit: int | None
    """How long it may run, in nanoseconds; None if it has a walltime of its own, or needs none."""
    periods: tuple[str, ...]
    """Keys of the budget periods that count it."""


class Paid(Struct, frozen=True, array_like=True, gc=False):
    """The cost of one attempt."""

    at: int
    """When the attempt ended, nanoseconds UTC."""
    cluster: ClusterName
    amount: int
    """Millionths."""


class BudgetPeriod(Struct, array_like=True, gc=False):
    """What is spent and held of a budget in one period."""

    key: str
    """For example `project/vision/month/2027-01`."""
    until: int
    """When the period ends, nanoseconds UTC."""
    spent: int = 0
    """Millionths, of finished attempts that had a hold here."""
    held: int = 0
    """Millionths, of current attempts."""
    over: int = 0
    """Millionths that attempts cost beyond their holds, because agents did not enforce the walltime."""
    told: int = 0
    """The highest share of its limit, in percent, that a `budget_reached` event told."""
    told_of: int = 0
    """The limit of that event, in millionths. Of another limit, shares are told again."""
