"""Agents of releases that cannot run gangs: they get single tasks, gangs go elsewhere, and `why` says so."""

import pytest
from msgspec.structs import replace

from spillover.core.records.jobs import Placed, Queued, Running
from spillover.deciding.explain.explain import explain
from spillover.deciding.explain.feasibility import too_large
from spillover.model.ids import ClusterName, NodeName
from spillover.model.policy import Choice, PolicySet
from spillover.model.reasons import AgentsOutdated, GangTooBig, NoRoomTogether
from spillover.model.topology import Level, Topology
from spillover.policies.loading import load
from spillover.testing.builders import JobBuilder, a_job
from spillover.testing.world import OWNED, World

LAB = replace(OWNED, gangs=True, levels=(Level("rack", "rack"),))


class Lab(World):
    """One outdated agent with eight CPUs, and two others with two CPUs each."""

    def __init__(self, backfill: str = "easy") -> None:
        policies = PolicySet(wait=Choice("never"), place=Choice("first_fit"), backfill=Choice(backfill))
        super().__init__(load, policies, (LAB,))
        self.agent("old", cpus=8, gangs=False, labels={"rack": "r1"})
        self.agent("n1", cpus=2, labels={"rack": "r1"})
        self.agent("n2", cpus=2, labels={"rack": "r1"})

    def nodes(self, job: str) -> list[str]:
        """The nodes of the tasks of a job, by rank; empty if it is not placed."""
        found = self.job(job)
        return [task.node for task in found.tasks] if isinstance(found.phase, Placed | Running) else []


@pytest.mark.parametrize(
    ("gang", "nodes"),
    [
        (a_job("gang").tasks(3), ["n1", "n1", "n2"]),
        (a_job("gang").tasks(2, most=9), ["n1", "n1", "n2", "n2"]),
        (a_job("gang").group("leader").cpus(2).group("worker"), ["n2", "n1"]),
        (a_job("gang").tasks(2).together(Topology(within="node")), ["n1", "n1"]),
        (a_job("gang").tasks(2).together(Topology(within="rack")), ["n1", "n1"]),
        (a_job("gang").tasks(2).together(Topology(spread="node")), ["n1", "n2"]),
        (a_job("gang").tasks(2).together(Topology(spread="node", exclusive=True)), ["n1", "n2"]),
    ],
)
def test_a_gang_goes_to_other_agents(gang: JobBuilder, nodes: list[str]) -> None:
    lab = Lab()
    lab.submit(gang)
    assert lab.nodes("gang") == nodes


def test_single_tasks_still_run_there() -> None:
    lab = Lab()
    lab.submit(a_job("one").cpus(8))
    assert lab.nodes("one") == ["old"]


@pytest.mark.parametrize(
    "gang", [a_job("gang").tasks(6), a_job("gang").group("leader").cpus(2).group("worker", 3)]
)
def test_a_gang_that_needs_outdated_agents_waits_until_they_are_upgraded(gang: JobBuilder) -> None:
    lab = Lab()
    lab.submit(gang)
    assert isinstance(lab.job("gang").phase, Queued)
    reason = explain(lab.engine, lab.job("gang")).reason
    assert isinstance(reason, AgentsOutdated)
    assert (reason.cluster, reason.nodes) == (ClusterName("onprem"), (NodeName("old"),))
    assert too_large(lab.engine.index.capacity.values(), gang.spec().shape) is None, "an upgrade would help"
    lab.agent("old", cpus=8, labels={"rack": "r1"})
    assert lab.nodes("gang").count("old") >= 2


def test_the_reason_names_the_agents_to_upgrade() -> None:
    nodes = tuple(NodeName(f"n{number}") for number in range(5))
    reason = AgentsOutdated(ClusterName("onprem"), 6, 4, nodes)
    assert str(reason) == (
        "agents n0, n1, n2 and 2 more are of a release before 0.5, which cannot run gangs; "
        "the others of onprem could run 4 of its 6 tasks; upgrade them"
    )
    assert str(replace(reason, nodes=nodes[:1])).startswith("agent n0 is of a release before 0.5")


def test_a_gang_that_fits_on_the_others_waits_for_room_there() -> None:
    lab = Lab()
    lab.submit(a_job("busy").tasks(2).cpus(2), a_job("gang").tasks(2))
    assert isinstance(explain(lab.engine, lab.job("gang")).reason, NoRoomTogether)


def test_a_gang_that_is_too_large_even_for_upgraded_agents_is_refused() -> None:
    lab = Lab()
    reason = too_large(lab.engine.index.capacity.values(), a_job().tasks(13).spec().shape)
    assert isinstance(reason, GangTooBig)
    assert reason.most == 12


@pytest.mark.parametrize("backfill", ["easy", "conservative"])
def test_capacity_is_kept_for_a_gang_only_where_it_can_run(backfill: str) -> None:
    lab = Lab(backfill)
    lab.submit(a_job("first").cpus(8).expected(minutes=5), a_job("busy").tasks(2).cpus(2).expected(minutes=9))
    lab.submit(a_job("gang").tasks(2).cpus(2).expected(minutes=5))
    lab.submit(a_job("long").cpus(8).expected(minutes=60))
    assert lab.nodes("gang") == lab.nodes("long") == []
    lab.wait(seconds=300)
    lab.finish("first")
    assert lab.nodes("long") == ["old"], "nothing of it is reserved for the gang"
