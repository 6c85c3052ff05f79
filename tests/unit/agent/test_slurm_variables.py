"""The variables that tasks have in words of Slurm."""

import pytest

from spillover.agent.leases.slurm import slurm_environment
from spillover.agent.leases.values import Task
from spillover.agent.nursery.start_times import set_times
from spillover.core.events import Lease
from spillover.model.ids import JobId
from spillover.model.job import Shell
from spillover.model.resources import Resources
from spillover.model.units import MINUTE

ONE = Resources(1000)


@pytest.mark.parametrize(
    ("array", "step"),
    [((0, 90, 10), "10"), ((1, 9, 9), "1"), ((1, 9, 3), "4"), ((1, 9, 4), "1"), ((5, 5, 1), "1")],
)
def test_the_step_of_an_array_is_that_between_its_indexes(array: tuple[int, int, int], step: str) -> None:
    task = Task(Shell("true"), ONE, array=array)
    known = slurm_environment(Lease(JobId("abc.1"), 1, 1), task, "n1")
    assert known["SLURM_ARRAY_TASK_STEP"] == step


def test_a_task_is_told_when_it_started_and_when_it_ends_by_who_starts_it() -> None:
    lease = Lease(JobId("abc"), 1, 1)
    env = slurm_environment(lease, Task(Shell("true"), ONE, walltime=2 * MINUTE), "n1")
    set_times(env, 1000.7)
    assert (env["SLURM_JOB_START_TIME"], env["SLURM_JOB_END_TIME"]) == ("1000", "1120")
    endless = slurm_environment(lease, Task(Shell("true"), ONE), "n1")
    assert "SLURM_JOB_END_TIME" not in endless
    again = slurm_environment(lease, Task(Shell("true"), ONE, env={"SPILL_RESTART": "1"}), "n1")
    assert "SLURM_JOB_START_TIME" not in again, "its walltime began with its first run"


def test_the_times_that_a_job_sets_itself_stay() -> None:
    for own in ("", "+", "+1h", "5"):
        env = {"SLURM_JOB_END_TIME": own}
        set_times(env, 1000.0)
        assert env == {"SLURM_JOB_END_TIME": own}
