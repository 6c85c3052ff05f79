"""Runs a soak: a server with all kinds of clusters, load, rest, load, rest, and a report."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from msgspec import Struct

from tests.support.processes import ServerProcess, nothing_left, read_journal, wait_until, write_config
from tests.support.soak import server as counting
from tests.support.soak import verdict
from tests.support.soak.agents import Comings, FarAgent
from tests.support.soak.kubernetes import PlayedKubernetes, played
from tests.support.soak.load import PATIENCE, Load, Target
from tests.support.soak.samples import Gauge, Rest, Sample
from tests.support.soak.verdict import Row

EVERY: Final = 10.0
"""Seconds between two lines of progress."""
SICK: Final = 3.0
"""Seconds for which the Kubernetes cluster does not answer, once in each half."""
FAR: Final = ("r1", "r2")
MIB: Final = 2**20


class Wanted(Struct, frozen=True):
    """The options of a soak."""

    seconds: float
    """Seconds of load."""
    pause: float
    """Longest allowed pause of the event loop, in seconds."""
    seed: int = 1


class Report(Struct, frozen=True):
    """The result of a soak."""

    rows: tuple[Row, ...]
    details: tuple[str, ...]
    """Details of failed checks, one line each."""

    @property
    def well(self) -> bool:
        """Whether all checks passed."""
        return all(row.well for row in self.rows)


def soak(folder: Path, wanted: Wanted, tell: Callable[[str], None]) -> Report:
    """Soak a server in a folder, which is created if necessary."""
    folder.mkdir(parents=True, exist_ok=True)
    with _standing(folder) as place:
        return _Story(place, wanted, tell).run()


class _Place(Struct, frozen=True):
    """A server with everything around it."""

    server: ServerProcess
    agents: list[FarAgent]
    kubernetes: PlayedKubernetes
    target: Target


PATIENT: Final = {"too_large": "wait"}
"""The load asks about a job that no machine can hold."""


@contextmanager
def _standing(folder: Path) -> Iterator[_Place]:
    """Run a server with local agents, remote agents and a Kubernetes cluster; leave nothing behind."""
    with ExitStack() as stack:
        kubeconfig = folder / "kubeconfig"
        cluster = stack.enter_context(played(kubeconfig))
        clusters = [
            {"name": "local", "local": [{"name": "n1", "cpu": 3, "memory": "2Gi"}]},
            {"name": "pool"},
            {
                "name": "kube",
                "kind": "kubernetes",
                "kubernetes": {"kubeconfig": str(kubeconfig), "image": "busybox", "keep": "2s"},
            },
        ]
        agents = {"heartbeat": "2s", "lost_after": "8s", "keep_output": True}
        server = ServerProcess(
            folder, *write_config(folder, clusters=clusters, agents=agents, limits=PATIENT)
        )
        server.program = counting.__name__
        stack.callback(nothing_left, folder)
        stack.callback(server.clear)
        server.up()
        token = (server.data / "token").read_text().strip()
        with server.client() as client:
            path = folder / "agent.token"
            path.touch(mode=0o600)
            path.write_text(client.create_token("agent", note="soak").token)
            far = [FarAgent(name, folder / name, server.url, path, "pool") for name in FAR]
            for agent in far:
                stack.callback(agent.clear)
                agent.start()
            wait_until(lambda: all(each.state == "READY" for each in client.clusters()), "all clusters", 60)
        yield _Place(server, far, cluster, Target(server.url, server.data, token))


class _Story:
    """One soak."""

    def __init__(self, place: _Place, wanted: Wanted, tell: Callable[[str], None]) -> None:
        self._place = place
        self._wanted = wanted
        self._tell = tell
        target, server = place.target, place.server
        self._gauge = Gauge(target.url, target.token, server.process.pid, server.folder / counting.COUNTS)
        self._load = Load(target, wanted.seed)
        self._comings = Comings(place.agents, wanted.seed)
        self._began = self._told_at = time.monotonic()

    def run(self) -> Report:
        """Load for a third, rest, load for two thirds, rest."""
        before = self._spell(self._wanted.seconds / 3)
        self._tell(f"{self._clock()}  at rest: {_told(before.sample)}, {before.count:,} objects")
        after = self._spell(self._wanted.seconds * 2 / 3)
        self._tell(f"{self._clock()}  at rest: {_told(after.sample)}, {after.count:,} objects")
        doctor = self._place.server.spill("doctor", "--config", "spill.yaml", "--json", timeout=300)
        code = self._place.server.stop()
        return self._judge(before, after, doctor.stdout or doctor.stderr, code)

    def _spell(self, seconds: float) -> Rest:
        """Load for a while, then rest until nothing changes any more."""
        self._load.begin()
        self._comings.begin()
        begun = time.monotonic()
        while (gone := time.monotonic() - begun) < seconds:
            self._place.kubernetes.sick = seconds / 2 < gone < seconds / 2 + SICK
            time.sleep(min(1.0, seconds - gone))
            if time.monotonic() - self._told_at >= EVERY:
                self._progress()
        self._place.kubernetes.sick = False
        self._comings.rest()
        self._load.rest()
        self._await_ends()
        return self._gauge.at_rest(60)

    def _await_ends(self) -> None:
        """Wait until all jobs have ended; each round waits for its own, so none is left unless a round failed."""
        for give_up in (self._load.give_up, None):
            until = time.monotonic() + PATIENCE
            while time.monotonic() < until:
                sample = self._gauge.look()
                if not sample.queued + sample.running:
                    return
                time.sleep(0.5)
            if give_up is not None:
                give_up()

    def _progress(self) -> None:
        self._told_at = time.monotonic()
        rounds = sum(self._load.done.values())
        self._tell(
            f"{self._clock()}  {rounds:,} rounds, {len(self._load.expected):,} jobs, {_told(self._gauge.look())}, "
            f"{self._comings.killed} agents killed, {len(self._load.wrong)} wrong"
        )

    def _clock(self) -> str:
        minutes, seconds = divmod(round(time.monotonic() - self._began), 60)
        return f"{minutes:3}:{seconds:02}"

    def _judge(self, before: Rest, after: Rest, doctor: str, code: int) -> Report:
        """Return the checks, with the details of those that failed."""
        load = self._load
        rows = [*verdict.grown(before, after)]
        details = [f"of these there are more objects: {line}" for line in verdict.growing(before, after)]
        longest, most = self._gauge.longest, self._wanted.pause
        rows.append(
            Row("longest pause", "", f"{longest * 1000:.0f} ms", f"{most * 1000:.0f} ms", longest <= most)
        )
        events = read_journal(self._place.server.data)
        for what, wrong in (
            (f"{sum(load.done.values()):,} rounds", load.wrong),
            (
                f"{len(load.expected):,} jobs, {sum(load.sizes.values()):,} members",
                verdict.ended_otherwise(load.expected, load.sizes, events),
            ),
            (f"{len(events):,} events, log", verdict.unasked(self._place.server.log.read_text())),
            ("spill doctor", _unhealthy(doctor)),
            ("stopping", [] if code == 0 else [f"the server ended with {code}"]),
        ):
            rows.append(Row(what, "", f"{len(wrong)} wrong" if wrong else "", "none wrong", not wrong))
            details += [f"{what}: {line}" for line in wrong[:20]]
        return Report(tuple(rows), tuple(details))


def _told(sample: Sample) -> str:
    return (
        f"{sample.queued:.0f} queued, {sample.running:.0f} running; {sample.memory / MIB:.0f} MiB, {sample.files:.0f} files, "
        f"{sample.threads:.0f} threads, {sample.tasks:.0f} tasks, pause {sample.pause * 1000:.0f} ms"
    )


def _unhealthy(said: str) -> list[str]:
    """Return the findings of the doctor."""
    try:
        findings = json.loads(said)["findings"]
    except (ValueError, KeyError):
        return [said]
    return [f"{each['check']}: {each['found']}" for each in findings if each["level"] != "ok"]
