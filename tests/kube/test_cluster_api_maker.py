"""The provider clusterapi on a real API server; `Topologies` plays the controllers of Cluster API.

Requests pass the proxy of `test_pods_provider`. The control plane of all clusters that are made is a second real one.
"""

import asyncio
import base64
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from spillover.model.pools import Offer, RefusalCause
from spillover.model.resources import Resources
from spillover.ports.provider import (
    OWNER_TAG,
    ClusterMaker,
    Made,
    NotNow,
    Order,
    Presence,
    ProviderError,
    Refused,
)
from spillover.providers.clusterapi.kind import ClusterApiForm, ClusterApiKind
from spillover.testing.maker_suite import MakerSuite, usable
from spillover.testing.provider_suite import OWNER, Fault, OpenProvider, an_opening
from tests.kube.test_pods_provider import Forwarding, Place
from tests.support.clouds.server import Reply, Request
from tests.support.kube import Cluster
from tests.support.kube.cluster_api import DELETE, GROUP, VERSION, VERSIONS, install
from tests.support.kube.topologies import Topologies
from tests.support.processes import wait_until

SMALL = MakerSuite.offer
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
POLICIES, BINDINGS = (
    f"{ADMISSION}/validatingadmissionpolicies",
    f"{ADMISSION}/validatingadmissionpolicybindings",
)


class Management(Place):
    """A namespace for clusters on a management cluster, with its controllers."""

    controllers: Topologies

    def make(self, owner: str = OWNER, **options: Any) -> ClusterMaker:
        form = ClusterApiForm(
            **{"kubeconfig": str(self.config), "cluster_class": "quick", "version": "v1.33.1"} | options
        )
        assert not ClusterApiKind().check(form, [SMALL])
        return ClusterApiKind().open(form, an_opening(self.folder, owner, {}))

    @property
    def clusters(self) -> str:
        return f"{self.controllers.path}/clusters"

    def refuses(self, word: str) -> bool:
        """Return whether a cluster would be refused with this word."""
        spec = {"topology": {"classRef": {"name": "x"}, "version": "v1"}}
        body = {
            "apiVersion": f"{GROUP}/{VERSIONS[-1]}",
            "kind": "Cluster",
            "metadata": {"name": "probe"},
            "spec": spec,
        }
        return word in self.cluster.admin.post(self.clusters, json=body, params={"dryRun": "All"}).text

    def add_quota(self) -> None:
        """Allow no cluster, and wait until that counts."""
        quota = {"metadata": {"name": "none"}, "spec": {"hard": {f"count/clusters.{GROUP}": "0"}}}
        path = f"/api/v1/namespaces/{self.namespace}/resourcequotas"

        def counts() -> bool:
            # Its controller learns of new kinds within half a minute, and counts older quotas much later.
            self.cluster.admin.delete(f"{path}/none")
            self.cluster.admin.post(path, json=quota).raise_for_status()
            try:
                return wait_until(lambda: self.refuses("exceeded quota"), "a quota that counts", 2)
            except AssertionError:
                return False

        wait_until(counts, "a quota that counts", 60)

    def add_policy(self) -> None:
        """Let admission refuse clusters, and wait until it does."""
        rule = {
            "apiGroups": [GROUP],
            "apiVersions": ["*"],
            "operations": ["CREATE"],
            "resources": ["clusters"],
        }
        here = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": self.namespace}}}
        policy = {
            "metadata": {"name": self.namespace},
            "spec": {
                "matchConstraints": {"resourceRules": [rule]},
                "validations": [{"expression": "false", "message": "no clusters here"}],
            },
        }
        binding = {
            "metadata": {"name": self.namespace},
            "spec": {"policyName": self.namespace, "validationActions": ["Deny"], "matchResources": here},
        }
        for path, body in ((POLICIES, policy), (BINDINGS, binding)):
            self.cluster.admin.post(path, json=body).raise_for_status()
        wait_until(lambda: self.refuses("no clusters here"), "a policy that counts", 60)

    def mend(self) -> None:
        self.proxy.limit = 0
        self.proxy.mend()
        admin = self.cluster.admin
        admin.delete(f"/api/v1/namespaces/{self.namespace}/resourcequotas/none")
        if all(admin.delete(f"{path}/{self.namespace}").is_success for path in (BINDINGS, POLICIES)):
            wait_until(lambda: not self.refuses("no clusters here"), "the end of a policy", 60)


def managed(cluster: Cluster, rented: Cluster, folder: Path, *versions: str) -> Iterator[Management]:
    install(cluster, versions)
    with Forwarding(cluster).served() as proxy:
        place = Management(cluster, proxy, folder)
        with Topologies(cluster, place.namespace, rented, versions[-1]).running() as controllers:
            place.controllers = controllers
            controllers.classify("quick", "default-worker", "gpu-worker")
            yield place
            place.mend()
            for each in controllers.clusters():
                cluster.admin.delete(f"{place.clusters}/{each['metadata']['name']}")
            wait_until(lambda: not controllers.clusters(), "clusters go", 60)
        cluster.remove_namespace(place.namespace)
        proxy.client.close()


@pytest.fixture
def management(cloud: Cluster, onprem: Cluster, tmp_path: Path) -> Iterator[Management]:
    yield from managed(cloud, onprem, tmp_path, *VERSIONS)


@pytest.fixture
def old_management(cloud: Cluster, onprem: Cluster, tmp_path: Path) -> Iterator[Management]:
    yield from managed(onprem, cloud, tmp_path, VERSION)


class TestContract(MakerSuite):
    faults = frozenset(Fault) - {Fault.CAPACITY, Fault.TAKEN_BACK}
    bad_offer = Offer("odd", Resources(1000, 2**30), 1, zone="z" * 300, nodes=4)
    remembers = False  # a name is free again once its object is gone
    management: Management

    @pytest.fixture
    def open_provider(self, management: Management) -> OpenProvider:
        self.management = management
        return management.make

    async def nodes_of(self, maker: ClusterMaker, id_: str) -> set[str]:
        del maker  # all clusters have the same API here, so its list of nodes has those of others too
        return await asyncio.to_thread(self.management.controllers.nodes, id_.partition("/")[2])

    def provoke(self, fault: Fault) -> None:
        there = self.management
        proxy = there.proxy
        match fault:
            case Fault.QUOTA:
                there.add_quota()
            case Fault.INVALID:
                there.add_policy()
            case Fault.AUTH:
                nobody = there.cluster.service_account("nobody", there.namespace)
                shown = {"authorization": f"Bearer {nobody}"}
                proxy.before.append(lambda request: request.headers.update(shown))
            case Fault.THROTTLED:
                slow = Reply(
                    429, {"kind": "Status", "code": 429, "message": "slow down"}, {"Retry-After": "1"}
                )
                proxy.before.append(lambda request: slow if request.method == "POST" else None)
            case Fault.UNREACHABLE:
                proxy.shut()
            case Fault.LOST_ANSWER | Fault.LOST_REQUEST:
                proxy.lost.append(
                    (f"POST {there.clusters}", "work" if fault is Fault.LOST_ANSWER else "drop")
                )
            case Fault.PARTIAL:
                proxy.limit = 1
                for name in ("theirs-1", "theirs-2"):
                    self.add(name)
                gone = Reply(410, {"kind": "Status", "code": 410, "message": "the token is too old"})
                proxy.before.append(lambda request: gone if "continue" in request.query else None)
            case Fault.LOST_TAGS:
                for each in there.controllers.clusters():
                    there.change(
                        f"{there.clusters}/{each['metadata']['name']}", {"metadata": {"labels": None}}
                    )
            case Fault.REFUSED_DESTROY:
                no = Reply(403, {"kind": "Status", "code": 403, "message": "a webhook denied the request"})
                proxy.before.append(lambda request: no if request.method == "DELETE" else None)

    def add(self, name: str, **labels: str) -> None:
        add_cluster(self.management, name, labels)

    def mend(self) -> None:
        self.management.mend()


def add_cluster(there: Management, name: str, labels: dict[str, str] | None = None) -> None:
    """Create a cluster of somebody else."""
    deployment = {"class": "default-worker", "name": "workers", "replicas": 0}
    topology = {
        "classRef": {"name": "quick"},
        "class": "quick",
        "version": "v1.33.1",
        "workers": {"machineDeployments": [deployment]},
    }
    body = {
        "apiVersion": there.controllers.path.removeprefix("/apis/").partition("/namespaces")[0],
        "kind": "Cluster",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {"topology": topology},
    }
    there.cluster.admin.post(there.clusters, json=body).raise_for_status()


def an_order(nodes: int = 1, **offer: Any) -> Order:
    return TestContract().an_order(offer=replace(SMALL, **offer), nodes=nodes)


async def until(holds: Callable[[], object], what: str) -> None:
    await asyncio.to_thread(wait_until, holds, what, 60)


async def running(there: Management, maker: ClusterMaker, order: Order) -> str:
    """Make a cluster, and wait until it has its nodes."""
    made = await maker.create(order)
    assert isinstance(made, Made), made
    await until(
        lambda: len([each for each in there.controllers.machines().values() if each]) == order.nodes,
        "its nodes",
    )
    return made.id


async def test_the_object_of_a_cluster_has_what_its_offer_and_the_options_say(management: Management) -> None:
    maker = management.make(
        worker_class="gpu-worker",
        control_plane_replicas=3,
        variables={"sshKeyName": "batch", "bastion": {"enabled": False}},
        type_variable="workerMachineType",
        spot_variable="spot",
        network={"pods": {"cidrBlocks": ["192.168.0.0/16"]}},
        labels={"cni": "calico"},
    )
    order = an_order(
        2, type="m7i.xlarge", zone="west", spot=True, labels={"rack": "r1", "odd": "not a label!"}
    )
    made = await maker.create(order)
    assert isinstance(made, Made)
    assert made.id == f"{management.namespace}/{order.name}"
    (there,) = management.controllers.clusters()
    assert there["apiVersion"] == f"{GROUP}/v1beta2"
    assert there["metadata"]["labels"] == order.tags | {"cni": "calico"}
    assert there["spec"] == {
        "clusterNetwork": {"pods": {"cidrBlocks": ["192.168.0.0/16"]}},
        "topology": {
            "classRef": {"name": "quick"},
            "version": "v1.33.1",
            "controlPlane": {"replicas": 3},
            "workers": {
                "machineDeployments": [
                    {
                        "class": "gpu-worker",
                        "name": "workers",
                        "replicas": 2,
                        "failureDomain": "west",
                        "metadata": {
                            "labels": {
                                "spillover.dev/type": "m7i.xlarge",
                                "spillover.dev/zone": "west",
                                "spillover.dev/market": "spot",
                                "rack": "r1",
                            }
                        },
                    }
                ]
            },
            "variables": [
                {"name": "sshKeyName", "value": "batch"},
                {"name": "bastion", "value": {"enabled": False}},
                {"name": "workerMachineType", "value": "m7i.xlarge"},
                {"name": "spot", "value": True},
            ],
        },
    }
    await maker.close()


async def test_a_zone_may_be_a_variable(management: Management) -> None:
    maker = management.make(zone_variable="region", control_plane_replicas=None)
    assert isinstance(await maker.create(an_order(zone="north")), Made)
    (there,) = management.controllers.clusters()
    topology = there["spec"]["topology"]
    assert topology["variables"] == [{"name": "region", "value": "north"}]
    assert "failureDomain" not in topology["workers"]["machineDeployments"][0]
    assert "controlPlane" not in topology
    await maker.close()


async def test_the_older_version_is_used_where_it_is_the_preferred_one(old_management: Management) -> None:
    maker = old_management.make()
    order = an_order(2)
    id_ = await running(old_management, maker, order)
    (there,) = old_management.controllers.clusters()
    assert there["apiVersion"] == f"{GROUP}/v1beta1"
    assert there["spec"]["topology"]["class"] == "quick"
    (seen,) = (await maker.list()).machines
    assert (seen.presence, seen.nodes) == (Presence.RUNNING, 2)
    names = sorted(old_management.controllers.nodes(order.name))
    await maker.resize(id_, 1, names[:1])
    await until(lambda: old_management.controllers.nodes(order.name) == {names[1]}, "a node goes")
    assert usable(await maker.kubeconfig(id_)).server == old_management.controllers._cluster.url
    assert not await maker.destroy([id_])
    await until(lambda: not old_management.controllers.clusters(), "the cluster goes")
    await maker.close()


async def test_a_version_that_is_not_served_any_more_is_left_after_a_listing(management: Management) -> None:
    """Cluster API was upgraded while the server ran."""
    old = Reply(200, {"preferredVersion": {"groupVersion": f"{GROUP}/v1alpha4"}})
    management.proxy.before.append(lambda request: old if request.path == f"/apis/{GROUP}" else None)
    maker = management.make()
    with pytest.raises(ProviderError):
        await maker.list()
    management.proxy.mend()
    assert (await maker.list()).whole
    await maker.close()


async def test_a_cluster_is_pending_until_its_control_plane_answers(management: Management) -> None:
    management.controllers.answers = False
    maker = management.make()
    made = await maker.create(an_order())
    assert isinstance(made, Made)
    (seen,) = (await maker.list()).machines
    assert (seen.presence, seen.nodes) == (Presence.PENDING, 1)
    with pytest.raises(ProviderError, match="is pending"):
        await maker.kubeconfig(made.id)
    await maker.resize(made.id, 2, [])
    management.controllers.answers = True
    await until(lambda: len(management.controllers.nodes(an_order().name)) == 2, "its nodes")
    (seen,) = (await maker.list()).machines
    assert (seen.presence, seen.nodes) == (Presence.RUNNING, 2)
    await maker.close()


async def test_a_cluster_is_listed_until_everything_of_it_is_gone(management: Management) -> None:
    maker = management.make()
    made = await maker.create(an_order())
    assert isinstance(made, Made)
    management.change(f"{management.clusters}/{an_order().name}", {"metadata": {"finalizers": ["test/slow"]}})
    assert not await maker.destroy([made.id])
    assert not await maker.destroy([made.id])
    (seen,) = (await maker.list()).machines
    assert (seen.presence, seen.reason) == (Presence.STOPPING, "it is being deleted")
    with pytest.raises(ProviderError, match="is being deleted"):
        await maker.resize(made.id, 3, [])
    management.change(f"{management.clusters}/{an_order().name}", {"metadata": {"finalizers": []}})
    await until(lambda: not management.controllers.clusters(), "it goes")
    await maker.close()


@pytest.mark.parametrize("labels", [{OWNER_TAG: "somebody"}, {}])
async def test_a_cluster_with_our_name_is_adopted_unless_it_is_of_somebody_else(
    management: Management, labels: dict[str, str]
) -> None:
    add_cluster(management, an_order().name, labels)
    maker = management.make()
    answer = await maker.create(an_order())
    await maker.close()
    if labels:
        assert isinstance(answer, Refused)
        assert answer.cause is RefusalCause.INVALID
        assert "of somebody else" in answer.why
    else:
        assert isinstance(answer, Made)


async def test_a_size_that_somebody_else_writes_meanwhile_is_written_again(management: Management) -> None:
    maker = management.make()
    id_ = await running(management, maker, an_order(1))
    writes: list[Request] = []

    def somebody_writes(request: Request) -> None:
        if request.method == "PUT" and len(writes) < 2:
            writes.append(request)
            management.change(request.path, {"metadata": {"annotations": {"written": str(len(writes))}}})

    management.proxy.before.append(somebody_writes)
    await maker.resize(id_, 3, [])
    assert len(writes) == 2
    (seen,) = (await maker.list()).machines
    assert seen.nodes == 3
    (there,) = management.controllers.clusters()
    assert there["metadata"]["annotations"]["written"] == "2", "what others wrote stays"
    await maker.close()


async def test_two_shrinkings_before_any_machine_went_cost_the_named_nodes(management: Management) -> None:
    """The first is marked and still there when the second comes."""
    maker = management.make()
    order = an_order(3)
    id_ = await running(management, maker, order)
    controllers = management.controllers
    first, second, third = sorted(controllers.nodes(order.name))
    with controllers.paused:
        await maker.resize(id_, 2, [second])
        await maker.resize(id_, 1, [first])
        marked = {node for node, machine in machines(management).items() if machine}
        assert marked == {first, second}
    await until(lambda: controllers.nodes(order.name) == {third}, "both go")
    await maker.close()


async def test_a_mark_of_a_try_that_failed_does_not_cost_another_node(management: Management) -> None:
    """The mark was set, the size was not written, and then a task came to the node."""
    maker = management.make()
    order = an_order(2)
    id_ = await running(management, maker, order)
    busy, idle = sorted(management.controllers.nodes(order.name))
    no = Reply(500, {"kind": "Status", "code": 500, "message": "etcd is slow"})
    management.proxy.before.append(
        lambda request: no if request.method == "PUT" and "/clusters/" in request.path else None
    )
    with pytest.raises(ProviderError, match="cannot be resized"):
        await maker.resize(id_, 1, [busy])
    assert machines(management)[busy]
    management.proxy.mend()
    await maker.resize(id_, 1, [idle])
    await until(lambda: management.controllers.nodes(order.name) == {busy}, "the idle node goes")
    await maker.close()


def machines(there: Management) -> dict[str, bool]:
    """Return whether the machine of a node is marked, by node."""
    items = there.cluster.admin.get(f"{there.controllers.path}/machines").json()["items"]
    return {
        each["status"]["nodeRef"]["name"]: DELETE in each["metadata"].get("annotations", {}) for each in items
    }


async def test_the_kubeconfig_may_be_in_another_secret(management: Management) -> None:
    """Such as for EKS, where that of Cluster API itself has a token for minutes."""
    maker = management.make(kubeconfig_secret="user-kubeconfig")
    id_ = await running(management, maker, an_order())
    with pytest.raises(ProviderError, match='"spill-5d1f0c7a-cloud-1-user-kubeconfig" not found'):
        await maker.kubeconfig(id_)
    value = base64.b64encode(b"kind: Config").decode()
    secret = {"metadata": {"name": f"{an_order().name}-user-kubeconfig"}, "data": {"value": value}}
    management.cluster.admin.post(
        f"/api/v1/namespaces/{management.namespace}/secrets", json=secret
    ).raise_for_status()
    assert await maker.kubeconfig(id_) == "kind: Config"
    await maker.close()


async def test_a_secret_without_a_kubeconfig_is_told(management: Management) -> None:
    maker = management.make()
    id_ = await running(management, maker, an_order())
    path = f"/api/v1/namespaces/{management.namespace}/secrets/{an_order().name}-kubeconfig"
    for data in ({"value": None}, {"value": base64.b64encode(b"\xff\xfe").decode()}):
        management.change(path, {"data": data})
        with pytest.raises(ProviderError, match="has no kubeconfig under `value`"):
            await maker.kubeconfig(id_)
    with pytest.raises(ProviderError, match="is not NAMESPACE/NAME of a cluster"):
        await maker.kubeconfig("../x")
    await maker.close()


async def test_an_odd_object_is_still_listed(management: Management) -> None:
    maker = management.make()
    assert isinstance(await maker.create(an_order()), Made)
    name = an_order().name
    status = json.dumps({"status": {"initialization": "soon"}})
    headers = {"Content-Type": "application/merge-patch+json"}
    management.controllers.answers = False
    management.cluster.admin.patch(
        f"{management.clusters}/{name}/status", content=status, headers=headers
    ).raise_for_status()
    (seen,) = (await maker.list()).machines
    assert (seen.name, seen.owner, seen.presence, seen.nodes) == (name, OWNER, Presence.PENDING, None)
    await maker.close()


async def test_the_role_on_the_page_is_enough(management: Management) -> None:
    page = (Path(__file__).parents[2] / "docs" / "pools.md").read_text()
    section = page.partition("\n## clusterapi\n")[2].partition("\n## ")[0]
    (text,) = [each for each in re.findall(r"```yaml\n(.*?)```", section, re.DOTALL) if "kind: Role" in each]
    role = yaml.safe_load(text)
    space = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{management.namespace}"
    admin = management.cluster.admin
    admin.post(f"{space}/roles", json=role).raise_for_status()
    token = management.cluster.service_account("maker", management.namespace)
    binding = {
        "metadata": {"name": "maker"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "Role",
            "name": role["metadata"]["name"],
        },
        "subjects": [{"kind": "ServiceAccount", "name": "maker", "namespace": management.namespace}],
    }
    admin.post(f"{space}/rolebindings", json=binding).raise_for_status()
    management.log_in(token)
    maker = management.make()
    assert list(await maker.check([SMALL])) == []
    order = an_order(2)
    id_ = await running(management, maker, order)
    await maker.resize(id_, 1, sorted(management.controllers.nodes(order.name))[:1])
    assert await maker.kubeconfig(id_)
    assert not await maker.destroy([id_])
    await maker.close()


async def test_missing_permissions_are_told_in_one_line_each(management: Management) -> None:
    management.log_in(management.cluster.service_account("nobody", management.namespace))
    maker = management.make()
    lines = list(await maker.check([SMALL]))
    assert [line.split(";")[0] for line in lines] == [
        f"no permission to {what} in namespace {management.namespace!r}"
        for what in (
            *(f"{verb} clusters" for verb in ("create", "delete", "get", "list", "update")),
            *(f"{verb} machines" for verb in ("get", "list", "update")),
            "get secrets",
            "get clusterclasses",
        )
    ]
    await maker.close()


async def test_a_class_or_namespace_that_is_not_there_is_told(management: Management) -> None:
    space = management.namespace
    for options, line in (
        (
            {"cluster_class": "slow"},
            (
                f"there is no ClusterClass 'slow' in namespace {space!r}; "
                "`kubectl get clusterclasses -A` shows those there are"
            ),
        ),
        (
            {"worker_class": "tpu-worker"},
            (
                "the ClusterClass quick has no class 'tpu-worker' of MachineDeployments; "
                "set worker_class to one of: default-worker, gpu-worker"
            ),
        ),
        (
            {"namespace": "nowhere", "cluster_class": f"{space}/quick"},
            (
                "there is no namespace 'nowhere'; create it with `kubectl create namespace nowhere`, "
                "or set `namespace`"
            ),
        ),
    ):
        maker = management.make(**options)
        assert list(await maker.check([SMALL])) == [line]
        await maker.close()


async def test_a_cluster_without_cluster_api_is_told(management: Management) -> None:
    none = Reply(404, {"kind": "Status", "code": 404, "message": "the server could not find the resource"})
    management.proxy.before.append(lambda request: none if request.path == f"/apis/{GROUP}" else None)
    maker = management.make()
    (line,) = await maker.check([SMALL])
    assert "has no Cluster API; run `clusterctl init` there, or set `context`" in line
    answer = await maker.create(an_order())
    assert isinstance(answer, NotNow)
    assert answer.why == line
    with pytest.raises(ProviderError):
        await maker.list()
    await maker.close()
