"""Prints the forecasts of `--dry-run`: where and when each job would start, by a real cycle on a snapshot."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from spillover.cli import codes
from spillover.cli.printing.listing import place
from spillover.cli.printing.output import Column, Output, Row
from spillover.cli.printing.shown import NOTHING, between, duration, local, money, soon

if TYPE_CHECKING:
    from spillover.client import Client
    from spillover.wire.api import Forecast

COLUMNS: Final = (
    Column("NAME", gives=True),
    Column("WHERE"),
    Column("WHEN"),
    Column("COST", right=True),
    Column("WHY", gives=True),
)
RENTED: Final = (Column("RENTED", right=True), Column("MOST", right=True))
"""Expected cost on rented capacity, and the most it can be; shown if any job could be rented."""
STARTS: Final = Column("STARTS", right=True)
"""How far away the expected start is; shown if any job has another time beside it: when it may spill over."""
_NOW: Final = 1.0
"""Seconds until a start below which a placed job shows "now"."""


def forecast(out: Output, client: "Client", documents: Sequence[dict[str, Any]], *, as_json: bool) -> int:
    """Request a forecast and print it."""
    told = client.forecast(documents)
    if as_json:
        out.json(told)
    else:
        rented = any(one.estimated_cost is not None for one in told)
        starts = any(one.expected_start is not None and one.starts_at is not None for one in told)
        starts = starts and any(one.node is None for one in told)
        columns = (
            *COLUMNS[:3],
            *((STARTS,) if starts else ()),
            COLUMNS[3],
            *(RENTED if rented else ()),
            COLUMNS[-1],
        )
        out.table(columns, [_row(one, rented=rented, starts=starts) for one in told])
        for one in told:
            if one.note is not None:
                out.line(f"note: {one.name}: {one.note}")
    return codes.OK


def _row(one: "Forecast", *, rented: bool, starts: bool) -> Row:
    quoted = (money(one.estimated_cost), money(one.cost_at_walltime)) if rented else ()
    start = (NOTHING if one.node is not None else soon(one.expected_start),) if starts else ()
    return (one.name, place(one) or NOTHING, _when(one), *start, money(one.cost), *quoted, one.reason.message)


def _when(one: "Forecast") -> str:
    """Format the start: now, a time and how far away it is, or never."""
    if one.starts_at is None:
        if one.reason.never:
            return "never"
        return "not known" if one.expected_start is None else soon(one.expected_start)
    away = -(between(one.starts_at, None) or 0.0)
    if one.node is not None and away < _NOW:
        return "now"
    return f"{local(one.starts_at)} (in {duration(max(_NOW, away))})"
