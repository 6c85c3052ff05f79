"""What a simulation is told as."""

import gzip
from pathlib import Path

import pytest
from msgspec.structs import replace

from spillover.model.units import MONEY, SECOND
from spillover.sim.fleet import read_owned, read_rented
from spillover.sim.outcome import JobOutcome
from spillover.sim.reports.report import decimal, facts, fields, waits, write_jobs
from spillover.sim.reports.statistics import summarize
from spillover.sim.studies.study import Study, StudyResult
from spillover.sim.trace import Trace, TraceJob

JOBS = tuple(TraceJob(name, at * SECOND, 10 * SECOND, 1, 2000) for at, name in enumerate(["a", "b,c"]))
OUTCOMES = [
    JobOutcome(1, SECOND, SECOND + 1, 11 * SECOND + 1, "rented", "", 6945, "wait_over"),
    JobOutcome(0, 0, 0, 10 * SECOND, "owned", "n1+n2", 0, "room_owned"),
]
STUDY = Study("t.csv", read_owned("1x1gpu"), read_rented("gpu=2.5"), 7)


def result() -> StudyResult:
    return StudyResult("wait=zero", summarize(JOBS, OUTCOMES, STUDY.fleet, range(2)))


@pytest.mark.parametrize("name", ["out.csv", "out.csv.gz"])
def test_jobs_are_rows_with_all_their_digits(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    write_jobs(str(path), JOBS, OUTCOMES)
    first = path.read_bytes()
    write_jobs(str(path), JOBS, OUTCOMES)
    assert path.read_bytes() == first
    assert (gzip.decompress(first) if name.endswith("gz") else first).decode() == (
        "id,submit_s,start_s,end_s,cluster,node,cost,reason\n"
        "a,0,0,10,owned,n1+n2,0,room_owned\n"
        '"b,c",1,1.000000001,11.000000001,rented,,0.006945,wait_over\n'
    )


def test_integers_are_written_as_exact_decimals() -> None:
    assert [decimal(value, MONEY) for value in (0, 5, 1_500_000, 10**12)] == [
        "0",
        "0.000005",
        "1.5",
        "1000000",
    ]


def test_programs_get_every_number_and_what_was_simulated() -> None:
    told = fields(result(), STUDY, Trace(JOBS, left_out=3, not_jobs=4))
    need = "jobs rented_jobs rented_cost rented_gpu_hours mean_wait_s p50_wait_s p90_wait_s p99_wait_s mean_completion_s"
    assert set(need.split()) <= told.keys()
    assert {"owned_utilization", "system_utilization"} <= told.keys()
    assert (told["policy"], told["seed"], told["warmup"]) == ("wait=zero", 7, 0)
    assert (told["estimates"], told["estimate_error"]) == ("runtime", None)
    assert (told["left_out"], told["not_jobs"], told["rented_jobs"]) == (3, 4, 1)


def test_people_get_a_line_for_each_fact() -> None:
    told = dict(facts(result(), STUDY, Trace(JOBS, left_out=3, not_jobs=4)))
    assert told["jobs"] == "2"
    assert told["left out"] == "3 wrong rows, 4 rows of jobs that never ran"
    assert told["rented"] == "1 job, 0.0 GPU hours, 0.0 CPU hours, cost 0.01"
    assert "never ran" not in told


def test_waits_are_told_by_their_percentiles() -> None:
    numbers = replace(
        result().statistics,
        mean_wait_s=600.0,
        p50_wait_s=0.0,
        p90_wait_s=743.0,
        p99_wait_s=7200.0,
        max_wait_s=10800.0,
    )
    assert waits(numbers) == "10m on average; median 0s, p90 12m23s, p99 2h, max 3h"
