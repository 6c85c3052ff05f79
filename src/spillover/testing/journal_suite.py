"""Checks the contract of journals, for any store."""

import pytest

from spillover.model.ids import JobId
from spillover.ports.journal import Batch, Changed, Fenced, Mentions, Moved, Stored, mark_of
from spillover.stores.store import Store
from spillover.stores.tail import PAGE_RECORDS
from spillover.testing.stores import Opener, a_batch, a_finished, events_of, lead, records_of, tail_of


class JournalSuite:
    """The contract of `Journal`."""

    @pytest.fixture
    async def store(self, opener: Opener) -> Store:
        """Open a store and take the lead, with epoch 1."""
        store = await opener()
        assert await lead(store) == 1
        return store

    async def test_an_empty_journal_ends_at_zero(self, opener: Opener) -> None:
        """There is nothing to read."""
        journal = (await opener()).journal
        loaded = await journal.load()
        assert (loaded.checkpoint, await records_of(journal), loaded.last) == (0, [], 0)
        assert await tail_of(journal) == []
        assert await journal.oldest() == 1
        assert await journal.blobs([b"none"]) == {}

    async def test_events_come_back_in_order_with_their_time(self, store: Store) -> None:
        """Revisions count events from 1, across batches."""
        assert await store.journal.append(0, a_batch(b"a", b"b", at=5), 1) == 2
        assert await store.journal.append(2, a_batch(b"", at=4), 1) == 3
        assert await tail_of(store.journal) == [
            Stored(revision=1, at=5, event=b"a"),
            Stored(revision=2, at=5, event=b"b"),
            Stored(revision=3, at=4, event=b""),
        ]
        assert (await store.journal.load()).last == 3

    async def test_a_tail_starts_within_a_batch_and_stops_at_its_limit(self, store: Store) -> None:
        """Readers do not see how events were batched."""
        await store.journal.append(0, a_batch(b"a", b"b", b"c"), 1)
        await store.journal.append(3, a_batch(b"d", b"e"), 1)
        assert await events_of(store.journal, after=1, limit=3) == [(2, b"b"), (3, b"c"), (4, b"d")]
        assert await events_of(store.journal, after=4) == [(5, b"e")]
        assert await events_of(store.journal, after=5) == []
        assert await events_of(store.journal, after=99) == []
        assert await events_of(store.journal, limit=0) == []

    async def test_many_and_large_batches_are_read_whole(self, store: Store) -> None:
        """More than a page of rows, and more than a page of bytes."""
        revision = await store.journal.append(
            0, a_batch(*[bytes([n % 256]) * 1000 for n in range(10_000)]), 1
        )
        for n in range(1_100):
            revision = await store.journal.append(revision, a_batch(b"%d" % n), 1)
        read = await events_of(store.journal)
        assert [number for number, _ in read] == list(range(1, 11_101))
        assert read[9_999][1] == bytes([9_999 % 256]) * 1000
        assert [event for _, event in read[10_000:]] == [b"%d" % n for n in range(1_100)]

    async def test_any_number_of_events_and_blobs_is_forgotten(self, store: Store) -> None:
        """Even if that takes several steps, or one batch is larger than a step."""
        await store.journal.append(0, a_batch(*[b""] * 25_000), 1)
        await store.journal.append(25_000, a_batch(*[b""] * 15_000), 1)
        await store.journal.append(40_000, a_batch(*[b""] * 15_000), 1)
        blobs = {b"%d" % number: b"" for number in range(4_500)}
        await store.journal.append(55_000, a_batch(b"", blobs=blobs), 1)
        await store.journal.checkpoint(Changed(revision=55_001, records={}), 1)
        assert await store.journal.compact(55_000, 1) == 55_000
        assert await events_of(store.journal) == [(55_001, b"")]
        assert await store.journal.forget_blobs(frozenset([b"7"]), 1) == 4_499
        assert await store.journal.blobs([b"7", b"8"]) == {b"7": b""}

    async def test_other_servers_see_what_was_appended(self, store: Store, opener: Opener) -> None:
        """A standby reads the same journal."""
        await store.journal.append(0, a_batch(b"a", blobs={b"d": b"blob"}), 1)
        other = await opener()
        assert await events_of(other.journal) == [(1, b"a")]
        assert await other.journal.blobs([b"d"]) == {b"d": b"blob"}

    async def test_the_same_batch_again_gets_the_same_answer(self, store: Store) -> None:
        """A retry after an unknown outcome is safe, even if more events followed."""
        batch = a_batch(b"a", b"b", at=7, blobs={b"d": b"blob"})
        assert await store.journal.append(0, batch, 1) == 2
        assert await store.journal.append(0, batch, 1) == 2
        await store.journal.append(2, a_batch(b"c"), 1)
        assert await store.journal.append(0, batch, 1) == 2
        assert await events_of(store.journal) == [(1, b"a"), (2, b"b"), (3, b"c")]

    @pytest.mark.parametrize(
        ("after", "batch"),
        [
            (0, a_batch(b"a", at=8)),
            (0, a_batch(b"x", at=7)),
            (0, a_batch(b"a", b"b", at=7)),
            (2, a_batch(b"a", at=7)),
            (0, a_batch(at=7)),
        ],
        ids=["another time", "another event", "more events", "past the end", "no events"],
    )
    async def test_an_append_elsewhere_than_at_the_end_is_refused(
        self, store: Store, after: int, batch: Batch
    ) -> None:
        """The writer decided on another state than that of the store."""
        await store.journal.append(0, a_batch(b"a", at=7), 1)
        with pytest.raises(Moved):
            await store.journal.append(after, batch, 1)
        assert await events_of(store.journal) == [(1, b"a")]

    async def test_a_refused_append_leaves_no_blobs(self, store: Store) -> None:
        """All or nothing."""
        with pytest.raises(Moved):
            await store.journal.append(5, a_batch(b"a", blobs={b"d": b"blob"}), 1)
        assert await store.journal.blobs([b"d"]) == {}
        assert await store.journal.append(0, a_batch(b"a"), 1) == 1

    async def test_an_older_epoch_cannot_write(self, store: Store, opener: Opener) -> None:
        """None of its writes has an effect."""
        await store.journal.append(0, a_batch(b"a", blobs={b"d": b"blob"}), 1)
        await store.election.resign(1)
        successor = await opener()
        assert await lead(successor, "two") == 2
        with pytest.raises(Fenced):
            await store.journal.append(1, a_batch(b"b"), 1)
        with pytest.raises(Fenced):
            await store.journal.append(0, a_batch(b"a"), 1)
        with pytest.raises(Fenced):
            await store.journal.checkpoint(Changed(revision=1, records={("job", "a"): b"1"}), 1)
        with pytest.raises(Fenced):
            await store.journal.compact(1, 1)
        with pytest.raises(Fenced):
            await store.journal.forget_blobs(frozenset(), 1)
        with pytest.raises(Fenced):
            await store.archive.put([a_finished()], 1)
        with pytest.raises(Fenced):
            await store.archive.forget(10**18, 1)
        assert await events_of(successor.journal) == [(1, b"a")]
        assert await successor.journal.append(1, a_batch(b"b"), 2) == 2
        assert (await successor.journal.load()).checkpoint == 0
        assert await successor.archive.count() == 0

    async def test_an_epoch_that_was_never_taken_cannot_write(self, store: Store) -> None:
        """For example, after a restore of older data."""
        with pytest.raises(Fenced):
            await store.journal.append(0, a_batch(b"a"), 2)

    async def test_a_checkpoint_replaces_adds_and_removes_records(self, store: Store) -> None:
        """A checkpoint contains only changes."""
        await store.journal.append(0, a_batch(b"a", b"b"), 1)
        await store.journal.checkpoint(
            Changed(
                revision=1,
                records={("job", "a"): b"1", ("job", "b"): b"2", ("lane", "a"): b"", ("x", "y"): None},
            ),
            1,
        )
        await store.journal.checkpoint(
            Changed(revision=2, records={("job", "a"): b"3", ("job", "b"): None, ("job", "c"): b"4"}), 1
        )
        loaded = await store.journal.load()
        assert await records_of(store.journal) == [("job", "a", b"3"), ("job", "c", b"4"), ("lane", "a", b"")]
        assert (loaded.checkpoint, loaded.last) == (2, 2)

    async def test_records_are_read_in_pages_and_in_order(self, store: Store) -> None:
        """Regardless of their number."""
        await store.journal.append(0, a_batch(b"a"), 1)
        wanted = {(kind, f"{n:05}"): b"%d" % n for kind in ("job", "node") for n in range(PAGE_RECORDS)}
        await store.journal.checkpoint(Changed(revision=1, records=wanted | {("facts", ""): b"f"}), 1)
        assert await records_of(store.journal) == [
            ("facts", "", b"f"),
            *((*key, body) for key, body in wanted.items()),
        ]
        assert (await store.journal.load()).count == 2 * PAGE_RECORDS + 1

    async def test_a_reader_of_records_that_are_replaced_is_told(self, store: Store) -> None:
        """A reader never combines records of two checkpoints."""
        await store.journal.append(0, a_batch(b"a", b"b"), 1)
        records = {("job", f"{n:05}"): b"1" for n in range(PAGE_RECORDS + 1)}
        await store.journal.checkpoint(Changed(revision=1, records=records), 1)
        reader = store.journal.records(1)
        assert len(await anext(reader)) == PAGE_RECORDS
        await store.journal.checkpoint(Changed(revision=2, records={("job", "00000"): b"2"}), 1)
        with pytest.raises(Moved):
            await anext(reader)

    async def test_a_checkpoint_that_goes_back_or_ahead_is_refused(self, store: Store) -> None:
        """The next start would lose or repeat events."""
        await store.journal.append(0, a_batch(b"a", b"b"), 1)
        await store.journal.checkpoint(Changed(revision=2, records={}), 1)
        for revision in (1, 3):
            with pytest.raises(Moved):
                await store.journal.checkpoint(Changed(revision=revision, records={("job", "a"): b"1"}), 1)
        assert await records_of(store.journal) == []

    async def test_staged_records_count_once_their_checkpoint_is_there(
        self, store: Store, opener: Opener
    ) -> None:
        """A server stages many records in advance; a start before the checkpoint does not see them."""
        journal = store.journal
        await journal.append(0, a_batch(b"a", b"b", b"c"), 1)
        many = {("job", f"{number}"): b"1" for number in range(5_000)}
        await journal.checkpoint(Changed(revision=1, records={**many, ("lane", "a"): b"old"}), 1)
        before = await records_of(journal)
        await journal.stage({("job", "7"): b"dropped", ("lane", "b"): b"dropped"}, 1, anew=True)
        await journal.stage(dict.fromkeys(many, b"2"), 1, anew=True)
        await journal.stage({("job", "8"): None, ("lane", "a"): None, ("job", "9"): b"3"}, 1, anew=False)
        assert await records_of((await opener()).journal) == before
        last: dict[tuple[str, str], bytes | None] = {
            ("job", "8"): b"4",
            ("job", "10"): None,
            ("x", "y"): None,
        }
        await journal.checkpoint(Changed(revision=3, records=last, staged=True), 1)
        expected = {**dict.fromkeys(many, b"2"), ("job", "9"): b"3", ("job", "8"): b"4"}
        del expected["job", "10"]
        for reader in (journal, (await opener()).journal):
            loaded = await reader.load()
            assert (loaded.checkpoint, loaded.last) == (3, 3)
            assert {(kind, key): body for kind, key, body in await records_of(reader)} == expected

    async def test_what_was_staged_for_no_checkpoint_is_in_none(self, store: Store, opener: Opener) -> None:
        """For example, records of a server that stopped meanwhile."""
        await store.journal.append(0, a_batch(b"a", b"b"), 1)
        await store.journal.stage({("job", "a"): b"1", ("job", "b"): b"1"}, 1, anew=True)
        await store.election.resign(1)
        successor = await opener()
        assert await lead(successor, "two") == 2
        with pytest.raises(Fenced):
            await store.journal.stage({("job", "c"): b"1"}, 1, anew=False)
        await successor.journal.checkpoint(Changed(revision=1, records={("job", "a"): b"2"}), 2)
        assert await records_of(successor.journal) == [("job", "a", b"2")]
        await successor.journal.stage({("job", "d"): b"1"}, 2, anew=True)
        await successor.journal.checkpoint(Changed(revision=2, records={}, staged=True), 2)
        assert await records_of(successor.journal) == [("job", "a", b"2"), ("job", "d", b"1")]

    async def test_events_are_found_by_the_job_that_they_are_about(
        self, store: Store, opener: Opener
    ) -> None:
        """As far as they are indexed and retained."""
        journal = store.journal
        for after in (0, 3, 6):
            await journal.append(after, a_batch(b"a", b"b", b"c"), 1)
        marks = [mark_of(f"job-{number}") for number in range(1_000)]
        assert await journal.indexed() == 0
        assert await journal.mentioned(marks[0], 0) == []
        first = sorted([*(mark << 32 | 2 for mark in marks), marks[7] << 32 | 1, marks[7] << 32 | 3])
        await journal.index(Mentions(0, 3, first), 1)
        await journal.index(Mentions(3, 4, []), 1)
        await journal.index(Mentions(4, 8, [marks[7] << 32 | 3]), 1)
        for after, upto in ((3, 9), (8, 10), (9, 9)):
            with pytest.raises(Moved):
                await journal.index(Mentions(after, upto, []), 1)
        for reader in (journal, (await opener()).journal):
            assert await reader.indexed() == 8
            assert await reader.mentioned(marks[7], 0) == [1, 2, 3, 7]
            assert await reader.mentioned(marks[7], 1) == [2, 3, 7]
            assert await reader.mentioned(marks[7], 7) == []
            assert [await reader.mentioned(mark, 0) for mark in marks[:7]] == [[2]] * 7
            assert await reader.mentioned(mark_of("another"), 0) == []
        await journal.checkpoint(Changed(revision=9, records={}), 1)
        await journal.compact(6, 1)
        assert await journal.mentioned(marks[7], 0) == [7]
        await journal.compact(9, 1)
        assert await journal.mentioned(marks[7], 0) == []
        assert await journal.indexed() == 9
        with pytest.raises(Fenced):
            await journal.index(Mentions(9, 9, []), 2)

    async def test_compaction_forgets_whole_batches_up_to_the_checkpoint(self, store: Store) -> None:
        """Compaction keeps everything that a start needs."""
        await store.journal.append(0, a_batch(b"a", b"b"), 1)
        await store.journal.append(2, a_batch(b"c", b"d"), 1)
        await store.journal.append(4, a_batch(b"e"), 1)
        assert await store.journal.compact(5, 1) == 0
        await store.journal.checkpoint(Changed(revision=3, records={}), 1)
        assert await store.journal.compact(1, 1) == 0
        assert await store.journal.compact(99, 1) == 2
        assert await store.journal.compact(99, 1) == 0
        assert await store.journal.oldest() == 3
        assert await events_of(store.journal) == [(3, b"c"), (4, b"d"), (5, b"e")]
        assert await events_of(store.journal, limit=2) == [(3, b"c"), (4, b"d")]

    async def test_a_journal_that_is_compacted_away_goes_on_where_it_ended(
        self, store: Store, opener: Opener
    ) -> None:
        """No revision is used twice."""
        await store.journal.append(0, a_batch(b"a", b"b"), 1)
        await store.journal.checkpoint(Changed(revision=2, records={}), 1)
        assert await store.journal.compact(2, 1) == 2
        other = await opener()
        assert (await other.journal.load()).last == 2
        assert await other.journal.oldest() == 3
        assert await tail_of(other.journal) == []
        assert await store.journal.append(2, a_batch(b"c"), 1) == 3
        assert await events_of(other.journal) == [(3, b"c")]

    async def test_a_reader_overtaken_by_compaction_is_told(self, store: Store) -> None:
        """A gap is never silent."""
        large = b"x" * (3 << 20)
        for n in range(4):
            await store.journal.append(n, a_batch(large), 1)
        reader = store.journal.tail(0)
        assert (await anext(reader)).revision == 1
        await store.journal.checkpoint(Changed(revision=4, records={}), 1)
        await store.journal.compact(3, 1)
        revisions = [1]
        try:
            async for stored in reader:
                revisions.append(stored.revision)  # noqa: PERF401 - keeps what came before Moved
        except Moved:
            assert revisions == list(range(1, len(revisions) + 1))
        else:  # the reader had read ahead
            assert revisions == [1, 2, 3, 4]

    async def test_blobs_go_when_nothing_needs_them(self, store: Store) -> None:
        """The caller, the archive and events after the checkpoint keep blobs."""
        await store.journal.append(0, a_batch(b"a", blobs={b"1": b"x", b"2": b"y", b"3": b"z"}), 1)
        await store.archive.put([a_finished(spec=b"2")], 1)
        assert await store.journal.forget_blobs(frozenset(), 1) == 0
        await store.journal.checkpoint(Changed(revision=1, records={}), 1)
        assert await store.journal.forget_blobs(frozenset([b"3"]), 1) == 1
        assert await store.journal.blobs([b"1", b"2", b"3"]) == {b"2": b"y", b"3": b"z"}
        await store.journal.append(1, a_batch(b"b", blobs={b"3": b"z"}), 1)
        assert await store.journal.forget_blobs(frozenset(), 1) == 0
        await store.archive.forget(10**18, 1)
        await store.journal.checkpoint(Changed(revision=2, records={}), 1)
        assert await store.journal.forget_blobs(frozenset(), 1) == 2

    async def test_data_outlive_their_server(self, opener: Opener) -> None:
        """Everything acknowledged is there after a restart."""
        first = await opener()
        epoch = await lead(first)
        await first.journal.append(0, a_batch(b"a", b"b", blobs={b"d": b"blob"}), epoch)
        await first.journal.checkpoint(Changed(revision=1, records={("job", "a"): b"1"}), epoch)
        await first.archive.put([a_finished()], epoch)
        await first.election.resign(epoch)
        await first.close()
        await first.close()
        second = await opener()
        loaded = await second.journal.load()
        assert (loaded.checkpoint, loaded.last) == (1, 2)
        assert await records_of(second.journal) == [("job", "a", b"1")]
        assert await events_of(second.journal, 1) == [(2, b"b")]
        assert await second.archive.get(JobId("aaaaaaaaaaaa")) == a_finished()
        assert await lead(second) == epoch + 1
