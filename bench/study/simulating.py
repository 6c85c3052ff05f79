"""Simulates cases on several cores, and stores every result at once, so that an interrupted study can continue."""

import random
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path

import msgspec
from msgspec import Struct

from bench.reporting import tell
from bench.study.cases import Case
from bench.study.variants import as_variant
from spillover.forms.policystring import read_policies
from spillover.model.units import SECOND
from spillover.sim.estimates import Told
from spillover.sim.fleet import read_owned, read_rented
from spillover.sim.reports.statistics import Statistics
from spillover.sim.studies.study import Study, read_jobs, run
from spillover.sim.studies.workers import end_with_parent
from spillover.sim.trace import TraceJob


class Found(Struct, frozen=True):
    """The result of one case."""

    statistics: Statistics
    waited: float
    """Waiting ÷ runtime, both summed over all jobs but the first so many that warm up, up to the trace's end."""


class Kept(Struct, frozen=True):
    """A stored result, one per line."""

    key: str
    case: Case
    found: Found


def simulate(case: Case) -> Found:
    """Simulate one case."""
    study = Study(
        case.source,
        read_owned(case.owned),
        read_rented(case.rented),
        warmup=case.warmup,
        told=Told(case.told),
        lognormal=case.lognormal,
    )
    jobs = _jobs(case.source, case.owned, case.jitter)[case.part]
    if case.ended is True:
        jobs = [_ended(job) for job in jobs]
    with as_variant(case.variant):
        result, outcomes = run(study, jobs, read_policies(case.policy, study=True))
    later = [one for one in outcomes if one.job >= case.warmup]
    waited = sum(one.start - one.submit for one in later)
    return Found(result.statistics, waited / max(1, sum(one.end - one.start for one in later)))


@lru_cache(maxsize=1)
def _jobs(source: str, owned: str, jitter: int) -> Sequence[TraceJob]:
    """Read a trace once for consecutive cases."""
    jobs = read_jobs(Study(source, read_owned(owned), read_rented("gpu=1"))).jobs
    if not jitter:
        return jobs
    dice = random.Random(jitter)
    moved = [msgspec.structs.replace(job, submit=job.submit + dice.randrange(SECOND)) for job in jobs]
    return sorted(moved, key=lambda job: job.submit)


def _ended(job: TraceJob) -> TraceJob:
    """Return the job as it runs where it is ended at its walltime."""
    limit = job.walltime
    return job if limit is None or job.runtime <= limit else msgspec.structs.replace(job, runtime=limit)


class Results:
    """A file of results; ignores incomplete lines."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._kept: dict[str, Found] = {}
        if path.exists():
            decoder = msgspec.json.Decoder(Kept)
            for line in path.read_bytes().splitlines():
                try:
                    one = decoder.decode(line)
                except msgspec.DecodeError:
                    continue  # torn, or of an older version; it is simulated again
                self._kept[one.key] = one.found

    def __contains__(self, case: object) -> bool:
        return isinstance(case, Case) and not case.missing and case.key in self._kept

    def __getitem__(self, case: Case) -> Found:
        return self._kept[case.key]

    def complete(self, cases: Iterable[Case], processes: int) -> None:
        """Simulate the cases that have no result yet."""
        todo = list(dict.fromkeys(case for case in cases if case not in self))
        if not todo:
            return
        begin, last = time.monotonic(), ""
        with ProcessPoolExecutor(processes, get_context("spawn"), end_with_parent) as pool:
            try:
                futures = {pool.submit(simulate, case): case for case in todo}
                for number, future in enumerate(as_completed(futures), 1):
                    case = futures[future]
                    self._add(case, future.result())
                    left = (time.monotonic() - begin) / number * (len(todo) - number)
                    last = f"{case.trace[:24]} {case.owned} {case.policy}"
                    tell(f"{number} of {len(todo)}, about {left / 60:.0f} min left: {last}")
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def _add(self, case: Case, found: Found) -> None:
        self._kept[case.key] = found
        line = msgspec.json.encode(Kept(case.key, case, found))
        with self._path.open("ab") as file:
            file.write(b"\n" + line + b"\n")  # a line that was torn before ends here
