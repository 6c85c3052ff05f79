"""Which policy decides each axis, as configured: names and options, not code."""

from typing import Final

from msgspec import Struct, field, structs

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
    route: Choice = Choice("least_loaded")


AXES: Final = ("order", "backfill", "wait", "place", "route")
"""What a policy is chosen for."""

FALLBACK: Final = PolicySet(
    order=Choice("fifo"), backfill=Choice("out_of_order"), wait=Choice("never"), place=Choice("first_fit")
)
"""What decides an axis whose policy cannot: jobs are tried as they came, and wait for owned capacity."""


def choice_of(policies: PolicySet, axis: str) -> Choice:
    """What is chosen for an axis."""
    choice: Choice = getattr(policies, axis)
    return choice


def without(policies: PolicySet, axis: str) -> PolicySet:
    """The same policies, with the fallback for one axis."""
    return structs.replace(policies, **{axis: choice_of(FALLBACK, axis)})
