"""Tests that every maker of whole clusters must pass, besides those that every provider must.

`spillover.ports.provider` defines the contract of a `ClusterMaker`. Inherit this suite in place of `ProviderSuite`, with the
same fixture:

    class TestMaker(MakerSuite):
        @pytest.fixture
        def open_provider(self, tmp_path):
            return lambda owner: MyKind().open(MyForm(), an_opening(tmp_path, owner))

The tests read the nodes of a cluster from its API, with its kubeconfig. Override `nodes_of` if it has no real one.
"""

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import ClassVar, Final, cast

import msgspec
import pytest
import yaml
from msgspec.structs import replace

from spillover.clusters.kubernetes.api.kubeconfig import Access, access_of
from spillover.clusters.kubernetes.options import KubernetesOptions
from spillover.model.pools import Offer
from spillover.model.resources import Resources
from spillover.ports.provider import ClusterMaker, Order, Presence, ProviderError
from spillover.testing.provider_suite import (
    CLUSTER,
    OWNER,
    Fault,
    OpenProvider,
    ProviderSuite,
    check_line,
)

FILES: Final = ("certificate-authority", "client-certificate", "client-key", "tokenFile")
"""Fields of a kubeconfig that name a file, which the server may not have."""


class MakerSuite(ProviderSuite):
    """The contract of `ClusterMaker`. Add a fixture `open_provider`, and override what differs for yours."""

    offer: ClassVar[Offer] = Offer("small", Resources(1000, 2**30), 100_000, nodes=4)

    def an_order(
        self, number: int = 1, owner: str = OWNER, offer: Offer | None = None, nodes: int = 2
    ) -> Order:
        """Return the order of a cluster; `nodes` does not change its token."""
        return replace(super().an_order(number, owner, offer), nodes=nodes)

    @asynccontextmanager
    async def making(
        self, open_provider: OpenProvider, nodes: int = 2
    ) -> AsyncIterator[tuple[ClusterMaker, str]]:
        """Open a maker with one running cluster; at the end destroy it."""
        async with self.renting(open_provider) as provider:
            id_ = await self.made(provider, self.an_order(nodes=nodes))
            await self.until_running(maker := cast("ClusterMaker", provider), id_)
            yield maker, id_

    async def until_running(self, maker: ClusterMaker, id_: str) -> None:
        """Wait until a listing shows a cluster as running."""
        ends = time.monotonic() + self.patience
        while (await self.only(maker)).presence is not Presence.RUNNING:
            assert time.monotonic() < ends, f"created, and not running: {id_}"
            await asyncio.sleep(0.05)

    async def nodes_of(self, maker: ClusterMaker, id_: str) -> set[str]:
        """Return the names of the nodes of a running cluster."""
        from spillover.clusters.kubernetes.api.requests import Api  # noqa: PLC0415 - needs an optional package

        api = Api(usable(await maker.kubeconfig(id_)))
        try:
            answer = msgspec.json.decode(await api.ask("GET", "/api/v1/nodes"))
        finally:
            await api.close()
        return {each["metadata"]["name"] for each in answer["items"]}

    async def until_nodes(self, maker: ClusterMaker, id_: str, count: int) -> set[str]:
        """Wait until a cluster has so many nodes; return their names."""
        ends = time.monotonic() + self.patience
        while len(names := await self.nodes_of(maker, id_)) != count:
            assert time.monotonic() < ends, f"resized to {count} nodes, and has {sorted(names)}"
            await asyncio.sleep(0.05)
        return names

    # --- the contract: connecting

    def test_the_kubeconfig_of_a_running_cluster_needs_no_other_file(
        self, open_provider: OpenProvider
    ) -> None:
        """The server may run on another machine than the programs that made the cluster."""

        async def story() -> None:
            async with self.making(open_provider) as (maker, id_):
                assert usable(await maker.kubeconfig(id_)).server

        self.play(story())

    def test_a_new_cluster_has_the_nodes_of_its_order(self, open_provider: OpenProvider) -> None:
        """The first jobs were counted in when it was ordered."""

        async def story() -> None:
            async with self.making(open_provider, 2) as (maker, id_):
                assert (await self.only(maker)).nodes == 2
                await self.until_nodes(maker, id_, 2)

        self.play(story())

    def test_an_order_for_other_nodes_is_the_same_cluster_unchanged(
        self, open_provider: OpenProvider
    ) -> None:
        """A repeated order may name the nodes that are wanted now. Only `resize` changes a cluster that is there."""

        async def story() -> None:
            async with self.making(open_provider, 2) as (maker, id_):
                assert await self.made(maker, self.an_order(nodes=3)) == id_
                assert (await self.only(maker)).nodes == 2
                await self.until_nodes(maker, id_, 2)

        self.play(story())

    # --- the contract: sizing

    def test_a_cluster_grows_to_the_nodes_that_it_is_told(self, open_provider: OpenProvider) -> None:
        """The next listing shows the number. The nodes that it had stay, and repeating the call changes nothing."""

        async def story() -> None:
            async with self.making(open_provider, 1) as (maker, id_):
                before = await self.until_nodes(maker, id_, 1)
                for _ in range(2):
                    await maker.resize(id_, 3, [])
                    assert (await self.only(maker)).nodes == 3
                    assert before < await self.until_nodes(maker, id_, 3)

        self.play(story())

    def test_a_smaller_cluster_loses_the_nodes_that_are_named(self, open_provider: OpenProvider) -> None:
        """The others have tasks. Repeating the call changes nothing, and a named node that is gone is no error."""

        async def story() -> None:
            async with self.making(open_provider, 3) as (maker, id_):
                names = sorted(await self.until_nodes(maker, id_, 3))
                for _ in range(2):
                    await maker.resize(id_, 2, [names[1]])
                    assert (await self.only(maker)).nodes == 2
                    assert await self.until_nodes(maker, id_, 2) == {names[0], names[2]}
                await maker.resize(id_, 1, names[:2])
                assert await self.until_nodes(maker, id_, 1) == {names[2]}

        self.play(story())

    def test_a_named_node_of_a_cluster_that_grows_stays(self, open_provider: OpenProvider) -> None:
        """A late call may name nodes that have tasks by now. The number counts, and no node goes without need."""

        async def story() -> None:
            async with self.making(open_provider, 1) as (maker, id_):
                before = await self.until_nodes(maker, id_, 1)
                await maker.resize(id_, 2, sorted(before))
                assert before < await self.until_nodes(maker, id_, 2)

        self.play(story())

    def test_a_cluster_that_is_gone_has_neither_size_nor_kubeconfig(
        self, open_provider: OpenProvider
    ) -> None:
        """One line says so, and nothing comes back to life."""

        async def story() -> None:
            async with self.making(open_provider) as (maker, id_):
                await maker.destroy([id_])
                await self.until_gone(maker, {id_})
                for gone in (id_, self.unknown_id(id_)):
                    await self.fails(maker, gone)
                assert not await self.mine(maker)

        self.play(story())

    def test_a_maker_that_does_not_answer_raises_for_sizing_and_connecting(
        self, open_provider: OpenProvider
    ) -> None:
        """The server tries it again."""
        self.needs(Fault.UNREACHABLE)

        async def story() -> None:
            async with self.making(open_provider, 1) as (maker, id_):
                self.provoke(Fault.UNREACHABLE)
                await self.fails(maker, id_)
                self.mend()
                assert (await self.only(maker)).nodes == 1

        self.play(story())

    async def fails(self, maker: ClusterMaker, id_: str) -> None:
        """Check that both calls about a cluster fail with one line."""
        with pytest.raises(ProviderError) as sized:
            await maker.resize(id_, 2, [])
        check_line(str(sized.value))
        with pytest.raises(ProviderError) as connected:
            await maker.kubeconfig(id_)
        check_line(str(connected.value))


def usable(kubeconfig: str) -> Access:
    """Return how a kubeconfig connects; fail if it cannot, or if it needs other files."""
    document = yaml.safe_load(kubeconfig)
    for each in [*document["clusters"], *document["users"]]:
        fields = {**each.get("cluster", {}), **each.get("user", {})}
        assert not fields.keys() & FILES, f"the kubeconfig names a file: {sorted(fields.keys() & set(FILES))}"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "kubeconfig")
        path.write_text(kubeconfig)
        return access_of(
            KubernetesOptions(cluster=CLUSTER, owner=OWNER, kubeconfig=str(path)), {}, Path(folder)
        )
