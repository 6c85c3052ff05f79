"""Checks the contract of audits, for any store."""

from typing import Any

import pytest

from spillover.ports.audit import AuditEntry, AuditQuery
from spillover.ports.journal import Fenced, Moved
from spillover.stores.store import Store
from spillover.testing.stores import Opener, a_batch, lead


def an_entry(revision: int, user: str = "ada", **changes: Any) -> AuditEntry:
    """Return an entry with a value in all fields; `changes` replaces values."""
    fields: dict[str, Any] = {
        "at": revision * 10,
        "type": "job_held",
        "job": "aaaaaaaaaaaa",
        "project": "vision",
        "text": f"held by {user}",
    }
    return AuditEntry(revision=revision, user=user, **(fields | changes))


class AuditSuite:
    """The contract of `Audit`."""

    @pytest.fixture
    async def store(self, opener: Opener) -> Store:
        """Open a store with nine events and take the lead, with epoch 1."""
        store = await opener()
        assert await lead(store) == 1
        await store.journal.append(0, a_batch(*[b"event"] * 9), 1)
        return store

    async def test_entries_come_back_newest_first(self, store: Store, opener: Opener) -> None:
        """To every reader of the same data."""
        odd = an_entry(4, "bo'b", job="", project="", text="\N{SNOWMAN} it's\tdone")
        await store.audit.put(0, 3, [an_entry(1), an_entry(2)], 1)
        await store.audit.put(3, 6, [odd], 1)
        for reader in (store.audit, (await opener()).audit):
            assert await reader.audited() == 6
            assert await reader.list(AuditQuery()) == [odd, an_entry(2), an_entry(1)]

    async def test_each_filter_leaves_out_the_others(self, store: Store) -> None:
        """A job is itself and its members, but no other job whose id begins alike."""
        entries = [
            an_entry(1),
            an_entry(2, "bob"),
            an_entry(3, type="job_submitted"),
            an_entry(4, job="aaaaaaaaaaaa.7"),
            an_entry(5, job="aaaaaaaaaaaab", project="film"),
            an_entry(6, job="", project=""),
        ]
        await store.audit.put(0, 6, entries, 1)

        async def found(**asked: Any) -> list[int]:
            query = AuditQuery(**asked)
            listed = await store.audit.list(query)
            assert listed == [entry for entry in reversed(entries) if query.selects(entry)][: query.limit]
            return [entry.revision for entry in listed]

        assert await found(user="bob") == [2]
        assert await found(type="job_submitted") == [3]
        assert await found(job="aaaaaaaaaaaa") == [4, 3, 2, 1]
        assert await found(job="aaaaaaaaaaaa.7") == [4]
        assert await found(project="film") == [5]
        assert await found(since=40) == [6, 5, 4]
        assert await found(until=30) == [2, 1]
        assert await found(since=30, until=50) == [4, 3]
        assert await found(since=100) == await found(until=10) == await found(user="nobody") == []
        assert await found(user="ada", since=20, until=60, job="aaaaaaaaaaaa") == [4, 3]

    async def test_what_no_store_can_hold_is_not_found(self, store: Store) -> None:
        """Somebody may ask for anything."""
        await store.audit.put(0, 3, [an_entry(1)], 1)
        assert await store.audit.list(AuditQuery(user="a\0b")) == []

    async def test_pages_follow_each_other(self, store: Store) -> None:
        """Also if several entries have the same time."""
        entries = [an_entry(revision, at=7) for revision in range(1, 8)]
        await store.audit.put(0, 7, entries, 1)
        first = await store.audit.list(AuditQuery(since=7, until=8, limit=3))
        then = await store.audit.list(AuditQuery(since=7, until=8, limit=3, before=first[-1].revision))
        last = await store.audit.list(AuditQuery(since=7, until=8, limit=3, before=then[-1].revision))
        assert [entry.revision for entry in (*first, *then, *last)] == [7, 6, 5, 4, 3, 2, 1]

    async def test_no_revision_is_looked_at_twice_or_left_out(self, store: Store) -> None:
        """A span starts where the last one ended, and ends within the journal."""
        await store.audit.put(0, 3, [an_entry(1)], 1)
        for after, upto in ((0, 3), (2, 5), (4, 5), (3, 10), (3, 2)):
            with pytest.raises(Moved):
                await store.audit.put(after, upto, [], 1)
        assert await store.audit.audited() == 3
        await store.audit.put(3, 9, [], 1)
        assert await store.audit.list(AuditQuery()) == [an_entry(1)]

    async def test_old_entries_are_forgotten(self, store: Store) -> None:
        """Those from before a time."""
        await store.audit.put(0, 3, [an_entry(1), an_entry(2), an_entry(3)], 1)
        assert await store.audit.forget(30, 1) == 2
        assert await store.audit.forget(30, 1) == 0
        assert [entry.revision for entry in await store.audit.list(AuditQuery())] == [3]
        assert await store.audit.audited() == 3

    async def test_an_old_leader_cannot_write(self, store: Store, opener: Opener) -> None:
        """Nor forget anything."""
        await store.audit.put(0, 3, [an_entry(1)], 1)
        await store.election.resign(1)
        assert await lead(await opener()) == 2
        with pytest.raises(Fenced):
            await store.audit.put(3, 4, [], 1)
        with pytest.raises(Fenced):
            await store.audit.forget(100, 1)
        assert len(await store.audit.list(AuditQuery())) == 1
