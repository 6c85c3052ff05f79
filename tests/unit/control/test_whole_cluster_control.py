"""The controller of a pool of whole clusters on a live loop: it connects to them, sizes them, and forgets them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

from msgspec.structs import replace

from spillover.control.controllers.pools import PoolControl
from spillover.control.live.loop import Loop
from spillover.core.events import ClusterSized, MachinesEnding, MachinesWanted, SeenNode, Wish
from spillover.core.proposals import OpenedCluster, SeeCluster, SeeNodes
from spillover.core.records.machines import RentedMachine
from spillover.model.cluster import Billing, ClusterHealth, ClusterSpec, Price, Role
from spillover.model.ids import ClusterName, NodeName
from spillover.model.pools import JoinTerms, MachineId, MachineState, Offer, Pool
from spillover.model.resources import Resources
from spillover.model.units import HOUR
from spillover.ports.kinds import CannotOpen
from spillover.ports.provider import ProviderError
from spillover.testing.fake_cloud import FakeCloud, FakeMaker
from spillover.testing.world import START
from tests.support.pools.live import leading, write
from tests.support.virtual_time import VirtualTime, run_virtually

BURST, FIRST = ClusterName("burst"), ClusterName("burst-1")
M1 = MachineId("burst-1")
STD = Offer("std", Resources(4000, 2**33), 400_000, nodes=8, least=1, cluster_hour=100_000)
SPEC = ClusterSpec(
    BURST,
    "kubernetes",
    Role.RENTED,
    Price(),
    Billing(),
    gangs=True,
    pool=Pool("fake", (STD,), max=3, idle=24 * HOUR),
)
OWNER = "0123456789abcdef"


class _Keeper:
    """Keeps kubeconfigs in memory."""

    def __init__(self) -> None:
        self.kept: dict[MachineId, str] = {}
        self.full = False

    def knows(self, form: str) -> bool:
        return form in self.kept.values()

    def keep(self, machine: RentedMachine, kubeconfig: str) -> tuple[ClusterSpec, str]:
        if self.full:
            raise CannotOpen("no space left")
        self.kept[machine.id] = kubeconfig
        return replace(SPEC, name=machine.cluster_made, pool=None, made_by=BURST), kubeconfig

    def forget(self, machine: MachineId) -> None:
        self.kept.pop(machine, None)


class _Watched(FakeMaker):
    """Records what clusters are told."""

    def __init__(self, cloud: FakeCloud) -> None:
        super().__init__(cloud, OWNER)
        self.told: list[tuple[int, tuple[str, ...]]] = []
        self.fails = 0
        self.credentials = ""

    async def kubeconfig(self, id_: str) -> str:
        return await super().kubeconfig(id_) + self.credentials

    async def resize(self, id_: str, nodes: int, drop: Sequence[str]) -> None:
        self.told.append((nodes, tuple(drop)))
        if self.fails:
            self.fails -= 1
            raise ProviderError("busy")
        await super().resize(id_, nodes, drop)


class Rig:
    """A loop that leads, a cloud that makes clusters, and a controller between them."""

    def __init__(self, time: VirtualTime, loop: Loop) -> None:
        self.loop = loop
        self.cloud = FakeCloud(lambda: START + time.now)
        self.maker = _Watched(self.cloud)
        self.keeper = _Keeper()
        self.begin()

    def begin(self) -> None:
        """Begin anew, as a server that was restarted."""
        self.control = PoolControl(
            self.loop,
            BURST,
            self.maker,
            OWNER,
            terms=lambda: JoinTerms("10.0.0.1:7071"),
            identity="me",
            made=self.keeper,
        )
        self.running = asyncio.create_task(self.control.run())

    async def stop(self) -> None:
        self.running.cancel()
        await asyncio.gather(self.running, return_exceptions=True)
        self.control.retire()

    def order(self, nodes: int = 2) -> None:
        at = self.loop.now()
        write(self.loop, MachinesWanted(BURST, at, (Wish(M1, STD, at + HOUR, nodes=nodes),)))

    async def up(self) -> None:
        """Let a cluster be ordered, answer, and have its nodes."""
        self.order()
        await asyncio.sleep(60)
        await self.loop.propose(OpenedCluster(FIRST), SeeCluster(FIRST, ClusterHealth.READY))
        await self.nodes()

    async def nodes(self) -> None:
        """Let the server see the nodes that the cloud has."""
        names = next(iter(self.cloud.machines.values())).nodes
        seen = [SeenNode(NodeName(each), STD.resources, Resources(), offers=("container",)) for each in names]
        await self.loop.propose(SeeNodes(FIRST, tuple(seen), whole=True))

    def size(self, nodes: int, *drop: str) -> None:
        write(
            self.loop,
            ClusterSized(M1, self.loop.now(), BURST, nodes, tuple([NodeName(each) for each in drop])),
        )

    @property
    def state(self) -> MachineState:
        return self.loop.state.machines[M1].state


@asynccontextmanager
async def _rig(time: VirtualTime) -> AsyncIterator[Rig]:
    async with leading(time, SPEC) as loop:
        rig = Rig(time, loop)
        try:
            yield rig
        finally:
            rig.running.cancel()
            await asyncio.gather(rig.running, return_exceptions=True)


def play(story: Callable[[Rig], Awaitable[None]]) -> None:
    async def main(time: VirtualTime) -> None:
        async with _rig(time) as rig:
            await story(rig)

    run_virtually(main)


def test_a_cluster_is_added_to_the_server_once_it_answers() -> None:
    async def story(rig: Rig) -> None:
        rig.cloud.slow = True
        rig.order()
        await asyncio.sleep(120)
        assert rig.state is MachineState.BOOTING
        assert FIRST not in rig.loop.state.lives
        rig.cloud.boot()
        await asyncio.sleep(15)
        assert FIRST in rig.loop.state.lives
        assert "secret-fake-1" in rig.keeper.kept[M1]
        assert rig.loop.state.clusters[FIRST].made_by == BURST
        assert rig.maker.told == [], "it has the nodes that it was ordered with"

    play(story)


def test_a_cluster_that_cannot_be_kept_is_tried_again() -> None:
    async def story(rig: Rig) -> None:
        rig.keeper.full = True
        rig.order()
        await asyncio.sleep(60)
        assert FIRST not in rig.loop.state.lives
        rig.keeper.full = False
        await asyncio.sleep(120)
        assert FIRST in rig.loop.state.lives

    play(story)


def test_another_size_is_told_once_and_again_if_that_fails_or_is_undone() -> None:
    async def story(rig: Rig) -> None:
        await rig.up()
        assert rig.state is MachineState.READY
        rig.maker.fails = 1
        rig.size(4)
        await asyncio.sleep(30)
        assert rig.maker.told == [(4, ()), (4, ())]
        await asyncio.sleep(600)
        assert len(rig.maker.told) == 2
        rig.cloud.machines["fake-1"].resize(1)
        await asyncio.sleep(120)
        assert rig.maker.told[2:] == [(4, ())], "a listing shows that it has lost some"

    play(story)


def test_nodes_that_are_to_go_are_named() -> None:
    async def story(rig: Rig) -> None:
        await rig.up()
        rig.size(1, "fake-1-node-1")
        await asyncio.sleep(5)
        assert rig.maker.told == [(1, ("fake-1-node-1",))]
        assert rig.cloud.machines["fake-1"].nodes == ["fake-1-node-2"]
        await rig.nodes()
        await asyncio.sleep(120)
        assert rig.cloud.machines["fake-1"].nodes == ["fake-1-node-2"]

    play(story)


def test_a_server_that_lost_its_files_asks_again_how_to_connect() -> None:
    async def story(rig: Rig) -> None:
        await rig.up()
        await rig.stop()
        rig.keeper.kept.clear()
        rig.begin()
        await asyncio.sleep(30)
        assert M1 in rig.keeper.kept
        assert rig.state is MachineState.READY
        assert rig.maker.told == []

    play(story)


def test_a_cluster_that_does_not_answer_is_asked_for_other_credentials() -> None:
    async def story(rig: Rig) -> None:
        await rig.up()
        before = rig.loop.state.lives[FIRST].form
        await asyncio.sleep(120)
        assert rig.loop.state.lives[FIRST].form == before
        rig.maker.credentials = "renewed"
        await rig.loop.propose(SeeCluster(FIRST, ClusterHealth.DEGRADED, "401"))
        await asyncio.sleep(60)
        assert "renewed" in rig.loop.state.lives[FIRST].form
        assert rig.keeper.kept[M1] == rig.loop.state.lives[FIRST].form

    play(story)


def test_a_cluster_that_is_gone_is_forgotten() -> None:
    async def story(rig: Rig) -> None:
        await rig.up()
        write(rig.loop, MachinesEnding(BURST, rig.loop.now(), (M1,), "enough"))
        await asyncio.sleep(120)
        assert rig.state is MachineState.GONE
        assert FIRST not in rig.loop.state.lives
        assert rig.keeper.kept == {}

    play(story)
