"""Measures real servers that rent processes: from a due job to its running task, and a large pool up and down.

The journal tells when a job was due, when its machine was ordered, made and ready, and when the job was placed. The task
itself tells when it runs. The floor starts the same agent program by hand, beside the same server, until it has registered.

`python -m bench.pools` runs this too. Alone, `--quick` and `--long` mean the same here.
"""

import asyncio
import contextlib
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import psutil
from msgspec import Struct

from bench.gangs import quantile
from bench.reporting import Goal, Options, Report, Table, main, tell
from bench.servers import Connection, Running, cpu_below, folder, job, serving, until
from spillover.core.events import (
    AgentRegistered,
    AnyEvent,
    JobPlaced,
    JobSubmitted,
    MachineGone,
    MachineJoined,
    MachineMade,
    MachinesEnding,
    MachinesWanted,
)
from spillover.model.units import SECOND
from spillover.stores.open import open_store
from spillover.wire.journal import decode_event

BOOTS: Final = (0, 1)
"""Seconds that the provider takes to boot a machine."""
MACHINES: Final = 200
LONG: Final = 500
"""Machines of a long measurement."""
SLACK: Final = 0.8
"""The part of the free memory that machines may use."""
LEAST_MEMORY: Final = 2 << 30
"""Bytes of free memory below which a measurement is given up."""
PATIENCE: Final = 1800.0
"""Seconds until all machines must be ready, or gone."""
STAMP: Final = 'date +%s%N > "$STAMPS/$SPILL_JOB_ID.new" && mv "$STAMPS/$SPILL_JOB_ID.new" "$STAMPS/$SPILL_JOB_ID"; exec sleep 86400'
"""Tells when the task runs, in nanoseconds, and keeps its machine busy, so that the next job needs another one."""
TASK: Final = {"cpu": 1, "memory": "32Mi"}
"""What each task asks for: one fits on a machine."""
PARTS: Final = (
    "ordered, from when the job is due",
    "made by the provider",
    "its agent joined, without the boot time",
    "the job placed",
    "its task running",
)
"""What happens one after the other until a task runs."""


class Start(Struct, frozen=True):
    """How one job came to run; milliseconds."""

    parts: tuple[float, ...]
    """As PARTS."""

    @property
    def whole(self) -> float:
        """From due to running, without the boot time of the provider."""
        return sum(self.parts)


class Starts(Struct, frozen=True):
    """What jobs one after the other showed."""

    jobs: list[Start]
    bare: list[float]
    """Milliseconds until an agent that was started by hand had registered."""
    cpu: float
    """CPU seconds of such an agent until then."""
    memory: int
    """Bytes that a machine has for itself, or its part of what machines share, with an idle task."""


class Fleet(Struct, frozen=True):
    """What a large pool showed. CPU means that of the server."""

    machines: int
    up: float
    """Seconds from the first order until all were ready."""
    running: float
    """Seconds from the submission until all tasks ran."""
    up_cpu: float
    """CPU seconds until then."""
    idle_cpu: float
    """Part of a core while all are there and nothing happens."""
    down: float
    """Seconds from the end of the tasks until the last machine was gone."""
    ended: float
    """Seconds of these from the first order to end machines on."""
    down_cpu: float
    memory: int
    """Bytes of all machines."""
    server: int
    """Bytes of the server."""


def config(boot: float, most: int) -> str:
    """Return a server with an empty pool, and a cluster for agents that are started by hand."""
    return (
        "apiVersion: spillover/v1\nkind: Config\npolicy: {wait: zero}\n"
        "clusters:\n"
        "- {name: hand, role: owned}\n"
        "- name: cloud\n  role: rented\n  pool:\n"
        f"    provider: {{process: {{boot: {boot:g}s}}}}\n"
        "    offers: [{type: small, cpu: 1, memory: 64Mi, hour: 0.1}]\n"
        f"    billing: {{step: 1s}}\n    max: {most}\n    boot: {boot + 1:g}s\n    idle: 1s\n"
        "agents: {on_shutdown: stop}\n"
    )


@contextlib.contextmanager
def renting(path: Path, boot: float, most: int) -> Iterator[tuple[Running, Connection]]:
    """Run a server with a pool; nothing of it may run afterwards."""
    data = path / "data"
    data.mkdir(parents=True)
    (path / "spill.yaml").write_text(config(boot, most), encoding="utf-8")
    try:
        with (
            serving(data, "--config", str(path / "spill.yaml")) as server,
            contextlib.closing(server.connect()) as http,
        ):
            yield server, http
    finally:
        left = processes_of(data)
        for each in left:
            with contextlib.suppress(psutil.Error):
                each.kill()
        if left:
            raise RuntimeError(f"{len(left)} processes were left running")


def processes_of(data: Path) -> list[psutil.Process]:
    """Return all processes that belong to a data folder: agents, what they started, and machines that boot."""
    name, found = os.fsencode(data), []
    for each in Path("/proc").glob("[0-9]*"):
        for told in ("cmdline", "environ"):
            with contextlib.suppress(OSError, psutil.Error):
                if name in (each / told).read_bytes():
                    found.append(psutil.Process(int(each.name)))
                    break
    return found


def memory_of(processes: Sequence[psutil.Process]) -> int:
    """Return the bytes of processes, with their parts of what they share."""
    found = 0
    for each in processes:
        with contextlib.suppress(psutil.Error, OSError):
            lines = Path(f"/proc/{each.pid}/smaps_rollup").read_text(encoding="utf-8").splitlines()
            found += sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))
    return found


def journal(data: Path) -> list[AnyEvent]:
    """Read all events of a stopped server."""

    async def read() -> list[AnyEvent]:
        store = await open_store("sqlite", data)
        try:
            return [decode_event(each.event) async for each in store.journal.tail(0)]
        finally:
            await store.close()

    return asyncio.run(read())


def submit(http: Connection, *documents: dict[str, object]) -> list[str]:
    """Submit jobs and return their ids."""
    request = http.request("POST", "/v1/jobs", json.dumps({"jobs": documents}).encode())
    return [str(each) for each in json.loads(http.ask(request))["jobs"]]


# --- from due to running


def starts(path: Path, boot: float, jobs: int) -> Starts:
    """Submit jobs one after the other, each of which needs a new machine, and start agents by hand in between."""
    stamps = path / "stamps"
    stamps.mkdir(parents=True)
    began: dict[str, int] = {}
    ids: list[str] = []
    cpu: list[float] = []
    with renting(path, boot, jobs) as (server, http):
        agents = len(server.agents())
        for number in range(jobs):
            asked = job(
                "start", run=STAMP, workdir="/", burst="always", resources=TASK, env={"STAMPS": str(stamps)}
            )
            ids += submit(http, asked)
            until((stamps / ids[-1]).exists, 120)
            name = f"hand-{number}"
            began[name] = time.time_ns()
            cpu.append(_by_hand(server, http, name))
        machines = [each for each in processes_of(server.data) if each.pid != server.process.pid]
        memory = memory_of(machines) // jobs
        assert agents == 0, "an agent would take the jobs"
    events = journal(path / "data")
    ran = {each: int((stamps / each).read_text()) for each in ids}
    registered = {str(each.node): each.at for each in events if isinstance(each, AgentRegistered)}
    bare = [(registered[name] - at) / 1e6 for name, at in began.items()]
    return Starts(list(_parts(events, ran, boot)), bare, statistics.median(cpu), memory)


def _by_hand(server: Running, http: Connection, name: str) -> float:
    """Start an agent, wait until it has registered, and stop it; return its CPU seconds until then."""
    words = (
        "--data",
        str(server.data),
        "--name",
        name,
        "--cluster",
        "hand",
        "--cpu",
        "1",
        "--memory",
        "64Mi",
    )
    with (server.data.parent / "hand.log").open("ab") as log:
        agent = subprocess.Popen([sys.executable, "-m", "spillover.agent", *words], stderr=log)
    try:
        until(lambda: any(each["name"] == name for each in http.get("/v1/agents")), 60)
        return sum(cpu_below(agent.pid))
    finally:
        agent.terminate()
        agent.wait()


def _parts(events: Sequence[AnyEvent], ran: dict[str, int], boot: float) -> Iterator[Start]:
    """Yield how each job came to run first; at its end, the server takes the machines from under them."""
    events = events[::-1]
    due = {str(each.job): each.at for each in events if isinstance(each, JobSubmitted)}
    wanted = {
        str(wish.job): (each.at, wish.machine)
        for each in events
        if isinstance(each, MachinesWanted)
        for wish in each.wishes
    }
    made = {each.machine: each.made_at for each in events if isinstance(each, MachineMade)}
    joined = {each.machine: each.at for each in events if isinstance(each, MachineJoined)}
    placed = {str(each.job): (each.at, str(each.node)) for each in events if isinstance(each, JobPlaced)}
    for name, runs in ran.items():
        at, machine = wanted[name]
        if placed[name][1] != machine:
            raise RuntimeError(f"{name} did not run on the machine that was ordered for it")
        after = [each - round(boot * SECOND) for each in (joined[machine], placed[name][0], runs)]
        moments = (due[name], at, made[machine], *after)
        yield Start(tuple([(after - before) / 1e6 for before, after in itertools.pairwise(moments)]))


def _machines(http: Connection) -> dict[str, int]:
    """Return how many machines may exist, by state."""
    (pool,) = http.get("/v1/overview")["pools"]
    counts: dict[str, int] = pool["machines"]
    return counts


def measure_starts(report: Report, options: Options) -> Starts:
    """Measure starts for each boot time; return those of the first."""
    jobs = 3 if options.quick else 50
    found: dict[int, Starts] = {}
    for boot in BOOTS[:1] if options.quick else BOOTS:
        with folder("starts") as path:
            tell(f"{jobs} jobs, each on a new machine that boots in {boot} s")
            found[boot] = starts(path, boot, jobs)
    table = Table(
        f"From a due job to its running task, above the boot time of the provider; {jobs} jobs, each on a new machine; ms",
        ("", *[f"{figure}, boot {boot} s" for boot in found for figure in ("p50", "p99")]),
    )
    for at, part in enumerate(PARTS):
        values = [[each.parts[at] for each in one.jobs] for one in found.values()]
        table.add(
            part, *[figure for one in values for figure in (statistics.median(one), quantile(one, 0.99))]
        )
    rows = {
        "all of it": [[each.whole for each in one.jobs] for one in found.values()],
        "floor: an agent started by hand registers": [one.bare for one in found.values()],
    }
    for name, measured in rows.items():
        table.add(
            name, *[figure for one in measured for figure in (statistics.median(one), quantile(one, 0.99))]
        )
    report.tables.append(table)
    for boot, one in found.items():
        whole = [each.whole for each in one.jobs]
        report.figures[f"start boot {boot} p50 ms"] = statistics.median(whole)
        report.figures[f"start boot {boot} p99 ms"] = quantile(whole, 0.99)
        report.figures[f"agent boot {boot} p50 ms"] = statistics.median(one.bare)
    first = found[BOOTS[0]]
    started, by_hand = (statistics.median(each) for each in ([one.whole for one in first.jobs], first.bare))
    report.goals.append(
        Goal("from due to running / an agent started by hand, p50", started / by_hand, 1, at_most=True)
    )
    report.notes.append(
        f"An agent needs {first.cpu:.2f} s of CPU until it has registered, and a machine with an idle task "
        f"{first.memory / 2**20:.0f} MiB. Machines and the server share the cores."
    )
    return first


# --- a large pool up and down


def _running(http: Connection, array: str) -> int:
    """Return how many tasks of an array run; raise MemoryError before the machine has too little memory."""
    if psutil.virtual_memory().available < LEAST_MEMORY:
        raise MemoryError("too little memory is left for more machines")
    counts: dict[str, int] = http.get(f"/v1/jobs/{array}")["array"]["counts"]
    return counts.get("RUNNING", 0)


def fleet(path: Path, machines: int, quiet: float = 20.0) -> Fleet:
    """Let an array of tasks rent machines, all at once, then let them end; in between, nothing happens for some seconds."""
    path.mkdir(parents=True, exist_ok=True)
    gate = path / "gate"
    os.mkfifo(gate)
    # Opening the gate blocks, without any CPU time, until somebody writes to it.
    asked = job(
        "fleet", run=f"cat {gate}", workdir="/", array=f"1-{machines}", burst="always", resources=TASK
    )
    with renting(path, 0, machines) as (server, http):
        before, begin = server.cpu().own, time.monotonic()
        (name,) = submit(http, asked)
        until(lambda: _running(http, name) == machines, PATIENCE, 0.5)
        running, up_cpu = time.monotonic() - begin, server.cpu().own - before
        tell(f"{machines} machines run their tasks after {running:.0f} s")
        own = [each for each in processes_of(server.data) if each.pid != server.process.pid]
        memory, resident = memory_of(own), server.resident()
        before = server.cpu().own
        time.sleep(quiet)
        idle = (server.cpu().own - before) / quiet
        before, begin = server.cpu().own, time.monotonic()
        gate.open("w").close()
        # Nothing was asked for a while, so the server may have closed the other connection.
        with contextlib.closing(server.connect()) as late:
            until(lambda: not _machines(late), PATIENCE, 0.5)
        down, down_cpu = time.monotonic() - begin, server.cpu().own - before
        tell(f"all machines are gone after {down:.0f} s")
    events = journal(path / "data")
    ordered = min(each.at for each in events if isinstance(each, MachinesWanted))
    joined = [each.at for each in events if isinstance(each, MachineJoined)]
    ending = min(each.at for each in events if isinstance(each, MachinesEnding))
    gone = max(each.at for each in events if isinstance(each, MachineGone))
    return Fleet(
        len(joined),
        (max(joined) - ordered) / SECOND,
        running,
        up_cpu,
        idle,
        down,
        (gone - ending) / SECOND,
        down_cpu,
        memory,
        resident,
    )


def measure_fleet(report: Report, options: Options, one: Starts) -> None:
    """Measure as many machines as memory allows."""
    wanted = 5 if options.quick else LONG if options.long else MACHINES
    fits = int(psutil.virtual_memory().available * SLACK / one.memory)
    machines = min(wanted, fits)
    tell(f"{machines} machines at once; {fits} would fit into memory")
    with folder("fleet") as path:
        found = fleet(path, machines, quiet=2.0 if options.quick else 20.0)
    table = Table(
        f"A pool of {machines} machines, up and down",
        ("", "seconds", "of the floor", "CPU s of the server", "CPU ms a machine"),
    )
    floor = machines * one.cpu / len(os.sched_getaffinity(0))
    table.add("floor: the CPU time of as many agents started by hand, on all cores", floor, 1.0, "", "")
    table.add("all ready", found.up, found.up / floor, "", "")
    table.add(
        "all tasks running",
        found.running,
        found.running / floor,
        found.up_cpu,
        found.up_cpu / machines * 1000,
    )
    table.add("all given back", found.down, "", found.down_cpu, found.down_cpu / machines * 1000)
    table.add("of these, from the first order to end", found.ended, "", "", "")
    report.tables.append(table)
    report.figures |= {
        "fleet machines": machines,
        "fleet up s": found.up,
        "fleet down s": found.down,
        "fleet server CPU ms a machine": (found.up_cpu + found.down_cpu) / machines * 1000,
    }
    spent = report.figures["fleet server CPU ms a machine"]
    report.goals += [
        Goal(f"{machines} machines up / the CPU time of their agents", found.up / floor, 3, at_most=True),
        Goal(f"{machines} machines given back / up", found.down / found.up, 1, at_most=True),
        Goal("CPU ms of the server for a machine, up and down", spent, 50, at_most=True),
    ]
    report.notes.append(
        f"All {machines} machines had {found.memory / 2**30:.1f} GiB, {found.memory / machines / 2**20:.0f} MiB each, and the "
        f"server {found.server / 2**20:.0f} MiB. While their tasks only waited, the server used {found.idle_cpu:.1%} of a core."
    )
    if machines < wanted:
        report.notes.append(f"{wanted} machines do not fit into the memory of this machine.")


def measure(options: Options) -> Report:
    """Measure starts of single machines, and then a large pool."""
    report = Report("Rented machines")
    measure_fleet(report, options, measure_starts(report, options))
    return report


if __name__ == "__main__":
    main(measure, __doc__ or "")
