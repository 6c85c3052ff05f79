"""Simulates points on all cores; each worker process reads the trace once and then takes point after point."""

import os
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from multiprocessing import get_context, parent_process
from threading import Thread

from msgspec.structs import replace

from spillover.model.policy import PolicySet
from spillover.sim.estimates import Told
from spillover.sim.studies.study import Study, StudyResult, read_jobs, run
from spillover.sim.studies.sweep import Point
from spillover.sim.trace import TraceJob

_at_work: tuple[Study, Sequence[TraceJob]] | None = None
"""The study and jobs of this worker; set once at its start."""


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def simulate_all(
    study: Study, jobs: Sequence[TraceJob], points: Sequence[Point], processes: int
) -> Iterator[tuple[Point, StudyResult]]:
    """Yield each point with its result when it is done."""
    if min(processes, len(points)) <= 1:
        for point in points:
            yield point, run(replace(study, told=point.known.told), jobs, point.policies)[0]
        return
    pool = ProcessPoolExecutor(min(processes, len(points)), get_context("spawn"), _start, (study,))
    before = signal.getsignal(signal.SIGINT)
    try:
        # Workers inherit the ignored SIGINT: on Ctrl-C only this process reacts, and ends them quietly.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        futures: dict[Future[StudyResult], Point] = {
            pool.submit(_run, point.policies, point.known.told): point for point in points
        }
        signal.signal(signal.SIGINT, before)
        for future in as_completed(futures):
            yield futures[future], future.result()
    except BaseException:
        _end(pool)
        raise
    finally:
        signal.signal(signal.SIGINT, before)
        pool.shutdown(cancel_futures=True)


def _end(pool: ProcessPoolExecutor) -> None:
    """Terminate the workers; nobody needs their simulations any more."""
    for process in list((pool._processes or {}).values()):  # noqa: SLF001 - no public way before Python 3.14
        process.terminate()


def _start(study: Study) -> None:
    """Initialise a worker: read the trace."""
    end_with_parent()
    global _at_work  # noqa: PLW0603 - the only way to pass data to workers of a pool
    _at_work = study, read_jobs(study).jobs


def end_with_parent() -> None:
    """End this process when its parent ends, for whatever reason."""
    Thread(target=_wait_for_parent, daemon=True).start()


def _wait_for_parent() -> None:
    """Exit as soon as the parent process has ended."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _run(policies: PolicySet, told: Told) -> StudyResult:
    """Simulate one point."""
    if _at_work is None:
        raise RuntimeError("the process was not started as a worker")
    study, jobs = _at_work
    return run(replace(study, told=told), jobs, policies)[0]
