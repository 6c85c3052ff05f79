import asyncio
from functools import partial
from typing import get_args

import pytest

from spillover.control.live.clock import SystemClock
from spillover.control.live.loop import Loop
from spillover.core.events import CounterName
from spillover.core.proposals import DisablePolicy
from spillover.model.job import Burst
from spillover.model.policy import Choice, PolicySet
from spillover.model.units import SECOND
from spillover.policies.loading import load
from spillover.ports.blobs import BlobBounds, TooLarge
from spillover.ports.commands import CommandError
from spillover.ports.journal import Batch, Loaded, Unreadable
from spillover.server.metrics import COUNTERS, Metrics
from spillover.stores.blobs import MemoryBlobs
from spillover.stores.counted import CountedBlobs
from spillover.stores.memory import open_memory
from spillover.testing.blobs_suite import content, digest, keep
from spillover.testing.builders import a_job
from spillover.testing.world import World
from tests.support.live import a_live_loop


@pytest.fixture
def world() -> World:
    """A world with room to rent, at one a CPU-second."""
    world = World(load)
    world.agent("v1", cpus=4, cluster="cloud")
    return world


def counted(world: World, name: str, **labels: str) -> float | None:
    """A metric after all that happened became durable."""
    loop = Loop(open_memory().journal, load, SystemClock())
    loop.engine = world.engine
    metrics = Metrics(loop)
    metrics._see(len(world.events), world.events)
    return metrics.registry.get_sample_value(name, labels)


def test_every_counter_that_events_name_is_there() -> None:
    assert set(COUNTERS) == set(get_args(CounterName))


def test_what_an_array_cost_is_counted_once(world: World) -> None:
    world.submit(a_job("sweep").array(1, 3).burst(Burst.ALWAYS))
    for member in ("sweep.1", "sweep.2", "sweep.3"):
        world.start(member)
    world.wait(seconds=2)
    for member in ("sweep.1", "sweep.2", "sweep.3"):
        world.finish(member)
    spent = world.job("sweep").cost
    assert spent > 0
    assert counted(world, "spill_cost_total") == pytest.approx(spent / 1_000_000)
    assert counted(world, "spill_jobs_ended_total", state="SUCCEEDED") == 4


def test_jobs_are_counted_where_they_are_placed(world: World) -> None:
    world.submit(a_job("one").burst(Burst.ALWAYS), a_job("two"))
    assert counted(world, "spill_jobs_submitted_total") == 2
    assert counted(world, "spill_jobs_placed_total", cluster="cloud") == 1
    assert counted(world, "spill_jobs_queued") == 1


def test_policies_that_fail_or_are_disabled_are_counted() -> None:
    class Failing:
        def wait(self, case: object) -> int:
            raise ValueError("no")

    world = World(partial(load, more={"wait.failing": Failing}), PolicySet(wait=Choice("failing")))
    world.agent("n1")
    world.submit(a_job("one"), a_job("two"), a_job("three"))
    (guard,) = world.engine.policies.guards
    loop = Loop(open_memory().journal, load, SystemClock())
    loop.engine = world.engine
    loop.watch._past["wait", "failing"] = guard.failures
    metrics = Metrics(loop)
    world.propose(DisablePolicy("wait", "failing", SECOND))
    metrics._see(len(world.events), world.events)
    labels = {"axis": "wait", "policy": "failing"}
    for name, value in (
        ("spill_policy_failures_total", 2),
        ("spill_policy_disabled", 1),
        ("spill_policies_disabled_total", 1),
    ):
        assert metrics.registry.get_sample_value(name, labels) == value, name


async def test_blobs_are_counted() -> None:
    loop = Loop(open_memory().journal, load, SystemClock())
    blobs = CountedBlobs(MemoryBlobs(BlobBounds(file=10)))
    registry = Metrics(loop, blobs=blobs).registry
    assert registry.get_sample_value("spill_blobs") is None, "nobody has counted"
    await keep(blobs, b"12345")
    await content(blobs, digest(b"12345"))
    with pytest.raises(TooLarge):
        await keep(blobs, b"too much of it")
    for name, labels, value in (
        ("spill_blobs", {}, 1),
        ("spill_blob_bytes", {}, 5),
        ("spill_blob_bytes_moved_total", {"way": "in"}, 5 + len(b"too much of it")),
        ("spill_blob_bytes_moved_total", {"way": "out"}, 5),
        ("spill_blobs_refused_total", {"why": "too_large"}, 1),
        ("spill_blobs_refused_total", {"why": "no_room"}, 0),
    ):
        assert registry.get_sample_value(name, labels) == value, name


async def test_the_process_and_its_event_loop_are_measured() -> None:
    metrics = Metrics(Loop(open_memory().journal, load, SystemClock()))
    metrics.pauses.add(0.3, 1.0)
    value = metrics.registry.get_sample_value
    assert value("spill_loop_longest_pause_seconds") == 0.3
    assert value("spill_loop_pause_seconds_bucket", {"le": "0.25"}) == 0
    assert value("spill_loop_pause_seconds_bucket", {"le": "0.5"}) == 1
    assert value("spill_loop_pause_seconds_sum") == 0.3
    assert value("spill_asyncio_tasks") == 1
    assert (value("spill_threads") or 0) >= 1
    assert (value("process_open_fds") or 0) > 2
    assert (value("process_resident_memory_bytes") or 0) > 2**20


async def test_figures_show_nothing_that_is_not_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    async with a_live_loop(PolicySet(wait=Choice("never"))) as live:
        metrics = Metrics(live.loop)
        append, begun, written = live.journal.append, asyncio.Event(), asyncio.Event()

        async def slow(after: int, batch: Batch, epoch: int) -> int:
            begun.set()
            await written.wait()
            return await append(after, batch, epoch)

        monkeypatch.setattr(live.journal, "append", slow)
        submitting = asyncio.create_task(live.submit(a_job("one")))
        await begun.wait()
        assert live.loop.state.queued == 1
        asked = asyncio.create_task(metrics.figures())
        await asyncio.sleep(0)
        assert not asked.done()
        written.set()
        await submitting
        assert b"spill_jobs_queued 1.0\n" in await asked


async def test_figures_tell_that_nothing_can_be_written_when_nothing_can_be_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def unreadable() -> Loaded:
        raise Unreadable("the connection is lost")

    async with a_live_loop(PolicySet(wait=Choice("never"))) as live:
        metrics = Metrics(live.loop)
        monkeypatch.setattr(live.journal, "load", unreadable, raising=False)
        live.journal.fault = "before"
        with pytest.raises(CommandError):
            await live.submit(a_job("lost"))
        figures = await metrics.figures()
        assert b"spill_writable 0.0\n" in figures
        assert b"spill_jobs_queued" not in figures
