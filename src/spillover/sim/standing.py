"""What ran and what waited when a span of history began: it takes room in a simulation of that span, and counts nowhere."""

from collections.abc import Collection, Iterable

from msgspec.structs import replace

from spillover.model.job import Burst
from spillover.model.units import MINUTE
from spillover.sim.outcome import JobOutcome
from spillover.sim.trace import TraceJob

Life = tuple[TraceJob, JobOutcome]
"""A job and what became of it; its `submit` is since when it could have been placed."""


def at_beginning(lives: Iterable[Life], begin: int, rented: Collection[str]) -> tuple[list[Life], list[Life]]:
    """Of jobs submitted before a time: those that were there then, as they were, and those that could only be placed later.

    What ran comes a nanosecond early, so that whatever the order is it has its room before what waited.
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
    """What is left of a job that runs, to be run where it does."""
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
    """What is left of a limit or an estimate; a minute if it was outrun."""
    return None if told is None else max(told - ran, MINUTE)
