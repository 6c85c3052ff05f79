"""Prints the report of the demo: where each job ran and why, what machines cost, totals, and commands to try next."""

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from spillover.cli.demo.machines import Rented, jobs_on
from spillover.cli.demo.otherwise import Outcome, outcomes
from spillover.cli.demo.plan import CURRENCY, OWNED, RENTED
from spillover.cli.demo.story import DemoLook, called, cents, mean_wait, ran, tenths, waited
from spillover.cli.printing.output import Cell, Column, Output, Row
from spillover.cli.printing.shown import NOTHING, STYLES
from spillover.model.units import so_many

if TYPE_CHECKING:
    from spillover.wire.api import JobView, MachineCostView

COLUMNS: Final = (
    Column("JOB"),
    Column("WHERE"),
    Column("WAITED", right=True),
    Column("RAN", right=True),
    Column("COST", right=True),
    Column("WHY THERE", gives=True),
)

MACHINE_COLUMNS: Final = (
    Column("MACHINE"),
    Column("ORDERED", right=True),
    Column("READY", right=True),
    Column("GONE", right=True),
    Column("JOBS", right=True),
    Column("COST", right=True),
)

OUTCOME_COLUMNS: Final = (
    Column("THE SAME JOBS"),
    Column("MEAN WAIT", right=True),
    Column("ALL DONE", right=True),
    Column("RENT", right=True),
)


def report(out: Output, seen: DemoLook, paid: "MachineCostView") -> None:
    """Print the tables, the totals and the next commands."""
    jobs = list(seen.jobs.values())
    if not out.terminal:
        out.line()  # separate the table from the events above; on a terminal they have disappeared
    out.table(COLUMNS, [_row(job) for job in jobs])
    out.line()
    if seen.machines:
        out.table(MACHINE_COLUMNS, [_machine_row(each, jobs) for each in seen.machines.values()])
        out.line()
    out.sheet(totals(jobs, paid))
    out.line()
    compared = outcomes(jobs, paid.paid)
    if compared:
        out.table(OUTCOME_COLUMNS, [_outcome_row(each) for each in compared])
        out.line()
    out.line("next:")
    for command in next_commands():
        out.line(f"  {command}")


def totals(jobs: "Sequence[JobView]", paid: "MachineCostView") -> list[tuple[str, str]]:
    """Return the totals as named facts."""
    succeeded = sum(job.state == "SUCCEEDED" for job in jobs)
    owned, rented = ([job for job in jobs if job.cluster == name] for name in (OWNED, RENTED))
    machines = f"{paid.machines} machine{'' if paid.machines == 1 else 's'}"
    back = "all given back" if not paid.live else f"{paid.live} not given back yet"
    return [
        ("jobs", f"{len(jobs)}, of which {succeeded} succeeded"),
        (OWNED, f"{so_many(len(owned))} on owned capacity, waited {tenths(mean_wait(owned))} on average"),
        (RENTED, f"{so_many(len(rented))} spilled over, after {tenths(mean_wait(rented))} on average"),
        ("mean wait", tenths(mean_wait(jobs))),
        ("rent", f"{cents(paid.paid)} {CURRENCY} for {machines}, {back}"),
        ("of that", f"{cents(paid.useful)} useful, {cents(paid.boot)} boot, {cents(paid.idle)} idle"),
    ]


def next_commands() -> list[str]:
    """Return three commands that work as printed, in this order."""
    spill = program()
    return [
        f"{spill} up 2> up.log &",  # its log would cover the output of the other two
        f"{spill} run --wait --name hello -- sh -c 'echo on $SPILL_CLUSTER'",
        f"{spill} show hello",
    ]


def program() -> str:
    """Return how to call `spill` here: by name if a shell finds it, else by its path."""
    here = Path(sys.argv[0])
    by_path = here.name == "spill" and here.is_file() and shutil.which("spill") is None
    if not by_path:
        return "spill"
    near = os.path.relpath(here)
    return str(here.absolute()) if near.startswith("..") else near


def _row(job: "JobView") -> Row:
    because = job.placed_because.message if job.placed_because is not None else NOTHING
    if job.state != "SUCCEEDED" and job.reason is not None:
        because = f"{because}; {job.reason.message}"
    return (
        Cell(called(job), "" if job.state == "SUCCEEDED" else STYLES.get(job.state, "")),
        Cell(job.cluster or NOTHING, "yellow" if job.cluster == RENTED else "cyan"),
        tenths(waited(job)),
        tenths(ran(job)),
        cents(job.cost) if job.cost else NOTHING,
        because,
    )


def _outcome_row(outcome: Outcome) -> Row:
    """Return how the jobs ran, or would have run; that is simulated."""
    return (outcome.name, tenths(outcome.mean_wait), tenths(outcome.last_end), cents(outcome.rent))


def _machine_row(rented: Rented, jobs: "Sequence[JobView]") -> Row:
    return (
        Cell(rented.machine.id, "magenta"),
        tenths(rented.ordered),
        tenths(rented.ready),
        tenths(rented.gone),
        str(jobs_on(rented, jobs)),
        cents(rented.machine.cost),
    )
