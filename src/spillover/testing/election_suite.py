"""Checks the contract of elections, for any store."""

import pytest

from spillover.ports.election import Holder
from spillover.ports.journal import Fenced
from spillover.testing.stores import Opener, Watchface, a_batch, lead


class ElectionSuite:
    """The contract of `Election`."""

    async def test_the_first_leads_and_the_second_hears_who(self, opener: Opener) -> None:
        """There is one leader at a time."""
        one, two = await opener(), await opener()
        assert await one.election.holder() is None
        assert await one.election.campaign("one", "http://one") == 1
        expected = Holder(name="one", url="http://one", epoch=1)
        assert await two.election.campaign("two", "http://two") == expected
        assert await two.election.holder() == expected
        assert await one.election.holder() == expected

    async def test_every_start_takes_a_new_epoch(self, opener: Opener) -> None:
        """Even the same server."""
        store = await opener()
        assert await lead(store) == 1
        assert await lead(store) == 2
        assert not await store.election.renew(1)
        assert await store.election.renew(2)

    async def test_an_epoch_can_be_far_above_the_last_one(self, opener: Opener) -> None:
        """A server that starts on a backup is above all that began after it."""
        store = await opener()
        assert await store.election.campaign("one", "", 1_800_000_000) == 1_800_000_000
        assert await store.election.campaign("one", "", 7) == 1_800_000_001
        assert await store.election.renew(1_800_000_001)

    async def test_a_holder_that_renews_is_not_replaced(self, opener: Opener) -> None:
        """No matter how long a contender waits."""
        clock = Watchface()
        one, two = await opener(), await opener(term=10, monotonic=clock)
        await lead(one)
        for _ in range(5):
            assert isinstance(await two.election.campaign("two", ""), Holder)
            assert await one.election.renew(1)
            clock.now += 9

    async def test_a_silent_holder_is_replaced_after_a_term_and_cannot_come_back(
        self, opener: Opener
    ) -> None:
        """The contender measures the term on its own clock, from when it first saw the last renewal."""
        clock = Watchface()
        one, two = await opener(), await opener(term=10, monotonic=clock)
        await lead(one)
        clock.now = 100
        assert isinstance(await two.election.campaign("two", "http://two"), Holder)
        clock.now = 109.9
        assert isinstance(await two.election.campaign("two", "http://two"), Holder)
        clock.now = 110
        assert await two.election.campaign("two", "http://two") == 2
        assert await two.election.renew(2)
        assert not await one.election.renew(1)
        with pytest.raises(Fenced):
            await one.journal.append(0, a_batch(b"a"), 1)
        assert await two.journal.append(0, a_batch(b"a"), 2) == 1
        assert await one.election.campaign("one", "") == Holder(name="two", url="http://two", epoch=2)
        assert await two.election.renew(2)

    async def test_a_replaced_holder_that_campaigns_at_once_does_not_take_the_lead_back(
        self, opener: Opener
    ) -> None:
        """It wakes up before its successor has renewed for the first time."""
        clock = Watchface()
        one, two = await opener(), await opener(term=10, monotonic=clock)
        await lead(one)
        await two.election.campaign("two", "")
        clock.now = 10
        assert await two.election.campaign("two", "") == 2
        assert isinstance(await one.election.campaign("one", ""), Holder)
        assert await two.election.renew(2)

    async def test_resigning_lets_another_lead_at_once(self, opener: Opener) -> None:
        """Without waiting for the end of a term."""
        one, two = await opener(), await opener()
        await lead(one)
        assert isinstance(await two.election.campaign("two", ""), Holder)
        await one.election.resign(1)
        assert await one.election.holder() is None
        assert not await one.election.renew(1)
        assert await two.election.campaign("two", "") == 2

    async def test_resigning_an_epoch_that_is_over_is_harmless(self, opener: Opener) -> None:
        """The successor keeps the lead."""
        one, two = await opener(), await opener()
        await lead(one)
        await one.election.resign(1)
        await lead(two, "two")
        await one.election.resign(1)
        assert await two.election.renew(2)
        assert await two.election.holder() == Holder(name="two", url="http://two", epoch=2)
        assert isinstance(await one.election.campaign("one", ""), Holder)

    async def test_two_successors_do_not_both_lead(self, opener: Opener) -> None:
        """The slower one learns of the faster one, and then waits for a full term."""
        clock = Watchface()
        one = await opener()
        two, three = await opener(term=10, monotonic=clock), await opener(term=10, monotonic=clock)
        await lead(one)
        await two.election.campaign("two", "")
        await three.election.campaign("three", "")
        clock.now = 10
        assert await two.election.campaign("two", "") == 2
        assert await three.election.campaign("three", "") == Holder(name="two", url="", epoch=2)
        clock.now = 20
        assert await three.election.campaign("three", "") == 3
