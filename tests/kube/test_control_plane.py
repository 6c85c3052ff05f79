"""What other tests rest on: the clusters are real, pods do as they are told, and nothing is left of them."""

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import yaml

from tests.support.kube import Cluster, Component, NotStarted, find_binaries, merge_kubeconfigs
from tests.support.kube.binaries import CONTROL_PLANE, assets
from tests.support.kube.guard import processes_of
from tests.support.processes import wait_until

PREFIX = "spillover.test/"


def a_job(name: str = "job", **told: str) -> dict[str, Any]:
    """A Job of one pod with annotations, underscores for hyphens: `a_job(exit_code="3")`."""
    annotations = {PREFIX + key.replace("_", "-"): value for key, value in told.items()}
    container = {"name": "main", "image": "example/image:1", "resources": {"requests": {"cpu": "100m"}}}
    template = {
        "metadata": {"annotations": annotations},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }
    return {"metadata": {"name": name}, "spec": {"backoffLimit": 0, "template": template}}


def submit(cluster: Cluster, namespace: str, job: dict[str, Any]) -> None:
    answer = cluster.admin.post(f"/apis/batch/v1/namespaces/{namespace}/jobs", json=job)
    assert answer.is_success, answer.text


def end_of(cluster: Cluster, namespace: str) -> str:
    """What the Job comes to: Complete or Failed."""

    def ended() -> str:
        job = cluster.admin.get(f"/apis/batch/v1/namespaces/{namespace}/jobs/job").raise_for_status().json()
        true = [each["type"] for each in job["status"].get("conditions", ()) if each["status"] == "True"]
        return next((kind for kind in true if kind in {"Complete", "Failed"}), "")

    return wait_until(ended, "the end of the job", 60)


def pods(cluster: Cluster, namespace: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = (
        cluster.admin.get(f"/api/v1/namespaces/{namespace}/pods").raise_for_status().json()["items"]
    )
    return items


def phases(cluster: Cluster, namespace: str) -> list[str]:
    return [pod["status"]["phase"] for pod in pods(cluster, namespace)]


@pytest.fixture(scope="module")
def nodes(both: tuple[Cluster, ...]) -> Iterator[dict[str, list[str]]]:
    made = {cluster.name: cluster.add_nodes(2, cpu="4", memory="8Gi", gpu=1) for cluster in both}
    yield made
    for cluster in both:
        cluster.remove_nodes(made[cluster.name])


@pytest.fixture
def namespace(onprem: Cluster, nodes: dict[str, list[str]]) -> Iterator[str]:
    name = onprem.namespace()
    yield name
    onprem.remove_namespace(name)


def test_both_clusters_are_of_the_pinned_release(both: tuple[Cluster, ...]) -> None:
    for cluster in both:
        with cluster.client() as anybody:
            told = anybody.get("/version").raise_for_status().json()
        assert told["gitVersion"].startswith("v1.")
        if assets() is None:
            assert told["gitVersion"] == CONTROL_PLANE[1].version()


def test_a_job_completes_on_played_nodes_of_both_clusters(
    both: tuple[Cluster, ...], nodes: dict[str, list[str]]
) -> None:
    homes = [(cluster, cluster.namespace()) for cluster in both]
    for cluster, home in homes:
        submit(cluster, home, a_job())
    for cluster, home in homes:
        assert end_of(cluster, home) == "Complete"
        [pod] = pods(cluster, home)
        assert pod["spec"]["nodeName"] in nodes[cluster.name]
        assert pod["status"]["phase"] == "Succeeded"
        cluster.remove_namespace(home)


@pytest.mark.parametrize(
    ("told", "code", "reason"),
    [
        ({"exit_code": "3"}, 3, "Error"),
        ({"reason": "OOMKilled"}, 137, "OOMKilled"),
        ({"reason": "ContainerCannotRun", "exit_code": "128"}, 128, "ContainerCannotRun"),
    ],
)
def test_a_pod_fails_as_it_is_told(
    onprem: Cluster, namespace: str, told: dict[str, str], code: int, reason: str
) -> None:
    submit(onprem, namespace, a_job(**told, runs_for="100ms"))
    assert end_of(onprem, namespace) == "Failed"
    [pod] = pods(onprem, namespace)
    [container] = pod["status"]["containerStatuses"]
    ended = container["state"]["terminated"]
    assert (pod["status"]["phase"], ended["exitCode"], ended["reason"]) == ("Failed", code, reason)
    assert ended["startedAt"] <= ended["finishedAt"]


def test_an_evicted_pod_says_who_ended_it(onprem: Cluster, namespace: str) -> None:
    submit(onprem, namespace, a_job(evicted="the node was low on memory"))
    assert end_of(onprem, namespace) == "Failed"
    [pod] = pods(onprem, namespace)
    assert (pod["status"]["reason"], pod["status"]["message"]) == ("Evicted", "the node was low on memory")
    kinds = {each["type"]: each["status"] for each in pod["status"]["conditions"]}
    assert kinds["DisruptionTarget"] == "True"
    assert kinds["Ready"] == "False"


def test_a_pod_that_never_starts_waits_with_a_reason(onprem: Cluster, namespace: str) -> None:
    submit(onprem, namespace, a_job(never_starts="ImagePullBackOff"))

    def waiting() -> str:
        for pod in pods(onprem, namespace):
            for container in pod["status"].get("containerStatuses", ()):
                return str(container["state"]["waiting"]["reason"])
        return ""

    assert wait_until(waiting, "a waiting container", 60) == "ImagePullBackOff"
    assert phases(onprem, namespace) == ["Pending"]


def test_a_pod_that_is_slow_to_start_is_placed_and_pending(onprem: Cluster, namespace: str) -> None:
    submit(onprem, namespace, a_job(starts_after="10m"))
    quick = a_job(name="quick", starts_after="10ms", runs_for="forever")
    submit(onprem, namespace, quick)
    wait_until(lambda: "Running" in phases(onprem, namespace), "the start of the quick one", 60)

    def placed() -> list[dict[str, Any]]:
        listed = [pod for pod in pods(onprem, namespace) if pod["metadata"]["labels"]["job-name"] == "job"]
        return [pod for pod in listed if "nodeName" in pod["spec"]]

    [slow] = wait_until(placed, "the slow one on a node", 60)
    assert slow["status"]["phase"] == "Pending"


def test_a_deleted_job_takes_its_running_pod_along(onprem: Cluster, namespace: str) -> None:
    submit(onprem, namespace, a_job(runs_for="forever", stops_in="300ms"))
    wait_until(lambda: phases(onprem, namespace) == ["Running"], "the start of the pod", 60)
    onprem.admin.delete(
        f"/apis/batch/v1/namespaces/{namespace}/jobs/job", params={"propagationPolicy": "Background"}
    ).raise_for_status()
    wait_until(lambda: not pods(onprem, namespace), "the end of the pod", 60)


def test_fields_that_old_releases_drop_are_kept(onprem: Cluster, namespace: str) -> None:
    job = a_job()
    rule = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [3]}}
    job["spec"] |= {
        "suspend": True,
        "completionMode": "Indexed",
        "completions": 2,
        "podFailurePolicy": {"rules": [rule]},
    }
    submit(onprem, namespace, job)
    kept = onprem.admin.get(f"/apis/batch/v1/namespaces/{namespace}/jobs/job").json()["spec"]
    assert kept["suspend"] is True
    assert kept["completionMode"] == "Indexed"
    assert kept["podFailurePolicy"]["rules"][0]["action"] == "FailJob"


def test_the_output_of_a_pod_is_read_through_the_api_server(onprem: Cluster, namespace: str) -> None:
    onprem.write_log("one\ntwo\n")
    submit(onprem, namespace, a_job(runs_for="forever"))
    wait_until(lambda: phases(onprem, namespace) == ["Running"], "the start of the pod", 60)
    [pod] = pods(onprem, namespace)
    answer = onprem.admin.get(f"/api/v1/namespaces/{namespace}/pods/{pod['metadata']['name']}/log")
    assert answer.raise_for_status().text == "one\ntwo\n"


def test_nodes_have_what_they_were_made_with(cloud: Cluster) -> None:
    [name] = cloud.add_nodes(
        1,
        cpu="16",
        memory="64Gi",
        pods=20,
        gpu=4,
        labels={"pool": "gpu"},
        taints=["dedicated=batch:NoSchedule"],
    )
    node = cloud.admin.get(f"/api/v1/nodes/{name}").json()
    assert node["status"]["allocatable"] == {
        "cpu": "16",
        "memory": "64Gi",
        "pods": "20",
        "nvidia.com/gpu": "4",
    }
    assert node["metadata"]["labels"]["pool"] == "gpu"
    assert node["spec"]["taints"] == [{"key": "dedicated", "value": "batch", "effect": "NoSchedule"}]
    cloud.remove_nodes([name])
    assert cloud.admin.get(f"/api/v1/nodes/{name}").status_code == 404


def test_roles_decide_what_a_service_account_may(onprem: Cluster, namespace: str) -> None:
    jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    with onprem.client(onprem.service_account("nobody", namespace)) as nobody:
        assert nobody.get(jobs).status_code == 403
    with onprem.client(onprem.service_account("reader", namespace, role="view")) as reader:
        assert reader.get(jobs).status_code == 200
        assert reader.post(jobs, json=a_job()).status_code == 403
    with onprem.client("no-token-at-all") as stranger:
        assert stranger.get(jobs).status_code == 401
    with onprem.client() as anonymous:
        assert anonymous.get(jobs).status_code == 403


def test_a_token_of_one_cluster_is_none_of_the_other(onprem: Cluster, cloud: Cluster) -> None:
    with cloud.client(onprem.token) as stranger:
        assert stranger.get("/api/v1/nodes").status_code == 401
    with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
        onprem.admin.get(f"{cloud.url}/version")


def test_one_kubeconfig_reaches_both(both: tuple[Cluster, ...], tmp_path: Path) -> None:
    path = merge_kubeconfigs(tmp_path / "config", both)
    assert path.stat().st_mode & 0o077 == 0
    document = yaml.safe_load(path.read_text())
    assert [each["name"] for each in document["contexts"]] == ["onprem", "cloud"]
    assert document["current-context"] == "onprem"
    for cluster, user, target in zip(both, document["users"], document["clusters"], strict=True):
        assert target["cluster"]["server"] == cluster.url
        with cluster.client(user["user"]["token"]) as client:
            assert client.get("/api/v1/nodes").is_success


def test_objects_survive_kill_9_of_the_api_server_and_of_etcd_and_work_goes_on(
    onprem: Cluster, namespace: str
) -> None:
    submit(onprem, namespace, a_job(name="waits", never_starts="ErrImagePull"))
    for killed in (onprem.apiserver, onprem.etcd):
        killed.kill()
        assert not killed.alive
        killed.start()
    onprem.apiserver.await_ready()
    listed = (
        onprem.admin.get(f"/apis/batch/v1/namespaces/{namespace}/jobs").raise_for_status().json()["items"]
    )
    assert [each["metadata"]["name"] for each in listed] == ["waits"]
    submit(onprem, namespace, a_job())
    assert end_of(onprem, namespace) == "Complete"


@pytest.mark.parametrize("program", ["controllers", "scheduler", "kwok"])
def test_a_program_that_is_killed_and_started_again_does_its_work(
    onprem: Cluster, namespace: str, program: str
) -> None:
    component: Component = getattr(onprem, program)
    component.kill()
    submit(onprem, namespace, a_job())
    component.start()
    assert end_of(onprem, namespace) == "Complete"


def test_a_paused_api_server_answers_once_it_goes_on(cloud: Cluster) -> None:
    cloud.apiserver.pause()
    try:
        with pytest.raises(httpx.TimeoutException):
            cloud.admin.get("/version", timeout=0.5)
    finally:
        cloud.apiserver.resume()
    assert cloud.admin.get("/version").is_success


def test_nothing_listens_beyond_loopback(both: tuple[Cluster, ...]) -> None:
    for cluster in both:
        for component in cluster.components:
            listening = [
                each
                for each in psutil.Process(component.pid).net_connections("inet")
                if each.status == psutil.CONN_LISTEN
            ]
            assert {each.laddr.ip for each in listening} <= {"127.0.0.1"}
            assert bool(listening) == (component is not cluster.etcd), component.name


def test_nothing_is_left_of_a_cluster_that_was_stopped() -> None:
    with Cluster("brief") as cluster:
        pids = [each.pid for each in cluster.components]
        assert sorted(processes_of(str(cluster.folder))) == sorted(pids)
    left_nothing(cluster.folder, cluster.url, pids)


def test_nothing_is_left_of_a_cluster_whose_starter_was_killed() -> None:
    program = (
        "import signal\n"
        "from tests.support.kube import Cluster\n"
        "with Cluster('orphan') as cluster:\n"
        "    print(cluster.folder, cluster.url, *(each.pid for each in cluster.components), flush=True)\n"
        "    signal.pause()\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        folder, url, *pids = starter.stdout.readline().split()
        assert len(processes_of(folder)) == 5
        starter.send_signal(signal.SIGKILL)
    wait_until(lambda: not Path(folder).exists(), "the end of the cluster", 10)
    left_nothing(Path(folder), url, [int(pid) for pid in pids])


def lives(pid: int) -> bool:
    """Whether a process is there, and not only the record of one that nobody has asked about."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def left_nothing(folder: Path, url: str, pids: list[int]) -> None:
    assert not folder.exists()
    assert not processes_of(str(folder))
    # A process that was killed has yet to close what it had open.
    wait_until(lambda: not any(lives(pid) for pid in pids), "the end of all processes", 10)
    wait_until(lambda: not listens(url), "the end of what listened", 10)


def listens(url: str) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", int(url.rpartition(":")[2]))) == 0


def test_a_program_that_does_not_start_says_why(tmp_path: Path) -> None:
    scheduler = Component(
        "kube-scheduler", [find_binaries().scheduler, "--no-such-flag"], tmp_path, ready=lambda: False
    )
    with pytest.raises(
        NotStarted, match=r"kube-scheduler ended with \d+; its output ends:\n(.*\n)*.*no-such-flag"
    ):
        scheduler.start()


@pytest.mark.slow
def test_nodes_are_lost_without_kwok_and_come_back_with_it(cloud: Cluster) -> None:
    [name] = cloud.add_nodes(1)

    def ready() -> str:
        node = cloud.admin.get(f"/api/v1/nodes/{name}").raise_for_status().json()
        return "".join(each["status"] for each in node["status"]["conditions"] if each["type"] == "Ready")

    cloud.kwok.pause()
    wait_until(lambda: ready() == "Unknown", "the loss of the node", 120, every=1)
    cloud.kwok.resume()
    wait_until(lambda: ready() == "True", "the return of the node", 60, every=0.2)
    cloud.remove_nodes([name])
