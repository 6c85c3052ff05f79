"""Checks the contract of outboxes, for any store."""

from typing import Any

import pytest
from msgspec.structs import replace

from spillover.ports.journal import Fenced, Moved
from spillover.ports.outbox import Message, OutboxQuery, Waiting
from spillover.stores.store import Store
from spillover.testing.stores import Opener, a_batch, lead


def a_message(name: str, channel: str = "mail", **changes: Any) -> Message:
    """Return a message with a value in all fields; `changes` replaces values."""
    fields: dict[str, Any] = {
        "to": "ada@example.org",
        "project": "vision",
        "at": 10,
        "body": b'{"text": "\xe2\x98\x83"}',
        "due": 20,
    }
    return Message(id=name, channel=channel, **(fields | changes))


class OutboxSuite:
    """The contract of `Outbox`."""

    @pytest.fixture
    async def store(self, opener: Opener) -> Store:
        """Open a store with nine events and take the lead, with epoch 1."""
        store = await opener()
        assert await lead(store) == 1
        await store.journal.append(0, a_batch(*[b"event"] * 9), 1)
        return store

    async def test_messages_wait_in_the_order_in_which_they_were_written(
        self, store: Store, opener: Opener
    ) -> None:
        """Those of each channel for themselves, for every reader of the same data, whenever they are due."""
        odd = a_message(
            "d", to="chat", project="", body=b"\x00\xff", at=5, due=99, error="it's\tbusy", tries=3
        )
        early, late, other = a_message("b", due=30), a_message("c"), a_message("a", "webhook/chat")
        await store.outbox.put(0, 4, [late, early, other], 1)
        await store.outbox.add([odd], 1)
        for reader in (store.outbox, (await opener()).outbox):
            assert await reader.noted() == 4
            assert await reader.next("mail", 10) == [odd, early, late]
            assert await reader.next("mail", 1) == [odd]
            assert await reader.next("mail", 1, (odd.at, odd.id)) == [early]
            assert await reader.next("mail", 10, (early.at, early.id)) == [late]
            assert await reader.next("mail", 10, (late.at, late.id)) == []
            assert await reader.next("webhook/chat", 10) == [other]
            assert await reader.next("webhook/none", 10) == []
            assert sorted(await reader.some(["b", "d", "x"]), key=lambda each: each.id) == [early, odd]

    async def test_a_message_that_must_wait_stays_before_later_ones(self, store: Store) -> None:
        """A try that failed moves when it is due, and not its place."""
        first, second = a_message("b", at=10), a_message("a", at=11)
        await store.outbox.add([first, second], 1)
        tried = replace(first, due=500, tries=1, error="no answer")
        await store.outbox.change([tried], 1)
        assert await store.outbox.next("mail", 10) == [tried, second]

    async def test_no_revision_is_looked_at_twice_or_left_out(self, store: Store) -> None:
        """A span starts where the last one ended, and ends within the journal; else nothing is added."""
        await store.outbox.put(0, 3, [], 1)
        for after, upto in ((0, 3), (2, 5), (4, 5), (3, 10), (3, 2)):
            with pytest.raises(Moved):
                await store.outbox.put(after, upto, [a_message("a")], 1)
        assert await store.outbox.noted() == 3
        assert await store.outbox.page(OutboxQuery()) == []
        await store.outbox.put(3, 9, [a_message("a")], 1)
        assert await store.outbox.page(OutboxQuery()) == [a_message("a")]

    async def test_a_message_is_added_once(self, store: Store) -> None:
        """A second one under its id changes nothing."""
        first = a_message("a", tries=2)
        await store.outbox.add([first], 1)
        await store.outbox.put(0, 1, [a_message("a", tries=0), a_message("b")], 1)
        assert await store.outbox.some(["a"]) == [first]
        assert len(await store.outbox.page(OutboxQuery())) == 2

    async def test_a_failed_message_stays_and_is_not_next(self, store: Store) -> None:
        """Until it is changed again. What people wrote in it never changes."""
        await store.outbox.add([a_message("a"), a_message("b")], 1)
        failed = replace(a_message("a"), due=99, tries=9, failed=True, error="no such mailbox")
        await store.outbox.change(
            [replace(failed, body=b"other", to="eve@example.org"), a_message("gone")], 1
        )
        assert await store.outbox.next("mail", 10) == [a_message("b")]
        assert await store.outbox.page(OutboxQuery(failed=True)) == [failed]
        assert await store.outbox.page(OutboxQuery(failed=False)) == [a_message("b")]
        assert await store.outbox.counts() == [Waiting("mail", 1, 1)]
        await store.outbox.change([replace(failed, failed=False, due=1)], 1)
        assert [each.id for each in await store.outbox.next("mail", 10)] == ["a", "b"]

    async def test_lists_have_the_newest_first_in_pages(self, store: Store) -> None:
        """Also if several messages have the same time."""
        at = 1_800_000_000_000_000_000
        await store.outbox.add([a_message(name, at=at + name.isupper()) for name in "abcDE"], 1)
        first = await store.outbox.page(OutboxQuery(limit=3))
        last = first[-1]
        then = await store.outbox.page(OutboxQuery(before=(last.at, last.id), limit=3))
        assert [each.id for each in (*first, *then)] == ["E", "D", "c", "b", "a"]

    async def test_what_is_sent_is_removed(self, store: Store) -> None:
        """One that is not there does no harm."""
        await store.outbox.add([a_message("a"), a_message("b", "webhook/chat")], 1)
        assert await store.outbox.counts() == [Waiting("mail", 1, 0), Waiting("webhook/chat", 1, 0)]
        await store.outbox.remove(["a", "gone"], 1)
        assert [each.id for each in await store.outbox.page(OutboxQuery())] == ["b"]
        await store.outbox.remove(["b"], 1)
        assert await store.outbox.counts() == []

    async def test_only_failed_messages_are_forgotten(self, store: Store) -> None:
        """Those that failed long ago, and the oldest beyond a number."""
        waiting = a_message("w", due=1)
        failed = [a_message(f"f{at}", at=at, due=at, failed=True) for at in range(6)]
        await store.outbox.add([waiting, *failed], 1)
        assert await store.outbox.forget(2, 3, 1) == 3
        assert await store.outbox.forget(2, 3, 1) == 0
        left = [each.id for each in await store.outbox.page(OutboxQuery(failed=True))]
        assert left == ["f5", "f4", "f3"]
        assert await store.outbox.next("mail", 10) == [waiting]

    async def test_an_old_leader_cannot_write(self, store: Store, opener: Opener) -> None:
        """Nor change or remove anything."""
        await store.outbox.add([a_message("a")], 1)
        await store.election.resign(1)
        assert await lead(await opener()) == 2
        for attempt in (
            store.outbox.put(0, 1, [], 1),
            store.outbox.add([a_message("b")], 1),
            store.outbox.change([a_message("a", tries=5)], 1),
            store.outbox.remove(["a"], 1),
            store.outbox.forget(100, 0, 1),
        ):
            with pytest.raises(Fenced):
                await attempt
        assert await store.outbox.page(OutboxQuery()) == [a_message("a")]
