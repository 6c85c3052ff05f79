"""Patches break_even to leave out some of its steps, and so measures each; for a process that runs nothing else."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final
from unittest.mock import patch

from spillover.deciding.cycle import cycle
from spillover.deciding.forecast import starts as lookahead
from spillover.model.units import FOREVER, MINUTE
from spillover.policies import break_even

ALL_COUNTS: Final = "all waiting counts"
"""Time already waited counts in full against a job's patience, and its patience bounds its wait."""
A_MINUTE: Final = "late ends in a minute"
"""A job that outran its estimate is expected to end a minute from now, however long it ran."""
NEITHER: Final = "neither"
UNSEEN: Final = "machines unseen"
"""It does not see what renting would mean on machines of pools, as if rented capacity were there at once and paid by use."""


@contextmanager
def as_variant(name: str) -> Iterator[None]:
    """Make break_even that variant within the block."""
    with ExitStack() as stack:
        if name in {ALL_COUNTS, NEITHER}:
            stack.enter_context(patch.object(break_even, "SUNK", 1))
        if name in {A_MINUTE, NEITHER}:
            stack.enter_context(patch.object(lookahead, "overdue", _in_a_minute))
        if name == UNSEEN:
            stack.enter_context(patch.object(cycle, "COMPARES", FOREVER))
        yield


def _in_a_minute(now: int, began: int) -> int:
    del began
    return now + MINUTE
