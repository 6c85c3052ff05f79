"""Reads policies from one line, such as `wait=compute(0.076,max_queue=30),backfill=out_of_order`."""

from collections.abc import Collection, Iterator, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, Final, NamedTuple

from spillover.forms.oneline import OneLine, Piece
from spillover.forms.policies import read_choice
from spillover.forms.problems import shown
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
"""Most points of a range."""
MOST_END: Final = 10**12
"""Most that an end of a range of plain numbers may be; no option accepts as much."""

_MARKS: Final = frozenset("(),=")
"""Characters that end a word, as spaces do."""
_DIGITS: Final = frozenset("0123456789.eE+-")


def read_policies(
    text: str,
    source: str = "",
    *,
    base: PolicySet | None = None,
    known: Collection[str] | None = None,
    study: bool = False,
) -> PolicySet:
    """Read the policies of a line; `base` gives the other axes and defaults to the default policies.

    `source` names the line in problems. `known` are the available policies, None for the installed ones. A `study` may
    also use options that change what the scheduler knows.
    """
    line = OneLine(text)
    chosen: dict[str, Any] = {}
    for axis, written in _axes(line):
        if axis in chosen:
            line.wrong(written, "is given twice; remove one", (axis,))
            continue
        line.mark((axis,), written)
        if axis == "depth":
            chosen[axis] = _depth(written, line)
        elif axis == "unknown_runtime":
            chosen[axis] = duration(written.text, (axis,), line.found, least=1)
        else:
            chosen[axis] = _choice(axis, written, known, line, STUDY if study and axis == "wait" else {})
    line.check(source)
    base = base or PolicySet()
    return PolicySet(
        order=chosen.get("order", base.order),
        backfill=chosen.get("backfill", base.backfill),
        wait=chosen.get("wait", base.wait),
        place=chosen.get("place", base.place),
        depth=chosen.get("depth", base.depth),
        unknown_runtime=chosen.get("unknown_runtime", base.unknown_runtime),
        route=chosen.get("route", base.route),
        size=chosen.get("size", base.size),
    )


def named_axes(text: str) -> tuple[str, ...]:
    """Return the axes that a line names, in its order."""
    return tuple([axis for axis, _ in _axes(OneLine(text)) if axis in LINE_AXES])


class RangeStep(NamedTuple):
    """One line of a range."""

    line: str
    label: str
    """The line with rounded digits, for people."""
    value: str
    """The value that differs from the other lines, for people."""


def points(text: str, source: str) -> list[RangeStep]:
    """Expand a range `a..b/8` into lines with even steps, both ends included; a line without a range stays as it is."""
    line = OneLine(text)
    ranges = [(word, ends) for word in _words(line.whole) if (ends := _range(word)) is not None]
    if not ranges:
        if ".." in text:
            at = line.whole.cut(text.index(".."))
            line.wrong(at, f"{shown(text)} has a range without a number of points; write it as 0.1h..4h/8")
            line.check(source)
        return [RangeStep(text, text, "")]
    word, (first, last, count) = ranges[0]
    if len(ranges) > 1:
        line.wrong(
            ranges[1][0], f"{shown(text)} has more than one range; write one range, such as 0.1h..4h/8"
        )
        line.check(source)
    line.mark((word.text,), word)
    steps: list[tuple[str, str]] = []
    if not (count.isascii() and count.isdigit() and len(count) < 6 and 2 <= int(count) <= MOST_POINTS):
        line.found.add((word.text,), f"{shown(count)} is not a number of points from 2 to {MOST_POINTS}")
    else:
        try:
            steps = _even(first, last, int(count))
        except UnitError as error:
            line.found.add((word.text,), str(error))
    line.check(source)
    before, behind = text[: word.at], text[word.at + len(word.text) :]
    return [RangeStep(before + exact + behind, before + value + behind, value) for exact, value in steps]


def _even(first: str, last: str, count: int) -> list[tuple[str, str]]:
    """Return evenly spaced numbers or durations (to the millisecond) as text, each also in rounded form."""
    if _is_number(first) and _is_number(last):
        low, high = _end(first), _end(last)
        numbers = [float(round(low + (high - low) * at / (count - 1), 12)) for at in range(count)]
        return [(repr(number).removesuffix(".0"), f"{number:.4g}") for number in numbers]
    if _is_number(first) or _is_number(last):
        raise UnitError("only one end has a unit; write it at both, as in 0.1h..4h/8")
    start, end = parse_duration(first), parse_duration(last)
    unit = last.lstrip("0123456789.")
    size = parse_duration(f"1{unit}") if unit.isalpha() else HOUR
    unit = unit if unit.isalpha() else "h"
    spans = [start + (end - start) * at // (count - 1) for at in range(count)]
    spans = [span if at in {0, count - 1} else round(span, -6) for at, span in enumerate(spans)]
    return [(short_duration(span), f"{span / size:.4g}{unit}") for span in spans]


def _end(text: str) -> Decimal:
    """Read one end of a range of plain numbers."""
    if abs(float(text)) > MOST_END:
        raise UnitError(f"{shown(text)} is too large for a range; the maximum is {MOST_END}")
    try:
        return Decimal(text)
    except InvalidOperation:  # too close to 0 for Decimal
        return Decimal(0)


def _words(line: Piece) -> Iterator[Piece]:
    """Yield the words between separators and spaces."""
    start = 0
    for at, letter in enumerate(f"{line.text} "):
        if letter in _MARKS or letter.isspace():
            if at > start:
                yield line.cut(start, at)
            start = at + 1


def _range(word: Piece) -> tuple[str, str, str] | None:
    """Split a range into its ends and its number of points; None if the word is not a range."""
    middle = word.text.find("..", 1)
    last, slash, count = word.text[middle + 2 :].partition("/")
    return (word.text[:middle], last, count) if middle > 0 and last and slash else None


def _axes(line: OneLine) -> Iterator[tuple[str, Piece]]:
    """Yield each axis with its text."""
    known = (*LINE_AXES, "depth", "unknown_runtime")
    for part in line.whole.words() if line.balanced() else ():
        name, written = part.pair()
        axis = name.strip().text
        if written is not None and axis in known:
            yield axis, written.strip()
        elif written is not None and "(" not in axis:
            from spillover.forms.checking import nearest  # noqa: PLC0415 - slow, and only needed for problems

            line.wrong(part, f"unknown axis {shown(axis)}{nearest(axis, known)}")
        else:
            line.wrong(part, f"{shown(part.text)} has no axis; write it as wait=compute(0.076)")


def _choice(
    axis: str, written: Piece, known: Collection[str] | None, line: OneLine, more: Mapping[str, Option]
) -> Choice | None:
    """Read a policy with its options."""
    call = written.call()
    name = call[0].text if call else ""
    if call is None or not name.replace(".", "_").replace("-", "_").isidentifier():
        message = f"{shown(written.text)} is not a policy; write it as name(0.1,option=value)"
        line.wrong(written, message, (axis,))
        return None
    policy = f"{axis}.{name}"
    kinds = {**OPTIONS.get(policy, {}), **more}
    given: dict[str, Any] = {}
    nameless: list[tuple[Piece, str]] = []
    for at, part in enumerate(call[1].words() if call[1] else ()):
        left, right = part.pair()
        option, value = left.strip().text, right.strip().text if right else ""
        if right is None:
            main = main_option(policy)
            if at or main is None:
                why = "only the first option may omit it" if at else f"{name} has no default option"
                nameless.append((part, why))
                continue
            option, value = main, part.text
        if option in given:
            line.wrong(part, "is given twice; remove one", (axis, name, option))
        line.mark((axis, name, option), part)
        given[option] = _read(kinds.get(option), value)
    choice = read_choice(axis, name, given, (axis,), line.found, known=known, more=more)
    for part, why in nameless if choice is not None else ():
        line.wrong(part, f"{shown(part.text)} has no option name ({why}); write option=value", (axis, name))
    return choice


def _read(kind: Option | None, value: str) -> object:
    """Convert a value as YAML would: to a number, true, false or text."""
    if kind in {Takes.DURATION, Takes.SHARES} or isinstance(kind, tuple):
        return value
    if value in {"true", "false"}:
        return value == "true"
    if not _is_number(value):
        return value
    return int(value) if value.isdigit() else float(value)


def _is_number(text: str) -> bool:
    """Return whether a text is a number in digits; float alone accepts more."""
    if not text or len(text) > 40 or not _DIGITS.issuperset(text):
        return False
    try:
        float(text)
    except ValueError:
        return False
    return True


def _depth(written: Piece, line: OneLine) -> int | None:
    """Read how many lanes a cycle tries."""
    try:
        depth = Decimal(written.text)
    except InvalidOperation:
        depth = Decimal(0)
    if not depth.is_finite() or not 1 <= depth <= 10**9 or depth != int(depth):
        line.wrong(written, f"{shown(written.text)} is not a whole number of at least 1", ("depth",))
        return None
    return int(depth)
