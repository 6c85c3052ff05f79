"""What ran and what waited when a span began, as it was then."""

from spillover.model.job import Burst, Shape
from spillover.model.resources import Resources
from spillover.model.units import MINUTE
from spillover.sim.outcome import JobOutcome
from spillover.sim.studies.standing import Life, at_beginning
from spillover.sim.trace import Own, TraceJob

SHAPE = Shape(Resources(1000))


def a_life(name: str, ready: int, start: int, end: int, cluster: str = "onprem", **more: int) -> Life:
    """Times in minutes."""
    job = TraceJob(
        name,
        ready * MINUTE,
        (end - start) * MINUTE,
        cpus=1000,
        walltime=more["walltime"] * MINUTE if "walltime" in more else None,
        estimate=more["estimate"] * MINUTE if "estimate" in more else None,
        own=Own(SHAPE, max_cost=1),
    )
    return job, JobOutcome(0, ready * MINUTE, start * MINUTE, end * MINUTE, cluster, "n1", 0, "")


def test_what_runs_goes_on_where_it_is_and_what_waits_begins_to_wait_anew() -> None:
    lives = [
        a_life("over", 0, 1, 10),
        a_life("waits", 2, 11, 20, walltime=30),
        a_life("runs", 0, 4, 30, estimate=20),
        a_life("rented", 0, 5, 11, "cloud", walltime=3),
        a_life("held", 12, 13, 14),
    ]
    there, later = at_beginning(lives, 10 * MINUTE, {"cloud"})
    assert [job.id for job, _ in there] == ["runs", "rented", "waits"]
    assert [job.id for job, _ in later] == ["held"]
    (runs, past), (rented, _), (waits, waited) = there
    assert (runs.submit, runs.runtime) == (10 * MINUTE - 1, 20 * MINUTE + 1)
    assert (past.submit, past.start, past.end) == (10 * MINUTE - 1, 10 * MINUTE - 1, 30 * MINUTE)
    assert (runs.estimate, runs.walltime) == (14 * MINUTE, None)
    assert (rented.estimate, rented.walltime) == (None, MINUTE)
    assert runs.own is not None
    assert rented.own is not None
    assert (runs.own.shape.burst, rented.own.shape.burst) == (Burst.NEVER, Burst.ALWAYS)
    assert runs.own.max_cost is None
    assert (waits.submit, waits.walltime) == (10 * MINUTE, 30 * MINUTE)
    assert (waited.submit, waited.start) == (10 * MINUTE, 11 * MINUTE)


def test_jobs_of_files_go_on_without_a_shape_of_their_own() -> None:
    job, past = a_life("runs", 0, 4, 30)
    bare = TraceJob(job.id, job.submit, job.runtime, 1)
    (((left, _),), later) = at_beginning([(bare, past)], 10 * MINUTE, ())
    assert (left.own, left.runtime, later) == (None, 20 * MINUTE + 1, [])
