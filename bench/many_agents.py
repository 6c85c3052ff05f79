"""Measures what 10,000 agents cost a server, compared with 100: reconnection after a kill, heartbeats, and jobs.

Agents are real except for their tasks, which end at once (`fake_agents`): each has a connection, a session and
heartbeats.
"""

import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from bench.fake_agents import Status
from bench.loop_pauses import Pauses
from bench.reporting import Goal, Options, Report, Table, main, tell
from bench.servers import Running, folder, job, serving, until
from spillover.core.events import Usage
from spillover.core.proposals import NewJob, Outcome, Register, Result, StartEpoch, Submit
from spillover.core.records.jobs import Placed
from spillover.core.state import State
from spillover.deciding.engine import Engine
from spillover.model.cluster import ClusterSpec, Role
from spillover.model.ids import ClusterName, JobId, NodeName
from spillover.model.job import JobSpec, Shape, Shell
from spillover.model.policy import PolicySet
from spillover.model.resources import Resources
from spillover.model.units import SECOND
from spillover.policies.loading import load

CLUSTER: Final = "fakes"
CONFIG: Final = f"""\
apiVersion: spillover/v1
kind: Config
clusters: [{{name: {CLUSTER}, kind: agents, role: owned}}]
"""
FEW: Final = 100
SOME: Final = 1_000
"""With calls, each for itself, a server of two cores that it shares with its agents does not keep up with many more."""
PROCESSES: Final = 2
"""That many agents are in."""
BATCH: Final = 100
"""Jobs that are submitted together: one for each agent where there are few, so that messages are as many with more."""
JOINING: Final = 250
"""Agents that are started in a second: those of a cluster are not switched on at once, and all of these share this machine."""
SPEC: Final = ClusterSpec(ClusterName(CLUSTER), "agents", Role.OWNED)
CAPACITY: Final = Resources(1000, 2**40)
TASK: Final = JobSpec(Shell("true"), "job", "default", "default", Shape(Resources(1000, 2**20)))
START: Final = 1_800_000_000 * SECOND
PATIENCE: Final = 600.0
"""Seconds until all agents must be there."""


class Round(Struct, frozen=True):
    """One measurement; CPU means that of the server."""

    joining: float
    """CPU seconds until all agents were there for the first time."""
    returning: float
    """CPU seconds from its start until all of them were back, after it was killed."""
    returned: float
    """Seconds that this took."""
    again: int
    """Registrations beyond one for each agent, then."""
    heartbeats: float
    """Share of a core while nothing but heartbeats comes."""
    deciding: float
    """CPU milliseconds a job."""
    joining_pause: float
    returning_pause: float
    steady_pause: float
    deciding_pause: float
    """The longest pause of the server's event loop in each of the four, seconds."""
    memory: int
    """Bytes of the server."""


class Fakes:
    """Agents in separate processes."""

    def __init__(self, data: Path, path: Path, count: int, *, calls: bool) -> None:
        self.count = count
        self._files: list[Path] = []
        self._processes: list[subprocess.Popen[bytes]] = []
        parts = PROCESSES if count > FEW else 1
        for part in range(parts):
            status = path / f"status{part}"
            some = count * (part + 1) // parts - count * part // parts
            words = [str(data), CLUSTER, str(some), "1", "--first", str(count * part // parts)]
            words += [
                "--rate",
                str(JOINING / parts),
                "--status",
                str(status),
                *(["--calls"] if calls else []),
            ]
            command = [sys.executable, "-m", "bench.fake_agents", *words]
            self._files.append(status)
            with (path / f"fakes{part}.log").open("wb") as log:
                self._processes.append(subprocess.Popen(command, stderr=log, start_new_session=True))

    def status(self) -> Status:
        """Return the status of all agents."""
        each = [msgspec.json.decode(file.read_bytes(), type=Status) for file in self._files if file.exists()]
        broken: Counter[str] = Counter()
        for one in each:
            broken.update(one.broken)
        return Status(
            sum(one.connected for one in each),
            sum(one.registrations for one in each),
            sum(one.ended for one in each),
            sum(one.unanswered for one in each),
            dict(broken),
        )

    def all_there(self) -> bool:
        """Return whether all agents are registered."""
        if any(process.poll() is not None for process in self._processes):
            raise RuntimeError("agents are gone: see fakes*.log")
        return self.status().connected == self.count

    def close(self) -> None:
        """Stop all agents."""
        for process in self._processes:
            process.send_signal(signal.SIGKILL)
            process.wait()


@contextlib.contextmanager
def _fakes(server: Running, path: Path, count: int, *, calls: bool) -> Iterator[Fakes]:
    with contextlib.closing(Fakes(server.data, path, count, calls=calls)) as fakes:
        yield fakes


def measured(path: Path, count: int, seconds: float, jobs: int, *, calls: bool) -> Round:
    """Measure everything with so many agents, and heartbeats for so many seconds."""
    (path / "data").mkdir(parents=True)
    (path / "spill.yaml").write_text(CONFIG, encoding="utf-8")
    pauses = Pauses(path / "pauses")
    watched = ("-m", "bench.loop_pauses", str(path / "pauses"))
    words = ("--config", str(path / "spill.yaml"))
    with contextlib.ExitStack() as stack:
        with serving(path / "data", *words, program=watched) as server:
            fakes = stack.enter_context(_fakes(server, path, count, calls=calls))
            until(fakes.all_there, PATIENCE, 0.2)
            joining, joining_pause = server.cpu().own, pauses.take()
            tell(f"{count:,} agents joined: {joining:.1f} s of CPU")
            time.sleep(5)  # what they were told first has been written
            os.killpg(server.process.pid, signal.SIGKILL)
            server.process.wait()
        before = fakes.status().registrations
        until(lambda: fakes.status().connected == 0, PATIENCE, 0.2)
        pauses.take()
        begin = time.monotonic()
        with serving(path / "data", *words, program=watched) as server:
            until(fakes.all_there, PATIENCE, 0.2)
            returned, returning = time.monotonic() - begin, server.cpu().own
            status, returning_pause = fakes.status(), pauses.take()
            again = status.registrations - before - count
            tell(f"{count:,} agents back: {returning:.1f} s of CPU in {returned:.1f} s; {status.broken}")
            _settle(server)
            pauses.take()
            start, begin = server.cpu().own, time.monotonic()
            time.sleep(seconds)
            heartbeats = (server.cpu().own - start) / (time.monotonic() - begin)
            steady_pause = pauses.take()
            tell(f"{count:,} agents: heartbeats take {heartbeats * 100:.1f}% of a core")
            deciding = _decide(server, fakes, jobs, heartbeats)
            tell(f"{count:,} agents: {deciding:.2f} ms of CPU a job")
            return Round(
                joining,
                returning,
                returned,
                again,
                heartbeats,
                deciding,
                joining_pause,
                returning_pause,
                steady_pause,
                pauses.take(),
                server.resident(),
            )


def _settle(server: Running) -> None:
    """Wait until the work of the registrations is done: a checkpoint, and new terms for agents."""
    until(lambda: _busy(server) < 0.5, 60, 0)


def _busy(server: Running) -> float:
    start = server.cpu().own
    time.sleep(2)
    return (server.cpu().own - start) / 2


def _decide(server: Running, fakes: Fakes, count: int, idle: float) -> float:
    """Return the CPU milliseconds of the server for one job, without its idle use."""
    with contextlib.closing(server.connect()) as http:
        start, begin, done = server.cpu().own, time.monotonic(), fakes.status().ended
        for at in range(0, count, BATCH):
            jobs = [job("true", command=["/bin/true"], workdir="/") for _ in range(BATCH)]
            http.ask(http.request("POST", "/v1/jobs", json.dumps({"jobs": jobs}).encode()))
            wanted = done + at + BATCH
            until(lambda wanted=wanted: _all_ended(fakes, wanted), 60, 0.1)
        used = server.cpu().own - start - idle * (time.monotonic() - begin)
    return used / count * 1e3


def alone(agents: int) -> float:
    """Return the CPU microseconds of the engine alone for a job on one of so many agents, from submission to end."""
    now, engine = START, Engine(State(), load, now=START)
    engine.step(now, [StartEpoch(1, (SPEC,), PolicySet())])
    for first in range(0, agents, BATCH):
        names = [(number + 1, NodeName(f"n{number}")) for number in range(first, min(agents, first + BATCH))]
        engine.step(
            now, [Register(SPEC.name, name, number, CAPACITY, (), {}, 64, ()) for number, name in names]
        )
    rounds = []
    for number in range(10):
        now += SECOND
        jobs = [NewJob(JobId(f"j{number}x{at}"), TASK, b"spec") for at in range(BATCH)]
        begin = time.process_time()
        engine.step(now, [Submit(tuple(jobs), "ada")])
        for each in jobs:
            job, phase = engine.state.jobs[each.job], engine.state.jobs[each.job].phase
            assert isinstance(phase, Placed)
            engine.step(now, [Result(phase.key, job.lease, Outcome.EXITED, 0, None, Usage(SECOND), 0)])
        rounds.append((time.process_time() - begin) / BATCH * 1e6)
    return statistics.median(rounds)


def _all_ended(fakes: Fakes, count: int) -> bool:
    status = fakes.status()
    return status.ended >= count and not status.unanswered


def measure(options: Options) -> Report:
    """Measure few and many agents; and compare one stream for each agent with the older unary calls."""
    some, many, seconds, jobs = (200, 1_000, 10, 200) if options.quick else (SOME, 10_000, 60, 1_000)
    report = Report("Many agents on one server")
    found: list[Round] = []
    with folder("many-agents") as path:
        for count, calls in ((FEW, False), (some, True), (some, False), (many, False)):
            tell(f"{count:,} agents, {'calls' if calls else 'a stream each'}")
            name = f"{count}-{'calls' if calls else 'streams'}"
            found.append(measured(path / name, count, seconds, jobs, calls=calls))
    few, _, _, now = found
    table = Table(
        f"{many:,} agents beside {FEW}; heartbeats over {seconds} s; {jobs:,} jobs of no length, {BATCH} at a time",
        ("", f"{FEW}", f"{some:,}, calls", f"{some:,}", f"{many:,}", f"{many:,} / {FEW}", "streams / calls"),
    )
    for what, of in ROWS.items():
        values = [float(getattr(one, of)) for one in found]
        table.add(what, *values, _ratio(values[3], values[0]), _ratio(values[2], values[1]))
        report.figures |= {f"{what}: {name}": value for name, value in zip(COLUMNS, values, strict=True)}
    report.tables.append(table)
    decisions = {count: min(alone(count) for _ in range(3)) for count in (FEW, many)}
    engine = Table(
        "The engine alone: CPU microseconds of a job", ("agents", "microseconds", f"of those with {FEW}")
    )
    for count, took in decisions.items():
        engine.add(count, took, took / decisions[FEW])
        report.figures[f"engine alone, {count} agents, us"] = took
    report.tables.append(engine)
    share = many / 10_000  # goals are for 10,000
    report.goals += [
        Goal(f"CPU seconds until {many:,} agents are back", now.returning, 10 * share, at_most=True),
        Goal(f"share of a core for heartbeats of {many:,}", now.heartbeats, 0.1 * share, at_most=True),
        Goal(f"CPU a job, {many:,} agents / {FEW}", now.deciding / few.deciding, 2, at_most=True),
        Goal(f"the engine alone, {many:,} agents / {FEW}", decisions[many] / decisions[FEW], 2, at_most=True),
    ]
    return report


def _ratio(one: float, other: float) -> float:
    return one / other if other else 0.0


COLUMNS: Final = ("few", "some with calls", "some", "many")
ROWS: Final = {
    "CPU s until all have joined": "joining",
    "CPU s until all are back after a kill": "returning",
    "seconds that takes": "returned",
    "registrations beyond one each": "again",
    "share of a core for heartbeats": "heartbeats",
    "CPU ms a job": "deciding",
    "longest pause while they join, s": "joining_pause",
    "longest pause while they come back, s": "returning_pause",
    "longest pause with heartbeats only, s": "steady_pause",
    "longest pause with jobs, s": "deciding_pause",
    "bytes of memory": "memory",
}


if __name__ == "__main__":
    main(measure, __doc__)
