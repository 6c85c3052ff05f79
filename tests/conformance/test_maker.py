"""The suite for makers of whole clusters on the one in memory; and the mistakes that it finds."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from spillover.ports.provider import ClusterMaker, Created, Listing, Order, Presence, ProviderError
from spillover.testing.fake_cloud import FakeCloud, FakeForm, FakeKind, FakeMaker
from spillover.testing.maker_suite import MakerSuite
from spillover.testing.provider_suite import OpenProvider, an_opening
from tests.conformance.test_provider import FakeSuite


class FakeMakerSuite(FakeSuite, MakerSuite):
    offer = MakerSuite.offer

    async def nodes_of(self, maker: ClusterMaker, id_: str) -> set[str]:
        del maker
        return set(self.cloud.machines[id_].nodes)


class TestFakeMaker(FakeMakerSuite):
    @pytest.fixture
    def open_provider(self, tmp_path: Path) -> OpenProvider:
        kind = FakeKind()
        self.cloud = kind.cloud
        return lambda owner: kind.open(FakeForm(clusters=True), an_opening(tmp_path, owner))


class FileNaming(FakeMaker):
    async def kubeconfig(self, id_: str) -> str:
        return (await super().kubeconfig(id_)).replace("token:", "tokenFile:")


class Obeying(FakeMaker):
    async def create(self, order: Order) -> Created:
        answer = await super().create(order)
        self._cloud.machine(order).resize(order.nodes)
        return answer


class Adding(FakeMaker):
    async def resize(self, id_: str, nodes: int, drop: Sequence[str]) -> None:
        await super().resize(id_, nodes + self._cloud.machines[id_].grown - 1, drop)


class Careless(FakeMaker):
    async def resize(self, id_: str, nodes: int, drop: Sequence[str]) -> None:
        await super().resize(id_, nodes, self._cloud.machines[id_].nodes)


class Eager(FakeMaker):
    async def resize(self, id_: str, nodes: int, drop: Sequence[str]) -> None:
        await super().resize(id_, len(self._cloud.machines[id_].nodes) - len(drop), drop)
        await super().resize(id_, nodes, drop)


class Mute(FakeMaker):
    async def list(self) -> Listing:
        listing = await super().list()
        return replace(listing, machines=tuple(replace(each, nodes=None) for each in listing.machines))


class Reviving(FakeMaker):
    async def resize(self, id_: str, nodes: int, drop: Sequence[str]) -> None:
        if id_ in self._cloud.machines:
            self._cloud.machines[id_].presence = Presence.RUNNING
        await super().resize(id_, nodes, drop)


class Silent(FakeMaker):
    async def resize(self, id_: str, nodes: int, drop: Sequence[str]) -> None:
        try:
            await super().resize(id_, nodes, drop)
        except ProviderError:
            return


@pytest.mark.parametrize(
    ("maker", "test"),
    [
        (FileNaming, FakeMakerSuite.test_the_kubeconfig_of_a_running_cluster_needs_no_other_file),
        (Mute, FakeMakerSuite.test_a_new_cluster_has_the_nodes_of_its_order),
        (Obeying, FakeMakerSuite.test_an_order_for_other_nodes_is_the_same_cluster_unchanged),
        (Adding, FakeMakerSuite.test_a_cluster_grows_to_the_nodes_that_it_is_told),
        (Careless, FakeMakerSuite.test_a_smaller_cluster_loses_the_nodes_that_are_named),
        (Eager, FakeMakerSuite.test_a_named_node_of_a_cluster_that_grows_stays),
        (Reviving, FakeMakerSuite.test_a_cluster_that_is_gone_has_neither_size_nor_kubeconfig),
        (Silent, FakeMakerSuite.test_a_maker_that_does_not_answer_raises_for_sizing_and_connecting),
    ],
)
def test_a_maker_with_a_mistake_fails(
    maker: type[FakeMaker], test: Callable[[FakeMakerSuite, OpenProvider], None]
) -> None:
    suite = FakeMakerSuite()
    suite.cloud = FakeCloud()
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        test(suite, lambda owner: maker(suite.cloud, owner))


def test_a_cluster_without_an_api_yet_has_no_kubeconfig() -> None:
    suite = FakeMakerSuite()
    suite.cloud = FakeCloud()
    suite.cloud.slow = True

    async def story() -> None:
        async with suite.renting(lambda owner: FakeMaker(suite.cloud, owner)) as provider:
            maker = FakeMaker(suite.cloud, suite.an_order().owner)
            id_ = await suite.made(provider, suite.an_order())
            with pytest.raises(ProviderError, match="does not run yet"):
                await maker.kubeconfig(id_)
            assert (await suite.only(provider)).presence is Presence.PENDING
            suite.cloud.boot()
            assert await maker.kubeconfig(id_)

    suite.play(story())
