"""What is said of a soak: what leaked, failed unasked, or did not end once is seen, and nothing else."""

from collections import Counter

import pytest
from msgspec import structs

from spillover.core.events import AnyEvent, JobEnded, JobState, MembersDropped, Usage
from spillover.model.ids import JobId
from spillover.model.job import Range
from tests.support.soak import verdict
from tests.support.soak.samples import Rest, Sample

RESTING = Sample(memory=100e6, files=40, threads=8, tasks=50, pause=0.01, queued=0, running=0, known=0)
BEFORE = Rest(RESTING, Counter({"builtins.dict": 90_000, "builtins.list": 10_000}))


def an_end(job: str, state: JobState = JobState.SUCCEEDED) -> JobEnded:
    return JobEnded(JobId(job), 1, state, 1, 1, None, None, None, 0, Usage())


@pytest.mark.parametrize(
    ("what", "much", "little"),
    [("memory", 60e6, 30e6), ("files", 9, 8), ("threads", 9, 8), ("tasks", 9, 8)],
)
def test_what_grows_beyond_its_bound_is_a_leak(what: str, much: float, little: float) -> None:
    for more, leaks in ((much, 1), (little, 0)):
        after = Rest(structs.replace(RESTING, **{what: getattr(RESTING, what) + more}), BEFORE.objects)
        assert sum(not row.well for row in verdict.grown(BEFORE, after)) == leaks


def test_objects_that_grow_are_a_leak_and_named() -> None:
    after = Rest(RESTING, Counter({"builtins.dict": 110_000, "builtins.list": 9_000}))
    assert [row.what for row in verdict.grown(BEFORE, after) if not row.well] == ["Python objects"]
    assert verdict.growing(BEFORE, after) == ["builtins.dict: +20,000"]


def test_a_server_that_needs_less_than_before_is_well() -> None:
    after = Rest(structs.replace(RESTING, memory=50e6, files=10, threads=3, tasks=20), Counter())
    assert all(row.well for row in verdict.grown(BEFORE, after))


def test_a_line_of_the_log_that_nothing_explains_is_told() -> None:
    log = """
2026-11-16T07:37:29Z [info     ] agent started    agent=local/n1
2026-11-16T07:37:30Z [\x1b[33mwarning  \x1b[0m] something odd
Traceback (most recent call last):
ERROR asyncio: Task exception was never retrieved
"""
    assert len(verdict.unasked(log)) == 3


def test_jobs_must_end_once_and_as_they_must() -> None:
    expected = {"aaa": "SUCCEEDED", "bbb": "FAILED", "ccc": "SUCCEEDED", "ddd": "CANCELLED"}
    events: list[AnyEvent] = [
        an_end("aaa"),
        an_end("aaa"),
        an_end("bbb", JobState.FAILED),
        an_end("ccc.1"),
        MembersDropped(JobId("ccc"), 1, (Range(2, 2),), JobState.CANCELLED, "ada"),
        an_end("ccc"),
        an_end("eee"),
    ]
    assert verdict.ended_otherwise(expected, {"ccc": 2}, events) == [
        "aaa ended 2 times",
        "ddd is not ended, not CANCELLED",
        "nobody submitted eee",
    ]
    assert verdict.ended_otherwise({}, {"ccc": 3}, [an_end("ccc.1"), an_end("ccc.2")]) == [
        "2 of 3 members of ccc ended"
    ]


def test_the_table_is_aligned() -> None:
    rows = [verdict.Row("open files", "40", "42", "at most 8 more", well=True)]
    rows += [verdict.Row("log", "", "3 wrong", "none wrong", well=False)]
    assert list(verdict.table(rows)) == [
        "check       before    after  bound",
        "open files      40       42  at most 8 more  ok",
        "log                 3 wrong  none wrong      FAILED",
    ]
