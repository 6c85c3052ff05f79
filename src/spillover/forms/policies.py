"""Reads a policy and its options, for spill.yaml and for one-line notation."""

from collections.abc import Collection, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from spillover.forms.oneline import Piece
from spillover.forms.problems import Findings, Path, either, shown
from spillover.forms.quantities import MOST_TIME, check_name, duration
from spillover.model.policy import Choice
from spillover.model.policy_options import COMMON, MOST_RESERVATIONS, OPTIONS, Option, Takes

GROUP: Final = "spillover.policies"
"""Entry points are named `AXIS.NAME`."""

_WORTH: Final = "write how long a job waits for each"
REQUIRED: Final[Mapping[str, Mapping[str, str]]] = {
    "wait.constant": {"wait": "write how long a job waits, such as 10m"},
    "wait.runtime": {"coefficient": f"{_WORTH} second of runtime, such as 0.25"},
    "wait.resource": {"coefficient": f"{_WORTH} GPU, such as 30m"},
    "wait.compute": {"coefficient": "write how much waiting a rented CPU or GPU is worth, such as 0.076"},
    "wait.star": {
        "coefficient": f"{_WORTH} GPU, such as 45m",
        "h": "write how long a job runs on rented capacity as a trial, such as 15m",
        "k": "write how many times longer a job waits when it returns, such as 3",
    },
    "wait.budget": {
        "b": "write how many seconds of waiting each second of runtime may cost on average, such as 0.05"
    },
    "wait.break_even": {"coefficient": "write how much waiting a rented CPU or GPU is worth, such as 0.076"},
    "backfill.hybrid": {"depth": "write how many jobs that do not fit have a reservation, such as 8"},
}
"""Required options of policies, and what to write for each."""


def installed() -> tuple[str, ...]:
    """Return the names of all installed policies, such as `wait.compute`."""
    from importlib.metadata import entry_points  # noqa: PLC0415 - slow; built-in policies do not need it

    return tuple(sorted({point.name for point in entry_points(group=GROUP)} | OPTIONS.keys()))


def read_choice(
    axis: str,
    name: str,
    given: Mapping[str, Any],
    path: Path,
    found: Findings,
    *,
    known: Collection[str] | None = None,
    more: Mapping[str, Option] | None = None,
) -> Choice | None:
    """Read a policy with its options, durations in nanoseconds; None if there is no such policy.

    `known` are the available policies, None for the installed ones. `more` are further options that any policy accepts.
    """
    policy = f"{axis}.{name}"
    if policy not in (known if known is not None else OPTIONS):
        names = installed() if known is None else known
        if policy not in names:
            here = [one.partition(".")[2] for one in sorted(names) if one.startswith(f"{axis}.")]
            base, bracket, _ = name.partition("(")
            hint = _nearest(name, here)
            if bracket and base in here:  # as a line of `spill policy set` has it
                hint = f"; write {{{base}: {{option: value}}}}"
            found.add(path, f"{shown(name)} is not a policy of the axis {axis}{hint}")
            return None
    return Choice(name, _options(policy, given, (*path, name), found, more or {}))


def _options(
    policy: str, given: Mapping[str, Any], path: Path, found: Findings, more: Mapping[str, Option]
) -> dict[str, Any]:
    """Read options, durations in nanoseconds."""
    own = OPTIONS.get(policy)
    known = {**(own if own is not None else COMMON if policy.startswith("wait.") else {}), **more}
    options: dict[str, Any] = {}
    for name, value in given.items():
        place = (*path, name)
        if name in known:
            options[name] = _value(known[name], value, place, found)
        elif own is None:
            options[name] = _plain(value, place, found)
        else:
            found.add(
                place, f"unknown option{_nearest(name, known) if known else '; this policy has no options'}"
            )
    for name, advice in REQUIRED.get(policy, {}).items():
        if name not in given:
            found.add((*path, name), f"is missing; {advice}")
    depth = options.get("depth") if policy in {"backfill.hybrid", "backfill.conservative"} else None
    if depth is not None and not 1 <= depth <= MOST_RESERVATIONS:
        found.add((*path, "depth"), f"{depth} is not a whole number from 1 to {MOST_RESERVATIONS}")
    least, most = options.get("min_wait"), options.get("max_wait")
    if least is not None and most is not None and least > most:
        found.add((*path, "min_wait"), "is longer than max_wait")
    return options


def _value(takes: Option, value: object, path: Path, found: Findings) -> int | float | str | None:
    """Read an option of a known kind."""
    if isinstance(takes, tuple):
        if value not in takes:
            found.add(path, f"{shown(value)} must be {either(takes)}")
        return str(value)
    if takes is Takes.FLAG:
        if not isinstance(value, bool):
            found.add(path, f"{shown(value)} must be true or false")
        return bool(value)
    if takes is Takes.SHARES:
        return _shares(value, path, found)
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


def _shares(value: object, path: Path, found: Findings) -> str | None:
    """Read the shares of projects into one line of text, because options cannot be mappings."""
    given: Mapping[object, object]
    if isinstance(value, str):
        pairs = [part.pair(last=True) for part in Piece(value).words(";")]
        given = {name.strip().text: (share or name).strip().text for name, share in pairs}
    elif isinstance(value, Mapping):
        given = value
    else:
        found.add(
            path,
            f"{shown(value)} is not a list of shares; write {{vision: 2, nlp: 1}}, or vision=2;nlp=1 in a line",
        )
        return None
    shares: dict[str, str] = {}
    for project, share in given.items():
        place = (*path, str(project))
        check_name(str(project), place, found)
        shares[str(project)] = written = "" if isinstance(share, bool) else str(share)
        try:
            right = 0 < Decimal(written) <= 10**9
        except InvalidOperation:
            right = False
        if not right:
            found.add(place, f"{shown(share)} is not a number above 0, up to {10**9}")
    return ";".join(f"{project}={shares[project]}" for project in sorted(shares))


def _plain(value: object, path: Path, found: Findings) -> object:
    """Read an option of an installed policy, which checks it itself."""
    if not isinstance(value, bool | int | float | str):
        found.add(path, "must be text, a number, true or false")
    return value


def _nearest(word: str, known: Collection[str]) -> str:
    """Return a hint at the most similar name."""
    from spillover.forms.checking import nearest  # noqa: PLC0415 - slow, and only needed for problems

    return nearest(word, known)
