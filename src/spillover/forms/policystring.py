"""Reads policies in a line, as `wait=compute(0.076,max_queue=30),backfill=out_of_order`."""

import re
from collections.abc import Collection, Iterator, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, Final, NamedTuple

from spillover.forms.policies import read_choice
from spillover.forms.problems import BadForm, Findings, Problem, shown
from spillover.forms.quantities import duration
from spillover.model.policy import Choice, PolicySet
from spillover.model.policy_options import (
    LINE_AXES,
    OPTIONS,
    STUDY,
    Option,
    Takes,
    main_option,
    short_duration,
)
from spillover.model.units import HOUR, UnitError, parse_duration

MOST_POINTS: Final = 1000
"""Of one range."""

_RANGE: Final = r"([^\s(),=]+?)\.\.([^\s(),=/]+)/([^\s(),=]*)"
"""Compiled when it is needed: a command that is typed all day has to start at once."""
_DIGITS: Final = frozenset("0123456789.eE+-")


def read_policies(
    text: str,
    source: str = "",
    *,
    base: PolicySet | None = None,
    known: Collection[str] | None = None,
    study: bool = False,
) -> PolicySet:
    """The policies of a line; axes that it does not name are those of `base`, which has the defaults.

    `source` is what the line is called in problems, `known` the policies that there are (None: the installed ones); a `study` may
    also change what the scheduler is told.
    """
    found = Findings()
    chosen: dict[str, Any] = {}
    for axis, written in _axes(text, found):
        if axis in chosen:
            found.add((axis,), "is written twice; keep one")
        elif axis == "depth":
            chosen[axis] = _depth(written, found)
        elif axis == "unknown_runtime":
            chosen[axis] = duration(written, (axis,), found, least=1)
        else:
            chosen[axis] = _choice(axis, written, known, found, STUDY if study and axis == "wait" else {})
    if found.found:
        raise BadForm(found.located(source))
    base = base or PolicySet()
    return PolicySet(
        order=chosen.get("order", base.order),
        backfill=chosen.get("backfill", base.backfill),
        wait=chosen.get("wait", base.wait),
        place=chosen.get("place", base.place),
        depth=chosen.get("depth", base.depth),
        unknown_runtime=chosen.get("unknown_runtime", base.unknown_runtime),
        route=chosen.get("route", base.route),
    )


def named_axes(text: str) -> tuple[str, ...]:
    """The axes that a line names, in its order."""
    return tuple([axis for axis, _ in _axes(text, Findings()) if axis in LINE_AXES])


class Step(NamedTuple):
    """One line of a range."""

    line: str
    label: str
    """The same for people, with as many digits as they read."""
    value: str
    """What differs from the other lines, for people."""


def points(text: str, source: str) -> list[Step]:
    """The lines that a line with a range `a..b/8` stands for: even steps, both ends included; without one, itself."""
    ranges = list(re.finditer(_RANGE, text))
    if len(ranges) > 1:
        raise BadForm(
            [Problem(source, None, "", f"{shown(text)} has more than one range; write one, as 0.1h..4h/8")]
        )
    if not ranges:
        if ".." in text:
            advice = "has a range without its number of points; write it as 0.1h..4h/8"
            raise BadForm([Problem(source, None, "", f"{shown(text)} {advice}")])
        return [Step(text, text, "")]
    (match,) = ranges
    first, last, count = match.groups()
    problem = ""
    if not (count.isdigit() and len(count) < 6 and 2 <= int(count) <= MOST_POINTS):
        problem = f"{shown(count)} is not a number of points from 2 to {MOST_POINTS}"
    try:
        steps = _even(first, last, 2 if problem else int(count))
    except UnitError as error:
        problem = problem or str(error)
    if problem:
        raise BadForm([Problem(source, None, match[0], problem)])
    before, behind = text[: match.start()], text[match.end() :]
    return [Step(before + exact + behind, before + value + behind, value) for exact, value in steps]


def _even(first: str, last: str, count: int) -> list[tuple[str, str]]:
    """Evenly spaced values as text, in plain numbers or in durations to the millisecond; each also for people."""
    if _is_number(first) and _is_number(last):
        low, high = Decimal(first), Decimal(last)
        numbers = [float(round(low + (high - low) * at / (count - 1), 12)) for at in range(count)]
        return [(repr(number).removesuffix(".0"), f"{number:.4g}") for number in numbers]
    if _is_number(first) or _is_number(last):
        raise UnitError("only one end has a unit; write both with it, as 0.1h..4h/8")
    start, end = parse_duration(first), parse_duration(last)
    unit = last.lstrip("0123456789.")
    size = parse_duration(f"1{unit}") if unit.isalpha() else HOUR
    unit = unit if unit.isalpha() else "h"
    spans = [start + (end - start) * at // (count - 1) for at in range(count)]
    spans = [span if at in {0, count - 1} else round(span, -6) for at, span in enumerate(spans)]
    return [(short_duration(span), f"{span / size:.4g}{unit}") for span in spans]


def _axes(text: str, found: Findings) -> Iterator[tuple[str, str]]:
    """Each axis with what is written for it."""
    known = (*LINE_AXES, "depth", "unknown_runtime")
    for part in _split(text, found):
        axis, equals, written = part.partition("=")
        axis = axis.strip()
        if equals and axis in known:
            yield axis, written.strip()
        elif equals and "(" not in axis:
            from spillover.forms.checking import nearest  # noqa: PLC0415 - slow, and only when something is wrong

            found.add((), f"there is no axis {shown(axis)}{nearest(axis, known)}")
        else:
            found.add((), f"{shown(part)} names no axis; write it as wait=compute(0.076)")


def _split(text: str, found: Findings) -> list[str]:
    """The parts between commas that stand in no parentheses."""
    parts, depth, start = [], 0, 0
    for at, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth < 0:
            break
        if letter == "," and depth == 0:
            parts.append(text[start:at])
            start = at + 1
    if depth:
        found.add((), f"{shown(text)} has parentheses that do not match")
        return []
    parts.append(text[start:])
    return [part.strip() for part in parts if part.strip()]


def _choice(
    axis: str, written: str, known: Collection[str] | None, found: Findings, more: Mapping[str, Option]
) -> Choice | None:
    """One policy with its options."""
    name, bracket, inside = written.partition("(")
    name = name.strip()
    if not name.replace(".", "_").replace("-", "_").isidentifier() or (bracket and not inside.endswith(")")):
        found.add((axis,), f"{shown(written)} is not a policy; write it as name(0.1,option=value)")
        return None
    inside = inside.removesuffix(")")
    policy = f"{axis}.{name}"
    kinds = {**OPTIONS.get(policy, {}), **more}
    given: dict[str, Any] = {}
    nameless: list[tuple[str, str]] = []
    for at, part in enumerate(_split(inside, found)):
        option, equals, value = part.partition("=")
        option, value = option.strip(), value.strip()
        if not equals:
            main = main_option(policy)
            if at or main is None:
                why = (
                    "only the first option goes without its name" if at else f"{name} has none without a name"
                )
                nameless.append((part, why))
                continue
            option, value = main, part
        if option in given:
            found.add((axis, name, option), "is written twice; keep one")
        given[option] = _read(kinds.get(option), value)
    choice = read_choice(axis, name, given, (axis,), found, known=known, more=more)
    for part, why in nameless if choice is not None else ():
        found.add((axis, name), f"{shown(part)} has no name: {why}; write option=value")
    return choice


def _read(kind: Option | None, value: str) -> object:
    """A value as it would stand in a file: a number, true, false or text."""
    if kind in {Takes.DURATION, Takes.SHARES} or isinstance(kind, tuple):
        return value
    if value in {"true", "false"}:
        return value == "true"
    if not _is_number(value):
        return value
    return int(value) if value.isdigit() else float(value)


def _is_number(text: str) -> bool:
    """Whether a text is a number in digits, which float alone is not strict about."""
    if not text or len(text) > 40 or not _DIGITS.issuperset(text):
        return False
    try:
        float(text)
    except ValueError:
        return False
    return True


def _depth(written: str, found: Findings) -> int | None:
    """How many lanes a cycle tries."""
    try:
        depth = Decimal(written)
    except InvalidOperation:
        depth = Decimal(0)
    if depth != int(depth) or not 1 <= depth <= 10**9:
        found.add(("depth",), f"{shown(written)} is not a whole number from 1")
        return None
    return int(depth)
