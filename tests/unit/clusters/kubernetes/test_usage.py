"""What pods use is the mean of their samples, over all of the time that they ran."""

from typing import Any

import msgspec
import pytest

from spillover.clusters.kubernetes.attempts.usage import MOST_SPAN, SAMPLES, PodMetrics, PodUse
from spillover.clusters.kubernetes.mirror import Mirror
from spillover.core.events import Usage
from spillover.model.units import SECOND
from spillover.ports.driver import Seen
from tests.support.kubernetes import NAMESPACE, OWNER, a_condition, a_container, a_job, a_pod, at, ended

MIB = 2**20
COMPLETE = a_condition("Complete", since=60)
RUNNING = a_container(running={"startedAt": at(0)})


def sample(seconds: float, *containers: tuple[str, str], name: str = "pod") -> PodMetrics:
    """A sample as the metrics API sends it."""
    item: dict[str, Any] = {
        "metadata": {"name": name, "namespace": NAMESPACE, "creationTimestamp": at(seconds)},
        "timestamp": at(seconds),
        "window": "15.1s",
        "containers": [
            {"name": "main", "usage": {"cpu": cpu, "memory": memory}} for cpu, memory in containers
        ],
    }
    page = {"kind": "PodMetricsList", "metadata": {}, "items": [item]}
    return SAMPLES.decode(msgspec.json.encode(page)).items[0]


def used(*samples: PodMetrics) -> PodUse:
    use = PodUse()
    for each in samples:
        use.add(each)
    return use


def test_the_cpu_time_is_the_mean_of_the_samples_over_the_whole_runtime() -> None:
    first, second = sample(15, ("500000000n", "10Mi")), sample(30, ("1500m", "30Mi"), ("1", "5Mi"))
    use = used(first, second, second, sample(20, ("9", "90Mi")))
    assert use.over(60 * SECOND) == Usage(60 * SECOND, 90 * SECOND, 35 * MIB), (
        "half a CPU, then two and a half"
    )


def test_a_long_time_without_samples_counts_no_more_than_any_other() -> None:
    late = 100 + MOST_SPAN / SECOND
    use = used(sample(15, ("1", "1Mi")), sample(late, ("3", "1Mi")))
    assert use.over(10 * SECOND).cpu == 20 * SECOND


def test_nothing_is_said_of_a_pod_without_samples() -> None:
    assert used().over(5 * SECOND) == Usage(5 * SECOND)


@pytest.mark.parametrize("odd", [{"cpu": "much"}, {"cpu": "1", "memory": "-"}, {}])
def test_a_sample_that_makes_no_sense_harms_nobody(odd: dict[str, str]) -> None:
    world = told_of()
    item = {"metadata": {"name": "pod"}, "timestamp": at(5), "containers": [{"usage": odd}]}
    world.measure([msgspec.convert(item, PodMetrics)])
    world.measure([sample(20, ("1", "7Mi"))])
    assert the_end(world).usage.peak_memory == 7 * MIB


def told_of(*names: str, **job: Any) -> Mirror:
    """A mirror of an attempt whose pods run."""
    world = Mirror(OWNER, NAMESPACE)
    world.list_nodes([], 1)
    world.list_pods([], 1)
    world.list_jobs([a_job(**job)], 1)
    for index, name in enumerate(names or ("pod",)):
        world.put_pod(a_pod("Running", RUNNING, name=name, index=index if names else None))
    return world


def the_end(world: Mirror, *names: str, seconds: float = 40, **job: Any) -> Any:
    """How the attempt ended."""
    for index, name in enumerate(names or ("pod",)):
        status = a_container(terminated=ended(0, 0, seconds * (index + 1)))
        world.put_pod(a_pod("Succeeded", status, name=name, index=index if names else None))
    world.put_job(a_job(COMPLETE, succeeded=len(names) or 1, **job))
    (told,) = world.take().attempts
    assert isinstance(told, Seen)
    assert told.ending is not None
    return told.ending


def test_each_task_of_a_gang_has_its_own_usage_and_the_attempt_that_of_all() -> None:
    gang = {"parallelism": 2, "completions": 2}
    world = told_of("a", "b", **gang)
    assert world.runs
    world.measure([sample(15, ("1", "10Mi"), name="a"), sample(15, ("2", "20Mi"), name="b")])
    world.measure([sample(15, ("9", "90Mi"), name="of-another-server")])
    end = the_end(world, "a", "b", **gang)
    assert [task.usage for task in end.tasks] == [
        Usage(40 * SECOND, 40 * SECOND, 10 * MIB),
        Usage(80 * SECOND, 160 * SECOND, 20 * MIB),
    ]
    assert end.usage == Usage(80 * SECOND, 200 * SECOND, 20 * MIB)
    assert not world.runs


def test_an_attempt_that_is_deleted_has_used_what_was_measured() -> None:
    world = told_of()
    world.measure([sample(15, ("1", "10Mi"))])
    world.put_job(a_job(deleted=20))
    (told,) = world.take().attempts
    assert told.used == Usage(0, 15 * SECOND, 10 * MIB)
