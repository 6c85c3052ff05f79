"""What each policy takes, and policies in a line, as `wait=compute(0.076,max_queue=30),backfill=out_of_order`.

One table for spill.yaml, for lines that people write (`forms/` reads both) and for lines that are written for them.
"""

from collections.abc import Mapping
from decimal import Decimal
from enum import StrEnum
from typing import Final, TypeAlias

from spillover.model.policy import Choice, PolicySet
from spillover.model.units import DAY, HOUR, MINUTE, SECOND, write_duration

LINE_AXES: Final = ("wait", "backfill", "order", "place", "route")
"""What is chosen, in the order in which a line names them."""
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
    """What an option's value is."""

    DURATION = "duration"
    NUMBER = "number"
    """Not negative."""
    COUNT = "count"
    """Whole, not negative."""
    FLAG = "flag"
    """True or false."""
    SHARES = "shares"
    """A number above 0 for each of some projects: a mapping, or `vision=2;nlp=1`."""


Option: TypeAlias = Takes | tuple[str, ...]
"""A kind of value, or the words of which it is one."""

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
"""Options of any wait policy that only a simulation takes: they change what the scheduler is told."""

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
    "place.first_fit": {},
    "place.best_fit": {},
    "place.worst_fit": {},
    "place.spread": {},
    "route.least_loaded": {},
    "route.round_robin": {},
    "route.power_of_two": {},
    "route.biased": {"share": Takes.NUMBER},
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
"""Options of the built-in policies; those of installed ones are theirs to check, but for the common ones of any wait.

The first one that is not common is the policy's own: a line may give it without its name.
"""


def main_option(policy: str) -> str | None:
    """The option of a built-in policy that may be given without its name; None if it has none."""
    own = (name for name in OPTIONS.get(policy, {}) if name not in COMMON)
    return next(own, None)


def write_policies(policies: PolicySet) -> str:
    """A line that reads as these policies; always the same for the same ones."""
    default = PolicySet()
    axes = [axis for axis in LINE_AXES if axis != "route" or policies.route != default.route]
    parts = [f"{axis}={write_choice(axis, getattr(policies, axis))}" for axis in axes]
    if policies.depth != default.depth:
        parts.append(f"depth={policies.depth}")
    if policies.unknown_runtime != default.unknown_runtime:
        parts.append(f"unknown_runtime={short_duration(policies.unknown_runtime)}")
    return ",".join(parts)


def write_choice(axis: str, choice: Choice) -> str:
    """One policy and its options, as `compute(0.076,max_queue=30)`."""
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
    """A duration as `parse_duration` reads it, in the one unit that is shortest, if there is one of four digits."""
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
    """A value of an option as it is read again."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if kind is Takes.DURATION and isinstance(value, int):
        return short_duration(value)
    return repr(value).removesuffix(".0") if isinstance(value, float) else str(value)
