"""deploy/kubernetes as its README says it: applied to a real API server, and a server and a standby that run on nothing but what was applied.

What the roles hold is in `test_deploy_roles.py`.
"""

import asyncio
import base64
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest
import yaml

from spillover.client import Client
from spillover.config.read import read_config
from spillover.wire.clusterfile import KubernetesDoc
from tests.support.kube import Cluster, merge_kubeconfigs
from tests.support.kube.deployed import NAMESPACE, Pod, Typed
from tests.support.kube.serving import PATIENCE, a_job
from tests.support.postgresql import PostgresqlServer
from tests.support.processes import wait_until

DEPLOY = Path(__file__).parents[2] / "deploy" / "kubernetes"
JOBS = "spillover-jobs"
EXAMPLE = "deploy/kubernetes/overlays/example"


def commands(heading: str) -> list[str]:
    """The commands of the first block below a heading of the README."""
    _, _, text = (DEPLOY / "README.md").read_text().partition(f"# {heading}\n")
    found = re.search(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1].splitlines()


@pytest.fixture(scope="module")
def typed(both: tuple[Cluster, ...], tmp_path_factory: pytest.TempPathFactory) -> Typed:
    """By somebody with a clone, and a kubeconfig of both clusters."""
    folder = tmp_path_factory.mktemp("clone")
    shutil.copytree(DEPLOY, folder / "deploy" / "kubernetes", ignore=shutil.ignore_patterns("secrets"))
    return Typed(merge_kubeconfigs(folder / "kubeconfig", both), folder)


@pytest.fixture(scope="module")
def applied(onprem: Cluster, typed: Typed) -> Iterator[Typed]:
    """All of it, in a cluster with two nodes and one volume, once it runs."""
    build, *rest = commands("In a Kubernetes cluster")
    assert build.startswith("docker build -f deploy/Dockerfile -t spillover .")
    assert len(rest) == 4
    with ExitStack() as stack:
        stack.callback(onprem.remove_nodes, onprem.add_nodes(2, cpu="4"))
        claim = {"namespace": NAMESPACE, "name": "data-database-0"}
        volume = {
            "metadata": {"name": "database"},
            "spec": {
                "capacity": {"storage": "20Gi"},
                "accessModes": ["ReadWriteOnce"],
                "claimRef": claim,
                "hostPath": {"path": "/nowhere"},
            },
        }
        onprem.admin.post("/api/v1/persistentvolumes", json=volume).raise_for_status()
        stack.callback(onprem.admin.delete, "/api/v1/persistentvolumes/database")
        stack.callback(typed, "kubectl delete -k deploy/kubernetes/base --wait=false")
        for line in rest:
            typed(line)
        yield typed


# --- what is applied


def test_it_runs_under_the_security_that_it_asks_for(applied: Typed) -> None:
    """Controllers make the pods, admission lets them in, the scheduler finds them room and the volume."""
    for what in ("statefulset/database", "deployment/server"):
        applied(f"kubectl -n {NAMESPACE} rollout status {what} --timeout=2m")
    pods = applied.objects(f"pods -n {NAMESPACE}")["items"]
    assert sorted(pod["metadata"]["labels"]["app.kubernetes.io/component"] for pod in pods) == [
        "database",
        "server",
        "server",
    ]
    servers = [pod for pod in pods if "server" in pod["metadata"]["name"]]
    assert len({pod["spec"]["nodeName"] for pod in servers}) == 2
    [level] = [
        each["metadata"]["labels"]["pod-security.kubernetes.io/enforce"]
        for each in applied.objects("namespaces")["items"]
        if each["metadata"]["name"] == NAMESPACE
    ]
    assert level == "restricted"


def test_the_service_sends_to_servers_and_the_database_is_for_them_alone(applied: Typed) -> None:
    slices = applied.objects(f"endpointslices -n {NAMESPACE} -l kubernetes.io/service-name=server")["items"]
    ports = {port["name"]: port["port"] for each in slices for port in each["ports"]}
    assert ports == {"http": 7070, "grpc": 7071}
    policy = applied.objects(f"networkpolicy/database -n {NAMESPACE}")["spec"]
    chosen = {
        component: [
            pod["metadata"]["name"] for pod in applied.objects(f"pods -n {NAMESPACE} -l {selector}")["items"]
        ]
        for component, selector in (
            ("to", labels(policy["podSelector"])),
            ("from", labels(policy["ingress"][0]["from"][0]["podSelector"])),
        )
    }
    assert chosen["to"] == ["database-0"]
    assert [name.startswith("server-") for name in chosen["from"]] == [True, True]
    assert policy.get("egress", []) == []


def labels(selector: dict[str, Any]) -> str:
    return ",".join(f"{key}={value}" for key, value in selector["matchLabels"].items())


def test_applying_it_again_changes_nothing(applied: Typed) -> None:
    """Neither by what the API server would make of it (`diff` fails where there is a difference), nor by its own word."""
    assert applied("kubectl diff -k deploy/kubernetes/base") == ""
    applied("kubectl apply --dry-run=server -k deploy/kubernetes/base")


@pytest.fixture(scope="module")
def example(applied: Typed) -> Iterator[Typed]:
    """The example beside the base, with the second cluster that it is for."""
    applied("\n".join(commands("A second cluster")))
    try:
        applied(f"kubectl apply -k {EXAMPLE}")
        yield applied
    finally:
        applied(f"kubectl delete -k {EXAMPLE} --wait=false")
        applied("kubectl --context cloud delete -k deploy/kubernetes/access")


def test_the_example_is_in_nobodys_way(example: Typed) -> None:
    example("kubectl -n batch rollout status deployment/server --timeout=2m")
    base, other = (built(example, folder) for folder in ("deploy/kubernetes/base", EXAMPLE))
    assert {place for _, place, _ in other} == {None, "batch", "batch-jobs"}
    assert not base.keys() & other.keys()
    for who in (f"{NAMESPACE}:server", "batch:server"):
        assert (
            example(f"kubectl auth can-i list pods --all-namespaces --as system:serviceaccount:{who}")
            == "yes\n"
        )
        others = {f"{NAMESPACE}:server": "batch-jobs", "batch:server": JOBS}[who]
        refused = f"! kubectl auth can-i create jobs -n {others} --as system:serviceaccount:{who}"
        assert example(refused) == "no\n"


def test_the_configuration_of_the_example_names_what_its_server_has(example: Typed, cloud: Cluster) -> None:
    objects = built(example, EXAMPLE)
    [text] = [each["data"]["spill.yaml"] for (kind, _, _), each in objects.items() if kind == "ConfigMap"]
    owned, rented = [each for each in read_config(text).forms.values() if isinstance(each, KubernetesDoc)]
    assert (owned.in_cluster, owned.namespace) == (True, "batch-jobs")
    assert ("Namespace", None, "batch-jobs") in objects
    pod = objects["Deployment", "batch", "server"]["spec"]["template"]["spec"]
    [mount] = [
        each
        for each in pod["containers"][0]["volumeMounts"]
        if each["mountPath"] == str(Path(rented.kubeconfig or "").parent)
    ]
    [volume] = [each for each in pod["volumes"] if each["name"] == mount["name"]]
    secret = objects["Secret", "batch", volume["secret"]["secretName"]]
    kubeconfig = yaml.safe_load(base64.b64decode(secret["data"][Path(rented.kubeconfig or "").name]))
    [user] = kubeconfig["users"]
    with cloud.client(user["user"]["token"]) as account:
        assert kubeconfig["clusters"][0]["cluster"]["server"] == cloud.url
        assert account.get(f"/apis/batch/v1/namespaces/{rented.namespace}/jobs").is_success
        assert not account.get(f"/api/v1/namespaces/{rented.namespace}/secrets").is_success


def built(typed: Typed, folder: str) -> dict[tuple[str, str | None, str], Any]:
    """What kustomize makes of a folder, by kind, namespace and name."""
    found = yaml.safe_load_all(typed(f"kubectl kustomize {folder}"))
    return {
        (each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]): each for each in found
    }


# --- servers on what was applied


@pytest.fixture(scope="module")
def database(applied: Typed) -> Iterator[str]:
    """A real PostgreSQL with the role and the password that were applied, and nobody else let in by name alone."""
    [container] = applied.objects(f"statefulset/database -n {NAMESPACE}")["spec"]["template"]["spec"][
        "containers"
    ]
    told = {each["name"]: each["value"] for each in container["env"]}
    [secret] = [
        each
        for each in applied.objects(f"secrets -n {NAMESPACE}")["items"]
        if each["metadata"]["name"].startswith("database-")
    ]
    password = base64.b64decode(secret["data"][Path(told["POSTGRES_PASSWORD_FILE"]).name]).decode()
    role, name = told["POSTGRES_USER"], told["POSTGRES_DB"]
    server = PostgresqlServer()
    try:
        made = ask(
            server.url(),
            f"CREATE ROLE {role} LOGIN PASSWORD '{password}'",
            f"CREATE DATABASE {name} OWNER {role}",
            "SHOW hba_file",
        )
        rules = Path(asyncio.run(made))
        rules.write_text(f"local {name} {role} scram-sha-256\n{rules.read_text()}")
        asyncio.run(ask(server.url(), "SELECT pg_reload_conf()"))
        yield urlunsplit(urlsplit(server.url(name))._replace(netloc=f"{role}@"))
    finally:
        server.stop()


async def ask(url: str, *statements: str) -> Any:
    """What the last of some statements returns."""
    connection = await asyncpg.connect(url)
    try:
        return [await connection.fetchval(each) for each in statements][-1]
    finally:
        await connection.close()


def ended(client: Client, job: str) -> str:
    """How a job ended."""
    [found] = client.wait(job, timeout=PATIENCE)
    return found.state


def await_cluster(client: Client) -> None:
    """Wait until the one cluster is ready."""
    wait_until(
        lambda: [each.state for each in client.clusters()] == ["READY"],
        "a ready cluster",
        PATIENCE,
        every=0.1,
    )


def await_running(client: Client, job: str) -> None:
    wait_until(lambda: client.job(job).state == "RUNNING", f"{job} running", PATIENCE, every=0.1)


class Servers:
    """Two of them, of which one leads."""

    def __init__(self, leading: Pod, waiting: Pod) -> None:
        self.leading = leading
        self.waiting = waiting


needs_mounts = pytest.mark.skipif(
    os.geteuid() != 0, reason="a process that is as in a pod needs the right to mount"
)


@pytest.fixture(scope="class")
def servers(
    applied: Typed, onprem: Cluster, database: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Servers]:
    folder = tmp_path_factory.mktemp("servers")
    pods = [Pod(applied, onprem, database, folder / name) for name in ("one", "two")]
    with ExitStack() as stack:
        for pod in pods:
            stack.callback(pod.server.clear)
            pod.launch()
            if pod is pods[0]:
                pod.server.await_ready(PATIENCE)
        yield Servers(*pods)


@needs_mounts
class TestServers:
    """On the account, the configuration, the certificate and the password of the Deployment, in turn."""

    def test_jobs_run_to_their_end(self, servers: Servers, onprem: Cluster) -> None:
        onprem.write_log("3.14")
        with servers.leading.server.client(patience=PATIENCE) as client:
            await_cluster(client)
            good, bad = client.submit([a_job("good"), a_job("bad", exit_code="3")])
            assert [ended(client, job) for job in (good, bad)] == ["SUCCEEDED", "FAILED"]
            assert client.job(bad).exit_code == 3
            assert b"".join(client.logs(good)) == b"3.14\n"
            made = onprem.admin.get(
                "/apis/batch/v1/jobs", params={"labelSelector": f"spillover.dev/job={good}"}
            )
            assert [each["metadata"]["namespace"] for each in made.json()["items"]] == [JOBS]
            [long] = client.submit([a_job("long", runs_for="forever", stops_in="1s")])
            await_running(client, long)
            client.cancel(long)
            assert ended(client, long) == "CANCELLED"
            [refused] = client.submit([a_job("refused", pod={"hostNetwork": True})])  # more than `baseline`
            wait_until(
                lambda: "PodSecurity" in str(client.why(refused)), "a job that is refused", PATIENCE, 0.1
            )
            client.cancel(refused)

    def test_only_the_one_that_leads_is_ready(self, servers: Servers) -> None:
        assert servers.leading.ready()
        assert not servers.waiting.ready()

    def test_whoever_has_the_token_and_the_authority_is_let_in(
        self, servers: Servers, applied: Typed
    ) -> None:
        secrets = applied.folder / "deploy/kubernetes/base/secrets"
        variables = {
            "SPILL_SERVER": f"https://localhost:{servers.leading.port}",
            "SPILL_CA": str(secrets / "ca.pem"),
            "SPILL_TOKEN_FILE": str(secrets / "server.token"),
        }
        told = " ".join(f"{name}={value}" for name, value in variables.items())
        assert "onprem" in applied(f"{told} spill clusters")

    def test_the_standby_takes_over_what_runs(self, servers: Servers) -> None:
        with servers.leading.server.client(patience=PATIENCE) as client:
            [job] = client.submit([a_job("lasting", runs_for="forever")])
            await_running(client, job)
        servers.leading.server.kill()
        servers.waiting.server.await_ready(PATIENCE)
        assert servers.waiting.ready()
        with servers.waiting.server.client(patience=PATIENCE) as client:
            await_cluster(client)
            found = client.job(job)
            assert (found.state, found.attempt) == ("RUNNING", 1)
            client.cancel(job)
            assert ended(client, job) == "CANCELLED"

    def test_it_stops_within_its_time(self, servers: Servers) -> None:
        assert servers.waiting.server.stop(seconds=servers.waiting.grace) == 0

    def test_without_its_password_it_says_so(
        self, applied: Typed, onprem: Cluster, database: str, tmp_path: Path
    ) -> None:
        pod = Pod(applied, onprem, database, tmp_path / "other")
        pod.variables["PGPASSWORD"] = "wrong"
        pod.launch()
        try:
            assert pod.server.await_end(PATIENCE) == 2
        finally:
            pod.server.clear()
        assert "password authentication failed" in pod.server.last_words()
