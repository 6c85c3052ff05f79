"""Measures jobs per second on two Kubernetes clusters, beside a bare client, and the cost of thousands of nodes."""

import contextlib
import statistics
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import psutil
import yaml
from msgspec import Struct

from bench.bare_jobs import run_bare
from bench.reporting import Goal, Options, Report, Table, main, tell
from bench.servers import Connection, Running, folder, serving, until
from bench.throughput import ended
from spillover.client import Client
from tests.support.kube import Cluster, NotBuilt, clusters, find_binaries
from tests.support.kube.serving import a_job

NODES: Final = 100
RUNS_FOR: Final = "100ms"
LOOK: Final = 0.1
"""Seconds between two questions about how far it is: asking is no part of what is measured."""
PATIENCE: Final = 1800.0
LEASE: Final = 7200
"""Seconds of leases of thousands of nodes: renewing them is no part of what is measured."""
MAKERS: Final = 16
"""Who make pods at a time."""
BARE: Final = "bare client"
OURS: Final = "spillover"


class Round(Struct, frozen=True):
    """One measurement of throughput."""

    rate: float
    plane: float
    """Milliseconds of CPU a job of the control planes and KWOK."""
    own: float = 0.0
    """Milliseconds of CPU a job of the server."""


class Life(Struct, frozen=True):
    """One run of a server above a large cluster."""

    ready: float
    """Seconds until it was ready."""
    planned: float
    """Seconds until its first job was placed, of all nodes."""
    resident: float
    """MiB."""
    idle: float
    """Percent of one CPU while nothing happens."""


def manifest(cluster: str | None = None) -> dict[str, Any]:
    """Return the Job that all run: one pod that ends almost at once."""
    return a_job(notes=None if cluster is None else {"where.cluster": cluster}, runs_for=RUNS_FOR)


def plane_cpu(several: Sequence[Cluster]) -> float:
    """Return the CPU seconds that all programs of the clusters have used so far."""
    times = [psutil.Process(part.pid).cpu_times() for each in several for part in each.components]
    return sum(each.user + each.system for each in times)


@contextlib.contextmanager
def homes_on(several: Sequence[Cluster]) -> Iterator[list[tuple[Cluster, str]]]:
    """Create a namespace on each cluster, and delete it with its content at the end."""
    homes = [(cluster, cluster.namespace("bench")) for cluster in several]
    yield homes
    for cluster, name in homes:
        cluster.remove_namespace(name)
    for cluster, name in homes:
        until(lambda at=cluster, gone=name: _is_gone(at, gone), PATIENCE, 0.5)


def _is_gone(cluster: Cluster, namespace: str) -> bool:
    return cluster.admin.get(f"/api/v1/namespaces/{namespace}").status_code == 404


def bare(several: Sequence[Cluster], count: int, _: Path) -> Round:
    """Measure Jobs of a client that only creates and watches them."""
    with homes_on(several) as homes:
        before = plane_cpu(several)
        seconds = run_bare(homes, manifest(), count)
        return Round(count / seconds, (plane_cpu(several) - before) / count * 1e3)


def ours(several: Sequence[Cluster], count: int, path: Path) -> Round:
    """Measure the same Jobs, submitted in one request, as many for each cluster."""
    with homes_on(several) as homes, above(homes, path) as (server, http):
        jobs = [manifest(several[number % len(several)].name) for number in range(count)]
        with Client(data=server.data) as client:
            before = plane_cpu(several), server.cpu()
            begin = time.monotonic()
            client.submit(jobs)
            while ended(http) < count:
                time.sleep(LOOK)
            seconds = time.monotonic() - begin
            used = server.cpu() - before[1]
            plane = plane_cpu(several) - before[0]
    return Round(count / seconds, plane / count * 1e3, used.own / count * 1e3)


@contextlib.contextmanager
def above(homes: Sequence[tuple[Cluster, str]], path: Path) -> Iterator[tuple[Running, Connection]]:
    """Run a server that uses these namespaces, ready to place jobs there."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "data").mkdir(exist_ok=True)
    config = path / "spill.yaml"
    listed = [
        {
            "name": cluster.name,
            "kind": "kubernetes",
            "kubernetes": {"kubeconfig": str(cluster.kubeconfig), "namespace": namespace},
        }
        for cluster, namespace in homes
    ]
    document = {"apiVersion": "spillover/v1", "kind": "Config", "clusters": listed}
    config.write_text(yaml.safe_dump(document), encoding="utf-8")
    with (
        serving(path / "data", "--config", str(config)) as server,
        contextlib.closing(server.connect()) as http,
    ):
        until(lambda: all(each["state"] == "READY" for each in http.get("/v1/clusters")), PATIENCE)
        yield server, http


def throughput(report: Report, options: Options) -> None:
    """Alternate the two, and compare the best round of each."""
    count, rounds = (100, 1) if options.quick else (1000, 3)
    found: dict[str, list[Round]] = {BARE: [], OURS: []}
    tell("two clusters start")
    with clusters("onprem", "cloud") as several, folder("kubernetes") as path:
        for cluster in several:
            cluster.add_nodes(NODES)
        bare(several, 20, path)  # so that nobody has to be the first
        for number in range(rounds):
            for name, run in {BARE: bare, OURS: ours}.items():
                found[name].append(run(several, count, path / f"{number}"))
                tell(f"round {number + 1}: {name}: {found[name][-1].rate:.1f} a second")
    best = {name: max(each, key=lambda one: one.rate) for name, each in found.items()}
    table = Table(
        f"{count:,} Jobs of one pod of {RUNS_FOR} on two clusters of {NODES} KWOK nodes; best of {rounds} alternating rounds",
        ("", "jobs/s", "of the bare client", "median", "CPU ms a job, control planes", "of the server"),
    )
    for name, one in best.items():
        median = statistics.median(each.rate for each in found[name])
        own = one.own if name == OURS else "-"
        table.add(name, one.rate, one.rate / best[BARE].rate, median, one.plane, own)
        report.figures[f"{name} jobs/s"] = one.rate
    report.figures["server CPU ms a job"] = best[OURS].own
    report.tables.append(table)
    report.goals.append(
        Goal("jobs/s, spillover / bare client", best[OURS].rate / best[BARE].rate, 0.7, at_most=False)
    )


def scale(report: Report, options: Options) -> None:
    """Measure a server with almost no jobs on a large cluster that others use."""
    nodes, pods, idle = (100, 500, 10) if options.quick else (2000, 10_000, 60)
    tell("a big cluster starts")
    with Cluster("big", lease=LEASE) as cluster, folder("kubernetes-big") as path:
        names = cluster.add_nodes(nodes)
        tell(f"{nodes:,} nodes are there")
        _bind(cluster, names, pods)
        tell(f"{pods:,} pods are there")
        read, size = _read_all(cluster)
        home = [(cluster, cluster.namespace("bench"))]
        table = Table(
            f"one cluster of {nodes:,} KWOK nodes with {pods:,} pods of others",
            ("", "seconds to `ready`", "to the first plan", "resident MiB", f"CPU % over {idle} idle s"),
        )
        for name in ("first start", "restart"):
            life = lived(home, path, nodes, idle)
            table.add(name, life.ready, life.planned, life.resident, life.idle)
            report.figures[f"{name}, seconds to the first plan"] = life.planned
            report.figures[f"{name}, resident MiB"] = life.resident
            report.figures[f"{name}, idle CPU %"] = life.idle
            report.goals.append(Goal(f"{name}: CPU % while nothing happens", life.idle, 1.0, at_most=True))
        report.tables.append(table)
        report.notes.append(
            f"Reading the same nodes and pods over one connection, in pages of 1,000, only parsed: {read:.1f} s, {size / 2**20:.0f} MiB."
        )


def lived(home: Sequence[tuple[Cluster, str]], path: Path, nodes: int, idle: float) -> Life:
    """Start a server, place one job as soon as possible, and then leave the server idle."""
    begin = time.monotonic()
    with above(home, path) as (server, _), Client(data=server.data) as client:
        [job] = client.submit([manifest()])
        until(lambda: client.job(job).state != "QUEUED", PATIENCE)
        planned = time.monotonic() - begin
        client.wait(job)
        [told] = client.clusters()
        if told.agents != nodes or told.foreign["cpu"] <= 0:
            raise RuntimeError(f"the server does not see all of the cluster: {told}")
        before, since = server.cpu(), time.monotonic()
        time.sleep(idle)
        share = (server.cpu() - before).own / (time.monotonic() - since)
        return Life(server.ready_after, planned, server.resident() / 2**20, 100 * share)


def _bind(cluster: Cluster, nodes: Sequence[str], count: int) -> None:
    """Create pods of others on these nodes, which run forever."""
    namespace = cluster.namespace("others")
    path = f"/api/v1/namespaces/{namespace}/pods"

    def make(number: int) -> None:
        container = {"name": "main", "image": "x", "resources": {"requests": {"cpu": "100m"}}}
        pod = {
            "metadata": {"name": f"pod-{number}", "annotations": {"spillover.test/runs-for": "forever"}},
            "spec": {"nodeName": nodes[number % len(nodes)], "containers": [container]},
        }
        cluster.admin.post(path, json=pod).raise_for_status()

    with ThreadPoolExecutor(MAKERS) as pool:
        list(pool.map(make, range(count)))
    waiting = {"fieldSelector": "status.phase=Pending", "limit": "1"}
    until(lambda: not cluster.admin.get(path, params=waiting).json()["items"], PATIENCE, 1.0)


def _read_all(cluster: Cluster) -> tuple[float, int]:
    """Read all nodes and pods; return the seconds and bytes."""
    begin, size = time.monotonic(), 0
    for path in ("/api/v1/nodes", "/api/v1/pods"):
        params = {"limit": "1000"}
        while True:
            answer = cluster.admin.get(path, params=params).raise_for_status()
            size += len(answer.content)
            more = answer.json()["metadata"].get("continue")
            if not more:
                break
            params["continue"] = more
    return time.monotonic() - begin, size


def measure(options: Options) -> Report:
    """Measure throughput, then a large cluster."""
    report = Report("Kubernetes clusters")
    try:
        find_binaries()
    except NotBuilt as missing:
        report.notes.append(f"left out: {missing}")
        return report
    throughput(report, options)
    scale(report, options)
    report.notes.append(
        "All parts run on the same cores: etcd, API server, controllers, scheduler and KWOK of each cluster, and the measured program. "
        "Spillover's time ends when all results are durable in SQLite. The bare client stores nothing."
    )
    return report


if __name__ == "__main__":
    main(measure, __doc__)
