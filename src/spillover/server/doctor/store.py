"""Checks that the store is readable, intact and of a known version, and that a server could start with it."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from spillover.core.invariants import breaches
from spillover.core.state import State
from spillover.core.transitions import TERMINAL
from spillover.model.units import DAY, SECOND, format_duration, format_memory, format_moment
from spillover.ports.journal import Moved, StoreError, TooNew
from spillover.server.doctor.findings import MOST, Finding, count, ok, problem, some, warning
from spillover.server.doctor.folder import lock_holder
from spillover.server.doctor.inspection import Inspection, Unfit
from spillover.stores.rows import SCHEMA_VERSION
from spillover.stores.sqlite import examining
from spillover.stores.sqlite.database import FILE
from spillover.stores.sqlite.election import LOCK_FILE
from spillover.stores.sqlite.log import lost_commits
from spillover.stores.sqlite.schema import NoData

AHEAD: Final = 5 * SECOND
"""Nanoseconds by which the last event may be ahead of this machine's clock."""
LONG_AGO: Final = 366 * DAY
"""Nanoseconds by which it may be behind; a larger gap usually means a wrong clock."""
RESTORE: Final = "restore a backup (docs/operations.md#backups), and keep these files for analysis"


def readable(inspection: Inspection) -> Iterator[Finding]:
    """Check that the store can be read, and that its version is known."""
    where = inspection.store.partition(":")[0]
    if where == "memory":
        return
    try:
        version = inspection.version
    except TooNew as error:
        yield problem(
            "store",
            str(error).partition(";")[0],
            "use the Spillover version that wrote the data, or a newer one",
        )
    except NoData as error:
        yield problem("store", str(error), "if the store is PostgreSQL, give its spill.yaml with --config")
    except StoreError as error:
        yield problem(
            "store", str(error), RESTORE if where == "sqlite" else "check that PostgreSQL runs and answers"
        )
    else:
        later = f"; the next start upgrades it to {SCHEMA_VERSION}" if version < SCHEMA_VERSION else ""
        yield ok("store", f"{where}, version {version}{later}")


def integrity(inspection: Inspection) -> Iterator[Finding]:
    """Check the file with SQLite's own integrity check, and its write-ahead log."""
    if inspection.store != "sqlite" or not inspection.current or inspection.quick:
        return
    file = inspection.folder / FILE
    log = Path(f"{file}-wal")
    size = format_memory(file.stat().st_size + (log.stat().st_size if log.exists() else 0))
    began = time.monotonic()

    def going_on() -> None:
        inspection.tell(f"checking {file.name} ({size}): {time.monotonic() - began:.0f} s")

    try:
        lines = examining.integrity(inspection.folder, going_on)
    except Moved:
        lines = examining.integrity(inspection.folder, going_on)
    if lost := _lost(inspection, going_on):
        told = f"{file}-wal is damaged: {count(lost, 'commit')} after that cannot be read"
        yield problem("integrity", told, RESTORE)
        return
    if lines:
        more = f" (and {count(len(lines) - 1, 'more line')})" if len(lines) > 1 else ""
        yield problem("integrity", f"{file} is damaged: {lines[0]}{more}", RESTORE)
    else:
        yield ok("integrity", f"SQLite finds nothing wrong in {size}")


def _lost(inspection: Inspection, going_on: Callable[[], None]) -> int:
    """Count acknowledged commits that SQLite does not see; 0 while a server runs, as its log changes."""
    log = inspection.folder / f"{FILE}-wal"
    if inspection.server is not None or lock_holder(inspection.folder / LOCK_FILE) is not None:
        return 0
    return lost_commits(log, going_on) if log.exists() else 0


def checkpoint(inspection: Inspection) -> Iterator[Finding]:
    """Check that a server could start with the stored state, and that all invariants hold."""
    if not inspection.current:
        return
    try:
        restarted = inspection.restarted
    except (StoreError, Unfit) as error:
        yield problem("checkpoint", f"a server could not start: {error}", RESTORE)
        return
    state = restarted.state
    inspection.tell(f"checking invariants of {count(len(state.jobs), 'job')}")
    if wrong := breaches(state):
        more = f" (and {count(len(wrong) - 1, 'more breach', 'more breaches')})" if len(wrong) > 1 else ""
        yield problem(
            "checkpoint", f"the state is inconsistent: {wrong[0]}{more}", "report it, with a backup"
        )
    else:
        jobs = count(len(state.jobs), "job")
        yield ok(
            "checkpoint",
            f"{jobs} in the state, {count(restarted.after_checkpoint, 'event')} after the checkpoint",
        )


def journal(inspection: Inspection) -> Iterator[Finding]:
    """Check that every plan follows from the events before it."""
    if not inspection.current or inspection.quick:
        return
    try:
        replayed = inspection.replayed
    except StoreError as error:
        yield problem("journal", str(error), RESTORE)
        return
    if replayed.difference is not None:
        told = f"event {replayed.difference.revision:,} does not follow from those before it: {replayed.difference.what}"
        yield problem(
            "journal", told, "`spill replay` shows both plans; docs/operations.md explains the causes"
        )
    else:
        events = count(max(0, replayed.last - replayed.first + 1), "event")
        yield ok("journal", f"{events} from {replayed.first:,} on, {count(replayed.plans, 'plan')} as stored")


def specs(inspection: Inspection) -> Iterator[Finding]:
    """Check that the spec of every job that has not ended exists."""
    state = inspection.state
    if state is None:
        return
    wanted = _specs_of(state)
    found = inspection.specs(list(wanted))
    missing = [job for digest, job in wanted.items() if digest not in found]
    damaged = [job for digest, job in wanted.items() if found.get(digest, ...) is None]
    for jobs, what in ((missing, "missing"), (damaged, "damaged")):
        if jobs:
            specs = count(len(jobs), "spec is", "specs are")
            told = f"{specs} {what} of jobs that have not ended: {some(jobs)}"
            yield problem("specs", told, f"`spill cancel {' '.join(jobs[:MOST])}`, and submit again")
    if not missing and not damaged:
        yield ok("specs", f"{count(len(wanted), 'spec')} of jobs that have not ended")


def _specs_of(state: State) -> dict[bytes, str]:
    """Return the specs of jobs that have not ended, each with one of its jobs."""
    return {job.spec: job.id for job in state.jobs.values() if job.state not in TERMINAL}


def clock(inspection: Inspection) -> Iterator[Finding]:
    """Check that the last event is neither in the future nor very old."""
    if inspection.state is None or not inspection.restarted.at:
        return
    at, now = inspection.restarted.at, inspection.clock()
    if at > now + AHEAD:
        told = f"the last event is from {format_moment(at)}, {format_duration(at - now)} ahead of this machine's clock"
        yield warning(
            "clock",
            told,
            "correct this clock if it is wrong; otherwise see `A wrong clock` in docs/operations.md",
        )
    elif now - at > LONG_AGO and inspection.server is not None:
        told = f"the last event is {format_duration(now - at)} old"
        yield warning("clock", told, "check this machine's clock")
    else:
        yield ok("clock", f"the last event is from {format_moment(at)}")
