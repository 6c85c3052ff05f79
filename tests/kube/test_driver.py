"""The driver of Kubernetes clusters, against a real API server, real controllers and nodes that KWOK plays."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from spillover.clusters.kubernetes.attempts.naming import name_of
from spillover.clusters.kubernetes.driver import Kubernetes
from spillover.clusters.kubernetes.opening import open_cluster
from spillover.clusters.kubernetes.options import KubernetesOptions
from spillover.core.events import Lease, SeenNode
from spillover.core.proposals import Outcome
from spillover.model.ids import ClusterName, JobId
from spillover.model.job import Container, JobSpec, Shape, Shell, Terms
from spillover.model.resources import Resources
from spillover.model.units import SECOND
from spillover.ports.cluster import OutputGone, Start
from spillover.ports.driver import DriverLink, Ending, Hindrance, Made, Pending, Seen, Stage
from tests.support.kube import Cluster
from tests.support.kubernetes import Leading

PATIENCE = 60.0
_numbers = itertools.count(1)


class Watcher:
    """A driver that runs, and all that it told."""

    def __init__(self, driver: Kubernetes) -> None:
        self.driver = driver
        self.nodes: dict[str, SeenNode] = {}
        self.seen: dict[Lease, Seen] = {}
        self.gone: list[Lease] = []
        self.links: list[DriverLink] = []
        self.lists = 0
        self._news = asyncio.Event()

    async def run(self) -> None:
        await self.driver.run(self._hear)

    def _hear(self) -> None:
        changes = self.driver.take()
        if changes.whole:
            self.lists += 1
            self.nodes = {}
            self.gone += [
                lease for lease in self.seen if lease not in {each.lease for each in changes.attempts}
            ]
            self.seen = {}
        self.nodes |= {node.name: node for node in changes.nodes}
        for name in changes.gone_nodes:
            self.nodes.pop(name, None)
        self.seen |= {each.lease: each for each in changes.attempts}
        for lease in changes.gone:
            self.seen.pop(lease, None)
            self.gone.append(lease)
        if not self.links or self.links[-1] is not self.driver.connection().link:
            self.links.append(self.driver.connection().link)
        self._news.set()

    async def until(self, holds: Callable[[], Any]) -> Any:
        """Wait for something to be told."""
        async with asyncio.timeout(PATIENCE):
            while not (found := holds()):
                await self._news.wait()
                self._news.clear()
        return found

    async def ending(self, lease: Lease) -> Ending:
        found: Ending = await self.until(lambda: lease in self.seen and self.seen[lease].ending)
        return found

    async def pending(self, lease: Lease) -> Pending:
        found: Pending = await self.until(lambda: lease in self.seen and self.seen[lease].pending)
        return found

    async def running(self, lease: Lease) -> Seen:
        await self.until(lambda: lease in self.seen and self.seen[lease].stage is Stage.RUNNING)
        return self.seen[lease]


def a_lease() -> Lease:
    return Lease(JobId(f"job{next(_numbers):09}"), 1, 1)


def manifest(spec: dict[str, Any] | None = None, pod: dict[str, Any] | None = None, **told: Any) -> Container:
    """A Job of one pod with annotations that say how it runs: `manifest(exit_code="3")`."""
    notes = {f"spillover.test/{name.replace('_', '-')}": value for name, value in told.items()}
    inner = {
        "restartPolicy": "Never",
        "containers": [{"name": "main", "image": "x", "resources": {"requests": {"cpu": "100m"}}}],
    }
    template = {"metadata": {"annotations": notes}, "spec": inner | (pod or {})}
    whole = {"spec": {"backoffLimit": 0, "template": template} | (spec or {})}
    return Container("x", manifest=msgspec.json.encode(whole).decode())


def a_start(work: Container | Shell, lease: Lease | None = None, tasks: int = 1) -> Start:
    spec = JobSpec(
        work, "test", "default", "default", Shape(Resources(100), tasks=tasks), Terms(grace=5 * SECOND)
    )
    return Start(lease or a_lease(), spec, ClusterName("onprem"))


@pytest.fixture(scope="module")
def nodes(onprem: Cluster) -> Iterator[list[str]]:
    names = onprem.add_nodes(2, cpu="4", memory="8Gi", labels={"pool": "driver"})
    yield names
    onprem.remove_nodes(names)


@pytest.fixture
def namespace(onprem: Cluster, nodes: list[str]) -> Iterator[str]:
    name = onprem.namespace("driver")
    yield name
    onprem.remove_namespace(name)


def a_driver(cluster: Cluster, namespace: str, owner: str = "", kubeconfig: Path | None = None) -> Kubernetes:
    path = str(kubeconfig or cluster.kubeconfig)
    options = KubernetesOptions(
        cluster=ClusterName(cluster.name),
        owner=owner or f"of-{namespace}",
        kubeconfig=path,
        namespace=namespace,
        image="busybox",
    )
    return open_cluster(options, {}, Path("/nowhere"), Leading())


@asynccontextmanager
async def watching(driver: Kubernetes) -> AsyncIterator[Watcher]:
    """What a driver tells while the block lasts, from the first list on."""
    watcher = Watcher(driver)
    task = asyncio.create_task(watcher.run())
    try:
        await watcher.until(lambda: watcher.lists and driver.connection().link is DriverLink.UP)
        yield watcher
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@pytest.fixture
async def watcher(onprem: Cluster, namespace: str) -> AsyncIterator[Watcher]:
    async with watching(a_driver(onprem, namespace)) as running:
        yield running


def with_token(cluster: Cluster, token: str, folder: Path) -> Path:
    """A kubeconfig with another token."""
    return with_user(cluster, folder, {"token": token})


# --- nodes


async def test_nodes_are_seen_with_what_others_use(
    onprem: Cluster, namespace: str, nodes: list[str], watcher: Watcher
) -> None:
    node = watcher.nodes[nodes[0]]
    assert (node.capacity.cpu, node.capacity.memory, node.ready) == (4000, 8 * 2**30, True)
    assert node.labels["pool"] == "driver"
    assert "os:linux" in node.offers
    before = node.foreign.cpu
    pod = {
        "metadata": {"name": "other", "annotations": {"spillover.test/runs-for": "forever"}},
        "spec": {
            "nodeName": nodes[0],
            "containers": [{"name": "a", "image": "x", "resources": {"requests": {"cpu": "500m"}}}],
            "initContainers": [{"name": "b", "image": "x", "resources": {"requests": {"cpu": "2"}}}],
        },
    }
    onprem.admin.post(f"/api/v1/namespaces/{namespace}/pods", json=pod).raise_for_status()
    await watcher.until(lambda: watcher.nodes[nodes[0]].foreign.cpu == before + 2000)
    assert watcher.nodes[nodes[0]].tasks == node.tasks - 1
    onprem.admin.delete(f"/api/v1/namespaces/{namespace}/pods/other").raise_for_status()
    await watcher.until(lambda: watcher.nodes[nodes[0]].foreign.cpu == before)


async def test_a_cordoned_node_is_not_ready_and_one_that_is_deleted_is_gone(
    onprem: Cluster, watcher: Watcher
) -> None:
    (name,) = await asyncio.to_thread(onprem.add_nodes, 1)
    await watcher.until(lambda: name in watcher.nodes and watcher.nodes[name].ready)
    merge = {"Content-Type": "application/merge-patch+json"}
    onprem.admin.patch(f"/api/v1/nodes/{name}", content=b'{"spec": {"unschedulable": true}}', headers=merge)
    await watcher.until(lambda: not watcher.nodes[name].ready)
    await watcher.until(lambda: any("unschedulable" in taint.key for taint in watcher.nodes[name].taints))
    onprem.remove_nodes([name])
    await watcher.until(lambda: name not in watcher.nodes)


# --- attempts


async def test_an_attempt_runs_and_ends_and_is_there_once_however_often_it_is_asked_for(
    onprem: Cluster, namespace: str, nodes: list[str], watcher: Watcher
) -> None:
    start = a_start(Shell("true"))
    answers = [await watcher.driver.start(start)]
    seen = await watcher.running(start.lease)
    answers += [await watcher.driver.start(start) for _ in range(2)]
    assert [answer.made for answer in answers] == [Made.MADE] * 3
    assert seen.started is not None
    assert seen.nodes[0] in watcher.nodes
    assert dict(seen.uses) == {seen.nodes[0]: Resources(100)}
    ending = await watcher.ending(start.lease)
    assert (ending.outcome, ending.exit_code) == (Outcome.EXITED, 0)
    assert watcher.seen[start.lease].uses == ()
    listed = onprem.admin.get(f"/apis/batch/v1/namespaces/{namespace}/jobs").json()["items"]
    assert [job["metadata"]["name"] for job in listed] == [name_of(start.lease)]
    await watcher.driver.stop(start.lease, 0)
    await watcher.until(lambda: start.lease in watcher.gone)


@pytest.mark.parametrize(
    ("told", "outcome", "code", "words"),
    [
        ({"exit_code": "3"}, Outcome.EXITED, 3, ""),
        ({"reason": "OOMKilled"}, Outcome.OUT_OF_MEMORY, 137, "OOMKilled"),
        ({"evicted": "low on memory"}, Outcome.LOST, None, "its node evicted it: low on memory"),
    ],
)
async def test_how_an_attempt_failed_comes_back(
    watcher: Watcher, told: dict[str, Any], outcome: Outcome, code: int | None, words: str
) -> None:
    start = a_start(manifest(runs_for="100ms", **told))
    await watcher.driver.start(start)
    ending = await watcher.ending(start.lease)
    assert (ending.outcome, ending.exit_code) == (outcome, code)
    assert words in ending.message


async def test_a_jobs_own_time_limit_is_its_walltime(watcher: Watcher) -> None:
    start = a_start(manifest({"activeDeadlineSeconds": 1}, runs_for="forever"))
    await watcher.driver.start(start)
    assert (await watcher.ending(start.lease)).outcome is Outcome.WALLTIME


@pytest.mark.slow  # Kubernetes waits ten seconds before it tries again
async def test_kubernetes_own_retries_happen_within_an_attempt(watcher: Watcher) -> None:
    start = a_start(manifest({"backoffLimit": 1}, runs_for="100ms", exit_code="4"))
    await watcher.driver.start(start)
    ending = await watcher.ending(start.lease)
    assert (ending.outcome, ending.exit_code) == (Outcome.EXITED, 4)
    known = watcher.driver._mirror.known(start.lease)
    assert known is not None
    assert len(known.pods) == 2


async def test_several_tasks_are_seen_in_their_order(watcher: Watcher) -> None:
    spec = {"completionMode": "Indexed", "completions": 3, "parallelism": 3}
    start = a_start(manifest(spec, runs_for="2s"), tasks=3)
    await watcher.driver.start(start)
    await watcher.until(lambda: len(watcher.seen[start.lease].nodes) == 3)
    assert sum(used.cpu for _, used in watcher.seen[start.lease].uses) == 300
    known = watcher.driver._mirror.known(start.lease)
    assert known is not None
    assert [each.index for each in known.pods] == [0, 1, 2]
    assert (await watcher.ending(start.lease)).exit_code == 0


# --- what keeps them


async def test_an_attempt_that_no_node_takes_says_why(watcher: Watcher) -> None:
    start = a_start(manifest(pod={"nodeSelector": {"pool": "nowhere"}}))
    await watcher.driver.start(start)
    pending = await watcher.pending(start.lease)
    assert pending.why is Hindrance.UNSCHEDULABLE
    assert "didn't match Pod's node affinity/selector" in pending.message


async def test_an_image_that_cannot_be_had_is_told(watcher: Watcher) -> None:
    start = a_start(manifest(never_starts="ErrImagePull"))
    await watcher.driver.start(start)
    pending = await watcher.pending(start.lease)
    assert (pending.why, pending.message) == (Hindrance.IMAGE, "ErrImagePull: ErrImagePull: x")


async def test_pods_that_a_quota_refuses_are_told(onprem: Cluster, namespace: str, watcher: Watcher) -> None:
    quota = {"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}
    await asyncio.to_thread(onprem.add_quota, namespace, quota)
    start = a_start(manifest())
    assert (await watcher.driver.start(start)).made is Made.MADE
    pending = await watcher.pending(start.lease)
    assert pending.why is Hindrance.REFUSED
    assert "exceeded quota: none" in pending.message


async def test_a_service_account_that_is_not_there_is_told(watcher: Watcher) -> None:
    start = a_start(manifest(pod={"serviceAccountName": "nobody"}))
    await watcher.driver.start(start)
    pending = await watcher.pending(start.lease)
    assert pending.why is Hindrance.CONFIG
    assert 'serviceaccount "nobody" not found' in pending.message


async def test_a_manifest_that_the_api_server_refuses_is_refused_in_its_words(watcher: Watcher) -> None:
    answer = await watcher.driver.start(a_start(manifest(pod={"containers": []})))
    assert answer.made is Made.REFUSED
    assert "spec.template.spec.containers: Required value" in answer.message
    answer = await watcher.driver.start(a_start(manifest({"completions": "many"})))
    assert answer.made is Made.REFUSED
    assert "completions" in answer.message


async def test_a_quota_of_jobs_is_no_refusal_for_ever(
    onprem: Cluster, namespace: str, watcher: Watcher
) -> None:
    quota = {"metadata": {"name": "few"}, "spec": {"hard": {"count/jobs.batch": "0"}}}
    onprem.admin.post(f"/api/v1/namespaces/{namespace}/resourcequotas", json=quota).raise_for_status()
    async with asyncio.timeout(PATIENCE):
        while (answer := await watcher.driver.start(a_start(manifest()))).made is Made.MADE:
            await asyncio.to_thread(onprem.admin.get, "/readyz")  # until the quota counts
    assert answer.made is Made.NOT_NOW
    assert "exceeded quota: few" in answer.message


# --- what goes away


async def test_an_attempt_that_is_stopped_is_gone_when_its_pods_are(
    onprem: Cluster, namespace: str, watcher: Watcher
) -> None:
    start = a_start(manifest(runs_for="forever", stops_in="1s"))
    await watcher.driver.start(start)
    await watcher.running(start.lease)
    await watcher.driver.stop(start.lease, 5 * SECOND)
    await watcher.until(lambda: start.lease in watcher.gone or watcher.seen[start.lease].going)
    await watcher.until(lambda: start.lease in watcher.gone)
    assert onprem.admin.get(f"/api/v1/namespaces/{namespace}/pods").json()["items"] == []
    await watcher.driver.stop(start.lease, 0)
    await watcher.driver.stop(a_lease(), 0)


@pytest.mark.parametrize("policy", ["Foreground", "Background"])
async def test_a_job_that_somebody_else_deletes_is_gone(
    onprem: Cluster, namespace: str, watcher: Watcher, policy: str
) -> None:
    start = a_start(manifest(runs_for="forever"))
    await watcher.driver.start(start)
    await watcher.running(start.lease)
    path = f"/apis/batch/v1/namespaces/{namespace}/jobs/{name_of(start.lease)}"
    onprem.admin.delete(path, params={"propagationPolicy": policy}).raise_for_status()
    await watcher.until(lambda: start.lease in watcher.gone)
    assert onprem.admin.get(f"/api/v1/namespaces/{namespace}/pods").json()["items"] == []


async def test_pods_that_somebody_left_without_a_job_are_stopped_too(
    onprem: Cluster, namespace: str, watcher: Watcher
) -> None:
    start = a_start(manifest(runs_for="forever"))
    await watcher.driver.start(start)
    await watcher.running(start.lease)
    path = f"/apis/batch/v1/namespaces/{namespace}/jobs/{name_of(start.lease)}"
    onprem.admin.delete(path, params={"propagationPolicy": "Orphan"}).raise_for_status()
    await watcher.until(lambda: watcher.driver._mirror.known(start.lease).job is None)  # type: ignore[union-attr]
    await watcher.driver.stop(start.lease, 0)
    await watcher.until(lambda: start.lease in watcher.gone)


async def test_a_pod_that_somebody_else_deletes_is_lost(
    onprem: Cluster, namespace: str, watcher: Watcher
) -> None:
    start = a_start(manifest(runs_for="forever"))
    await watcher.driver.start(start)
    await watcher.running(start.lease)
    onprem.admin.delete(f"/api/v1/namespaces/{namespace}/pods").raise_for_status()
    ending = await watcher.ending(start.lease)
    assert ending.outcome is Outcome.LOST
    assert "deleted by someone else" in ending.message


async def test_a_driver_that_begins_finds_what_another_left(
    onprem: Cluster, namespace: str, watcher: Watcher
) -> None:
    start = a_start(manifest(runs_for="forever"))
    await watcher.driver.start(start)
    seen = await watcher.running(start.lease)
    async with watching(a_driver(onprem, namespace)) as again:
        assert again.seen == {start.lease: seen}
    async with watching(a_driver(onprem, namespace, owner="another")) as other:
        assert other.seen == {}
        node = seen.nodes[0]
        # Each hears of what others do there by itself.
        await other.until(lambda: other.nodes[node].foreign == watcher.nodes[node].foreign + Resources(100))


# --- a server that is not well


async def test_an_api_server_that_dies_and_comes_back_is_caught_up_with(
    onprem: Cluster, namespace: str, watcher: Watcher
) -> None:
    start = a_start(manifest(runs_for="3s"))
    await watcher.driver.start(start)
    await watcher.running(start.lease)
    await asyncio.to_thread(onprem.apiserver.kill)
    await watcher.until(lambda: watcher.driver.connection().failures >= 3)
    connection = watcher.driver.connection()
    assert connection.link is DriverLink.DOWN
    assert "cannot connect" in connection.error
    late = a_start(manifest(runs_for="100ms"))
    answer = await watcher.driver.start(late)
    assert answer.made is Made.UNSENT
    await asyncio.to_thread(onprem.apiserver.start)
    await watcher.until(lambda: watcher.driver.connection().link is DriverLink.UP)
    assert (await watcher.driver.start(late)).made is Made.MADE
    assert (await watcher.ending(start.lease)).exit_code == 0
    assert (await watcher.ending(late.lease)).exit_code == 0


async def test_a_watch_that_is_too_old_begins_with_a_list(onprem: Cluster, watcher: Watcher) -> None:
    await asyncio.to_thread(onprem.apiserver.restart)  # it remembers nothing of what was before
    await watcher.until(lambda: watcher.driver.connection().link is DriverLink.UP)
    before = watcher.lists
    for each in watcher.driver._watched:
        each._version = "1"
        each.restart()
    await watcher.until(
        lambda: watcher.lists >= before + 3 and watcher.driver.connection().link is DriverLink.UP
    )
    start = a_start(manifest(runs_for="100ms"))
    assert (await watcher.driver.start(start)).made is Made.MADE
    assert (await watcher.ending(start.lease)).exit_code == 0


async def test_an_api_server_that_stands_still_is_noticed_and_what_was_asked_is_not_known(
    onprem: Cluster, namespace: str, watcher: Watcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("api.requests.ANSWER", "api.requests.CONNECT", "driver.PATIENCE", "driver.SLOW"):
        monkeypatch.setattr(f"spillover.clusters.kubernetes.{name}", 2.0)
    start = a_start(manifest(runs_for="100ms"))
    await asyncio.to_thread(onprem.apiserver.pause)
    try:
        answer = await watcher.driver.start(start)
        assert answer.made in {Made.UNKNOWN, Made.UNSENT}
        await watcher.until(lambda: watcher.driver.connection().link is DriverLink.DOWN)
    finally:
        await asyncio.to_thread(onprem.apiserver.resume)
    await watcher.until(lambda: watcher.driver.connection().link is DriverLink.UP)
    assert (await watcher.driver.start(start)).made is Made.MADE
    assert (await watcher.ending(start.lease)).exit_code == 0


# --- output


async def test_what_a_task_wrote_is_had_from_a_byte_on(onprem: Cluster, watcher: Watcher) -> None:
    onprem.write_log("first line\nsecond line")
    start = a_start(manifest(runs_for="1s"))

    async def output(offset: int, *, follow: bool) -> bytes:
        return b"".join(
            [chunk async for chunk in watcher.driver.output(start.lease, 0, offset, follow=follow)]
        )

    await watcher.driver.start(start)
    async with asyncio.timeout(PATIENCE):
        assert await output(0, follow=True) == b"first line\nsecond line\n"
    await watcher.ending(start.lease)
    assert await output(6, follow=False) == b"line\nsecond line\n"
    assert await output(1000, follow=False) == b""
    with pytest.raises(OutputGone, match="it has no pod"):
        [chunk async for chunk in watcher.driver.output(a_lease(), 0, 0, follow=True)]


# --- what keeps a cluster from being used


async def test_a_cluster_that_can_be_used_has_no_problems(watcher: Watcher) -> None:
    assert await watcher.driver.check() == []


async def test_a_namespace_that_is_not_there_is_named(onprem: Cluster) -> None:
    driver = a_driver(onprem, "nowhere")
    try:
        (problem,) = await driver.check()
        assert problem.startswith("there is no namespace 'nowhere'; create it with")
        answer = await driver.start(a_start(manifest()))
        assert answer.made is Made.NOT_NOW
        assert 'namespaces "nowhere" not found' in answer.message
    finally:
        await driver.close()


async def test_a_wrong_token_is_told(onprem: Cluster, namespace: str, tmp_path: Path) -> None:
    driver = a_driver(onprem, namespace, kubeconfig=with_token(onprem, "wrong", tmp_path))
    try:
        (problem,) = await driver.check()
        assert "rejected the credentials (401 Unauthorized)" in problem
        assert "is invalid or has expired" in problem
        assert (await driver.start(a_start(manifest()))).made is Made.NOT_NOW
    finally:
        await driver.close()


async def test_what_is_not_allowed_is_named(onprem: Cluster, namespace: str, tmp_path: Path) -> None:
    token = onprem.service_account("nobody", namespace)
    driver = a_driver(onprem, namespace, kubeconfig=with_token(onprem, token, tmp_path))
    try:
        problems = await driver.check()
        assert any(
            problem.startswith("no permission to list nodes in all namespaces;") for problem in problems
        )
        assert any(
            problem.startswith(f"no permission to create jobs in namespace '{namespace}';")
            for problem in problems
        )
        answer = await driver.start(a_start(manifest()))
        assert answer.made is Made.NOT_NOW
        assert 'cannot create resource "jobs"' in answer.message
    finally:
        await driver.close()


async def test_a_cluster_that_is_not_there_is_told(onprem: Cluster, namespace: str, tmp_path: Path) -> None:
    path = with_user(onprem, tmp_path, {"token": onprem.token}, server="https://127.0.0.1:1")
    driver = a_driver(onprem, namespace, kubeconfig=path)
    try:
        (problem,) = await driver.check()
        assert problem.startswith("cannot connect to https://127.0.0.1:1: ")
        assert (await driver.start(a_start(manifest()))).made is Made.UNSENT
    finally:
        await driver.close()


# --- how it is reached


def with_user(cluster: Cluster, folder: Path, user: dict[str, Any], **cluster_too: Any) -> Path:
    """A kubeconfig with another user."""
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    for each in config["users"]:
        each["user"] = user
    for each in config["clusters"]:
        each["cluster"] |= cluster_too
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return path


async def problems_with(cluster: Cluster, kubeconfig: Path) -> list[str]:
    driver = a_driver(cluster, "default", kubeconfig=kubeconfig)
    try:
        return list(await driver.check())
    finally:
        await driver.close()


async def test_a_client_certificate_is_shown(onprem: Cluster, tmp_path: Path) -> None:
    certificate, key = map(str, onprem.admin_certificate)
    user = {"client-certificate": certificate, "client-key": key}
    assert await problems_with(onprem, with_user(onprem, tmp_path, user)) == []


async def test_a_program_says_who_we_are(onprem: Cluster, tmp_path: Path) -> None:
    said = {"kind": "ExecCredential", "status": {"token": onprem.token}}
    (tmp_path / "said").write_bytes(msgspec.json.encode(said))
    program = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "cat",
        "args": [str(tmp_path / "said")],
    }
    assert await problems_with(onprem, with_user(onprem, tmp_path, {"exec": program})) == []
    program["command"] = "/nowhere/aws"
    (problem,) = await problems_with(onprem, with_user(onprem, tmp_path, {"exec": program}))
    assert problem.startswith("cannot run /nowhere/aws: ")


async def test_a_server_that_nobody_vouches_for_is_not_trusted(
    onprem: Cluster, cloud: Cluster, tmp_path: Path
) -> None:
    other = {"certificate-authority": str(cloud.ca), "certificate-authority-data": ""}
    (problem,) = await problems_with(onprem, with_user(onprem, tmp_path, {"token": onprem.token}, **other))
    assert problem.startswith(f"{onprem.url} has a certificate that is not trusted: ")
    unchecked = other | {"insecure-skip-tls-verify": True}
    assert (
        await problems_with(onprem, with_user(onprem, tmp_path, {"token": onprem.token}, **unchecked)) == []
    )
