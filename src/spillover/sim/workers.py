"""Simulates points on all cores: each process reads the trace once and then takes one point after the other."""

import os
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from multiprocessing import get_context, parent_process
from threading import Thread

from spillover.model.policy import PolicySet
from spillover.sim.study import Study, StudyResult, read_jobs, run
from spillover.sim.sweep import Point
from spillover.sim.trace import TraceJob

_at_work: tuple[Study, Sequence[TraceJob]] | None = None
"""What this process works on; set once, when it starts."""


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def simulate_all(
    study: Study, jobs: Sequence[TraceJob], points: Sequence[Point], processes: int
) -> Iterator[tuple[Point, StudyResult]]:
    """Each point with its result, as they are done."""
    if min(processes, len(points)) <= 1:
        for point in points:
            yield point, run(study, jobs, point.policies)[0]
        return
    pool = ProcessPoolExecutor(min(processes, len(points)), get_context("spawn"), _start, (study,))
    before = signal.getsignal(signal.SIGINT)
    try:
        # Processes inherit that Ctrl-C is ignored: it is for this one to end them, without a word of theirs.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        futures: dict[Future[StudyResult], Point] = {
            pool.submit(_run, point.policies): point for point in points
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
    """Do not wait for simulations that nobody wants any more."""
    for process in list((pool._processes or {}).values()):  # noqa: SLF001 - there is no other way before Python 3.14
        process.terminate()


def _start(study: Study) -> None:
    """Read the trace, in a new process, which does not outlive the one that started it."""
    end_with_parent()
    global _at_work  # noqa: PLW0603 - this is how a pool hands things to its processes
    _at_work = study, read_jobs(study).jobs


def end_with_parent() -> None:
    """Let this process not outlive the one that started it, however that ends."""
    Thread(target=_wait_for_parent, daemon=True).start()


def _wait_for_parent() -> None:
    """End when the process has ended that started this one."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _run(policies: PolicySet) -> StudyResult:
    """One point."""
    if _at_work is None:
        raise RuntimeError("the process was not started as a worker")
    return run(*_at_work, policies)[0]
