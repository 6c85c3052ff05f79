"""Prints the forecasts of `--dry-run`: where and when each job would start, by a real cycle on a snapshot."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from spillover.cli import codes
from spillover.cli.printing.output import Column, Output, Row
from spillover.cli.printing.shown import NOTHING, between, duration, local, money

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
_NOW: Final = 1.0
"""Seconds until a start below which a placed job shows "now"."""


def forecast(out: Output, client: "Client", documents: Sequence[dict[str, Any]], *, as_json: bool) -> int:
    """Request a forecast and print it."""
    told = client.forecast(documents)
    if as_json:
        out.json(told)
    else:
        rented = any(one.estimated_cost is not None for one in told)
        columns = (*COLUMNS[:-1], *RENTED, COLUMNS[-1]) if rented else COLUMNS
        out.table(columns, [_row(one, rented=rented) for one in told])
        for one in told:
            if one.note is not None:
                out.line(f"note: {one.name}: {one.note}")
    return codes.OK


def _row(one: "Forecast", *, rented: bool) -> Row:
    where = "/".join(part for part in (one.cluster, one.node) if part)
    quoted = (money(one.estimated_cost), money(one.cost_at_walltime)) if rented else ()
    return (one.name, where or NOTHING, _when(one), money(one.cost), *quoted, one.reason.message)


def _when(one: "Forecast") -> str:
    """Format the start: now, a time and how far away it is, or never."""
    if one.starts_at is None:
        return "never" if one.reason.never else "not known"
    away = -(between(one.starts_at, None) or 0.0)
    if one.node is not None and away < _NOW:
        return "now"
    return f"{local(one.starts_at)} (in {duration(max(_NOW, away))})"
