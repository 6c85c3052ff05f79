"""Jobs that no cluster can ever hold are refused when they are submitted, with the nearest that fits."""

import pytest

from spillover.clusters.agents.hub import Hub
from spillover.control.agents.requests import AgentRequests, Introduction
from spillover.control.requests.submitting import Submitting
from spillover.model.ids import ClusterName, NodeName
from spillover.model.resources import Resources
from spillover.model.units import DAY
from spillover.ports.commands import CommandError, ErrorKind
from tests.support.inside import Inside, form


@pytest.fixture
async def busy(control: Inside) -> Inside:
    """One owned agent of eight CPUs; the rented cluster has none."""
    node = Introduction(ClusterName("onprem"), NodeName("n1"), Resources(8000), (), {}, 0, (), 0)
    await AgentRequests(control.loop, Hub(), DAY).register(node)
    return control


async def test_a_job_larger_than_any_machine_is_refused_with_what_the_largest_has(busy: Inside) -> None:
    with pytest.raises(CommandError) as refused:
        await busy.submit("big", resources={"cpu": 9}, burst="never")
    assert refused.value.kind is ErrorKind.INVALID
    [problem] = refused.value.problems
    assert problem.path == "jobs[0].spec.resources"
    assert problem.message == (
        "big: requests 9 CPU per task; the largest machine has 8 CPU; request no more than one machine has"
    )
    assert not busy.loop.state.jobs


async def test_all_jobs_of_a_submission_are_refused_and_each_is_named(busy: Inside) -> None:
    with pytest.raises(CommandError) as refused:
        await busy.submitting.submit(
            [
                form(name, resources={"cpu": cpu}, burst="never")
                for name, cpu in (("a", 9), ("b", 1), ("c", 99))
            ],
            "ada",
        )
    assert [problem.path for problem in refused.value.problems] == [
        "jobs[0].spec.resources",
        "jobs[2].spec.resources",
    ]


async def test_a_level_that_does_not_exist_is_refused_with_those_that_do(busy: Inside) -> None:
    with pytest.raises(CommandError) as refused:
        await busy.submit("one", within="rack")
    [problem] = refused.value.problems
    assert problem.path == "jobs[0].spec.within"
    assert problem.message == "one: there is no level rack; the levels are node; write one of those"


async def test_a_job_that_was_accepted_under_its_key_stays_so_when_the_machines_are_gone(
    control: Inside,
) -> None:
    [first] = await control.submit("big", resources={"cpu": 9}, burst="never", key="k")
    node = Introduction(ClusterName("onprem"), NodeName("n1"), Resources(8000), (), {}, 0, (), 0)
    await AgentRequests(control.loop, Hub(), DAY).register(node)
    assert await control.submit("big", resources={"cpu": 9}, burst="never", key="k") == (first,)
    with pytest.raises(CommandError):
        await control.submit("big", resources={"cpu": 9}, burst="never", key="other")


async def test_a_cluster_that_knows_no_node_yet_may_still_take_anything(busy: Inside) -> None:
    assert await busy.submit("big", resources={"cpu": 9})


async def test_a_job_that_fits_only_when_others_end_is_accepted(busy: Inside) -> None:
    await busy.submit("one", resources={"cpu": 8}, burst="never")
    assert await busy.submit("two", resources={"cpu": 8}, burst="never")


async def test_a_job_that_lacks_something_other_than_size_is_accepted(busy: Inside) -> None:
    assert await busy.submit("one", resources={"cpu": 9}, burst="never", needs=["gpu:a100"])


async def test_a_server_that_is_told_to_wait_accepts_what_is_too_large(busy: Inside) -> None:
    patient = Submitting(busy.loop, busy.store.archive, busy.lookup, busy.specs, refuse_too_large=False)
    assert await patient.submit([form("big", resources={"cpu": 9}, burst="never")], "ada")
