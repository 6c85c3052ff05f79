"""Tests that every provider of rented machines must pass, for authors of a provider.

`spillover.ports.provider` defines the contract. Inherit the suite and add a fixture `open_provider`, which opens a
provider for an owner. All providers of one test use the same account, as before and after a restart of the server, and
as two servers do:

    class TestProvider(ProviderSuite):
        @pytest.fixture
        def open_provider(self, tmp_path):
            return lambda owner: MyKind().open(MyForm(), an_opening(tmp_path, owner))

If what is behind the provider can fail on request, list the faults in `faults` and override `provoke`. The tests need
no pytest plugin. They destroy the machines that they create, also when they fail.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar, Final

import pytest

from spillover.model.ids import ClusterName
from spillover.model.pools import MachineId, Offer, RefusalCause, machine_id
from spillover.model.resources import Resources
from spillover.model.units import HOUR, MINUTE, SECOND
from spillover.ports.provider import (
    Created,
    Join,
    Listed,
    Listing,
    Made,
    NotNow,
    Order,
    Presence,
    Provider,
    ProviderError,
    ProviderOpening,
    Refused,
    Unknown,
    order_token,
)

OpenProvider = Callable[[str], Provider]
CLUSTER: Final = ClusterName("cloud")
OWNER: Final = "5d1f0c7a9b3e2468"
OTHER: Final = "a0b1c2d3e4f50617"
"""Owners of two servers that use one account."""
THERE: Final = (Presence.PENDING, Presence.RUNNING)
"""Of a machine that was not destroyed."""


class Fault(StrEnum):
    """What can go wrong behind a provider, as far as a test can cause it."""

    CAPACITY = "capacity"
    """No machine of the suite's offer is available."""
    QUOTA = "quota"
    """The account may not have another one."""
    INVALID = "invalid"
    """The provider does not accept orders of the suite's offer, such as after its image was deleted."""
    AUTH = "auth"
    """The provider does not accept the credentials."""
    THROTTLED = "throttled"
    """The provider asks for fewer requests."""
    UNREACHABLE = "unreachable"
    """Nobody answers, and no request arrives."""
    LOST_ANSWER = "lost_answer"
    """The next order is carried out, and its answer never comes. Orders after that work."""
    LOST_REQUEST = "lost_request"
    """The next order never arrives, and nobody can know that. Orders after that work."""
    PARTIAL = "partial"
    """A part of the listing fails."""
    LOST_TAGS = "lost_tags"
    """All machines of the account lose their tags; their names stay."""
    TAKEN_BACK = "taken_back"
    """The provider takes all machines of the account back."""
    REFUSED_DESTROY = "refused_destroy"
    """The provider refuses to destroy machines."""


REFUSALS: Final = (Fault.CAPACITY, Fault.QUOTA, Fault.INVALID, Fault.AUTH)
"""Faults that refuse an order, each named as its cause."""


def an_opening(folder: Path, owner: str = OWNER, environ: Mapping[str, str] | None = None) -> ProviderOpening:
    """Return what a server passes to a kind to open a provider for the cluster `cloud`."""
    return ProviderOpening(
        CLUSTER, owner, folder, dict(os.environ if environ is None else environ), Path.home()
    )


class ProviderSuite:
    """The contract of `Provider`. Add a fixture `open_provider`, and override what differs for yours."""

    patience: ClassVar[float] = 30.0
    """Seconds within which the provider creates a machine, lists it and destroys it."""
    offer: ClassVar[Offer] = Offer("small", Resources(1000, 2**30), 100_000)
    """What the tests rent."""
    bad_offer: ClassVar[Offer | None] = None
    """An offer that `check` must find a problem with; None if there is none."""
    faults: ClassVar[frozenset[Fault]] = frozenset()
    """Faults that `provoke` can cause."""
    server: ClassVar[str] = "127.0.0.1:9"
    """Where the agents of new machines look for a server. Nobody listens at the default."""
    remembers: ClassVar[bool] = True
    """Whether the token of a machine that was destroyed makes no second machine."""

    def provoke(self, fault: Fault) -> None:
        """Cause a fault from now on, until `mend`."""
        raise NotImplementedError(fault)

    def mend(self) -> None:
        """End the faults that were caused."""

    # --- builders

    def an_order(self, number: int = 1, owner: str = OWNER, offer: Offer | None = None) -> Order:
        """Return the order of a machine; the same arguments give the same token."""
        machine = machine_id(CLUSTER, number)
        token = order_token(owner, machine)
        join = Join(self.server, CLUSTER, machine, f"secret-{token}", _JOIN_BY)
        return Order(MachineId(machine), token, owner, self.offer if offer is None else offer, join)

    def play(self, story: Coroutine[Any, Any, None]) -> None:
        """Run a test; fail if it hangs."""

        async def bounded() -> None:
            async with asyncio.timeout(10 * self.patience):
                await story

        asyncio.run(bounded())

    @asynccontextmanager
    async def renting(self, open_provider: OpenProvider, owner: str = OWNER) -> AsyncIterator[Provider]:
        """Open a provider; at the end destroy all machines of its owner."""
        async with AsyncExitStack() as stack:
            provider = open_provider(owner)
            stack.push_async_callback(provider.close)
            stack.push_async_callback(self._destroy_all, provider, owner)
            yield provider

    async def _destroy_all(self, provider: Provider, owner: str) -> None:
        self.mend()
        # One whose tags are lost, or of another owner of this test, is not left behind either.
        left = [each for each in (await provider.list()).machines if each.owner in {owner, ""}]
        await provider.destroy([each.id for each in left if each.presence is not Presence.GONE])

    def needs(self, fault: Fault) -> None:
        """Skip a test that needs a fault which cannot be caused."""
        if fault not in self.faults:
            pytest.skip(f"{type(self).__name__} cannot cause the fault {fault}")

    async def made(self, provider: Provider, order: Order) -> str:
        """Carry out an order and return the provider's id of the machine."""
        answer = await provider.create(order)
        assert isinstance(answer, Made), answer
        assert answer.id
        return answer.id

    async def mine(self, provider: Provider, owner: str = OWNER) -> list[Listed]:
        """Return the machines of an owner that a whole listing shows."""
        listing = await provider.list()
        assert listing.whole, listing.why
        return [each for each in listing.machines if each.owner == owner and each.presence in THERE]

    async def only(self, provider: Provider) -> Listed:
        """Return the only machine that we have."""
        mine = await self.mine(provider)
        assert len(mine) == 1, mine
        return mine[0]

    async def until_gone(self, provider: Provider, ids: set[str]) -> None:
        """Wait until no listing shows machines any more."""
        ends = time.monotonic() + self.patience
        while True:
            listing = await provider.list()
            left = {each.id for each in listing.machines if each.presence is not Presence.GONE} & ids
            if not left:
                return
            assert time.monotonic() < ends, f"destroyed, and still listed: {sorted(left)}"
            await asyncio.sleep(0.05)

    # --- the contract: creating

    def test_a_new_machine_is_in_the_first_listing_with_its_tags(self, open_provider: OpenProvider) -> None:
        """A machine that is made and cannot be found is paid for ever."""

        async def story() -> None:
            async with self.renting(open_provider) as provider:
                order = self.an_order()
                id_ = await self.made(provider, order)
                listed = await self.only(provider)
                assert (listed.id, listed.machine, listed.owner) == (id_, order.machine, OWNER)
                assert listed.name in {"", order.name}
                assert not listed.interrupted

        self.play(story())

    def test_the_same_token_is_the_same_machine(self, open_provider: OpenProvider) -> None:
        """A server repeats an order if it does not know the answer."""

        async def story() -> None:
            async with self.renting(open_provider) as provider:
                order = self.an_order()
                ids = {await self.made(provider, order) for _ in range(3)}
                assert len(ids) == 1, "the same order made several machines"
                assert [each.id for each in await self.mine(provider)] == [*ids]

        self.play(story())

    def test_the_same_token_at_the_same_time_is_one_machine(self, open_provider: OpenProvider) -> None:
        """An old leader and a new one may send the same order, each through its own connection."""

        async def story() -> None:
            async with self.renting(open_provider) as provider, self.renting(open_provider) as another:
                order = self.an_order()
                answers = await asyncio.gather(
                    *[each.create(order) for each in (provider, another, provider, another)]
                )
                made = {each.id for each in answers if isinstance(each, Made)}
                assert not [each for each in answers if isinstance(each, Refused)]
                made.add(await self.made(another, order))
                assert len(made) == 1, "the same order made several machines"
                assert [each.id for each in await self.mine(provider)] == [*made]

        self.play(story())

    def test_the_same_token_after_a_restart_is_the_same_machine(self, open_provider: OpenProvider) -> None:
        """The server stopped between the order and its answer. Closing a provider ends no machine."""

        async def story() -> None:
            before = open_provider(OWNER)
            id_ = await self.made(before, self.an_order())
            await before.close()
            async with self.renting(open_provider) as after:
                assert [each.id for each in await self.mine(after)] == [id_]
                assert await self.made(after, self.an_order()) == id_
                assert [each.id for each in await self.mine(after)] == [id_]

        self.play(story())

    def test_two_orders_are_two_machines(self, open_provider: OpenProvider) -> None:
        """Also if they arrive at the same time."""

        async def story() -> None:
            async with self.renting(open_provider) as provider:
                orders = [self.an_order(number) for number in (1, 2)]
                ids = await asyncio.gather(*[self.made(provider, order) for order in orders])
                listed = {each.machine: each.id for each in await self.mine(provider)}
                assert listed == {order.machine: id_ for order, id_ in zip(orders, ids, strict=True)}

        self.play(story())

    def test_two_owners_do_not_share_machines(self, open_provider: OpenProvider) -> None:
        """Two servers use one account. A machine of the other is not listed, or with its owner."""

        async def story() -> None:
            async with self.renting(open_provider) as ours, self.renting(open_provider, OTHER) as theirs:
                mine = await self.made(ours, self.an_order())
                others = await self.made(theirs, self.an_order(owner=OTHER))
                assert mine != others
                assert [each.id for each in await self.mine(ours)] == [mine]
                assert [each.id for each in await self.mine(theirs, OTHER)] == [others]
                for listing, owner in ((await ours.list(), OWNER), (await theirs.list(), OTHER)):
                    for each in listing.machines:
                        assert (each.id == mine) == (each.owner == OWNER), each
                        assert each.owner, f"the provider of {owner} does not know whose {each.id} is"

        self.play(story())

    # --- the contract: listing

    def test_a_listing_tells_when_it_began_and_that_it_is_whole(self, open_provider: OpenProvider) -> None:
        """What a listing does not show counts as gone only if it was made before the listing began."""

        async def story() -> None:
            async with self.renting(open_provider) as provider:
                before = time.time_ns()
                listing = await provider.list()
                assert before <= listing.began <= time.time_ns()
                assert (listing.whole, listing.why) == (True, "")
                await self.made(provider, self.an_order())
                listed = await self.only(provider)
                if listed.at is not None:
                    assert abs(listed.at - time.time_ns()) < 10 * MINUTE

        self.play(story())

    def test_a_listing_without_one_of_its_parts_says_so(self, open_provider: OpenProvider) -> None:
        """A machine that is missing from it may exist."""
        self.needs(Fault.PARTIAL)

        async def story() -> None:
            async with self.renting(open_provider) as provider:
                self.provoke(Fault.PARTIAL)
                listing = await provider.list()
                assert not listing.whole
                check_line(listing.why)
                self.mend()
                assert (await provider.list()).whole

        self.play(story())

    def test_a_machine_without_tags_is_found_by_its_name(self, open_provider: OpenProvider) -> None:
        """Tags can be removed by hand, and a machine that is not found is paid for ever."""
        self.needs(Fault.LOST_TAGS)

        async def story() -> None:
            async with self.renting(open_provider) as provider:
                order = self.an_order()
                id_ = await self.made(provider, order)
                self.provoke(Fault.LOST_TAGS)
                (listed,) = [each for each in (await provider.list()).machines if each.id == id_]
                assert (listed.machine, listed.owner, listed.name) == ("", "", order.name)

        self.play(story())

    def test_a_machine_that_was_taken_back_is_not_listed_as_running(
        self, open_provider: OpenProvider
    ) -> None:
        """If it is listed at all, then as interrupted."""
        self.needs(Fault.TAKEN_BACK)

        async def story() -> None:
            async with self.renting(open_provider) as provider:
                await self.made(provider, self.an_order())
                self.provoke(Fault.TAKEN_BACK)
                assert not await self.mine(provider)
                assert all(each.interrupted for each in (await provider.list()).machines)

        self.play(story())

    # --- the contract: destroying

    def test_a_destroyed_machine_is_gone_and_can_be_destroyed_again(
        self, open_provider: OpenProvider
    ) -> None:
        """Others stay. One that is gone, or never was, counts as destroyed."""

        async def story() -> None:
            async with self.renting(open_provider) as provider:
                first, second = [await self.made(provider, self.an_order(number)) for number in (1, 2)]
                assert not await provider.destroy([first])
                assert [each.id for each in await self.mine(provider)] == [second]
                assert not await provider.destroy([first, second]), "one of them was destroyed before"
                await self.until_gone(provider, {first, second})
                assert not await provider.destroy([first])
                assert not await provider.destroy([])

        self.play(story())

    def test_an_unknown_id_counts_as_destroyed(self, open_provider: OpenProvider) -> None:
        """Also beside one that exists, which is destroyed."""

        async def story() -> None:
            async with self.renting(open_provider) as provider:
                gone = await self.made(provider, self.an_order(1))
                await provider.destroy([gone])
                await self.until_gone(provider, {gone})
                id_ = await self.made(provider, self.an_order(2))
                unknown = self.unknown_id(id_)
                assert not await provider.destroy([unknown])
                assert not await provider.destroy([unknown, id_, gone])
                await self.until_gone(provider, {id_})

        self.play(story())

    def unknown_id(self, known: str) -> str:
        """Return an id of the form that this provider uses, of no machine. Override it if digits have a meaning."""
        flipped = known.translate(str.maketrans("0123456789", "9876543210"))
        return flipped if flipped != known else f"{known}x"

    def test_the_token_of_a_destroyed_machine_makes_no_other(self, open_provider: OpenProvider) -> None:
        """An old leader may send its order late."""
        if not self.remembers:
            pytest.skip(f"{type(self).__name__} forgets tokens of machines that are gone")

        async def story() -> None:
            async with self.renting(open_provider) as provider:
                id_ = await self.made(provider, self.an_order())
                await provider.destroy([id_])
                await self.until_gone(provider, {id_})
                answer = await provider.create(self.an_order())
                assert isinstance(answer, Refused) or (isinstance(answer, Made) and answer.id == id_), answer
                assert not await self.mine(provider)

        self.play(story())

    def test_why_a_machine_was_not_destroyed_is_told(self, open_provider: OpenProvider) -> None:
        """It is tried again, and shown to people."""
        self.needs(Fault.REFUSED_DESTROY)

        async def story() -> None:
            async with self.renting(open_provider) as provider:
                id_ = await self.made(provider, self.an_order())
                self.provoke(Fault.REFUSED_DESTROY)
                left = await provider.destroy([id_])
                assert [*left] == [id_]
                check_line(left[id_])
                assert [each.id for each in await self.mine(provider)] == [id_]

        self.play(story())

    # --- the contract: refusals and lost answers

    @pytest.mark.parametrize("fault", REFUSALS)
    def test_a_refused_order_makes_nothing_and_says_why(
        self, open_provider: OpenProvider, fault: Fault
    ) -> None:
        """What is done next depends on the cause: another offer, another zone, or a person."""
        self.needs(fault)

        async def story() -> None:
            async with self.renting(open_provider) as provider:
                self.provoke(fault)
                answer = await provider.create(self.an_order())
                assert isinstance(answer, Refused), answer
                assert answer.cause is RefusalCause(fault)
                check_line(answer.why)
                self.mend()
                assert not await self.mine(provider)
                await self.made(provider, self.an_order(2))

        self.play(story())

    @pytest.mark.parametrize("fault", [Fault.THROTTLED, Fault.UNREACHABLE])
    def test_an_order_that_did_not_arrive_can_be_repeated(
        self, open_provider: OpenProvider, fault: Fault
    ) -> None:
        """If the provider cannot be sure that it did not arrive, the answer is unknown."""
        self.needs(fault)

        async def story() -> None:
            async with self.renting(open_provider) as provider:
                self.provoke(fault)
                answer = await provider.create(self.an_order())
                check_line(_not_now(answer).why)
                self.mend()
                assert not await self.mine(provider)
                id_ = await self.made(provider, self.an_order())
                assert [each.id for each in await self.mine(provider)] == [id_]

        self.play(story())

    def test_a_provider_that_does_not_answer_raises_for_listing_and_destroying(
        self, open_provider: OpenProvider
    ) -> None:
        """An empty listing would look as if everything were gone."""
        self.needs(Fault.UNREACHABLE)

        async def story() -> None:
            async with self.renting(open_provider) as provider:
                id_ = await self.made(provider, self.an_order())
                self.provoke(Fault.UNREACHABLE)
                listing: Listing | None = None
                with pytest.raises(ProviderError) as listed:
                    listing = await provider.list()
                check_line(str(listed.value))
                assert listing is None
                with pytest.raises(ProviderError) as destroyed:
                    await provider.destroy([id_])
                check_line(str(destroyed.value))
                self.mend()
                assert [each.id for each in await self.mine(provider)] == [id_]

        self.play(story())

    @pytest.mark.parametrize("fault", [Fault.LOST_ANSWER, Fault.LOST_REQUEST])
    def test_an_order_without_answer_is_repeated_and_makes_one_machine(
        self, open_provider: OpenProvider, fault: Fault
    ) -> None:
        """The machine may exist, so nothing else than the same token is safe."""
        self.needs(fault)

        async def story() -> None:
            async with self.renting(open_provider) as provider:
                self.provoke(fault)
                answer = await provider.create(self.an_order())
                assert isinstance(answer, Unknown), answer
                check_line(answer.why)
                assert len(await self.mine(provider)) == (fault is Fault.LOST_ANSWER)
                id_ = await self.made(provider, self.an_order())
                assert [each.id for each in await self.mine(provider)] == [id_]

        self.play(story())

    # --- the contract: offers and prices

    def test_an_offer_that_can_be_rented_passes_the_check(self, open_provider: OpenProvider) -> None:
        """The server checks offers when it starts, and creates nothing for that."""

        async def story() -> None:
            async with self.renting(open_provider) as provider:
                assert not list(await provider.check([self.offer]))
                assert not await self.mine(provider)

        self.play(story())

    def test_an_offer_that_cannot_be_rented_is_told_in_one_line(self, open_provider: OpenProvider) -> None:
        """The line says what to do."""
        if self.bad_offer is None:
            pytest.skip(f"{type(self).__name__} has no offer that cannot be rented")
        bad = self.bad_offer

        async def story() -> None:
            async with self.renting(open_provider) as provider:
                lines = list(await provider.check([self.offer, bad]))
                assert lines
                for line in lines:
                    check_line(line)

        self.play(story())

    def test_prices_are_those_of_the_offers(self, open_provider: OpenProvider) -> None:
        """A provider that does not state prices returns none."""

        async def story() -> None:
            async with self.renting(open_provider) as provider:
                for price in await provider.prices([self.offer]):
                    assert price.type == self.offer.type
                    assert price.hour > 0

        self.play(story())

    def test_a_provider_can_be_closed_twice_and_without_use(self, open_provider: OpenProvider) -> None:
        """As after the check of a configuration."""

        async def story() -> None:
            provider = open_provider(OWNER)
            await provider.close()
            await provider.close()

        self.play(story())


_JOIN_BY: Final = time.time_ns() + HOUR
"""The same for all orders, as an order is repeated unchanged."""
_LONGEST: Final = 1000
"""Most characters of a line for people."""


def _not_now(answer: Created) -> NotNow | Unknown:
    assert isinstance(answer, NotNow | Unknown), answer
    if isinstance(answer, NotNow):
        assert 0 <= answer.after < HOUR / SECOND
    return answer


def check_line(line: str) -> None:
    """Check a text for people: one line that says something."""
    assert line.strip() == line
    assert line
    assert line.isprintable(), repr(line)
    assert len(line) <= _LONGEST
