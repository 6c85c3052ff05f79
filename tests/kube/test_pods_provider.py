"""The provider kubernetes, against a real API server, scheduler and quotas, and nodes that KWOK plays.

Requests pass a small proxy, which loses and refuses what a test asks it to.
"""

import asyncio
import base64
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import yaml
from msgspec.structs import replace

from spillover.model.pools import Offer, RefusalCause
from spillover.model.resources import Resources
from spillover.ports.provider import OWNER_TAG, Made, Order, Presence, Provider, Refused
from spillover.providers.kubernetes.kind import KubernetesForm, KubernetesPodsKind
from spillover.testing.provider_suite import OWNER, Fault, OpenProvider, ProviderSuite, an_opening
from tests.support.clouds.server import FakeApi, Reply, Request
from tests.support.kube import Cluster
from tests.support.kube.identities import Access, write_kubeconfig
from tests.support.processes import wait_until

POOL = {"spillover.test/pool": "pods-as-machines"}
FOREVER = {"spillover.test/runs-for": "forever"}
SMALL = Offer("small", Resources(1000, 2**30), 100_000)


class Forwarding(FakeApi):
    """A proxy in front of an API server."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        self.client = cluster.client()
        self.limit = 0
        """Objects of a page; 0 for as many as asked for."""

    def answer(self, request: Request) -> Reply:
        query = request.query | (
            {"limit": str(self.limit)} if self.limit and "limit" in request.query else {}
        )
        url = f"{request.path}?{urlencode(query)}" if query else request.path
        kept = {
            name: value
            for name, value in request.headers.items()
            if name in {"authorization", "content-type"}
        }
        answer = self.client.request(request.method, url, content=request.content, headers=kept)
        return Reply(answer.status_code, answer.content)


class Place:
    """A namespace on the cluster, reached through the proxy."""

    def __init__(self, cluster: Cluster, proxy: Forwarding, folder: Path) -> None:
        self.cluster = cluster
        self.proxy = proxy
        self.folder = folder
        self.namespace = cluster.namespace("pool")
        self.pods = f"/api/v1/namespaces/{self.namespace}/pods"
        self.config = folder / "kubeconfig"
        self.log_in(cluster.token)

    def log_in(self, token: str) -> None:
        """Use another service account from now on."""
        write_kubeconfig(
            self.config,
            [Access("pool", self.proxy.url, self.cluster.ca, token=token, namespace=self.namespace)],
        )

    def open(self, owner: str = OWNER, **options: Any) -> Provider:
        form = KubernetesForm(
            **{
                "image": "spillover:test",
                "kubeconfig": str(self.config),
                "bind_within": "1s",
                "pod": {"nodeSelector": POOL},
                "annotations": FOREVER,
            }
            | options
        )
        return KubernetesPodsKind().open(form, an_opening(self.folder, owner, {}))

    def listed(self, what: str = "pods") -> list[Any]:
        """Return what is really there."""
        answer = self.cluster.admin.get(f"/api/v1/namespaces/{self.namespace}/{what}").raise_for_status()
        items: list[Any] = answer.json()["items"]
        return items

    def change(self, path: str, change: Any) -> None:
        headers = {"Content-Type": "application/merge-patch+json"}
        self.cluster.admin.patch(path, content=json.dumps(change), headers=headers).raise_for_status()

    def cordon(self, closed: bool) -> None:
        """Close or open the nodes of the pool."""
        selector = ",".join(f"{key}={value}" for key, value in POOL.items())
        nodes = self.cluster.admin.get("/api/v1/nodes", params={"labelSelector": selector}).json()["items"]
        for node in nodes:
            self.change(f"/api/v1/nodes/{node['metadata']['name']}", {"spec": {"unschedulable": closed}})

    def evict(self, name: str) -> None:
        """Take a pod from its node, as for the maintenance of a node."""
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
        self.cluster.admin.post(f"{self.pods}/{name}/eviction", json=eviction).raise_for_status()

    def add_pod(self, name: str, **more: Any) -> None:
        """Create a pod of somebody else."""
        pod = {
            "metadata": {"name": name, "annotations": FOREVER} | more,
            "spec": {"containers": [{"name": "main", "image": "x"}]},
        }
        self.cluster.admin.post(self.pods, json=pod).raise_for_status()


@pytest.fixture(scope="module")
def nodes(cloud: Cluster) -> Iterator[None]:
    names = cloud.add_nodes(2, cpu="8", labels=POOL | {"topology.kubernetes.io/zone": "west"})
    yield
    cloud.remove_nodes(names)


@pytest.fixture
def place(cloud: Cluster, nodes: None, tmp_path: Path) -> Iterator[Place]:
    with Forwarding(cloud).served() as proxy:
        there = Place(cloud, proxy, tmp_path)
        yield there
        there.cordon(False)
        cloud.remove_namespace(there.namespace)
        proxy.client.close()


class TestContract(ProviderSuite):
    faults = frozenset(Fault)
    offer = SMALL
    bad_offer = Offer("odd", Resources(1000, 2**30, 0, (("bad name!", 1),)), 1)
    remembers = False  # a name is free again once its pod is gone
    place: Place

    @pytest.fixture
    def open_provider(self, place: Place) -> OpenProvider:
        self.place = place
        return place.open

    def provoke(self, fault: Fault) -> None:
        place, proxy = self.place, self.place.proxy
        match fault:
            case Fault.CAPACITY:
                place.cordon(True)
            case Fault.QUOTA:
                quota = {"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}
                place.cluster.add_quota(place.namespace, quota)
            case Fault.INVALID:
                most = {"limits": [{"type": "Container", "max": {"cpu": "100m"}}]}
                place.cluster._make(
                    f"/api/v1/namespaces/{place.namespace}/limitranges",
                    {"metadata": {"name": "tiny"}, "spec": most},
                )
            case Fault.AUTH:
                nobody = place.cluster.service_account("nobody", place.namespace)
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
                how = "work" if fault is Fault.LOST_ANSWER else "drop"
                proxy.lost.append((f"POST {place.pods}", how))
            case Fault.PARTIAL:
                proxy.limit = 1
                for name in ("theirs-1", "theirs-2"):
                    place.add_pod(name)
                gone = Reply(410, {"kind": "Status", "code": 410, "message": "the token is too old"})
                proxy.before.append(lambda request: gone if "continue" in request.query else None)
            case Fault.LOST_TAGS:
                for pod in place.listed():
                    place.change(f"{place.pods}/{pod['metadata']['name']}", {"metadata": {"labels": None}})
            case Fault.TAKEN_BACK:
                for pod in place.listed():
                    place.evict(pod["metadata"]["name"])
            case Fault.REFUSED_DESTROY:
                no = Reply(403, {"kind": "Status", "code": 403, "message": "a webhook denied the request"})
                proxy.before.append(lambda request: no if request.method == "DELETE" else None)

    def mend(self) -> None:
        place = self.place
        place.proxy.limit = 0
        place.proxy.mend()
        place.cordon(False)
        for what in ("resourcequotas", "limitranges"):
            place.cluster.admin.request("DELETE", f"/api/v1/namespaces/{place.namespace}/{what}")


def an_order(**more: Any) -> Order:
    order = TestContract().an_order()
    return replace(order, **more) if more else order


async def test_the_pod_runs_an_agent_that_joins_with_its_secret(place: Place) -> None:
    provider = place.open()
    order = an_order(offer=replace(SMALL, zone="west", words=("ssd",), labels={"cost": "$(HOME)"}))
    made = await provider.create(order)
    await provider.close()
    assert isinstance(made, Made)
    assert made.id == f"{place.namespace}/{order.name}"
    (pod,) = place.listed()
    spec = pod["spec"]
    (container,) = spec["containers"]
    assert order.tags.items() <= pod["metadata"]["labels"].items()
    assert spec["restartPolicy"] == "Never"
    assert spec["automountServiceAccountToken"] is False
    assert spec["nodeSelector"] == POOL | {"topology.kubernetes.io/zone": "west"}
    assert container["resources"]["requests"] == {"cpu": "1", "memory": str(2**30)}
    assert container["command"][:2] == ["spill", "agent"]
    assert "cost=$$(HOME)" in container["command"], "Kubernetes would put a variable there"
    mounted = {each["mountPath"] for each in container["volumeMounts"]}
    assert container["command"][container["command"].index("--join") + 1] in mounted
    (secret,) = place.listed("secrets")
    assert json.loads(base64.b64decode(secret["data"]["join.json"]))["token"] == order.join.token
    (owner,) = secret["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("Pod", pod["metadata"]["uid"])


async def test_the_secret_goes_with_the_pod(place: Place) -> None:
    provider = place.open()
    made = await provider.create(an_order())
    assert isinstance(made, Made)
    assert await provider.destroy([made.id]) == {}
    await provider.close()
    await _until(lambda: not place.listed("secrets"), "the Secret goes")


async def test_a_repeated_order_creates_the_secret_that_is_missing(place: Place) -> None:
    """The server stopped after the pod, and before its Secret."""
    provider = place.open()
    place.proxy.before.append(lambda request: Reply(503) if request.path.endswith("/secrets") else None)
    assert not isinstance(await provider.create(an_order()), Made | Refused)
    assert place.listed("secrets") == []
    place.proxy.mend()
    assert isinstance(await provider.create(an_order()), Made)
    assert len(place.listed("secrets")) == len(place.listed()) == 1
    await provider.close()


async def test_a_machine_whose_secret_is_refused_leaves_no_pod(place: Place) -> None:
    provider = place.open()
    said = 'secrets is forbidden: User "x" cannot create resource "secrets"'
    no = Reply(403, {"kind": "Status", "code": 403, "reason": "Forbidden", "message": said})
    place.proxy.before.append(lambda request: no if request.path.endswith("/secrets") else None)
    answer = await provider.create(an_order())
    assert isinstance(answer, Refused)
    assert answer.cause is RefusalCause.AUTH
    await _until(lambda: not place.listed(), "the pod goes")
    await provider.close()


@pytest.mark.parametrize("labels", [{OWNER_TAG: "somebody"}, {}])
async def test_a_pod_with_our_name_is_adopted_unless_it_is_of_somebody_else(
    place: Place, labels: dict[str, str]
) -> None:
    place.add_pod(an_order().name, labels=labels)
    provider = place.open()
    answer = await provider.create(an_order())
    await provider.close()
    if labels:
        assert isinstance(answer, Refused)
        assert answer.cause is RefusalCause.INVALID
    else:
        assert isinstance(answer, Made)


async def test_a_machine_without_a_node_is_given_back_at_once(place: Place) -> None:
    provider = place.open()
    answer = await provider.create(an_order(offer=replace(SMALL, resources=Resources(64_000, 2**30))))
    await provider.close()
    assert isinstance(answer, Refused)
    assert answer.cause is RefusalCause.CAPACITY
    assert "Insufficient cpu" in answer.why
    await _until(lambda: not place.listed(), "the pod goes")


async def test_a_machine_that_waits_for_more_nodes_is_listed_as_stopping_when_none_come(place: Place) -> None:
    """Such as where an autoscaler adds nodes for pods without one."""
    large = an_order(offer=replace(SMALL, resources=Resources(64_000, 2**30)))
    patient, hurried = place.open(bind_within="10m"), place.open(bind_within="1s")
    assert isinstance(await patient.create(large), Made)
    await _until(lambda: "Unschedulable" in json.dumps(place.listed()), "the scheduler looks for a node")
    (seen,) = (await patient.list()).machines
    assert (seen.presence, seen.reason) == (Presence.PENDING, "")
    async with asyncio.timeout(30):
        while seen.presence is Presence.PENDING:
            (seen,) = (await hurried.list()).machines
            await asyncio.sleep(0.1)
    assert seen.presence is Presence.STOPPING
    assert "Insufficient cpu" in seen.reason
    await patient.close()
    await hurried.close()


async def test_a_pod_that_ended_or_was_evicted_is_stopping(place: Place) -> None:
    provider = place.open(
        annotations={"spillover.test/evicted": "out of memory", "spillover.test/runs-for": "10ms"}
    )
    assert isinstance(await provider.create(an_order()), Made)
    await _until(lambda: place.listed()[0]["status"]["phase"] == "Failed", "the pod fails")
    (seen,) = (await provider.list()).machines
    assert seen.presence is Presence.STOPPING
    assert seen.interrupted
    assert "out of memory" in seen.reason
    await provider.close()


async def test_missing_permissions_and_namespaces_are_told_in_one_line_each(place: Place) -> None:
    provider = place.open(namespace="nowhere")
    (line,) = await provider.check([SMALL])
    assert "there is no namespace 'nowhere'" in line
    await provider.close()
    place.log_in(place.cluster.service_account("nobody", place.namespace))
    provider = place.open()
    lines = list(await provider.check([SMALL]))
    assert [line.split(";")[0] for line in lines] == [
        f"no permission to {what} in namespace {place.namespace!r}"
        for what in ("create pods", "delete pods", "get pods", "list pods", "create secrets")
    ]
    await provider.close()


def renter(place: Place) -> str:
    """Return the token of a service account with exactly the documented role."""
    page = (Path(__file__).parents[2] / "docs" / "pools.md").read_text()
    section = page.partition("\n## kubernetes\n")[2].partition("\n## ")[0]
    (text,) = [each for each in re.findall(r"```yaml\n(.*?)```", section, re.DOTALL) if "kind: Role" in each]
    role = yaml.safe_load(text)
    admin, space = place.cluster.admin, f"/apis/rbac.authorization.k8s.io/v1/namespaces/{place.namespace}"
    admin.post(f"{space}/roles", json=role).raise_for_status()
    token = place.cluster.service_account("renter", place.namespace)
    binding = {
        "metadata": {"name": "renter"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "Role",
            "name": role["metadata"]["name"],
        },
        "subjects": [{"kind": "ServiceAccount", "name": "renter", "namespace": place.namespace}],
    }
    admin.post(f"{space}/rolebindings", json=binding).raise_for_status()
    return token


def test_the_role_on_the_page_is_enough(place: Place) -> None:
    place.log_in(renter(place))

    async def story() -> None:
        provider = place.open()
        assert list(await provider.check([SMALL])) == []
        made = await provider.create(an_order())
        assert isinstance(made, Made), made
        assert (await provider.list()).whole
        assert await provider.destroy([made.id]) == {}
        await provider.close()

    asyncio.run(story())


async def _until(holds: Callable[[], object], what: str) -> None:
    await asyncio.to_thread(wait_until, holds, what, 60)
