"""Reads quantities, names and words of user input, and checks their bounds."""

import re
from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from spillover.forms.problems import Findings, Path, shown
from spillover.model.ids import NAME_RULE, is_name
from spillover.model.resources import IN_BYTES, Others
from spillover.model.units import (
    DAY,
    MONEY,
    UnitError,
    format_duration,
    parse_cpu,
    parse_duration,
    parse_memory,
    parse_money,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spillover.wire.jobfile import Quantity

MOST_CPU: Final = 1_000_000 * 1000
"""Thousandths of a CPU, for one task."""
MOST_MEMORY: Final = 2**60 - 1
"""Bytes, for one task."""
MOST_TIME: Final = 3650 * DAY
"""Nanoseconds, for walltime and estimate."""
MOST_GRACE: Final = DAY
MOST_LOST_AFTER: Final = 30 * DAY
MOST_OTHER: Final = 10**15
"""For a resource that is counted in whole units."""
PLAIN: Final = {"cpu": "cpu", "memory": "memory", "gpu": "gpu", "nvidia.com/gpu": "gpu"}
"""Resources that have a field of their own in job files."""
MOST_COST: Final = 10**9 * MONEY
WORD_RULE: Final = "1 to 100 letters, digits, ':', '.', '_', '/', '=' or '-'"

_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9:._/=-]{0,99}", re.ASCII)


def number_text(value: "Quantity") -> str:
    """Return a quantity as text, however it was written."""
    if isinstance(value, float):
        # The shortest digits that give this float are what the user wrote; more digits would be binary rounding.
        return f"{Decimal(repr(value)):f}".removesuffix(".0") if 1e-30 < abs(value) < 1e30 else repr(value)
    return value if isinstance(value, str) else shown(value)


def quantity(parse: Callable[[str], int], value: "Quantity", path: Path, found: Findings) -> int | None:
    """Parse a quantity; None and a problem in `found` if it is invalid."""
    try:
        return parse(value if isinstance(value, str) else number_text(value))
    except UnitError as error:
        text = number_text(value)
        found.add(path, str(error).replace(repr(text), text, 1) if text != value else str(error))
        return None


def duration(
    value: "Quantity", path: Path, found: Findings, *, least: int = 0, most: int = MOST_TIME
) -> int | None:
    """Read nanoseconds within bounds; None and a problem in `found` if invalid."""
    time = quantity(parse_duration, value, path, found)
    if time is None:
        return None
    if time < least or time > most:
        bound = (
            f"the minimum is {format_duration(least)}"
            if time < least
            else f"the maximum is {format_duration(most)}"
        )
        if time == 0 and least == 1:
            bound = "it must be more than 0"
        found.add(path, f"{shown(value)} is out of range; {bound}")
        return None
    return time


def read_cpu(value: "Quantity", path: Path, found: Findings, least: int = 1) -> int | None:
    """Read thousandths of a CPU within bounds; None and a problem in `found` if invalid."""
    if type(value) is int and 0 < value <= MOST_CPU // 1000:
        return value * 1000
    cpu = quantity(parse_cpu, value, path, found)
    if cpu is not None and not least <= cpu <= MOST_CPU:
        bound = "write 0.001 or more" if cpu < least else f"the maximum is {MOST_CPU // 1000}"
        found.add(path, f"{shown(value)} is out of range; {bound}")
        return None
    return cpu


def read_memory(value: "Quantity", path: Path, found: Findings) -> int | None:
    """Read bytes within bounds; None and a problem in `found` if invalid."""
    memory = quantity(parse_memory, value, path, found)
    if memory is not None and not 0 < memory <= MOST_MEMORY:
        bound = "write more than 0, or remove the field" if memory == 0 else "it must be less than 1Ei"
        found.add(path, f"{shown(value)} is out of range; {bound}")
        return None
    return memory


def read_other(amounts: "Mapping[str, Quantity]", path: Path, found: Findings) -> Others:
    """Read named resources, sorted: in bytes where IN_BYTES says so, else in whole units."""
    read: list[tuple[str, int]] = []
    for name, value in amounts.items():
        place = (*path, name)
        if name in PLAIN:
            found.add(place, f"has a separate field; write it as `{PLAIN[name]}` next to `other`")
        elif not is_word(name):
            found.add(place, f"{shown(name)} is not a resource name; write {WORD_RULE}")
        elif name.startswith(IN_BYTES):
            read.append((name, read_memory(value, place, found) or 0))
        elif type(value) is int and 0 <= value <= MOST_OTHER:
            read.append((name, value))
        else:
            found.add(place, f"{shown(value)} is not an amount of {name}; write a whole number")
    return tuple(sorted((name, amount) for name, amount in read if amount))


def is_word(text: str) -> bool:
    """Return whether a text can be a need or an offer."""
    return _WORD.fullmatch(text) is not None


def read_words(words: list[str], path: Path, found: Findings) -> tuple[str, ...]:
    """Read needs or offers, sorted and without duplicates."""
    for at, word in enumerate(words):
        if not is_word(word):
            found.add((*path, at), f"{shown(word)} is not a valid word; write {WORD_RULE}")
    return tuple(sorted(set(words)))


def check_name(name: str, path: Path, found: Findings) -> None:
    """Add a problem if a name is invalid."""
    if not is_name(name):
        found.add(path, f"{shown(name)} is not a valid name; write {NAME_RULE}")


def money(value: "Quantity", path: Path, found: Findings) -> int | None:
    """Read millionths within bounds; None and a problem in `found` if invalid."""
    amount = quantity(parse_money, value, path, found)
    if amount is not None and not 0 <= amount <= MOST_COST:
        bound = "the minimum is 0" if amount < 0 else f"the maximum is {MOST_COST // MONEY}"
        found.add(path, f"{shown(value)} is out of range; {bound}")
        return None
    return amount
