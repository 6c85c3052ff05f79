"""Measures how often expected starts come true, on traces of real clusters.

Jobs have the walltimes that their owners asked for, and nothing else is known about runtimes. A cluster is one machine
with all processors. Of every few submissions, a job that has to wait gets an expected start at once, as if its owner
asked `spill why`. The rest of the trace then shows when it really starts, with all jobs that arrive later.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench.backfill import CLUSTERS, TRACES
from bench.reporting import Goal, Options, Report, Table, main, tell
from spillover.core.events import AnyEvent, GangPlaced, JobPlaced, JobSubmitted
from spillover.core.records.jobs import Queued
from spillover.deciding.corrections import Corrections
from spillover.deciding.expected import StartRange, expected_starts
from spillover.deciding.whatif import Snapshot
from spillover.forms.policystring import read_policies
from spillover.model.ids import JobId
from spillover.model.units import HOUR
from spillover.sim.estimates import Told, with_estimates
from spillover.sim.fleet import read_owned, read_rented
from spillover.sim.runner import Simulation
from spillover.sim.setting import Setting
from spillover.sim.studies.study import Study, read_jobs

NAMES: Final = ("kth_sp2_1996", "ctc_sp2_1996")
BACKFILLS: Final = ("easy", "conservative")
FIRST: Final = 1000
"""Jobs that only fill the cluster, and teach the scheduler."""
EVERY: Final = 10
"""One of so many submissions gets a forecast."""
COUNTS: Final = {"quick": 2500, "": 5000, "long": 30_000}
"""Jobs of each trace."""


class Foreseen:
    """Watches a simulation, and forecasts starts."""

    def __init__(self) -> None:
        self.simulation: Simulation | None = None
        self.corrections = Corrections()
        self.given: dict[JobId, tuple[int, StartRange, StartRange]] = {}
        """By job, when it got a forecast, and its times before and after the correction."""
        self.real: dict[JobId, int] = {}
        self.seconds = 0.0
        self._submitted = 0

    def __call__(self, now: int, events: Sequence[AnyEvent]) -> None:
        """See spillover.sim.runner.Sink."""
        for event in events:
            if isinstance(event, JobPlaced | GangPlaced):
                self.real[event.job] = now
                self.corrections.started(event.job, now)
            elif isinstance(event, JobSubmitted):
                self._submitted += 1
                if self._submitted > FIRST and self._submitted % EVERY == 0:
                    self._forecast(event.job, now)

    def _forecast(self, job: JobId, now: int) -> None:
        assert self.simulation is not None
        engine = self.simulation.engine
        if type(engine.state.jobs[job].phase) is not Queued:
            return
        before = time.process_time()
        start = expected_starts(Snapshot(engine), now, (job,), most_jobs=0).starts.get(job)
        self.seconds += time.process_time() - before
        if start is not None and start.p50 is not None and start.p90 is not None:
            self.given[job] = (now, start, self.corrections.corrected(start, now))
            self.corrections.given(job, start, now)


def measure(options: Options) -> Report:
    """Measure one trace after the other."""
    report = Report("Expected starts")
    table = Table(
        "Expected starts on traces of real clusters",
        (
            "trace",
            "backfill",
            "forecasts",
            "mean wait, hours",
            "came by p50",
            "came by p90",
            "mean p90 - p50, hours",
            "by p50, uncorrected",
            "by p90, uncorrected",
            "CPU seconds each",
        ),
    )
    report.tables.append(table)
    count = COUNTS["quick" if options.quick else "long" if options.long else ""]
    for name in NAMES:
        path = TRACES / f"{name}.csv.gz"
        if not path.exists():
            report.notes.append(
                f"The trace {name} is not beside the repository (../shared/traces): left out."
            )
            continue
        for backfill in BACKFILLS:
            _trace(report, table, path, backfill, count)
    return report


def _trace(report: Report, table: Table, path: Path, backfill: str, count: int) -> None:
    name = path.name.partition(".")[0]
    study = Study(str(path), read_owned(CLUSTERS[name]), read_rented("cpu=1"), skip_bad=True)
    jobs = with_estimates(read_jobs(study).jobs[:count], Told.WALLTIME, 0)
    where = Setting(study.fleet, study.rent, read_policies(f"wait=never,backfill={backfill}"))
    foreseen = Foreseen()
    foreseen.simulation = Simulation(jobs, where.scene, foreseen)
    foreseen.simulation.run()
    found = [(*given, foreseen.real[job]) for job, given in foreseen.given.items()]
    total = max(1, len(found))

    def share(*, corrected: bool, late: bool) -> float:
        """Return how many jobs had started by their p50 or p90."""
        hits = 0
        for _, raw, stretched, real in found:
            given = stretched if corrected else raw
            hits += real <= ((given.p90 if late else given.p50) or 0)
        return hits / total

    wait = sum(each[3] - each[0] for each in found) / total / HOUR
    width = sum((each[2].p90 or 0) - (each[2].p50 or 0) for each in found) / total / HOUR
    table.add(
        name,
        backfill,
        len(found),
        wait,
        f"{share(corrected=True, late=False):.1%}",
        f"{share(corrected=True, late=True):.1%}",
        width,
        f"{share(corrected=False, late=False):.1%}",
        f"{share(corrected=False, late=True):.1%}",
        foreseen.seconds / total,
    )
    tell(
        f"{name}, {backfill}: {share(corrected=True, late=False):.1%} by p50, {share(corrected=True, late=True):.1%} by p90 of {len(found)}"
    )
    report.figures[f"{name} {backfill} p90"] = share(corrected=True, late=True)
    report.figures[f"{name} {backfill} p50"] = share(corrected=True, late=False)
    report.goals.append(
        Goal(
            f"part of starts by p90, {name}, {backfill}",
            share(corrected=True, late=True),
            0.85,
            at_most=False,
        )
    )


if __name__ == "__main__":
    main(measure, __doc__ or "")
