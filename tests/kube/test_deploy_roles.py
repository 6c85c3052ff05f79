"""The roles of deploy/kubernetes: each verb is used, none is missing, and one that is taken away is named."""

import asyncio
import functools
import inspect
import itertools
import json
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from spillover.clusters.kubernetes.api.requests import Api
from spillover.clusters.kubernetes.driver import Kubernetes
from spillover.clusters.kubernetes.opening import open_cluster
from spillover.clusters.kubernetes.options import KubernetesOptions
from spillover.core.events import Lease
from spillover.model.ids import ClusterName, JobId
from spillover.model.job import Container, JobSpec, Shape, Terms
from spillover.model.resources import Resources
from spillover.model.units import SECOND
from spillover.ports.cluster import Start
from spillover.ports.driver import DriverLink, Made, Seen, Stage
from tests.support.kube import Cluster
from tests.support.kube.deployed import NAMESPACE, Typed
from tests.support.kube.identities import Access, write_kubeconfig
from tests.support.kube.serving import MERGE, PATIENCE, a_job
from tests.support.kubernetes import Leading
from tests.support.processes import ServerProcess, write_config

ROOT = Path(__file__).parents[2]
ROLES = [
    each
    for each in yaml.safe_load_all((ROOT / "deploy/kubernetes/access/roles.yaml").read_text())
    if "rules" in each
]
JOBS = "spillover-jobs"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
OPTIONAL = {("metrics.k8s.io", "pods", "list")}
"""Group, resource and verb of what the server uses if it may, and if the cluster serves it, which these do not."""
HEARD = 100
"""Tries in which an API server must have heard of new rules."""


@pytest.fixture(scope="module")
def applied(cloud: Cluster) -> Iterator[Typed]:
    """The account and its roles, as a remote cluster has them."""
    typed = Typed(cloud.kubeconfig, ROOT)
    typed("kubectl apply -k deploy/kubernetes/access")
    names = cloud.add_nodes(1, cpu="2")
    yield typed
    cloud.remove_nodes(names)
    typed("kubectl delete -k deploy/kubernetes/access")


def all_rules() -> Iterator[tuple[str, str, str, str]]:
    """Each verb of each rule by itself that the server needs, with the kind of its role, its group and its resource."""
    for role in ROLES:
        for rule in role["rules"]:
            each = itertools.product(rule["apiGroups"], rule["resources"], rule["verbs"])
            yield from ((role["kind"], *one) for one in each if one not in OPTIONAL)


def granted() -> Iterator[tuple[str, str, str]]:
    """Verb, group and resource of each."""
    return ((verb, group, resource) for _, group, resource, verb in all_rules())


def without(rules: list[dict[str, Any]], group: str, resource: str, verb: str) -> list[dict[str, Any]]:
    """Rules that do not have one verb of one resource."""
    kept = []
    for rule in rules:
        same = rule["apiGroups"] == [group] and rule["resources"] == [resource]
        verbs = [each for each in rule["verbs"] if not (same and each == verb)]
        kept += [rule | {"verbs": verbs}] if verbs else []
    return kept


def as_kubeconfig(cluster: Cluster, typed: Typed, folder: Path) -> Path:
    """A kubeconfig of the account."""
    token = typed(f"kubectl -n {NAMESPACE} create token server --duration=1h").strip()
    return write_kubeconfig(folder / "kubeconfig", [Access("account", cluster.url, cluster.ca, token)])


@asynccontextmanager
async def as_account(cluster: Cluster, typed: Typed, folder: Path) -> AsyncIterator[Kubernetes]:
    """A driver with the rights of the account, and no others."""
    kubeconfig = as_kubeconfig(cluster, typed, folder)
    options = KubernetesOptions(
        cluster=ClusterName("onprem"), owner="deployed", kubeconfig=str(kubeconfig), namespace=JOBS, image="x"
    )
    driver = open_cluster(options, {}, Path("/nowhere"), Leading())
    try:
        yield driver
    finally:
        await driver.close()


@pytest.fixture
def rules(cloud: Cluster, applied: Typed) -> Iterator[Callable[[str, list[dict[str, Any]]], None]]:
    """Sets the rules of the role of a kind; they are as they were when a test ends."""

    def put(kind: str, rules: list[dict[str, Any]]) -> None:
        place = "clusterroles" if kind == "ClusterRole" else f"namespaces/{JOBS}/roles"
        cloud.admin.patch(
            f"{RBAC}/{place}/spillover-server", json={"rules": rules}, headers=MERGE
        ).raise_for_status()

    yield put
    for role in ROLES:
        put(role["kind"], role["rules"])


async def checked(driver: Kubernetes, wanted: Callable[[list[str]], bool]) -> list[str]:
    """What the check of `spill up` says, once the API server has heard of new rules and it is what is wanted; else what it says."""
    found = list(await driver.check())
    for _ in range(HEARD):
        if wanted(found):
            break
        await asyncio.sleep(0.1)
        found = list(await driver.check())
    return found


@pytest.mark.parametrize(("kind", "group", "resource", "verb"), list(all_rules()))
async def test_a_verb_that_is_taken_away_is_named(
    cloud: Cluster,
    applied: Typed,
    tmp_path: Path,
    rules: Callable[[str, list[dict[str, Any]]], None],
    kind: str,
    group: str,
    resource: str,
    verb: str,
) -> None:
    [role] = [each for each in ROLES if each["kind"] == kind]
    less = without(role["rules"], group, resource, verb)
    assert less != role["rules"]
    where = "in all namespaces" if kind == "ClusterRole" else f"in namespace '{JOBS}'"
    async with as_account(cloud, applied, tmp_path) as driver:
        assert await checked(driver, lambda found: not found) == []
        rules(kind, less)
        [problem] = await checked(driver, lambda found: len(found) == 1)
        assert problem.startswith(f"no permission to {verb} {resource} {where}; grant it to ")


def test_a_server_without_rights_names_all_of_them(
    cloud: Cluster,
    applied: Typed,
    tmp_path: Path,
    rules: Callable[[str, list[dict[str, Any]]], None],
) -> None:
    for role in ROLES:
        rules(role["kind"], [])
    cluster = {
        "name": "onprem",
        "kind": "kubernetes",
        "kubernetes": {"kubeconfig": str(as_kubeconfig(cloud, applied, tmp_path)), "namespace": JOBS},
    }
    server = ServerProcess(tmp_path, *write_config(tmp_path, clusters=[cluster]))
    try:
        server.launch()
        assert server.await_end(PATIENCE) == 2
    finally:
        server.clear()
    said = server.log.read_text()
    for verb, _, resource in granted():
        assert f"spill: cluster onprem: no permission to {verb} {resource} in " in said


async def test_a_driver_uses_every_verb_and_no_other(
    cloud: Cluster, applied: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One attempt is made, made again, read and stopped, by what the roles grant."""
    asked: set[tuple[str, str, str]] = set()
    for name in ("ask", "lines", "chunks"):
        monkeypatch.setattr(Api, name, recorded(getattr(Api, name), asked))
    async with as_account(cloud, applied, tmp_path) as driver:
        news = asyncio.Event()
        seen: dict[Lease, Seen] = {}

        async def until(holds: Callable[[], bool]) -> None:
            async with asyncio.timeout(PATIENCE):
                while True:
                    changes = driver.take()
                    for lease in changes.gone:
                        seen.pop(lease, None)
                    seen.update((each.lease, each) for each in changes.attempts)
                    if holds():
                        return
                    await news.wait()
                    news.clear()

        running = asyncio.create_task(driver.run(news.set))
        try:
            await until(lambda: driver.connection().link is DriverLink.UP)
            lease = Lease(JobId("deployed"), 1, 1)
            manifest = json.dumps(a_job("deployed", runs_for="forever"))
            spec = JobSpec(
                Container("x", manifest=manifest),
                "test",
                "default",
                "default",
                Shape(Resources(100)),
                Terms(),
            )
            for _ in range(2):
                answer = await driver.start(Start(lease, spec, ClusterName("onprem")))
                assert answer.made is Made.MADE, answer
            await until(lambda: lease in seen and seen[lease].stage is Stage.RUNNING)
            async with aclosing(driver.output(lease, 0, 0, follow=False)) as chunks:
                assert [chunk async for chunk in chunks]
            await driver.stop(lease, SECOND)
            await until(lambda: lease not in seen)
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running
    assert asked == set(granted())


def recorded(call: Callable[..., Any], asked: set[tuple[str, str, str]]) -> Callable[..., Any]:
    """A call of the API that is noted as the API server sees it: verb, group and resource."""

    @functools.wraps(call)
    def noted(self: Api, *words: Any, **named: Any) -> Any:
        given = inspect.signature(call).bind(self, *words, **named).arguments
        path = re.fullmatch(
            r"/(?:api|apis/([^/]+))/v1(?:beta1)?(?:/namespaces/[^/]+)?/([a-z]+)(?:/([^/]+)(?:/([a-z]+))?)?",
            given["path"],
        )
        assert path is not None, given["path"]
        group, resource, name, part = path.groups(default="")
        reads = "get" if name else "watch" if "watch" in (given.get("params") or {}) else "list"
        verb = {"GET": reads, "POST": "create", "DELETE": "delete"}[given.get("method", "GET")]
        if (group, resource, verb) not in OPTIONAL:
            asked.add((verb, group, f"{resource}/{part}" if part else resource))
        return call(self, *words, **named)

    return noted
