"""Jobs on two clusters while everything between a submission and a result fails: none is lost, none runs twice, nothing is left behind.

The server, API servers and etcd are killed and stopped, and what goes between them is spoiled by a proxy. What really was on the clusters is
told by somebody who watches beside the server.
"""

import json
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from heapq import heappop, heappush
from pathlib import Path
from typing import Any

import pytest

from spillover.client import Client
from spillover.core.events import Back, JobEnded, JobPlaced, JobRequeued
from tests.support.kube import Cluster
from tests.support.kube.mishaps import Mishap, Weather
from tests.support.kube.proxy import Proxy
from tests.support.kube.serving import Serving, a_job
from tests.support.kube.witness import Witness
from tests.support.processes import read_journal, wait_until

JOBS = int(os.environ.get("CHAOS_JOBS", "150"))
SEED = int(os.environ.get("CHAOS_SEED", "20261115"))
NODES = 100
LASTS = 30 + JOBS * 0.08
"""Seconds over which jobs come and faults happen."""
BURSTS = 5
SPECIAL = max(3, JOBS // 50)
"""Of each kind that does not end by itself, or not well."""
KEEP = "3s"
BAD = Weather(reads=0.08, writes=0.15, watches=0.7, longest=2.5)
PATIENCE = 120 + JOBS * 0.3
"""Seconds until everything has ended after the last fault, on a busy machine."""
AWAY = (0.5, 4.0)
"""Seconds that something is stopped or shut, at the least and at the most."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300 + 3 * LASTS + PATIENCE)]


class Chaos:
    """What happens at which second; every fault is over before the end."""

    def __init__(self, serving: Serving, proxies: dict[str, Proxy], dice: random.Random) -> None:
        self._serving, self._proxies, self._dice = serving, proxies, dice
        self._count = 0
        self._plan: list[tuple[float, int, Callable[[], None]]] = []
        self.happened: Counter[str] = Counter()
        rounds = max(1, round(LASTS / 60))
        span = LASTS / rounds
        for number in range(rounds):
            self._draw_server(number * span, span)
            for name in proxies:
                self._draw_cluster(name, number * span, span)

    def _at(self, second: float, what: str, do: Callable[[], object]) -> None:
        def happen() -> None:
            self.happened[what] += 1
            do()

        self._count += 1
        heappush(self._plan, (second, self._count, happen))

    def _draw_server(self, begin: float, span: float) -> None:
        at = begin + self._dice.uniform(0.15, 0.7) * span
        self._at(at, "the server is killed", self._serving.kill)
        self._at(at + self._dice.uniform(0, 2), "the server is started", self._serving.launch)

    def _draw_cluster(self, name: str, begin: float, span: float) -> None:
        """All faults of one cluster, one after the other, so that they do not get into each other's way."""
        cluster, proxy = self._serving.clusters[name], self._proxies[name]
        faults = [self._api_server, self._etcd, self._shut, self._cut]
        self._dice.shuffle(faults)
        for number, fault in enumerate(faults):
            at = begin + (number + self._dice.uniform(0.1, 0.5)) * span / len(faults)
            fault(cluster, proxy, at, at + self._dice.uniform(*AWAY))

    def _api_server(self, cluster: Cluster, _: Proxy, at: float, end: float) -> None:
        self._at(at, "an API server is killed", cluster.apiserver.kill)
        self._at(end, "an API server is started", cluster.apiserver.launch)

    def _etcd(self, cluster: Cluster, _: Proxy, at: float, end: float) -> None:
        self._at(at, "etcd is stopped", cluster.etcd.pause)
        self._at(end, "etcd goes on", cluster.etcd.resume)

    def _shut(self, _: Cluster, proxy: Proxy, at: float, end: float) -> None:
        self._at(at, "nobody can connect", proxy.shut)
        self._at(end, "everybody can connect", proxy.open)

    def _cut(self, _: Cluster, proxy: Proxy, at: float, __: float) -> None:
        self._at(at, "all watches break", proxy.cut)

    def happen(self) -> None:
        """Let everything happen at its time."""
        begun = time.monotonic()
        for proxy in self._proxies.values():
            proxy.weather(BAD)
        while self._plan:
            second, _, happen = heappop(self._plan)
            time.sleep(max(0.0, begun + second - time.monotonic()))
            happen()
        time.sleep(max(0.0, begun + LASTS - time.monotonic()))
        for proxy in self._proxies.values():
            proxy.weather(Weather())
        for cluster in self._serving.clusters.values():
            cluster.apiserver.await_ready()


class Person:
    """Submits jobs and cancels some, waiting for the server whenever it is away."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.expected: dict[str, str] = {}
        """How each job is to end."""
        self._endless: list[str] = []

    def begin(self) -> None:
        """Submit what does not end by itself, and what fails."""
        self._endless = self._client.submit([a_job("endless", runs_for="forever")] * SPECIAL)
        failing = self._client.submit([a_job("failing", exit_code="3", runs_for="1s")] * SPECIAL)
        self.expected |= dict.fromkeys(self._endless, "CANCELLED") | dict.fromkeys(failing, "FAILED")

    def go_on(self) -> None:
        """Submit the others in bursts, and cancel some of what is endless after each."""
        begun = time.monotonic()
        for burst in range(BURSTS):
            time.sleep(max(0.0, begun + burst * LASTS / BURSTS - time.monotonic()))
            numbers = range(burst * JOBS // BURSTS, (burst + 1) * JOBS // BURSTS)
            jobs = self._client.submit([_short(number) for number in numbers])
            self.expected |= dict.fromkeys(jobs, "SUCCEEDED")
            for job in self._endless[burst::BURSTS]:
                self._client.cancel(job)


def _short(number: int) -> dict[str, Any]:
    """A job of half a second; every third goes to the second cluster, whatever room the first has."""
    spec: dict[str, Any] = {"container": {"image": "example/image:1"}, "resources": {"cpu": 1}}
    where = {"where": {"cluster": "cloud"}} if number % 3 == 0 else {}
    return {
        "apiVersion": "spillover/v1",
        "kind": "Job",
        "metadata": {"name": "short"},
        "spec": spec | where | {"key": f"short-{number}"},
    }


@contextmanager
def told_how_to_repeat() -> Iterator[None]:
    """Say with every failure how it is had again."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"to have the same faults again: make chaos-kube JOBS={JOBS} SEED={SEED}")
        raise


@pytest.fixture
def proxies(both: tuple[Cluster, ...], tmp_path: Path) -> Iterator[dict[str, Proxy]]:
    with ExitStack() as stack:
        made = {}
        for number, cluster in enumerate(both):
            certificate = cluster.folder / "server.pem", cluster.folder / "server-key.pem"
            kubeconfig = tmp_path / f"{cluster.name}.kubeconfig"
            proxy = Proxy(cluster.access, certificate, kubeconfig, SEED + number)
            made[cluster.name] = stack.enter_context(proxy)
        yield made


@pytest.fixture
def nodes(both: tuple[Cluster, ...]) -> Iterator[None]:
    made = [(cluster, cluster.add_nodes(NODES, cpu="1", memory="4Gi")) for cluster in both]
    yield
    for cluster, names in made:
        cluster.remove_nodes(names)


@pytest.fixture
def serving(
    both: tuple[Cluster, ...], nodes: None, proxies: dict[str, Proxy], tmp_path: Path
) -> Iterator[Serving]:
    through = {
        cluster.name: (
            cluster,
            {"kubernetes": {"kubeconfig": str(proxies[cluster.name].kubeconfig), "keep": KEEP}},
        )
        for cluster in both
    }
    with Serving(tmp_path / "server", through) as made:
        yield made


def test_no_job_is_lost_or_doubled_or_left_behind_while_clusters_and_the_way_to_them_fail(
    serving: Serving, proxies: dict[str, Proxy]
) -> None:
    with told_how_to_repeat(), ExitStack() as stack:
        witnesses = [
            stack.enter_context(Witness(cluster, serving.namespaces[name]))
            for name, cluster in serving.clusters.items()
        ]
        client = stack.enter_context(serving.server.client(patience=PATIENCE))
        chaos = Chaos(serving, proxies, random.Random(SEED))
        person = Person(client)
        person.begin()
        with ThreadPoolExecutor(1) as pool:
            happening = pool.submit(chaos.happen)
            person.go_on()
            happening.result()
        assert len(chaos.happened) == 9, chaos.happened
        mishaps = sum((proxy.happened for proxy in proxies.values()), Counter())
        assert set(mishaps) == set(Mishap), mishaps

        wait_until(
            lambda: not (at := client.server()).queued + at.running, "the end of all jobs", PATIENCE, 0.5
        )
        for name in serving.clusters:
            serving.await_gone(name)
            serving.await_used(name)
        listed = serving.server.spill("ls", "--json", "--limit", str(10 * JOBS))
        assert listed.returncode == 0, listed.stderr
        assert {job["id"]: job["state"] for job in json.loads(listed.stdout)} == person.expected
        serving.disconnect()
        assert serving.server.stop() == 0
        check_journal(serving, person.expected)
        doubled = {name: uids for each in witnesses for name, uids in each.made.items() if len(uids) != 1}
        assert not doubled, f"made more than once: {doubled}"
        ran = Counter(job for each in witnesses for job, jobs in each.under.items() for _ in jobs)
        pods = {job for each in witnesses for job in each.ran}
        assert not pods - set(person.expected), "somebody else's pods"
        # One that is cancelled may never have begun; all others ran as one Job, on whichever cluster.
        odd = {job: ran[job] for job, end in person.expected.items() if ran[job] != 1 and end != "CANCELLED"}
        assert not odd, f"Jobs that ran for jobs, other than one: {odd}"
        assert not [job for job, jobs in ran.items() if jobs > 1]
        # Kubernetes itself makes a second pod of a Job when nobody answers that the first was made. That is rare.
        twice = {job for each in witnesses for job, pods in each.ran.items() if len(pods) > 1}
        assert len(twice) <= JOBS // 100, f"jobs of which Kubernetes ran several pods: {twice}"


def check_journal(serving: Serving, expected: dict[str, str]) -> None:
    """Each job ended once and as it was to; no attempt was ever given up."""
    events = read_journal(serving.server.data)
    ends = [event for event in events if isinstance(event, JobEnded)]
    assert Counter(event.job for event in ends) == Counter(list(expected))
    assert {event.job: event.state for event in ends} == expected
    back = [event for event in events if isinstance(event, JobRequeued)]
    assert {event.why for event in back} <= {Back.RELEASED}, back
    assert {event.attempt for event in events if isinstance(event, JobPlaced)} == {1}
