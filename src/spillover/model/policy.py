"""Which policy decides each axis, as configured: names and options, not code."""

from msgspec import Struct, field

from spillover.model.units import HOUR


class Choice(Struct, frozen=True):
    """One built-in or installed policy and its options."""

    name: str
    options: dict[str, int | float | str | bool] = field(default_factory=dict)
    """Durations are nanoseconds here."""


class PolicySet(Struct, frozen=True):
    """A choice for each axis of the cycle."""

    order: Choice = Choice("fifo")
    backfill: Choice = Choice("out_of_order")
    wait: Choice = Choice("compute", {"coefficient": 0.076, "max_queue": 30})
    place: Choice = Choice("best_fit")
    depth: int = 1000
    """How many lanes a cycle tries when room was gained."""
    unknown_runtime: int = HOUR
    """Nanoseconds expected of a job that states neither estimate nor walltime."""
