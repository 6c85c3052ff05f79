"""Finds the jobs that ran or waited when a span of history began; they use capacity but are not counted."""

from collections.abc import Collection, Iterable

from msgspec.structs import replace

from spillover.model.job import Burst
from spillover.model.units import MINUTE
from spillover.sim.outcome import JobOutcome
from spillover.sim.trace import TraceJob

Life = tuple[TraceJob, JobOutcome]
"""A job and its real outcome; its `submit` is when it could have been placed."""


def at_beginning(lives: Iterable[Life], begin: int, rented: Collection[str]) -> tuple[list[Life], list[Life]]:
    """Split jobs submitted before `begin` into those that ran or waited then, and those placeable only later.

    Running jobs come a nanosecond early, so that they get their capacity before waiting jobs under any order policy.
    """
    running: list[Life] = []
    waiting: list[Life] = []
    later: list[Life] = []
    for job, past in lives:
        if past.end <= begin:
            continue
        if past.start <= begin:
            running.append(_running(job, past, begin, rented=past.cluster in rented))
        elif job.submit <= begin:
            waiting.append((replace(job, submit=begin), replace(past, submit=begin)))
        else:
            later.append((job, past))
    return running + waiting, later


def _running(job: TraceJob, past: JobOutcome, begin: int, *, rented: bool) -> Life:
    """Return the rest of a running job, bound to the kind of capacity it runs on."""
    submit, ran = begin - 1, begin - past.start
    own = job.own
    if own is not None:
        shape = replace(own.shape, burst=Burst.ALWAYS if rented else Burst.NEVER)
        own = replace(own, shape=shape, max_cost=None)
    left = replace(
        job,
        submit=submit,
        runtime=past.end - submit,
        walltime=_left(job.walltime, ran),
        estimate=_left(job.estimate, ran),
        own=own,
    )
    return left, replace(past, submit=submit, start=submit)


def _left(told: int | None, ran: int) -> int | None:
    """Return the rest of a walltime or estimate; at least a minute."""
    return None if told is None else max(told - ran, MINUTE)
