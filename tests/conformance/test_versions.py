"""Data of every version that was ever written can be opened; newer ones are refused with a clear line."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import apsw
import asyncpg
import msgspec
import pytest

from spillover.model.job import Shape
from spillover.model.resources import Resources
from spillover.model.units import SECOND
from spillover.ports.archive import Amounts, Query, Spent, UsageQuery
from spillover.ports.audit import AuditEntry, AuditQuery
from spillover.ports.journal import Changed, Mentions, TooNew, Unreadable, mark_of
from spillover.ports.outbox import OutboxQuery
from spillover.stores.open import open_store
from spillover.stores.store import Store
from spillover.testing.stores import a_batch, a_finished, events_of, lead, records_of, tail_of
from tests.support.postgresql import PostgresqlServer

FIXTURES = Path(__file__).parent.parent / "fixtures"
OLD = FIXTURES / "store-version-0"
BORN = 1_700_000_000_000_000_000


class Old:
    """Data of version 0 in one kind of store."""

    def __init__(self, where: str, folder: Path, execute: Callable[[str], Awaitable[None]]) -> None:
        self.where = where
        self.folder = folder
        self.execute = execute

    async def open(self) -> Store:
        return await open_store(self.where, self.folder)


async def _sqlite(request: pytest.FixtureRequest) -> Old:
    folder: Path = request.getfixturevalue("tmp_path")

    async def execute(sql: str) -> None:
        connection = apsw.Connection(str(folder / "spill.db"))
        connection.execute(sql).fetchall()
        connection.close()

    return Old("sqlite", folder, execute)


async def _postgresql(request: pytest.FixtureRequest) -> Old:
    server: PostgresqlServer = request.getfixturevalue("postgresql")
    url = await server.fresh()

    async def execute(sql: str) -> None:
        connection = await asyncpg.connect(url, server_settings={"search_path": "spillover"})
        await connection.execute(sql)
        await connection.close()

    return Old(url, request.getfixturevalue("tmp_path"), execute)


@pytest.fixture(params=[_sqlite, _postgresql], ids=["sqlite", "postgresql"])
async def old_1(request: pytest.FixtureRequest) -> Old:
    """Data of version 1."""
    data: Old = await request.param(request)
    kind = "sqlite" if data.where == "sqlite" else "postgresql"
    await data.execute((FIXTURES / "store-version-1" / f"{kind}.sql").read_text())
    return data


@pytest.fixture(params=[_sqlite, _postgresql], ids=["sqlite", "postgresql"])
async def old_2(request: pytest.FixtureRequest) -> Old:
    """Data of version 2."""
    data: Old = await request.param(request)
    kind = "sqlite" if data.where == "sqlite" else "postgresql"
    await data.execute((FIXTURES / "store-version-2" / f"{kind}.sql").read_text())
    return data


@pytest.fixture(params=[_sqlite, _postgresql], ids=["sqlite", "postgresql"])
async def old_3(request: pytest.FixtureRequest) -> Old:
    """Data of version 3."""
    data: Old = await request.param(request)
    kind = "sqlite" if data.where == "sqlite" else "postgresql"
    await data.execute((FIXTURES / "store-version-3" / f"{kind}.sql").read_text())
    return data


@pytest.fixture(params=[_sqlite, _postgresql], ids=["sqlite", "postgresql"])
async def old_4(request: pytest.FixtureRequest) -> Old:
    """Data of version 4."""
    data: Old = await request.param(request)
    kind = "sqlite" if data.where == "sqlite" else "postgresql"
    await data.execute((FIXTURES / "store-version-4" / f"{kind}.sql").read_text())
    return data


@pytest.fixture(params=[_sqlite, _postgresql], ids=["sqlite", "postgresql"])
async def old_5(request: pytest.FixtureRequest) -> Old:
    """Data of version 5."""
    data: Old = await request.param(request)
    kind = "sqlite" if data.where == "sqlite" else "postgresql"
    await data.execute((FIXTURES / "store-version-5" / f"{kind}.sql").read_text())
    return data


@pytest.fixture(params=[_sqlite, _postgresql], ids=["sqlite", "postgresql"])
async def old_6(request: pytest.FixtureRequest) -> Old:
    """Data of version 6."""
    data: Old = await request.param(request)
    kind = "sqlite" if data.where == "sqlite" else "postgresql"
    await data.execute((FIXTURES / "store-version-6" / f"{kind}.sql").read_text())
    return data


@pytest.fixture(params=[_sqlite, _postgresql], ids=["sqlite", "postgresql"])
async def old(request: pytest.FixtureRequest) -> Old:
    data: Old = await request.param(request)
    kind = "sqlite" if data.where == "sqlite" else "postgresql"
    await data.execute((OLD / f"{kind}.sql").read_text())
    return data


async def test_data_of_version_0_are_upgraded_whole(old: Old) -> None:
    store = await old.open()
    loaded = await store.journal.load()
    assert (loaded.checkpoint, loaded.last) == (5, 8)
    assert [(kind, key) for kind, key, _ in await records_of(store.journal)] == [
        ("clock", "steady"),
        ("job", "bbbbbbbbbbbb"),
    ]
    assert await store.journal.oldest() == 3
    stored = await tail_of(store.journal)
    assert [(event.revision, event.at - BORN) for event in stored] == [
        (3, 1),
        (4, 2),
        (5, 2),
        (6, 2),
        (7, 9),
        (8, 9),
    ]
    assert msgspec.msgpack.decode(stored[0].event) == ["job_held", "bbbbbbbbbbbb", BORN + 1, "ada"]
    assert msgspec.msgpack.decode(stored[5].event) == ["jobs_archived", ["cccccccccccc", "cccccccccccc.1"]]
    assert await store.journal.blobs([b"\x11" * 4, b"\x33" * 4]) == {
        b"\x11" * 4: b"spec one",
        b"\x33" * 4: b"spec three",
    }
    jobs = await store.archive.list(Query(members=True))
    assert [(job.job, job.state, job.usage[0]) for job in jobs] == [
        ("cccccccccccc", "FAILED", 0),
        ("cccccccccccc.1", "CANCELLED", 40),
        ("aaaaaaaaaaaa", "SUCCEEDED", 40),
    ]
    assert jobs[0].shape.needs == ("gpu:a100",)
    assert (jobs[1].name, jobs[1].signal, jobs[1].cost, jobs[1].deadline) == ("it's", 15, 2_500_000, BORN + 1)
    assert (await store.archive.keyed([(jobs[2].project, "nightly")]))[
        jobs[2].project, "nightly"
    ].body == b"\x01\x02"
    await store.close()


async def test_upgraded_data_are_written_like_new_ones_and_upgraded_once(old: Old) -> None:
    store = await old.open()
    epoch = await lead(store)
    assert epoch == 4
    assert await store.journal.append(8, a_batch(b"new"), epoch) == 9
    await store.journal.checkpoint(Changed(revision=9, records={("clock", "steady"): None}), epoch)
    assert await store.journal.compact(8, epoch) == 6
    assert await store.journal.forget_blobs(frozenset(), epoch) == 1
    await store.close()
    again = await old.open()
    assert await events_of(again.journal) == [(9, b"new")]
    assert [key for _, key, _ in await records_of(again.journal)] == ["bbbbbbbbbbbb"]
    await again.close()


async def test_an_upgrade_that_fails_changes_nothing(old: Old) -> None:
    await old.execute("UPDATE archive SET body = substr(body, 1, 5) WHERE job = 'cccccccccccc.1'")
    with pytest.raises(Unreadable, match="a job in the archive of version 0 cannot be read"):
        await old.open()
    await old.execute("DELETE FROM archive WHERE job = 'cccccccccccc.1'")
    store = await old.open()
    assert await store.archive.count() == 2
    assert (await store.journal.load()).last == 8
    await store.close()


async def test_data_of_a_newer_version_are_refused(old: Old) -> None:
    await old.execute("UPDATE meta SET value = '8' WHERE name = 'version'")
    with pytest.raises(
        TooNew, match=r"have version 8; this Spillover supports up to 7; use a newer one"
    ) as refused:
        await old.open()
    if old.where == "sqlite":
        assert str(refused.value).startswith(f"the data in {old.folder} have")
    await old.execute("UPDATE meta SET value = '0' WHERE name = 'version'")
    await (await old.open()).close()


async def test_data_of_version_2_are_written_like_new_ones(old_2: Old) -> None:
    store = await old_2.open()
    journal, epoch = store.journal, await lead(store)
    assert sorted(key for _, key, _ in await records_of(journal)) == ["", "dddddddddddd"]
    assert sum(spent.amount for spent in await store.archive.costs("user", None, [])) == 5_500_000
    assert await journal.indexed() == 2
    await journal.index(Mentions(2, 4, [mark_of("a") << 32 | 2]), epoch)
    assert await journal.mentioned(mark_of("a"), 0) == [4]
    await journal.stage({("job", "dddddddddddd"): None, ("job", "e"): b"1"}, epoch, anew=True)
    await journal.checkpoint(Changed(revision=4, records={}, staged=True), epoch)
    await store.close()
    again = await old_2.open()
    assert sorted(key for _, key, _ in await records_of(again.journal)) == ["", "e"]
    await again.close()


async def test_jobs_of_version_3_are_found_by_their_queue(old_3: Old) -> None:
    store = await old_3.open()
    assert [job.name for job in await store.archive.list(Query(queue="gpu"))] == ["render"]
    others = await store.archive.list(Query(queue="default", members=True))
    assert len(others) == await store.archive.count() - 1 > 0
    await store.close()


async def test_what_jobs_of_version_4_used_is_summed(old_4: Old) -> None:
    store = await old_4.open()
    (film,) = [used for used in await store.archive.usage(UsageQuery(("project",))) if used.keys == ("film",)]
    hours = 3600
    assert (film.cluster, film.jobs, film.cost, film.peak) == ("cloud", 1, 2_500_000, 2 << 30)
    assert film.amounts == Amounts(
        4000 * hours, 1000 * hours, 8192 * hours, 4000 * hours, 2000 * hours, 8192 * hours, 6144 * hours
    )
    await store.close()


async def test_data_of_version_4_get_an_audit_of_the_events_that_are_kept(old_4: Old) -> None:
    store = await old_4.open()
    epoch, last = await lead(store), (await store.journal.load()).last
    audited = await store.audit.audited()
    assert audited == await store.journal.oldest() - 1 < last
    await store.audit.put(audited, last, [AuditEntry(last, BORN, "ada", "job_held", "", "", "held")], epoch)
    await store.close()
    again = await old_4.open()
    assert [entry.user for entry in await again.audit.list(AuditQuery())] == ["ada"]
    await again.close()


async def test_nobody_is_told_of_what_happened_before_version_5(old_4: Old) -> None:
    store = await old_4.open()
    assert await store.outbox.noted() == (await store.journal.load()).last
    assert await store.outbox.page(OutboxQuery()) == []
    await store.close()


async def test_messages_of_version_5_are_sent_in_their_order(old_5: Old) -> None:
    store = await old_5.open()
    assert [each.id for each in await store.outbox.next("webhook/chat", 10)] == ["m1", "m2"]
    assert [each.id for each in await store.outbox.page(OutboxQuery(failed=True))] == ["m0"]
    assert await store.outbox.noted() == (await store.journal.load()).last
    assert sum(used.jobs for used in await store.archive.usage(UsageQuery(("project",)))) > 0
    await store.close()
    again = await old_5.open()
    await again.outbox.remove(["m1"], await lead(again))
    assert [each.id for each in await again.outbox.next("webhook/chat", 10)] == ["m2"]
    await again.close()


async def test_data_of_version_5_from_before_it_had_all_tables_get_them(old_5: Old) -> None:
    """Servers between releases wrote such data."""
    for table in ("audit", "secrets", "outbox"):
        await old_5.execute(f"DROP TABLE {table}")
    await old_5.execute("DELETE FROM meta WHERE name IN ('audited', 'noted')")
    store = await old_5.open()
    assert await store.outbox.noted() == (await store.journal.load()).last
    assert await store.outbox.page(OutboxQuery()) == []
    assert await store.audit.audited() == await store.journal.oldest() - 1
    assert await store.secrets.list() == []
    await store.close()


async def test_the_use_of_gpus_is_kept_beside_usage_of_version_6(old_6: Old) -> None:
    store = await old_6.open()
    before = await store.archive.usage(UsageQuery())
    assert sum(used.jobs for used in before) > 0
    assert {(used.amounts.gpu_measured, used.amounts.gpu_unused) for used in before} == {(0, 0)}
    job = a_finished(
        "zzzzzzzzzzzz",
        99,
        project="gpus",
        paid=(),
        tried=(),
        shape=Shape(Resources(1000, gpu=1)),
        usage=(SECOND, 0, 0),
        gpu=(SECOND // 4, SECOND, 0),
    )
    await store.archive.put([job], await lead(store))
    (after,) = await store.archive.usage(UsageQuery(project="gpus"))
    assert (after.amounts.gpu_measured, after.amounts.gpu_unused) == (1000, 750)
    (kept,) = await store.archive.list(Query(project="gpus"))
    assert kept.gpu == (SECOND // 4, SECOND, 0)
    assert [each.id for each in await store.outbox.next("webhook/chat", 10)] == ["m1", "m2"]
    await store.close()


async def test_what_jobs_of_version_1_cost_is_summed(old_1: Old) -> None:
    store = await old_1.open()
    assert await events_of(store.journal) == [(3, b"one"), (4, b"two")]
    assert await store.archive.costs("cluster", None, []) == [
        Spent("cloud", 3_500_000, 2),
        Spent("spot", 2_000_000, 1),
    ]
    assert await store.archive.costs("project", BORN + 1, []) == [
        Spent("it's", 2_000_000, 1),
        Spent("vision", 1_000_000, 1),
    ]
    assert [job.cost for job in await store.archive.list(Query())] == [3_000_000, 0, 2_500_000]
    await store.close()
    again = await old_1.open()
    assert await again.archive.costs("user", None, []) == [
        Spent("ada", 2_500_000, 1),
        Spent("bob", 3_000_000, 2),
    ]
    await again.close()


async def test_what_jobs_of_version_0_cost_is_summed(old: Old) -> None:
    store = await old.open()
    assert sum(spent.amount for spent in await store.archive.costs("user", None, [])) > 0
    await store.close()
