"""Nodes that people reserve: names, what happens to lost nodes, and a restart."""

import asyncio

import pytest

from spillover.clusters.agents.hub import Hub
from spillover.control.agents.requests import AgentRequests, Introduction
from spillover.control.controllers.replacing import Replacing
from spillover.control.requests.reservations import reservation_views
from spillover.control.requests.reserving import Reserving
from spillover.core.proposals import AgentGone, SetPolicies
from spillover.deciding import reserving
from spillover.model.ids import ClusterName, NodeName
from spillover.model.policy import Choice, PolicySet
from spillover.model.resources import Resources
from spillover.model.units import DAY
from spillover.ports.commands import CommandError, ErrorKind
from spillover.wire.api import ReservationRequest
from tests.support.inside import Inside, leading


async def join(control: Inside, *names: str) -> None:
    requests = AgentRequests(control.loop, Hub(), DAY)
    for name in names:
        intro = Introduction(ClusterName("onprem"), NodeName(name), Resources(8000), (), {}, 0, (), 0)
        await requests.register(intro)


async def lose(control: Inside, name: str) -> None:
    node = control.loop.state.nodes[f"onprem/{name}"]
    await control.propose(AgentGone(node.cluster, node.name, node.incarnation))


async def test_a_reservation_without_a_name_gets_one_that_is_free(control: Inside) -> None:
    await join(control, "n1", "n2")
    asked = ReservationRequest("2027-01-31T09:00:00Z", "2h", nodes=1, project="physics")
    control.clock.at = 1_801_000_000 * 10**9  # some days before
    maker = Reserving(control.loop)
    names = [(await maker.reserve(asked, "ada")).name for _ in range(2)]
    assert names == ["physics-20270131-0900", "physics-20270131-0900-2"]
    with pytest.raises(CommandError, match="only 0 of 1 nodes") as refused:
        await maker.reserve(asked, "ada")
    assert refused.value.kind is ErrorKind.CONFLICT


async def test_other_work_runs_while_nodes_are_chosen(
    control: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reserving, "STEP", 1)
    await join(control, "n1", "n2", "n3", "n4")
    asked = ReservationRequest("+1h", "2h", nodes=1, maintenance=True, name="down")
    choosing = asyncio.create_task(Reserving(control.loop).reserve(asked, "ada"))
    before = control.loop.engine.index
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await control.propose(SetPolicies(PolicySet(order=Choice("lifo")), "ada"))
    assert not choosing.done()
    assert control.loop.engine.index is not before, "what was found in the old index does not count"
    assert (await choosing).nodes == ["n1"]


async def test_a_lost_node_is_replaced_and_else_the_reservation_says_that_it_is_short(
    control: Inside,
) -> None:
    await join(control, "n1", "n2")
    asked = ReservationRequest("+1h", "2h", nodes=1, maintenance=True, name="down")
    await Reserving(control.loop).reserve(asked, "ada")
    replacing = Replacing(control.loop)
    assert await replacing.look() == 0
    assert not replacing.short()
    await lose(control, "n1")
    assert await replacing.look() == 1
    assert control.loop.state.reservations["down"].nodes == ("n2",)
    await lose(control, "n2")
    assert await replacing.look() == 0
    assert replacing.short()
    (view,) = await reservation_views(control.loop, None)
    assert (view.nodes, view.missing) == (["n2"], ["n2"])
    (seen,) = await reservation_views(control.loop, "physics")
    assert seen.name == "down", "maintenance concerns all projects"


async def test_reservations_outlive_a_server_that_is_killed() -> None:
    async with leading() as before:
        await join(before, "n1")
        asked = ReservationRequest("+1h", "2h", nodes=1, project="physics", name="course")
        await Reserving(before.loop).reserve(asked, "ada")
        known = before.loop.state.reservations
        async with leading(before.store, before.clock.at) as after:
            assert after.loop.state.reservations == known
            assert list(known) == ["course"]
            await Reserving(after.loop).cancel("course", "ada", None)
        async with leading(before.store, before.clock.at) as last:
            assert last.loop.state.reservations == {}
