"""What all formats share: exact numbers from text, and what is done with rows that are wrong."""

from collections.abc import Callable
from decimal import ROUND_CEILING, Decimal
from typing import Final

from spillover.forms.problems import BadForm, FormProblem, shown
from spillover.model.units import DAY

MOST_TOLD: Final = 20
"""Wrong rows that are told; the rest are counted."""
MOST: Final = 10**6 * DAY
"""Nanoseconds: no trace is longer, and every store could hold it."""
TENS: Final[tuple[int, ...]] = tuple([10**digits for digits in range(40)])
"""By the number of digits behind the point."""
MOST_UNITS: Final = 10**9
"""GPUs, CPUs or nodes of one job."""


class Wrong(ValueError):
    """A value that is none; the message says what would be."""


class WrongRow(Wrong):
    """A row that is none as a whole, whatever stands in its columns."""


class Rows:
    """The rows of one file that are wrong."""

    __slots__ = ("left_out", "more", "problems", "skip", "source")

    def __init__(self, source: str, *, skip: bool) -> None:
        self.source = source
        self.skip = skip
        """Whether wrong rows are left out and counted."""
        self.left_out = 0
        self.problems: list[FormProblem] = []
        self.more = 0
        """Problems beyond those that are told."""

    def wrong(self, line: int, *problems: tuple[str, str]) -> None:
        """Note one row with its problems, each the column and what is wrong."""
        self.left_out += 1
        for column, message in problems:
            if len(self.problems) < MOST_TOLD:
                self.problems.append(FormProblem(self.source, line, column, message))
            else:
                self.more += 1

    def check(self) -> None:
        """Raise if there are wrong rows that are not to be skipped."""
        if self.problems and not self.skip:
            advice = FormProblem(
                self.source, None, "", "nothing was simulated; --skip-bad leaves such rows out"
            )
            raise BadForm([*self.problems, advice], self.more)


class Memo(dict[str, int]):
    """Converts each distinct text once: most columns have few of them."""

    __slots__ = ("_convert",)

    def __init__(self, convert: Callable[[str], int]) -> None:
        super().__init__()
        self._convert = convert

    def __missing__(self, text: str) -> int:
        value = self[text] = self._convert(text)
        return value


def refuse(source: str, message: str) -> BadForm:
    """The error for a file of which no row can be read."""
    return BadForm([FormProblem(source, None, "", message)])


def times(unit: int) -> Callable[[str], int]:
    """Reads a time that counts in this many nanoseconds; exact, and rounded only below one."""

    def read(text: str) -> int:
        before, _, after = text.partition(".")
        digits = before + after
        if digits.isdigit() and len(digits) < len(TENS):
            value, rest = divmod(int(digits) * unit, base := TENS[len(after)])
            value += 2 * rest >= base
        else:  # with an exponent, a sign, or no number at all
            number = _decimal(text)
            if number < 0:
                raise Wrong(f"{shown(text)} is less than 0")
            value = round(number * unit) if number < MOST else MOST + 1
        if value > MOST:
            raise Wrong(f"{shown(text)} is more than a million days")
        return value

    return read


def whole(text: str) -> int:
    """A count of things that cannot be halved; `4.0` is 4, nothing is 0."""
    if text.isdigit() and len(text) < 10:
        return int(text)
    if not text:
        return 0
    number = _bounded(text, MOST_UNITS)
    if number != int(number):
        raise Wrong(f"{shown(text)} is not a whole number")
    return int(number)


def milli(text: str) -> int:
    """A count in thousandths, rounded up; nothing is 0."""
    if text.isdigit() and len(text) < 10:
        return int(text) * 1000
    return _up(_bounded(text, MOST_UNITS) * 1000) if text else 0


def scaled(unit: int) -> Callable[[str], int]:
    """Reads an amount that counts in this many bytes, rounded up; nothing is 0."""
    return lambda text: _up(_bounded(text, 2**40) * unit) if text else 0


def _bounded(text: str, most: int) -> Decimal:
    """A number from 0."""
    number = _decimal(text)
    if not 0 <= number <= most:
        raise Wrong(f"{shown(text)} is not a number from 0 to {most}")
    return number


def _decimal(text: str) -> Decimal:
    """A number in digits."""
    if not text.strip():
        raise Wrong("is missing")
    try:
        number = Decimal(text) if len(text) <= 64 and "_" not in text else None
    except ArithmeticError:
        number = None
    if number is None or not number.is_finite():
        raise Wrong(f"{shown(text)} is not a number")
    return number


def _up(number: Decimal) -> int:
    """The next integer that is not smaller."""
    return int(number.to_integral_value(ROUND_CEILING))
