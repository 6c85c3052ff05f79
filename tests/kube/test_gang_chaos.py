"""Gangs of 2 to 64 pods while the server and all parts of the cluster fail: each runs as a whole or not at all, and nothing is left.

The server takes one cluster for two, so gangs race for the same room, and pods of others come and go. So many gangs are bound in
part. Somebody who watches beside the server tells how long any of them was.
"""

import os
import random
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from heapq import heappop, heappush
from pathlib import Path
from typing import Any

import httpx
import pytest

from spillover.client import Client
from spillover.core.events import Back, JobEnded, JobRequeued
from tests.support.kube import Cluster
from tests.support.kube.serving import Serving
from tests.support.kube.witness import Witness
from tests.support.processes import read_journal, wait_until

GANGS = int(os.environ.get("CHAOS_GANGS", "16"))
SEED = int(os.environ.get("CHAOS_SEED", "20261115"))
NODES = 24
CPUS = 4
LARGEST = 64
LASTS = 20 + GANGS * 0.5
"""Seconds over which gangs come and faults happen."""
BURSTS = 5
ROUND = 60
"""Seconds in which everything fails once."""
PREPARE = 60
BIND = 5
KEEP = "8s" if GANGS < 100 else "20s"
"""Long enough for a witness that lost its connection to see what ended meanwhile."""
OPTIONS = {
    "kubernetes": {
        "bind_within": f"{BIND}s",
        "prepare_within": f"{PREPARE}s",
        "backoff": "2s",
        "keep": KEEP,
    }
}
OUTAGE = 60
"""Seconds by which faults may delay that a gang is given back."""
PATIENCE = 180 + GANGS * 2
"""Seconds until everything has ended after the last fault, on a busy machine."""
AWAY = (0.5, 4.0)
"""Seconds that something is away, at the least and at the most."""
INDEX = "batch.kubernetes.io/job-completion-index"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300 + 3 * LASTS + PATIENCE)]


class GangWitness(Witness):
    """Also sees how much of each Job is bound and has run, and for how long it was in part."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        super().__init__(cluster, namespace)
        self.sizes: dict[str, int] = {}
        """By the name of a Job."""
        self.begun: defaultdict[str, set[int]] = defaultdict(set)
        """The ranks of each Job that ran."""
        self.in_part: dict[str, float] = {}
        """For how many seconds each Job that became whole, or was deleted, was in part."""
        self._since: dict[str, float] = {}

    def _take(self, kind: str, thing: dict[str, Any]) -> None:
        super()._take(kind, thing)
        now, meta = time.monotonic(), thing["metadata"]
        if kind == "jobs":
            self.sizes[meta["name"]] = thing["spec"]["completions"]
            if meta.get("deletionTimestamp"):
                self._settle(meta["name"], now)
            return
        job = meta.get("labels", {}).get("batch.kubernetes.io/job-name")
        if job is None:
            return  # of somebody else
        if thing["spec"].get("nodeName"):
            self._since.setdefault(job, now)
        if any("running" in each["state"] or "terminated" in each["state"] for each in statuses(thing)):
            self.begun[job].add(int(meta["labels"][INDEX]))
            if len(self.begun[job]) == self.sizes.get(job):
                self._settle(job, now)

    def _settle(self, job: str, now: float) -> None:
        if job in self._since:
            self.in_part.setdefault(job, now - self._since[job])


def statuses(pod: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pod["status"].get("containerStatuses", [])
    return found


class Chaos:
    """What fails at which second; everything is back before the end."""

    def __init__(self, serving: Serving, cluster: Cluster, nodes: list[str], dice: random.Random) -> None:
        self._serving, self._cluster, self._nodes, self._dice = serving, cluster, nodes, dice
        self._plan: list[tuple[float, int, Callable[[], None]]] = []
        self._foreign = 0
        self._pool = ThreadPoolExecutor(8)
        self._asking: list[Future[object]] = []
        self.happened: Counter[str] = Counter()
        rounds = max(1, round(LASTS / ROUND))
        for number in range(rounds):
            self._draw(number * LASTS / rounds, LASTS / rounds)

    def _at(self, second: float, what: str, do: Callable[[], object], *, asks: bool = False) -> None:
        """Plan something; what asks the API server may take until it is back, and is not waited for."""

        def happen() -> None:
            self.happened[what] += 1
            if asks:
                self._asking.append(self._pool.submit(do))
            else:
                do()

        heappush(self._plan, (second, len(self._plan) + sum(self.happened.values()), happen))

    def _draw(self, begin: float, span: float) -> None:
        dice, cluster = self._dice, self._cluster
        at = begin + dice.uniform(0.2, 0.7) * span
        self._at(at, "the server is killed", self._serving.kill)
        self._at(at + dice.uniform(0, 2), "the server is started", self._serving.launch)
        parts = [
            ("the API server", cluster.apiserver.kill, cluster.apiserver.launch),
            ("etcd", cluster.etcd.pause, cluster.etcd.resume),
            ("the scheduler", cluster.scheduler.kill, cluster.scheduler.launch),
            ("the controller manager", cluster.controllers.kill, cluster.controllers.launch),
            ("some nodes", self._lose_nodes, self._find_nodes),
        ]
        dice.shuffle(parts)
        for number, (what, stop, go) in enumerate(parts):
            start = begin + (number + dice.uniform(0.1, 0.4)) * span / len(parts)
            asks = what == "some nodes"
            self._at(start, f"{what} fails", stop, asks=asks)
            self._at(start + dice.uniform(*AWAY), f"{what} comes back", go, asks=asks)
        for number in range(int(span / 2)):
            start = begin + (number + dice.random()) * 2
            name, node = f"foreign-{self._foreign}", dice.randrange(NODES)
            self._foreign += 1
            end = start + dice.uniform(2, 8)
            self._at(start, "somebody takes room", partial(self._occupy, name, node), asks=True)
            self._at(end, "somebody leaves", partial(self._leave, name), asks=True)

    def _lose_nodes(self) -> None:
        for _ in range(2):
            node = self._nodes.pop(self._dice.randrange(len(self._nodes)))
            answered(partial(self._cluster.admin.delete, f"/api/v1/nodes/{node}"))

    def _find_nodes(self) -> None:
        while len(self._nodes) < NODES:
            time.sleep(AWAY[0])  # after those that fail
            try:
                self._nodes += self._cluster.add_nodes(1, cpu=str(CPUS))
            except (httpx.HTTPError, AssertionError):
                time.sleep(0.2)

    def _occupy(self, name: str, node: int) -> None:
        """Take a whole node, past the scheduler: what is bound there stays, and the rest finds no room."""
        container = {"name": "main", "image": "x", "resources": {"requests": {"cpu": str(CPUS)}}}
        pod = {
            "metadata": {"name": name, "annotations": {"spillover.test/runs-for": "forever"}},
            "spec": {"nodeName": self._nodes[node % len(self._nodes)], "containers": [container]},
        }
        answered(lambda: self._cluster.admin.post("/api/v1/namespaces/default/pods", json=pod))

    def _leave(self, name: str) -> None:
        answered(lambda: self._cluster.admin.delete(f"/api/v1/namespaces/default/pods/{name}"))

    def happen(self) -> None:
        """Let everything happen at its time."""
        begun = time.monotonic()
        while self._plan:
            second, _, happen = heappop(self._plan)
            time.sleep(max(0.0, begun + second - time.monotonic()))
            happen()
        for each in self._cluster.components:
            each.await_ready()
        for asked in self._asking:
            asked.result()
        self._pool.shutdown()
        self._find_nodes()
        for number in range(self._foreign):
            self._leave(f"foreign-{number}")


def answered(call: Callable[[], httpx.Response]) -> None:
    """Ask until the API server answers."""
    while True:
        try:
            if call().status_code < 500:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.2)


def gangs(dice: random.Random) -> list[dict[str, Any]]:
    """Gangs of all sizes, more small than large ones. Every second is placed as if the others were not there.

    Some come in pairs, each larger than half of the cluster.
    """
    made = []
    for number in range(GANGS):
        tasks = LARGEST if number % 50 < 2 else min(LARGEST, round(2 ** dice.uniform(1, 6)))
        spec = {
            "container": {"image": "example/image:1"},
            "tasks": tasks,
            "resources": {"cpu": 1},
            "env": {"RUNS_FOR": "8s" if number % 50 < 2 else dice.choice(["500ms", "1s", "2s", "6s"])},
            "where": {"cluster": "rival" if number % 2 else "onprem"},
            "retry": {"lost": 1000},
            "key": f"gang-{number}",
        }
        made.append(
            {"apiVersion": "spillover/v1", "kind": "Job", "metadata": {"name": f"{tasks}"}, "spec": spec}
        )
    return made


def submit(client: Client) -> dict[str, int]:
    """Submit all in bursts; return how many tasks each has."""
    begun, sizes = time.monotonic(), dict[str, int]()
    wanted = gangs(random.Random(SEED))
    for burst in range(BURSTS):
        time.sleep(max(0.0, begun + burst * LASTS / BURSTS - time.monotonic()))
        some = wanted[burst * GANGS // BURSTS : (burst + 1) * GANGS // BURSTS]
        if some:
            ids = client.submit(some)
            sizes |= {job: each["spec"]["tasks"] for job, each in zip(ids, some, strict=True)}
    return sizes


@contextmanager
def told_how_to_repeat() -> Iterator[None]:
    """Say with every failure how it is had again."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"to have the same faults again: make chaos-kube JOBS=0 GANGS={GANGS} SEED={SEED}")
        raise


@pytest.fixture
def nodes(onprem: Cluster) -> Iterator[list[str]]:
    made = onprem.add_nodes(NODES, cpu=str(CPUS))
    yield made
    onprem.remove_nodes(made)


@pytest.fixture
def serving(onprem: Cluster, nodes: list[str], tmp_path: Path) -> Iterator[Serving]:
    del nodes
    with Serving(tmp_path / "server", {"onprem": (onprem, OPTIONS), "rival": (onprem, OPTIONS)}) as made:
        yield made


def test_every_gang_runs_as_a_whole_while_the_server_the_cluster_and_nodes_fail(
    serving: Serving, onprem: Cluster, nodes: list[str]
) -> None:
    begun = time.monotonic()
    with told_how_to_repeat(), ExitStack() as stack:
        witnesses = [
            stack.enter_context(GangWitness(onprem, namespace)) for namespace in serving.namespaces.values()
        ]
        client = stack.enter_context(serving.server.client(patience=PATIENCE))
        chaos = Chaos(serving, onprem, nodes, random.Random(SEED))
        with ThreadPoolExecutor(1) as pool:
            happening = pool.submit(chaos.happen)
            sizes = submit(client)
            happening.result()
        assert len(chaos.happened) == 14, chaos.happened

        wait_until(
            lambda: not (at := client.server()).queued + at.running, "the end of all gangs", PATIENCE, 0.5
        )
        for name in serving.clusters:
            serving.await_gone(name)
            serving.await_used(name)
        serving.disconnect()
        assert serving.server.stop() == 0
        events = read_journal(serving.server.data)
        ends = [event for event in events if isinstance(event, JobEnded)]
        assert Counter(event.job for event in ends) == Counter(list(sizes))
        assert {event.state for event in ends} == {"SUCCEEDED"}, [e for e in ends if e.state != "SUCCEEDED"]
        back = Counter(event.why for event in events if isinstance(event, JobRequeued))
        assert back[Back.UNPREPARED] + back[Back.RELEASED], "no gang was in part for too long"
        assert set(back) <= {Back.UNPREPARED, Back.LOST, Back.RELEASED}, back

        doubled = {name: uids for each in witnesses for name, uids in each.made.items() if len(uids) != 1}
        assert not doubled, f"made more than once: {doubled}"
        check_last(witnesses, ends, sizes)
        longest = max(time for each in witnesses for time in each.in_part.values())
        assert longest < PREPARE + OUTAGE, f"a gang was in part for {longest:.0f} s"
        sys.stderr.write(
            f"\n{GANGS} gangs, {sum(sizes.values())} pods, in {time.monotonic() - begun:.0f} s; given back: {dict(back)}; "
            f"longest in part: {longest:.1f} s; faults: {dict(chaos.happened)}\n"
        )


def check_last(witnesses: list[GangWitness], ends: list[JobEnded], sizes: dict[str, int]) -> None:
    """Of the Job that ended a gang, all pods ran; so they did at most once."""
    begun = {name: ranks for each in witnesses for name, ranks in each.begun.items()}
    for end in ends:
        name = f"spill-{end.job}-{end.attempt}-{end.seq}"
        assert begun[name] == set(range(sizes[end.job])), f"{name} ran in part: {begun[name]}"
