"""Where pods are on a real cluster: in the rack that was chosen for a gang, on nodes that a job asks for, or alone on a node."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.kube import Cluster
from tests.support.kube.serving import PATIENCE, Serving
from tests.support.processes import wait_until

HASTY = {"kubernetes": {"bind_within": "2s", "backoff": "2s", "keep": "0s", "image": "example/image:1"}}
LEVELS = ["zone", "rack"]
ROOM = {
    # Nodes of the small rack are larger, so the scheduler of the cluster likes them best.
    ("north", "r1"): (2, "8"),
    ("south", "r1"): (4, "2"),
    ("south", "r2"): (2, "8"),
}


@pytest.fixture(scope="module")
def racks(onprem: Cluster) -> Iterator[dict[str, str]]:
    """The rack of each node; two racks of two zones have the same name."""
    made = {
        node: f"{zone}/{rack}"
        for (zone, rack), (count, cpu) in ROOM.items()
        for node in onprem.add_nodes(
            count, cpu=cpu, labels={"zone": zone, "rack": rack} | ({"ssd": ""} if rack == "r2" else {})
        )
    }
    yield made
    onprem.remove_nodes(list(made))


@pytest.fixture(scope="module")
def served(
    onprem: Cluster, racks: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Serving]:
    clusters = {"onprem": (onprem, HASTY | {"levels": LEVELS})}
    with Serving(tmp_path_factory.mktemp("places"), clusters) as serving:
        serving.await_nodes("onprem", len(racks))
        for node in racks:  # as a DaemonSet of others has
            serving.foreign_pod("onprem", node, "500m", f"daemon-{node}")
        serving.await_used("onprem", foreign=len(racks) / 2)
        yield serving


@pytest.fixture(autouse=True)
def clean(served: Serving) -> Iterator[None]:
    yield
    wait_until(lambda: not served.jobs("onprem"), "the end of all Jobs", PATIENCE, every=0.1)
    wait_until(lambda: not served.cluster("onprem").used.get("cpu"), "no use", PATIENCE, every=0.1)


def a_job(runs_for: str = "100ms", **spec: Any) -> dict[str, Any]:
    body = {"run": "true", "resources": {"cpu": 1}, "env": {"RUNS_FOR": runs_for}} | spec
    return {"apiVersion": "spillover/v1", "kind": "Job", "spec": body}


def nodes_of(served: Serving, job: str) -> list[str]:
    """The nodes of the tasks, as the server knows them at the end."""
    ended = served.ended(job)
    assert ended.state == "SUCCEEDED", ended.reason
    assert not served.events(job, "job_requeued")
    return [task.node for task in ended.tasks or ()] or [str(ended.node)]


def test_gangs_run_whole_in_the_rack_that_has_room_for_them(served: Serving, racks: dict[str, str]) -> None:
    gang = a_job(tasks=4, within="rack", spread="node")
    for _ in range(3):
        nodes = nodes_of(served, *served.submit(gang))
        assert {racks[node] for node in nodes} == {"south/r1"}, "the only one with four nodes"
        assert len(set(nodes)) == 4
    [wish] = served.submit(a_job(tasks=4, within={"prefer": "rack"}, spread="node"))
    assert {racks[node] for node in nodes_of(served, wish)} == {"south/r1"}


def test_tasks_are_spread_over_racks_of_one_zone(served: Serving, racks: dict[str, str]) -> None:
    nodes = nodes_of(served, *served.submit(a_job(tasks=2, within="zone", spread="rack")))
    assert sorted(racks[node] for node in nodes) == ["south/r1", "south/r2"]


def test_jobs_run_on_nodes_that_fulfil_their_constraints(served: Serving, racks: dict[str, str]) -> None:
    r2 = [node for node, rack in racks.items() if rack == "south/r2"]
    assert nodes_of(served, *served.submit(a_job(constraints={"properties": ["ssd", "os:linux"]})))[0] in r2
    last = list(racks)[-1]
    wanted = {"or": [{"hostlist": [last]}, {"properties": ["os:plan9"]}]}
    assert nodes_of(served, *served.submit(a_job(constraints=wanted))) == [last]
    assert nodes_of(served, *served.submit(a_job(tasks=2, constraints={"hostlist": [last]}))) == [last] * 2
    [never] = served.submit(a_job(constraints={"properties": ["tape"]}))
    assert "the property tape" in served.reason(never, "no_such_node")
    served.client.cancel(never)
    served.ended(never)


def test_no_other_job_is_on_the_nodes_of_an_exclusive_one(served: Serving, racks: dict[str, str]) -> None:
    """Although all nodes have pods of others, and the rest of each node is large enough."""
    [alone] = served.submit(a_job("forever", tasks=2, spread="node", exclusive="node"))
    served.running(alone)
    others = served.submit(*[a_job("forever", resources={"cpu": "100m"}) for _ in range(12)])
    served.running(*others)
    bound: dict[str, set[str]] = {}
    for pod in served.pods("onprem"):
        if job := pod["metadata"].get("labels", {}).get("spillover.dev/job"):
            bound.setdefault(job, set()).add(pod["spec"]["nodeName"])
    own = bound.pop(alone)
    assert len(own) == 2
    assert not own & set[str]().union(*bound.values())
    [waits] = served.submit(
        a_job(tasks=len(racks), spread="node", exclusive="node", resources={"cpu": "100m"})
    )
    served.reason(waits, "no_empty_node")
    served.client.cancel(alone, *others)
    assert len(set(nodes_of(served, waits))) == len(racks)
