"""CPU time and memory of pods, where the cluster serves the metrics API, and nothing of them where it does not."""

from collections.abc import Iterator

import pytest

from tests.support.kube import Cluster
from tests.support.kube.metrics import metrics_api
from tests.support.kube.serving import Serving

MIB = 2**20


@pytest.fixture(scope="module")
def served(onprem: Cluster, cloud: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    nodes = [(each, each.add_nodes(2, cpu="8")) for each in (onprem, cloud)]
    told = {"kubernetes": {"image": "example/image:1"}}
    clusters = {"onprem": (onprem, told), "cloud": (cloud, told)}
    with metrics_api(onprem), Serving(tmp_path_factory.mktemp("usage"), clusters) as serving:
        yield serving
    for each, names in nodes:
        each.remove_nodes(names)


def test_each_task_of_a_gang_has_the_cpu_time_and_memory_that_its_pod_used(served: Serving) -> None:
    body = {"run": "true", "tasks": 2, "resources": {"cpu": 4, "memory": "1Gi"}, "env": {"RUNS_FOR": "5s"}}
    jobs = {
        name: served.submit(
            {
                "apiVersion": "spillover/v1",
                "kind": "Job",
                "metadata": {"name": name},
                "spec": body | {"where": {"cluster": name}},
            }
        )[0]
        for name in ("onprem", "cloud")
    }
    ended = served.ended(jobs["onprem"])
    assert ended.state == "SUCCEEDED"
    assert ended.tasks is not None
    first, second = ended.tasks
    assert first.ran_s and second.ran_s and first.cpu_s and second.cpu_s  # noqa: PT018 - so that mypy knows
    assert first.cpu_s == pytest.approx(first.ran_s)
    assert second.cpu_s == pytest.approx(2 * second.ran_s)
    assert (first.peak_memory, second.peak_memory) == (100 * MIB, 200 * MIB)
    assert ended.cpu_s == pytest.approx(first.cpu_s + second.cpu_s)
    assert ended.peak_memory == 200 * MIB
    printed = served.server.spill("show", jobs["onprem"]).stdout
    assert "200M" in printed.replace(" ", ""), printed
    unknown = served.ended(jobs["cloud"])
    assert (unknown.state, unknown.cpu_s, unknown.peak_memory) == ("SUCCEEDED", 0, 0)
