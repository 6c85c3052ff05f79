"""The chosen policy of each axis, as configured: names and options, not code."""

from typing import Final

from msgspec import Struct, field, structs

from spillover.model.units import HOUR


class Choice(Struct, frozen=True):
    """One built-in or installed policy with its options."""

    name: str
    options: dict[str, int | float | str | bool] = field(default_factory=dict)
    """Durations are in nanoseconds."""


class PolicySet(Struct, frozen=True):
    """The choice for each axis."""

    order: Choice = Choice("fifo")
    backfill: Choice = Choice("out_of_order")
    wait: Choice = Choice("compute", {"coefficient": 0.076, "max_queue": 30})
    place: Choice = Choice("best_fit")
    depth: int = 1000
    """How many lanes a cycle tries after capacity became free."""
    unknown_runtime: int = HOUR
    """Expected runtime of a job without estimate and walltime, in nanoseconds."""
    route: Choice = Choice("least_loaded")
    size: Choice = Choice("largest")


AXES: Final = ("order", "backfill", "wait", "place", "route", "size")
"""The decisions for which a policy is chosen."""

FALLBACK: Final = PolicySet(
    order=Choice("fifo"), backfill=Choice("out_of_order"), wait=Choice("never"), place=Choice("first_fit")
)
"""The choices for an axis whose policy fails: jobs run in the order of submission, and wait for owned capacity."""


def choice_of(policies: PolicySet, axis: str) -> Choice:
    """Return the choice for an axis."""
    choice: Choice = getattr(policies, axis)
    return choice


def without(policies: PolicySet, axis: str) -> PolicySet:
    """Return the same policies with the fallback for one axis."""
    return structs.replace(policies, **{axis: choice_of(FALLBACK, axis)})
