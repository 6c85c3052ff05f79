"""Money, as the book keeps it: what is held for attempts, what they cost, and what that leaves of budgets."""

from msgspec import Struct

from spillover.model.ids import ClusterName


class Hold(Struct, frozen=True, array_like=True, gc=False):
    """Money that is held for an attempt on rented capacity."""

    amount: int
    """Millionths."""
    limit: int | None
    """Nanoseconds that it may run; None if it has a walltime of its own, or needs none."""
    periods: tuple[str, ...]
    """Keys of the periods that it is held in."""


class Paid(Struct, frozen=True, array_like=True, gc=False):
    """What one attempt cost."""

    at: int
    """When it was over, nanoseconds UTC."""
    cluster: ClusterName
    amount: int
    """Millionths."""


class BudgetPeriod(Struct, array_like=True, gc=False):
    """What is spent and held of a budget in one period."""

    key: str
    """`project/vision/month/2027-01`."""
    until: int
    """When the period ends, nanoseconds UTC."""
    spent: int = 0
    """Millionths, of attempts that are over and were held here."""
    held: int = 0
    """Millionths, of attempts under way."""
    over: int = 0
    """Millionths that attempts cost beyond what was held for them: their agents did not keep to the walltime."""
