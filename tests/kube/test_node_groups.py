"""The provider kubernetes with a MachineDeployment, on a real API server; `ClusterApi` plays its controllers."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from spillover.model.pools import Offer
from spillover.model.resources import Resources
from spillover.ports.provider import Made, Order, Presence, Provider
from spillover.testing.provider_suite import ProviderSuite
from tests.kube.test_pods_provider import Forwarding, Place, renter
from tests.support.clouds.server import Request
from tests.support.kube import Cluster
from tests.support.kube.cluster_api import ClusterApi, install
from tests.support.processes import wait_until

LABELS = {"spillover.test/pool": "node-group"}


class Rented:
    """A pool with a node group."""

    def __init__(self, place: Place, nodes: ClusterApi) -> None:
        self.place = place
        self.nodes = nodes
        nodes.deploy("workers")

    def open(self, **options: Any) -> Provider:
        return self.place.open(
            **{"machine_deployment": "workers", "bind_within": None, "pod": {"nodeSelector": LABELS}}
            | options
        )

    async def made(self, provider: Provider, *numbers: int) -> list[str]:
        """Order machines, and wait until they run."""
        answers = [await provider.create(an_order(number)) for number in numbers]
        ids = [each.id for each in answers if isinstance(each, Made)]
        assert len(ids) == len(numbers), answers
        await until(lambda: len(self.bound()) >= len(numbers), "each pod has a node")
        return ids

    async def one_that_runs_and_one_that_boots(self, provider: Provider) -> tuple[str, str, str]:
        """Order two machines; return the first with its node, and the second, whose node does not come."""
        (first,) = await self.made(provider, 1)
        self.nodes.boots = False
        second = await provider.create(an_order(2))
        assert isinstance(second, Made)
        await until(lambda: len(self.nodes.machines()) == 2, "a machine boots")
        return first, self.bound()[first], second.id

    def bound(self) -> dict[str, str]:
        """Return the nodes of pods that have one."""
        pods = {
            f"{self.place.namespace}/{each['metadata']['name']}": each["spec"] for each in self.place.listed()
        }
        return {id_: spec["nodeName"] for id_, spec in pods.items() if spec.get("nodeName")}

    @property
    def replicas(self) -> int:
        return self.nodes.replicas("workers")


def an_order(number: int = 1) -> Order:
    order = ProviderSuite().an_order(number)
    return replace(order, offer=Offer("node", Resources(1000, 2**30), 1))


async def until(holds: Callable[[], object], what: str) -> None:
    await asyncio.to_thread(wait_until, holds, what, 60)


@pytest.fixture
def rented(cloud: Cluster, tmp_path: Path) -> Iterator[Rented]:
    install(cloud)
    with Forwarding(cloud).served() as proxy:
        place = Place(cloud, proxy, tmp_path)
        with ClusterApi(cloud, place.namespace, LABELS).running() as nodes:
            yield Rented(place, nodes)
        cloud.remove_namespace(place.namespace)
        proxy.client.close()


async def test_each_machine_gets_a_node_of_its_own_and_a_repeated_order_gets_no_second(
    rented: Rented,
) -> None:
    provider = rented.open()
    ids = await rented.made(provider, 1, 2)
    assert len({*rented.bound().values()}) == 2, "two small pods would fit on one node"
    assert isinstance(await provider.create(an_order()), Made)
    assert rented.replicas == 2
    assert sorted(each.id for each in (await provider.list()).machines) == sorted(ids)
    await provider.close()


async def test_the_node_of_a_destroyed_machine_goes_and_no_other(rented: Rented) -> None:
    provider = rented.open()
    ids = await rented.made(provider, 1, 2, 3)
    nodes = rented.bound()
    assert await provider.destroy([ids[1]]) == {}
    assert rented.replicas == 2
    await until(lambda: len(rented.nodes.machines()) == 2, "a machine goes")
    assert set(rented.nodes.machines().values()) == {nodes[ids[0]], nodes[ids[2]]}
    assert await provider.destroy(ids) == {}
    assert rented.replicas == 0
    await until(lambda: not rented.nodes.machines(), "all machines go")
    await provider.close()


async def test_a_machine_that_never_got_a_node_gives_up_the_one_that_boots(rented: Rented) -> None:
    provider = rented.open()
    _, node, second = await rented.one_that_runs_and_one_that_boots(provider)
    (waiting,) = [each for each in (await provider.list()).machines if each.id == second]
    assert waiting.presence is Presence.PENDING
    await provider.destroy([second])
    await until(lambda: len(rented.nodes.machines()) == 1, "that machine goes")
    assert [*rented.nodes.machines().values()] == [node]
    await provider.close()


async def test_a_pod_that_waits_takes_the_node_of_a_machine_that_ends(rented: Rented) -> None:
    """The machine that boots has cost least, so it goes."""
    provider = rented.open()
    first, node, second = await rented.one_that_runs_and_one_that_boots(provider)
    await provider.destroy([first])
    await until(lambda: rented.bound() == {second: node}, "the second pod takes the node of the first")
    await until(lambda: [*rented.nodes.machines().values()] == [node], "the machine that boots goes")
    await provider.close()


async def test_nodes_follow_pods_after_a_server_stopped_in_between(rented: Rented) -> None:
    """Between the pod and its node, and between the end of the pod and that of its node."""
    without = rented.open(machine_deployment="")
    patient = rented.open(machine_deployment="", bind_within="10m")
    assert isinstance(await patient.create(an_order()), Made)
    assert rented.replicas == 0
    provider = rented.open()
    await provider.list()
    assert rented.replicas == 1
    await until(rented.bound, "the pod has a node")
    await without.destroy([*rented.bound()])
    assert rented.replicas == 1
    await until(lambda: not rented.place.listed(), "the pod goes")
    await provider.list()
    assert rented.replicas == 0
    for each in (provider, patient, without):
        await each.close()


async def test_replicas_that_somebody_else_writes_meanwhile_are_counted_again(rented: Rented) -> None:
    provider = rented.open()
    await provider.list()
    rented.nodes.boots = False
    writes: list[Request] = []

    def somebody_writes(request: Request) -> None:
        if request.method == "PUT" and request.path.endswith("/scale") and len(writes) < 2:
            writes.append(request)
            rented.place.change(
                f"{rented.nodes.path}/machinedeployments/workers", {"spec": {"replicas": 5 + len(writes)}}
            )

    rented.place.proxy.before.append(somebody_writes)
    assert isinstance(await provider.create(an_order()), Made)
    assert len(writes) == 2
    assert rented.replicas == 1
    await provider.close()


async def test_a_mark_of_a_try_that_failed_does_not_cost_another_machine(rented: Rented) -> None:
    """The mark was set, the replicas were not written, and then a pod took the node."""
    provider = rented.open()
    ids = await rented.made(provider, 1, 2)
    nodes = rented.bound()
    kept = next(name for name, node in rented.nodes.machines().items() if node == nodes[ids[0]])
    rented.place.change(
        f"{rented.nodes.path}/machines/{kept}",
        {"metadata": {"annotations": {"cluster.x-k8s.io/delete-machine": "spillover"}}},
    )
    assert await provider.destroy([ids[1]]) == {}
    await until(lambda: len(rented.nodes.machines()) == 1, "a machine goes")
    assert [*rented.nodes.machines()] == [kept]
    await provider.close()


async def test_the_role_on_the_page_is_enough(rented: Rented) -> None:
    rented.place.log_in(renter(rented.place))
    provider = rented.open()
    assert list(await provider.check([an_order().offer])) == []
    ids = await rented.made(provider, 1)
    assert await provider.destroy(ids) == {}
    assert rented.replicas == 0
    await provider.close()


async def test_missing_permissions_are_told(rented: Rented) -> None:
    """Of the cluster with the MachineDeployment, which may be another one."""
    provider = rented.open()
    rented.place.proxy.before.append(
        lambda request: (
            request.headers.update(authorization=f"Bearer {nobody}")
            if b"cluster.x-k8s.io" in request.content
            else None
        )
    )
    nobody = rented.place.cluster.service_account("nobody", rented.place.namespace)
    lines = list(await provider.check([an_order().offer]))
    assert [line.split(";")[0].partition(" in ")[0] for line in lines] == [
        f"no permission to {what}"
        for what in (
            "get machinedeployments/scale",
            "update machinedeployments/scale",
            "get machines",
            "list machines",
            "update machines",
        )
    ]
    await provider.close()


async def test_a_group_that_is_not_there_is_told(rented: Rented) -> None:
    provider = rented.open(machine_deployment="nobody")
    assert list(await provider.check([an_order().offer])) == [
        (
            f"there is no MachineDeployment 'nobody' in namespace {rented.place.namespace!r}; "
            "`kubectl get machinedeployments -A` shows those there are"
        )
    ]
    assert isinstance(await provider.create(an_order()), Made), "the pod waits; the next listing tries again"
    await provider.close()
    provider = rented.open()
    assert list(await provider.check([an_order().offer])) == []
    await provider.close()
