"""The suite for providers on the one in memory; and the mistakes that it finds."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from spillover.model.pools import Offer, RefusalCause
from spillover.model.resources import Resources
from spillover.ports.provider import Created, Listing, Order, PriceSeen, ProviderError, Refused
from spillover.testing.fake_cloud import FakeCloud, FakeForm, FakeKind, FakeProvider
from spillover.testing.provider_suite import (
    REFUSALS,
    Fault,
    OpenProvider,
    ProviderSuite,
    an_opening,
)


class FakeSuite(ProviderSuite):
    faults = frozenset(Fault)
    bad_offer = Offer("none", Resources(1000), 1)
    patience = 0.5
    cloud: FakeCloud

    def provoke(self, fault: Fault) -> None:
        cloud = self.cloud
        if fault in REFUSALS:
            cloud.refusing = RefusalCause(fault)
        match fault:
            case Fault.THROTTLED:
                cloud.throttled = True
            case Fault.UNREACHABLE:
                cloud.reachable = False
            case Fault.LOST_ANSWER | Fault.LOST_REQUEST:
                cloud.lose = [fault is Fault.LOST_ANSWER]
            case Fault.PARTIAL:
                cloud.whole = False
            case Fault.LOST_TAGS:
                for each in cloud.machines.values():
                    each.tagged = False
            case Fault.TAKEN_BACK:
                cloud.take_back()
            case Fault.REFUSED_DESTROY:
                cloud.keeps = True
            case _:
                assert cloud.refusing is not None

    def mend(self) -> None:
        cloud = self.cloud
        cloud.refusing, cloud.throttled, cloud.reachable = None, False, True
        cloud.lose, cloud.whole, cloud.keeps = [], True, False


class TestFake(FakeSuite):
    @pytest.fixture
    def open_provider(self, tmp_path: Path) -> OpenProvider:
        kind = FakeKind()
        self.cloud = kind.cloud
        return lambda owner: kind.open(FakeForm(), an_opening(tmp_path, owner))


class Doubling(FakeProvider):
    async def create(self, order: Order) -> Created:
        return await super().create(replace(order, token=f"{order.token}-{self._cloud.calls}"))


class Untagged(FakeProvider):
    async def list(self) -> Listing:
        listing = await super().list()
        return replace(listing, machines=tuple(replace(each, owner="") for each in listing.machines))


class Sharing(FakeProvider):
    async def create(self, order: Order) -> Created:
        return await super().create(replace(order, token=order.machine))


class Vague(FakeProvider):
    async def check(self, offers: Sequence[Offer]) -> Sequence[str]:
        del offers
        return ["it is\nbroken"]


class Early(FakeProvider):
    async def list(self) -> Listing:
        return replace(await super().list(), began=0)


class Deaf(FakeProvider):
    async def destroy(self, ids: Sequence[str]) -> Mapping[str, str]:
        return {}


class Strict(FakeProvider):
    async def destroy(self, ids: Sequence[str]) -> Mapping[str, str]:
        await super().destroy(ids)
        return {id_: "it is unknown" for id_ in ids if id_ not in self._cloud.machines}


class Sure(FakeProvider):
    async def create(self, order: Order) -> Created:
        answer = await super().create(order)
        return answer if not hasattr(answer, "why") else Refused(RefusalCause.CAPACITY, "no answer")


class Empty(FakeProvider):
    async def list(self) -> Listing:
        try:
            return await super().list()
        except ProviderError:
            return Listing(self._cloud.clock(), whole=True)


class Whole(FakeProvider):
    async def list(self) -> Listing:
        return replace(await super().list(), whole=True, why="")


class Forgetful(FakeProvider):
    async def destroy(self, ids: Sequence[str]) -> Mapping[str, str]:
        for id_ in ids:
            if id_ in self._cloud.machines:
                self._cloud.tokens.pop(self._cloud.machines[id_].order.token, None)
        return await super().destroy(ids)


class Free(FakeProvider):
    async def prices(self, offers: Sequence[Offer]) -> Sequence[PriceSeen]:
        return [replace(each, hour=0) for each in await super().prices(offers)]


@pytest.mark.parametrize(
    ("provider", "test"),
    [
        (Doubling, FakeSuite.test_the_same_token_is_the_same_machine),
        (Doubling, FakeSuite.test_the_same_token_at_the_same_time_is_one_machine),
        (Doubling, FakeSuite.test_the_same_token_after_a_restart_is_the_same_machine),
        (Untagged, FakeSuite.test_a_new_machine_is_in_the_first_listing_with_its_tags),
        (Sharing, FakeSuite.test_two_owners_do_not_share_machines),
        (Early, FakeSuite.test_a_listing_tells_when_it_began_and_that_it_is_whole),
        (Whole, FakeSuite.test_a_listing_without_one_of_its_parts_says_so),
        (Untagged, FakeSuite.test_two_owners_do_not_share_machines),
        (Deaf, FakeSuite.test_a_destroyed_machine_is_gone_and_can_be_destroyed_again),
        (Strict, FakeSuite.test_an_unknown_id_counts_as_destroyed),
        (Forgetful, FakeSuite.test_the_token_of_a_destroyed_machine_makes_no_other),
        (Deaf, FakeSuite.test_why_a_machine_was_not_destroyed_is_told),
        (Empty, FakeSuite.test_a_provider_that_does_not_answer_raises_for_listing_and_destroying),
        (Vague, FakeSuite.test_an_offer_that_can_be_rented_passes_the_check),
        (Vague, FakeSuite.test_an_offer_that_cannot_be_rented_is_told_in_one_line),
        (Free, FakeSuite.test_prices_are_those_of_the_offers),
    ],
)
def test_a_provider_with_a_mistake_fails(
    provider: type[FakeProvider], test: Callable[[FakeSuite, OpenProvider], None]
) -> None:
    suite = FakeSuite()
    suite.cloud = FakeCloud()
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        test(suite, lambda owner: provider(suite.cloud, owner))


@pytest.mark.parametrize(
    ("fault", "test"),
    [
        (Fault.QUOTA, FakeSuite.test_a_refused_order_makes_nothing_and_says_why),
        (Fault.THROTTLED, FakeSuite.test_an_order_that_did_not_arrive_can_be_repeated),
        (Fault.LOST_ANSWER, FakeSuite.test_an_order_without_answer_is_repeated_and_makes_one_machine),
    ],
)
def test_a_provider_that_is_sure_of_the_wrong_thing_fails(
    fault: Fault, test: Callable[[FakeSuite, OpenProvider, Fault], None]
) -> None:
    suite = FakeSuite()
    suite.cloud = FakeCloud()
    with pytest.raises(AssertionError):
        test(suite, lambda owner: Sure(suite.cloud, owner), fault)
