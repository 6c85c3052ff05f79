"""Parses exact numbers from text and collects invalid rows, for all formats of traces."""

from collections.abc import Callable
from decimal import ROUND_CEILING, Decimal
from typing import Final

from spillover.forms.problems import BadForm, FormProblem, shown
from spillover.model.units import DAY

MOST_TOLD: Final = 20
"""Problems to report; further ones are only counted."""
MOST: Final = 10**6 * DAY
"""Longest trace in nanoseconds; every store can hold such a time."""
TENS: Final[tuple[int, ...]] = tuple([10**digits for digits in range(40)])
"""Powers of ten, by the number of decimals."""
MOST_UNITS: Final = 10**9
"""Largest number of GPUs, CPUs or nodes of one job."""


class Wrong(ValueError):
    """An invalid value; the message says what is valid."""


class WrongRow(Wrong):
    """A row that is invalid as a whole, not in one column."""


class Rows:
    """Collects the invalid rows of one file."""

    __slots__ = ("left_out", "more", "problems", "skip", "source")

    def __init__(self, source: str, *, skip: bool) -> None:
        self.source = source
        self.skip = skip
        """Whether to skip and count invalid rows."""
        self.left_out = 0
        self.problems: list[FormProblem] = []
        self.more = 0
        """Problems beyond those to report."""

    def wrong(self, line: int, *problems: tuple[str, str]) -> None:
        """Record an invalid row with its problems, each a column and a message."""
        self.left_out += 1
        for column, message in problems:
            if len(self.problems) < MOST_TOLD:
                self.problems.append(FormProblem(self.source, line, column, message))
            else:
                self.more += 1

    def check(self) -> None:
        """Raise BadForm if there are invalid rows that may not be skipped."""
        if self.problems and not self.skip:
            advice = FormProblem(
                self.source, None, "", "nothing was simulated; use --skip-bad to skip such rows"
            )
            raise BadForm([*self.problems, advice], self.more)


class Memo(dict[str, int]):
    """Converts each distinct text once, because most columns have few distinct values."""

    __slots__ = ("_convert",)

    def __init__(self, convert: Callable[[str], int]) -> None:
        super().__init__()
        self._convert = convert

    def __missing__(self, text: str) -> int:
        value = self[text] = self._convert(text)
        return value


def refuse(source: str, message: str) -> BadForm:
    """Return the error for a file that cannot be read at all."""
    return BadForm([FormProblem(source, None, "", message)])


def times(unit: int) -> Callable[[str], int]:
    """Return a parser of times in this unit (nanoseconds); exact, and rounded only below a nanosecond."""

    def read(text: str) -> int:
        before, _, after = text.partition(".")
        digits = before + after
        if digits.isdigit() and len(digits) < len(TENS):
            value, rest = divmod(int(digits) * unit, base := TENS[len(after)])
            value += 2 * rest >= base
        else:  # an exponent, a sign, or no number at all
            number = _decimal(text)
            if number < 0:
                raise Wrong(f"{shown(text)} is less than 0")
            value = round(number * unit) if number < MOST else MOST + 1
        if value > MOST:
            raise Wrong(f"{shown(text)} is more than a million days")
        return value

    return read


def whole(text: str) -> int:
    """Parse a whole number; `4.0` is 4, an empty text 0."""
    if text.isdigit() and len(text) < 10:
        return int(text)
    if not text:
        return 0
    number = _bounded(text, MOST_UNITS)
    if number != int(number):
        raise Wrong(f"{shown(text)} is not a whole number")
    return int(number)


def milli(text: str) -> int:
    """Parse a number in thousandths, rounded up; an empty text is 0."""
    if text.isdigit() and len(text) < 10:
        return int(text) * 1000
    return _up(_bounded(text, MOST_UNITS) * 1000) if text else 0


def scaled(unit: int) -> Callable[[str], int]:
    """Return a parser of amounts in this unit (bytes), rounded up; an empty text is 0."""
    return lambda text: _up(_bounded(text, 2**40) * unit) if text else 0


def _bounded(text: str, most: int) -> Decimal:
    """Parse a number from 0 to `most`."""
    number = _decimal(text)
    if not 0 <= number <= most:
        raise Wrong(f"{shown(text)} is not a number from 0 to {most}")
    return number


def _decimal(text: str) -> Decimal:
    """Parse a finite decimal number."""
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
    """Round up to an integer."""
    return int(number.to_integral_value(ROUND_CEILING))
