"""Metrics of who uses what agree with the state, and stay bounded whatever people name."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

from spillover.control.views.counting import KEEP
from spillover.core.proposals import StartEpoch
from spillover.model.budget import Budget, Of, Per
from spillover.model.ids import ClusterName
from spillover.model.policy import Choice, PolicySet
from spillover.model.queues import QueueSpec
from spillover.model.where import Where
from spillover.server.metrics import Metrics
from spillover.server.occupancy import MOST, OTHER, Series
from spillover.testing.builders import a_job
from spillover.testing.world import OWNED, RENTED
from tests.support.live import Live, a_live_loop

NEVER = PolicySet(wait=Choice("never"))
GIB = 2**30


async def figures(metrics: Metrics) -> dict[tuple[str, ...], float]:
    """All samples by name and label values."""
    text = (await metrics.figures()).decode()
    return {
        (each.name, *each.labels.values()): each.value
        for family in text_string_to_metric_families(text)
        for each in family.samples
    }


async def configure(
    live: Live, *, budgets: tuple[Budget, ...] = (), queues: tuple[QueueSpec, ...] = ()
) -> None:
    """Configure budgets and queues."""
    epoch = StartEpoch(live.loop.epoch, (OWNED, RENTED), NEVER, budgets=budgets, queues=queues)
    await live.loop.propose(epoch)


async def test_jobs_are_counted_by_project_queue_and_state() -> None:
    async with a_live_loop(NEVER) as live:
        await live.agent("onprem", cpus=2)
        await live.submit(
            a_job("runs").cpus(2).project("vision").queue("gpu"),
            a_job("sweep").array(1, 5).project("vision").queue("gpu"),
            a_job("held").held().project("nlp").queue("cpu"),
        )
        found = await figures(Metrics(live.loop))
    assert found["spill_project_jobs", "vision", "PLACED"] == 1
    assert found["spill_project_jobs", "vision", "QUEUED"] == 5
    assert found["spill_project_jobs", "vision", "RUNNING"] == 0
    assert found["spill_project_jobs", "nlp", "HELD"] == 1
    assert found["spill_queue_jobs", "gpu", "QUEUED"] == 5
    assert found["spill_queue_jobs", "cpu", "HELD"] == 1
    queued = [value for key, value in found.items() if key[0] == "spill_project_jobs" and key[2] == "QUEUED"]
    assert sum(queued) == found["spill_jobs_queued",] == 5


async def test_what_clusters_have_and_what_waits_for_it() -> None:
    async with a_live_loop(NEVER) as live:
        await live.agent("onprem", cpus=4)
        only = Where(clusters=(ClusterName("cloud"),))
        await live.submit(
            a_job("runs").cpus(3),
            a_job("large").cpus(8).memory(GIB).gpus(2),
            a_job("pair").cpus(2).gpus(1).tasks(2).where(only),
            a_job("gone").cpus(1).where(Where(clusters=(ClusterName("elsewhere"),))),
        )
        found = await figures(Metrics(live.loop))
    cpus = {key[2]: value for key, value in found.items() if key[:2] == ("spill_cluster_cpus", "onprem")}
    assert cpus == {"capacity": 4, "used": 3, "foreign": 0, "free": 1}
    assert found["spill_cluster_gpus", "cloud", "capacity"] == 0
    assert found["spill_asked_cpus", "*"] == 8 + 1
    assert found["spill_asked_memory_bytes", "*"] >= GIB
    assert (found["spill_asked_gpus", "*"], found["spill_asked_gpus", "cloud"]) == (2, 2)
    assert found["spill_asked_cpus", "cloud"] == 4


async def test_agents_are_counted_by_cluster_and_state() -> None:
    async with a_live_loop(NEVER) as live:
        await live.agent("onprem", cpus=4)
        found = await figures(Metrics(live.loop))
    agents = {key[1:]: value for key, value in found.items() if key[0] == "spill_agents" and value}
    assert agents == {("onprem", "ready"): 1}
    assert found["spill_agents", "cloud", "lost"] == 0


async def test_configured_projects_and_queues_are_shown_without_jobs() -> None:
    async with a_live_loop(NEVER) as live:
        budgets = (Budget(Of.PROJECT, "vision", Per.MONTH, 1), Budget(Of.PROJECT, "*", Per.MONTH, 1))
        await configure(live, budgets=budgets, queues=(QueueSpec("gpu", default=True),))
        found = await figures(Metrics(live.loop))
    assert found["spill_project_jobs", "vision", "QUEUED"] == 0
    assert found["spill_queue_jobs", "gpu", "RUNNING"] == 0
    assert not [key for key in found if "*" in key and key[0].endswith("_jobs")]


async def test_a_count_is_kept_for_a_while_that_is_long_beside_the_time_it_took(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with a_live_loop(NEVER) as live:
        metrics = Metrics(live.loop)
        scan = live.loop.scan

        async def slow(look: object) -> object:
            live.clock.pass_by(seconds=1)
            return await scan(look)  # type: ignore[arg-type]

        monkeypatch.setattr(live.loop, "scan", slow)
        await figures(metrics)
        await live.submit(a_job("new").project("vision"))
        assert ("spill_project_jobs", "vision", "QUEUED") not in await figures(metrics)
        live.clock.pass_by(seconds=KEEP)
        assert (await figures(metrics))["spill_project_jobs", "vision", "QUEUED"] == 1


def test_names_that_people_make_up_have_a_bounded_number_of_series() -> None:
    series = Series()
    counts = {(f"p{number}", "QUEUED"): 1 for number in range(3 * MOST)}
    family = series.family("project", counts, ["vision"])
    names = {sample.labels["project"] for sample in family.samples}
    assert len(names) == MOST + 1
    assert {"vision", OTHER} <= names
    assert sum(sample.value for sample in family.samples) == 3 * MOST
    assert len({tuple(sample.labels.values()) for sample in family.samples}) == len(family.samples)


def test_a_name_keeps_its_series_while_it_has_jobs() -> None:
    series = Series(2)
    assert list(series.choose({"a": 5, "b": 3, "c": 1})) == ["a", "b"]
    assert list(series.choose({"a": 1, "b": 1, "c": 100})) == ["a", "b"]
    assert list(series.choose({"b": 1, "c": 100})) == ["b", "c"], "there is room again"
    assert list(series.choose({"b": 1, "c": 1}, ["z"])) == ["z", "b"]
    assert list(series.choose({}, [])) == []


def test_a_project_that_is_called_like_the_rest_is_part_of_it() -> None:
    family = Series(1).family("project", {(OTHER, "QUEUED"): 2, ("a", "QUEUED"): 1}, [])
    counts = {sample.labels["project"]: sample.value for sample in family.samples if sample.value}
    assert counts == {OTHER: 3}
