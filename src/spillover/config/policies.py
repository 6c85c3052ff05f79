"""The policies that a configuration names: whether they exist and take these options."""

from collections.abc import Collection, Mapping
from enum import StrEnum
from importlib.metadata import entry_points
from typing import Any, Final

from spillover.forms.checking import nearest
from spillover.forms.problems import Findings, Path, shown
from spillover.forms.quantities import MOST_TIME, duration
from spillover.model.policy import Choice, PolicySet
from spillover.wire.configfile import ChoiceDoc, PolicyDoc

GROUP: Final = "spillover.policies"
"""Entry points named `AXIS.NAME`."""


class Takes(StrEnum):
    """What an option's value is."""

    DURATION = "duration"
    NUMBER = "number"
    """Not negative."""
    COUNT = "count"
    """Whole, not negative."""


_BOUNDS = {"min_wait": Takes.DURATION, "max_wait": Takes.DURATION, "max_queue": Takes.COUNT}
OPTIONS: Final[Mapping[str, Mapping[str, Takes]]] = {
    "order.fifo": {},
    "order.priority": {},
    "backfill.strict": {},
    "backfill.out_of_order": {},
    "place.first_fit": {},
    "place.best_fit": {},
    "wait.zero": _BOUNDS,
    "wait.never": _BOUNDS,
    "wait.constant": {"wait": Takes.DURATION} | _BOUNDS,
    "wait.compute": {"coefficient": Takes.NUMBER} | _BOUNDS,
}
"""Options of the built-in policies; those of installed ones are theirs to check, but for the bounds of any wait."""

REQUIRED: Final = {
    "wait.constant": ("wait", "write how long to wait, as 10m"),
    "wait.compute": ("coefficient", "write how much waiting a rented CPU or GPU is worth, as 0.076"),
}
"""The option that a policy cannot do without, and what to write for it."""


def installed() -> tuple[str, ...]:
    """Names of all policies that are installed, as `wait.compute`."""
    return tuple(sorted({point.name for point in entry_points(group=GROUP)} | OPTIONS.keys()))


def read_policies(doc: PolicyDoc, known: Collection[str] | None, found: Findings) -> PolicySet:
    """The policies of a configuration; problems are noted."""
    names = installed() if known is None else known
    default = PolicySet()
    unknown = duration(doc.unknown_runtime, ("policy", "unknown_runtime"), found, least=1)
    return PolicySet(
        order=_choice(doc.order, "order", names, found) or default.order,
        backfill=_choice(doc.backfill, "backfill", names, found) or default.backfill,
        wait=_choice(doc.wait, "wait", names, found) or default.wait,
        place=_choice(doc.place, "place", names, found) or default.place,
        depth=doc.depth,
        unknown_runtime=unknown or default.unknown_runtime,
    )


def _choice(doc: ChoiceDoc | None, axis: str, known: Collection[str], found: Findings) -> Choice | None:
    """The policy of one axis; None if there is none or it is not right."""
    if doc is None:
        return None
    path: Path = ("policy", axis)
    if isinstance(doc, str):
        name, given = doc, {}
    elif len(doc) == 1:
        name, options = next(iter(doc.items()))
        given = options or {}
    else:
        found.add(path, f"names {len(doc)} policies; write one, as {{name: {{option: value}}}}")
        return None
    here = [one.partition(".")[2] for one in sorted(known) if one.startswith(f"{axis}.")]
    if name not in here:
        found.add(path, f"{shown(name)} is not a policy of {axis}{nearest(name, here)}")
        return None
    options = _options(f"{axis}.{name}", given, (*path, name), found)
    return Choice(name, options)


def _options(policy: str, given: Mapping[str, Any], path: Path, found: Findings) -> dict[str, Any]:
    """Options with durations as nanoseconds."""
    known = OPTIONS.get(policy)
    common = _BOUNDS if policy.startswith("wait.") else {}
    options: dict[str, Any] = {}
    for name, value in given.items():
        place = (*path, name)
        if known is None and name in common:
            options[name] = _value(common[name], value, place, found)
        elif known is None:
            options[name] = _plain(value, place, found)
        elif name not in known:
            hint = nearest(name, known) if known else "; it takes none"
            found.add(place, f"unknown option{hint}")
        else:
            options[name] = _value(known[name], value, place, found)
    if policy in REQUIRED and REQUIRED[policy][0] not in given:
        name, advice = REQUIRED[policy]
        found.add((*path, name), f"is missing; {advice}")
    least, most = options.get("min_wait"), options.get("max_wait")
    if least is not None and most is not None and least > most:
        found.add((*path, "min_wait"), "is more than max_wait; lower it")
    return options


def _value(takes: Takes, value: object, path: Path, found: Findings) -> int | float | None:
    """One option of a built-in policy."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        found.add(path, f"must be a {takes}")
        return None
    if takes is Takes.DURATION:
        return duration(value, path, found, most=MOST_TIME)
    kinds = (int,) if takes is Takes.COUNT else (int, float)
    if not isinstance(value, kinds) or not 0 <= value <= 10**9:
        what = "a whole number" if takes is Takes.COUNT else "a number"
        found.add(path, f"{shown(value)} is not {what} from 0 to {10**9}")
        return None
    return value


def _plain(value: object, path: Path, found: Findings) -> object:
    """One option of an installed policy, which is for that policy to check."""
    if not isinstance(value, bool | int | float | str):
        found.add(path, "must be text, a number, true or false")
    return value
