"""The controller of a pool on a live loop: only the leader calls the provider, and only for what is durable."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import pytest

from spillover.control.controllers.pools import LONGEST_CALL, PoolControl
from spillover.control.live.loop import Loop
from spillover.control.pools.controls import PoolControls
from spillover.control.requests.pools import swept
from spillover.core.events import MachinesEnding, MachinesWanted, Wish
from spillover.core.pool_proposals import PausePool
from spillover.core.proposals import AgentGone, Register
from spillover.model.cluster import Billing, ClusterSpec, Price, Role
from spillover.model.ids import ClusterName, NodeName
from spillover.model.pools import JoinTerms, MachineId, MachineState, Offer, Pool, RefusalCause, machine_id
from spillover.model.resources import Resources
from spillover.model.units import HOUR, MINUTE
from spillover.ports.commands import CommandError
from spillover.ports.provider import Created, Listing, Order, Presence, PriceSeen, ProviderError
from spillover.testing.fake_cloud import FakeCloud, FakeProvider
from spillover.testing.world import START
from spillover.wire.api import SweepRequest, SweepView
from tests.support.pools.live import leading, write
from tests.support.virtual_time import VirtualTime, run_virtually

CLOUD = ClusterName("cloud")
SMALL = Offer("small", Resources(4000, 2**33), 1_000_000)
SPOT = Offer("small", Resources(4000, 2**33), 250_000, spot=True)
SPEC = ClusterSpec(
    CLOUD, "agents", Role.RENTED, Price(), Billing(step=HOUR), pool=Pool("fake", (SMALL, SPOT), max=9)
)
M1, M2 = machine_id("cloud", 1), machine_id("cloud", 2)
OWNER = "0123456789abcdef"


class Rig:
    """A loop that leads, a cloud, and a controller between them."""

    def __init__(self, time: VirtualTime, loop: Loop) -> None:
        self.loop = loop
        self.cloud = FakeCloud(lambda: START + time.now)
        self.provider = _Watched(self.cloud, OWNER)
        self.control = PoolControl(
            loop, CLOUD, self.provider, OWNER, terms=lambda: JoinTerms("10.0.0.1:7071"), identity="me"
        )

    def state(self, machine: MachineId = M1) -> MachineState:
        return self.loop.state.machines[machine].state

    def order(self, *machines: MachineId) -> None:
        """Let the plan want machines, as durably as it does."""
        at = self.loop.now()
        wishes = tuple([Wish(each, SMALL, at + 10 * MINUTE) for each in machines])
        write(self.loop, MachinesWanted(CLOUD, at, wishes))

    def end(self, *machines: MachineId) -> None:
        write(self.loop, MachinesEnding(CLOUD, self.loop.now(), machines, "enough"))


class _Watched(FakeProvider):
    """Counts orders, and lets some hang."""

    def __init__(self, cloud: FakeCloud, owner: str) -> None:
        super().__init__(cloud, owner)
        self.orders: list[Order] = []
        self.hangs = False
        self.prices_asked = 0
        self.meanwhile: Callable[[], Awaitable[None]] | None = None
        """What happens while machines are listed."""

    async def create(self, order: Order) -> Created:
        self.orders.append(order)
        if self.hangs:
            await asyncio.Event().wait()
        return await super().create(order)

    async def list(self) -> Listing:
        if self.meanwhile is not None:
            happens, self.meanwhile = self.meanwhile, None
            await happens()
        return await super().list()

    async def prices(self, offers: Sequence[Offer]) -> Sequence[PriceSeen]:
        self.prices_asked += 1
        return [PriceSeen(each.type, each.zone, each.spot, 200_000) for each in offers]


@asynccontextmanager
async def _rig(time: VirtualTime) -> AsyncIterator[Rig]:
    async with leading(time, SPEC) as loop:
        rig = Rig(time, loop)
        running = asyncio.create_task(rig.control.run())
        try:
            yield rig
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


def play(story: Callable[[Rig], Awaitable[None]]) -> None:
    async def main(time: VirtualTime) -> None:
        async with _rig(time) as rig:
            await story(rig)

    run_virtually(main)


def test_a_machine_is_rented_and_given_back() -> None:
    async def story(rig: Rig) -> None:
        await asyncio.sleep(1)
        rig.order(M1)
        await asyncio.sleep(1)
        assert rig.state() is MachineState.BOOTING
        rig.end(M1)
        await asyncio.sleep(20)
        assert rig.state() is MachineState.GONE
        assert [each.presence for each in rig.cloud.machines.values()] == ["gone"]
        assert rig.control.calls["create", "made"] == 1

    play(story)


def test_a_machine_whose_agent_is_lost_is_looked_for_at_once() -> None:
    async def story(rig: Rig) -> None:
        await asyncio.sleep(1)
        rig.order(M1)
        await asyncio.sleep(1)
        await rig.loop.propose(Register(CLOUD, NodeName(M1), 1, SMALL.resources, (), {}, 0, ()))
        await asyncio.sleep(100)
        (machine,) = rig.cloud.machines.values()
        machine.presence = Presence.GONE
        await rig.loop.propose(AgentGone(CLOUD, NodeName(M1), 1))
        await asyncio.sleep(15)
        assert rig.state() is MachineState.GONE

    play(story)


def test_spot_prices_become_part_of_the_state() -> None:
    async def story(rig: Rig) -> None:
        await asyncio.sleep(1)
        assert rig.loop.state.pools[CLOUD].prices == {SPOT.key: 200_000}
        await asyncio.sleep(600)
        assert 2 <= rig.provider.prices_asked <= 4

    play(story)


def test_a_server_that_may_not_lead_calls_nobody() -> None:
    async def story(rig: Rig) -> None:
        await asyncio.sleep(1)
        rig.loop.led_until(rig.loop.time.monotonic())
        before = rig.cloud.calls
        rig.order(M1)
        await asyncio.sleep(300)
        assert (rig.provider.orders, rig.cloud.calls) == ([], before)

    play(story)


def test_a_pool_that_is_paused_in_the_same_moment_orders_nothing() -> None:
    async def story(rig: Rig) -> None:
        await asyncio.sleep(1)
        rig.order(M1)
        await rig.loop.propose(PausePool(CLOUD, "ada"))
        await asyncio.sleep(60)
        assert rig.provider.orders == []

    play(story)


def test_an_order_that_hangs_is_repeated_after_a_while() -> None:
    async def story(rig: Rig) -> None:
        await asyncio.sleep(1)
        rig.provider.hangs = True
        rig.order(M1)
        await asyncio.sleep(LONGEST_CALL - 10)
        rig.provider.hangs = False
        assert len(rig.provider.orders) == 1
        await asyncio.sleep(60)
        assert rig.state() is MachineState.BOOTING
        assert rig.control.calls["create", "unknown"] == 1

    play(story)


def test_an_order_without_an_answer_is_repeated_with_the_same_content() -> None:
    async def story(rig: Rig) -> None:
        await asyncio.sleep(1)
        rig.cloud.lose = [True, False]
        rig.order(M1)
        await asyncio.sleep(0.5)
        assert rig.state() is MachineState.WANTED
        await asyncio.sleep(60)
        assert rig.state() is MachineState.BOOTING
        assert len(set(map(repr, rig.provider.orders))) == 1
        assert len(rig.cloud.machines) == 1

    play(story)


def test_a_provider_that_raises_anything_harms_nothing_else() -> None:
    async def story(rig: Rig) -> None:
        def broken() -> object:
            raise ZeroDivisionError

        rig.provider.list = broken  # type: ignore[assignment,method-assign]
        await asyncio.sleep(1)
        rig.order(M1)
        await asyncio.sleep(5)
        assert rig.state() is MachineState.BOOTING
        assert rig.control.failure is not None
        assert "ZeroDivisionError" in rig.control.failure

    play(story)


def test_a_cloud_that_does_not_answer_gets_few_calls() -> None:
    async def story(rig: Rig) -> None:
        await asyncio.sleep(1)
        rig.cloud.throttled = True
        before = rig.cloud.calls
        rig.order(*[machine_id("cloud", number) for number in range(1, 10)])
        await asyncio.sleep(2 * 3600)
        assert rig.cloud.calls - before < 3 * (10 + 2 * 12) + 10

    play(story)


def test_machines_that_are_wanted_as_soon_as_a_pool_is_there_are_ordered_although_nothing_can_be_listed() -> (
    None
):
    async def story(rig: Rig) -> None:
        async def fail() -> Listing:
            raise ProviderError("no answer")

        rig.provider.list = fail  # type: ignore[method-assign]
        rig.order(M1, M2)  # before the controller looks for the first time
        await asyncio.sleep(5)
        assert (rig.state(M1), rig.state(M2)) == (MachineState.BOOTING, MachineState.BOOTING)

    play(story)


def test_a_refusal_of_credentials_pauses_the_pool_loudly() -> None:
    async def story(rig: Rig) -> None:
        await asyncio.sleep(1)
        rig.cloud.refusing = RefusalCause.AUTH
        rig.order(M1, M2)
        await asyncio.sleep(60)
        assert rig.loop.state.pools[CLOUD].paused
        assert len(rig.provider.orders) <= 2

    play(story)


def test_a_sweep_shows_what_is_unwanted_and_changes_nothing() -> None:
    async def story(rig: Rig) -> None:
        await asyncio.sleep(1)
        rig.order(M1)
        await asyncio.sleep(1)
        (machine,) = rig.cloud.machines.values()
        rig.loop.state.drop_machine(rig.loop.state.machines[M1])  # as if the state had been lost
        found = await rig.control.sweep()
        assert [*found.strangers] == [machine.id]
        assert not rig.control.ledger.unwanted
        rig.control.list_now()
        await asyncio.sleep(20)
        assert machine.presence == "gone"

    play(story)


async def _swept(rig: Rig, *clusters: str, dry_run: bool = True) -> list[SweepView]:
    controls = PoolControls()
    controls.add(rig.control)
    return await swept(rig.loop, controls, SweepRequest(list(clusters), dry_run))


def test_people_see_what_a_sweep_would_end_and_then_let_it_end_that() -> None:
    async def story(rig: Rig) -> None:
        await asyncio.sleep(1)
        rig.order(M1, M2)
        await asyncio.sleep(1)
        lost, _ = rig.cloud.machines.values()
        rig.loop.state.drop_machine(rig.loop.state.machines[M1])  # as if the state had been lost
        for dry_run in (True, False):
            (pool,) = await _swept(rig, dry_run=dry_run)
            assert [(each.id, each.state, each.machine) for each in pool.machines] == [
                (lost.id, "unwanted", "cloud-1")
            ]
            assert (pool.cluster, pool.problem) == ("cloud", None)
            assert not rig.control.ledger.unwanted
            if dry_run:
                await asyncio.sleep(0.5)
                assert lost.presence != "gone"
        await asyncio.sleep(20)
        assert lost.presence == "gone"
        assert rig.state(M2) is MachineState.BOOTING
        assert [pool.machines for pool in await _swept(rig)] == [[]]

    play(story)


def test_a_machine_that_is_made_while_machines_are_listed_is_no_stranger() -> None:
    """The state is read after the listing; before it, nothing wanted the machine."""

    async def story(rig: Rig) -> None:
        await asyncio.sleep(1)

        async def ordered() -> None:
            rig.order(M1)
            await asyncio.sleep(5)

        rig.provider.meanwhile = ordered
        found = await rig.control.sweep()
        assert len(rig.cloud.machines) == 1
        assert not found.strangers
        assert rig.state() is MachineState.BOOTING

    play(story)


def test_a_sweep_also_shows_machines_that_are_being_ended() -> None:
    async def story(rig: Rig) -> None:
        await asyncio.sleep(1)
        rig.order(M1)
        await asyncio.sleep(1)
        rig.cloud.keeps = True
        rig.end(M1)
        await asyncio.sleep(1)
        ((machine,),) = [pool.machines for pool in await _swept(rig, "cloud")]
        assert (machine.state, machine.machine, machine.reason) == ("ending", "cloud-1", "enough")

    play(story)


def test_a_sweep_names_providers_that_do_not_answer_or_only_in_part_and_pools_that_are_unknown() -> None:
    async def story(rig: Rig) -> None:
        await asyncio.sleep(1)
        rig.cloud.whole = False
        (pool,) = await _swept(rig)
        assert pool.problem is not None
        assert "not whole" in pool.problem
        rig.cloud.reachable = False
        (pool,) = await _swept(rig)
        assert pool.problem is not None
        assert "cannot list machines" in pool.problem
        with pytest.raises(CommandError, match="there is no pool 'colud'; clusters with a pool: cloud"):
            await _swept(rig, "colud")

    play(story)
