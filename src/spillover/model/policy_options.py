"""The options of each policy, and policies as one line: `wait=compute(0.076,max_queue=30),backfill=out_of_order`.

One table serves spill.yaml, the lines that people write (`forms/` reads both) and the lines that Spillover writes.
"""

from collections.abc import Mapping
from decimal import Decimal
from enum import StrEnum
from typing import Final, TypeAlias

from spillover.model.policy import Choice, PolicySet, choice_of
from spillover.model.units import DAY, HOUR, MINUTE, SECOND, write_duration

LINE_AXES: Final = ("wait", "backfill", "order", "place", "route", "size")
"""The axes in the order of a line."""
_SELDOM: Final = frozenset({"route", "size"})
"""Axes that a line leaves out if they have their default policies."""
IGNORE_PRIORITY: Final = frozenset({"fifo", "lifo", "sjf", "ljf", "edf", "slack"})
"""Built-in orders that do not look at priorities."""
_UNITS: Final = (
    ("d", DAY),
    ("h", HOUR),
    ("m", MINUTE),
    ("s", SECOND),
    ("ms", 10**6),
    ("us", 1000),
    ("ns", 1),
)


class Takes(StrEnum):
    """The type of an option's value."""

    DURATION = "duration"
    NUMBER = "number"
    """Not negative."""
    COUNT = "count"
    """A whole number, not negative."""
    FLAG = "flag"
    """True or false."""
    SHARES = "shares"
    """A positive number for each of some projects: a mapping, or `vision=2;nlp=1`."""


Option: TypeAlias = Takes | tuple[str, ...]
"""A type of value, or the allowed words."""

MOST_RESERVATIONS: Final = 10_000
"""The most jobs that may have a reservation. A cycle makes all of them, so more would make it take long."""
_NUMBER: Final = {"coefficient": Takes.NUMBER}
_DURATION: Final = {"coefficient": Takes.DURATION}

COMMON: Final[Mapping[str, Option]] = {
    "min_wait": Takes.DURATION,
    "max_wait": Takes.DURATION,
    "max_queue": Takes.COUNT,
    "rent_cpu_only": Takes.FLAG,
    "short_job_threshold": Takes.DURATION,
}
"""Options that combine with every wait policy."""

STUDY: Final[Mapping[str, Option]] = {"estimate_error": Takes.NUMBER}
"""Options of wait policies for simulations only: they change what the scheduler knows."""

OPTIONS: Final[Mapping[str, Mapping[str, Option]]] = {
    "order.fifo": {},
    "order.lifo": {},
    "order.priority": {},
    "order.sjf": {},
    "order.ljf": {},
    "order.edf": {},
    "order.slack": {},
    "order.fair_share": {
        "half_life": Takes.DURATION,
        "shares": Takes.SHARES,
        "gpu_weight": Takes.NUMBER,
    },
    "backfill.strict": {},
    "backfill.out_of_order": {},
    "backfill.easy": {},
    "backfill.conservative": {"depth": Takes.COUNT},
    "backfill.hybrid": {"depth": Takes.COUNT},
    "place.first_fit": {},
    "place.best_fit": {},
    "place.worst_fit": {},
    "place.spread": {},
    "place.pack": {},
    "place.first": {},
    "place.locality": {},
    "place.low": {},
    "place.high": {},
    "route.least_loaded": {},
    "route.round_robin": {},
    "route.power_of_two": {},
    "route.biased": {"share": Takes.NUMBER},
    "size.largest": {},
    "size.smallest": {},
    "size.share": {},
    "wait.zero": {**COMMON},
    "wait.never": {**COMMON},
    "wait.constant": {"wait": Takes.DURATION, **COMMON},
    "wait.runtime": {**_NUMBER, **COMMON},
    "wait.resource": {**_DURATION, **COMMON},
    "wait.compute": {**_NUMBER, **COMMON},
    "wait.star": {**_DURATION, "h": Takes.DURATION, "k": Takes.NUMBER, **COMMON},
    "wait.budget": {"b": Takes.NUMBER, "shape": ("constant", "runtime", "resource", "compute"), **COMMON},
    "wait.break_even": {**_NUMBER, "most_ends": Takes.COUNT, **COMMON},
}
"""Options of the built-in policies. Installed policies check their own, except the common options of wait policies.

The first option that is not common is the main one: a line may give it without its name.
"""


def main_option(policy: str) -> str | None:
    """Return the option of a built-in policy that needs no name in a line; None if it has none."""
    own = (name for name in OPTIONS.get(policy, {}) if name not in COMMON)
    return next(own, None)


def write_policies(policies: PolicySet) -> str:
    """Write policies as a line, always the same for equal policies."""
    default = PolicySet()
    axes = [
        axis
        for axis in LINE_AXES
        if axis not in _SELDOM or choice_of(policies, axis) != choice_of(default, axis)
    ]
    parts = [f"{axis}={write_choice(axis, choice_of(policies, axis))}" for axis in axes]
    if policies.depth != default.depth:
        parts.append(f"depth={policies.depth}")
    if policies.unknown_runtime != default.unknown_runtime:
        parts.append(f"unknown_runtime={short_duration(policies.unknown_runtime)}")
    return ",".join(parts)


def write_choice(axis: str, choice: Choice) -> str:
    """Write one policy with its options, such as `compute(0.076,max_queue=30)`."""
    if not choice.options:
        return choice.name
    policy = f"{axis}.{choice.name}"
    kinds = {**OPTIONS.get(policy, COMMON if axis == "wait" else {}), **STUDY}
    main = main_option(policy)
    parts = [_written(kinds.get(main), choice.options[main])] if main and main in choice.options else []
    rest = [name for name in kinds if name in choice.options and name != main]
    rest += sorted(choice.options.keys() - kinds.keys())
    parts += [f"{name}={_written(kinds.get(name), choice.options[name])}" for name in rest]
    return f"{choice.name}({','.join(parts)})"


def short_duration(nanoseconds: int) -> str:
    """Write a duration for `parse_duration` in the unit that is shortest, with at most four decimals."""
    best = ""
    for name, size in _UNITS:
        scaled, rest = divmod(nanoseconds * 10_000, size)
        if rest == 0:
            written = f"{Decimal(scaled) / 10_000:f}"
            written = (written.rstrip("0").rstrip(".") if "." in written else written) + name
            if not best or len(written) < len(best):
                best = written
    exact = write_duration(nanoseconds)
    return best if best and (nanoseconds == 0 or len(best) <= len(exact) + 2) else exact


def _written(kind: Option | None, value: object) -> str:
    """Write the value of an option so that it can be read back."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if kind is Takes.DURATION and isinstance(value, int):
        return short_duration(value)
    return repr(value).removesuffix(".0") if isinstance(value, float) else str(value)
