"""Real workloads: what is said of the policies holds on the beginning of a trace that is studied whole in docs/studies.md."""

from pathlib import Path

import pytest

from spillover.forms.policystring import read_policies
from spillover.sim.fleet import read_owned, read_rented
from spillover.sim.reports.statistics import Statistics
from spillover.sim.studies.study import Study, read_jobs, run
from spillover.sim.trace import TraceJob
from tests.support.tiers import few_of

PHILLY = Path(__file__).parents[3] / "shared" / "traces" / "philly_2017.csv.gz"
SOME = 8000
"""Jobs from the beginning: a month."""

pytestmark = pytest.mark.skipif(
    not PHILLY.exists(), reason="the Philly trace is not beside the repository (../shared/traces)"
)


@pytest.fixture(scope="module")
def jobs() -> tuple[TraceJob, ...]:
    return read_jobs(_study(64)).jobs[:SOME]


def _study(nodes: int) -> Study:
    return Study(str(PHILLY), read_owned(f"{nodes}x8gpu"), read_rented("gpu=1"), warmup=500)


def _under(jobs: tuple[TraceJob, ...], nodes: int, policy: str) -> Statistics:
    return run(_study(nodes), jobs, read_policies(policy))[0].statistics


@pytest.mark.parametrize("nodes", few_of(1, [64, 56, 84]))
def test_compute_saves_more_than_constant(jobs: tuple[TraceJob, ...], nodes: int) -> None:
    compute = _under(jobs, nodes, "wait=compute(0.076,max_queue=30),backfill=out_of_order")
    constant = _under(jobs, nodes, "wait=constant(1h),backfill=strict")
    assert compute.rented_cost < constant.rented_cost


def test_break_even_wastes_less_waiting_than_compute_and_waits_less(jobs: tuple[TraceJob, ...]) -> None:
    compute = _under(jobs, 64, "wait=compute(0.076)")
    ahead = _under(jobs, 64, "wait=break_even(0.076)")
    assert ahead.mean_wait_s < compute.mean_wait_s
    assert ahead.wasted_wait < compute.wasted_wait / 2


@pytest.mark.slow  # the whole trace
def test_budget_lets_all_jobs_together_wait_as_long_as_it_says() -> None:
    study = _study(64)
    _, outcomes = run(study, read_jobs(study).jobs, read_policies("wait=budget(0.05)"))
    counted = outcomes[5000:]
    waited = sum(each.start - each.submit for each in counted)
    ran = sum(each.end - each.start for each in counted)
    assert 0.9 < waited / (0.05 * ran) < 1.1
