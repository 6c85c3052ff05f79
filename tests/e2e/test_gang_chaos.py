"""Gangs on eight agents while agents, wires and the server fail: each runs as a whole or not at all, and nothing is left.

Some faults are aimed at the moment when tasks of a gang are prepared and none has been told to start.
"""

import os
import random
import re
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from spillover.client import Client
from spillover.client.errors import Unavailable, Unreachable
from spillover.core.events import Back, GangPlaced, JobEnded, JobRequeued, JobStarted, JobState
from tests.support.far_agents import ROUND, Chaos, Far, leases, set_up, stop_all
from tests.support.processes import ServerProcess, read_journal, wait_until
from tests.support.wires import Wires

GANGS = int(os.environ.get("CHAOS_GANGS", "300"))
SEED = int(os.environ.get("CHAOS_SEED", "20261115"))
AGENTS = 8
WIDEST = 16
"""Most tasks of a gang, of the 24 that all agents together run."""
LASTS = ROUND * max(1, round(GANGS / 300))
"""Seconds over which gangs come and faults happen: as many faults for each gang, however many there are."""
PROGRESS = 120.0
"""Seconds within which a gang ends, after all faults; otherwise they wait for each other."""
GANG = """
say() {{ echo $1 $SPILL_JOB_ID $SPILL_ATTEMPT $SPILL_TASK $SPILL_TASKS ${{SPILL_GROUP:--}} ${{SPILL_RESTART:-0}} >> {stamps}; }}
say begin
sleep 0.$((SPILL_TASK % 3))
[ "$SPILL_TASK" != "$FAILS" ] || [ -n "$SPILL_RESTART" ] || exit 3
say end
"""
FAILS = 1
"""The task of a gang with `on_task_failure: restart` that fails once in every attempt."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600 + 4 * LASTS)]


class Wanted(NamedTuple):
    """A gang."""

    spec: dict[str, Any]
    least: int
    """Tasks."""
    most: int
    restarts: bool = False
    grouped: bool = False


class Attempt(NamedTuple):
    """An attempt of a gang; an attempt that is given back before its start keeps its number."""

    job: str
    number: int
    seq: int


class Hit(NamedTuple):
    """A fault that was aimed at a gang between `prepare` and `start`."""

    at: int
    """Nanoseconds UTC."""
    what: str
    attempt: Attempt


def a_gang(number: int, folder: Path, given: list[dict[str, Any]]) -> Wanted:
    """Return a gang, the same for the same number."""
    dice = random.Random(number)
    size = dice.randint(2, WIDEST)
    run = GANG.format(stamps=folder / "stamps")
    spec: dict[str, Any] = {"retry": {"lost": 200, "exit": 200}, "grace": "0s", "key": f"gang-{number}"}
    where = dice.choice(["anywhere", "with files", "with files", "in a folder"])
    if where == "with files":
        spec["inputs"] = given
    elif where == "in a folder":
        spec["workdir"] = str(shared(folder, number * round(LASTS / ROUND) // GANGS))
    match dice.choice(["alike", "groups", "restart", "elastic"]):
        case "groups":
            groups = [
                {"name": "leader", "run": run},
                {"name": "worker", "tasks": size - 1, "resources": {"cpu": 0.5}, "run": run},
            ]
            return Wanted(spec | {"groups": groups}, size, size, grouped=True)
        case "restart":
            more = {"tasks": size, "on_task_failure": "restart", "env": {"FAILS": str(FAILS)}}
            return Wanted(spec | more | {"run": run}, size, size, restarts=True)
        case "elastic":
            least = max(2, size // 2)
            return Wanted(spec | {"tasks": f"{least}..{size}", "run": run}, least, size)
        case _:
            return Wanted(spec | {"tasks": size, "run": run}, size, size)


def shared(folder: Path, number: int) -> Path:
    """A folder in which gangs of this round run. It comes late: until then, no agent can prepare them."""
    return folder / "shared" / str(number)


def documents(wanted: list[Wanted]) -> list[dict[str, Any]]:
    return [
        {"apiVersion": "spillover/v1", "kind": "Job", "metadata": {"name": "gang"}, "spec": each.spec}
        for each in wanted
    ]


class GangChaos(Chaos):
    """Also hits gangs between `prepare` and `start`, and lets folders come late."""

    AIMED = 4
    """Faults in a round that are aimed."""
    HELD = 0.4
    """Seconds by which the wire of one agent delays gangs, so that its peers wait for the word to start."""
    LOOKS = 4.0
    """Seconds of that delay. If no gang waits meanwhile, another agent is delayed."""

    def __init__(
        self, server: ServerProcess, agents: list[Far], wires: Wires, dice: random.Random, folder: Path
    ) -> None:
        super().__init__(server, agents, wires, dice, LASTS)
        self.hits: list[Hit] = []
        self.aims = 0
        """How often it looked for a gang to hit."""
        self._begun = Begun(folder / "stamps")
        self._ready: set[Attempt] = set()
        for number in range(self.rounds):
            begin = number * self.span
            self._at(begin + dice.uniform(6, 9), partial(self._bring, shared(folder, number)))
            for kind in range(self.AIMED):
                second = begin + (kind + dice.uniform(0.1, 0.6)) * self.span / self.AIMED
                self._at(second, partial(self._aim, kind))

    def _bring(self, folder: Path, _: float) -> None:
        folder.mkdir(parents=True)
        self.happened["a folder comes"] += 1

    def _aim(self, kind: int, now: float) -> None:
        """Delay what one agent says, and look for a gang that waits for it or for others."""
        holder = self._dice.choice(self._agents)
        if not self.begin(now, self.LOOKS, self.slow(holder, self.HELD)):
            self._at(now + 0.1, partial(self._aim, kind))
            return
        self.aims += 1
        assert self.aims < 20 * self.AIMED * self.rounds, (
            f"no gang waits between prepare and start: {self.hits}"
        )
        self._ready = set()
        self._look(kind, now + self.LOOKS, now)

    def _look(self, kind: int, until: float, now: float) -> None:
        """Hit a gang that was ready a moment ago and has still not begun."""
        found = self._prepared()
        for attempt in sorted(self._ready & found.keys()):
            target = self._dice.choice(found[attempt])
            fault, span = [
                (self.server_killed(), 0.2),
                (self.killed(target), 1.0),
                (self.stopped(target), self._dice.choice([1.0, 7.0])),
                (self.cut(target), self._dice.choice([1.0, 7.0])),
            ][kind]
            if self.begin(now, span, fault):
                self.hits.append(Hit(time.time_ns(), fault.what, attempt))
                return
        self._ready = set(found)
        again = self._look if now < until else None
        self._at(now + 0.05, partial(again, kind, until) if again else partial(self._aim, kind))

    def _prepared(self) -> dict[Attempt, list[Far]]:
        """The gangs with files of which tasks are prepared and none has begun, and where those tasks are."""
        found: dict[Attempt, list[Far]] = {}
        for agent in self._agents:
            for folder in agent.staged() if agent not in self._failing else ():
                job, number, _, seq = folder.name.split(".") if folder.name.count(".") == 3 else ("", 0, 0, 0)
                if job and (folder / "given").exists():
                    found.setdefault(Attempt(job, int(number), int(seq)), []).append(agent)
        begun = self._begun.read()
        return {each: agents for each, agents in found.items() if (each.job, each.number) not in begun}


class Begun:
    """The attempts that have begun somewhere, as their tasks say."""

    def __init__(self, stamps: Path) -> None:
        self._stamps = stamps
        self._read = 0
        self._begun: set[tuple[str, int]] = set()

    def read(self) -> set[tuple[str, int]]:
        with suppress(FileNotFoundError), self._stamps.open("rb") as file:
            file.seek(self._read)
            lines, _, _ = file.read().rpartition(b"\n")
            self._read += len(lines) + 1 if lines else 0
            for line in lines.decode().splitlines():
                _, job, number, *_ = line.split()
                self._begun.add((job, int(number)))
        return self._begun


def wait_for_the_end(client: Client) -> None:
    """Wait until all gangs have ended, however slow the machine is."""
    least, since = GANGS + 1, time.monotonic()
    while least:
        at = client.server()
        if at.queued + at.running < least:
            least, since = at.queued + at.running, time.monotonic()
        waited = time.monotonic() - since
        assert waited < PROGRESS, f"{least} gangs are left, and none ended: {client.jobs()}"
        time.sleep(0.5)


@pytest.mark.parametrize("wires", [AGENTS], indirect=True)
def test_gangs_run_whole_or_not_at_all_while_agents_wires_and_servers_fail(
    servers: Callable[..., ServerProcess], wires: Wires, far_agents: list[Far], tmp_path: Path
) -> None:
    agents = far_agents
    server = set_up(servers, wires, agents, tmp_path)
    (tmp_path / "given").write_text("an input of every task")
    chaos = GangChaos(server, agents, wires, random.Random(SEED), tmp_path)
    with server.client(patience=60) as client, server.client() as hasty:
        one = {"run": "true", "workdir": str(tmp_path), "inputs": [{"path": "given"}]}
        (packed,) = client.pack(documents([Wanted(one, 1, 1)]))
        wanted = [a_gang(number, tmp_path, packed["spec"]["inputs"]) for number in range(GANGS)]
        begun, jobs = time.monotonic(), list[str]()
        while len(jobs) < GANGS or not chaos.over:
            second = time.monotonic() - begun
            chaos.due(second)
            upto = min(GANGS, int(GANGS * second / LASTS))
            with suppress(Unreachable, Unavailable):
                jobs += hasty.submit(documents(wanted[len(jobs) : upto])) if upto > len(jobs) else []
            time.sleep(0.05)
        assert len(chaos.happened) == 6, chaos.happened
        wait_for_the_end(client)
        wait_until(lambda: not any(leases(client).values()), "the end of all leases", 60, 0.5)
        wait_until(lambda: not any(agent.tasks() for agent in agents), "the end of all tasks", 30)
    took = time.monotonic() - begun
    stop_all(server, agents)

    events = read_journal(server.data)
    ended = {str(event.job): event for event in events if isinstance(event, JobEnded)}
    assert len(set(jobs)) == GANGS
    assert ended.keys() == set(jobs)
    assert {event.state for event in ended.values()} == {JobState.SUCCEEDED}
    ran = read_stamps(tmp_path / "stamps")
    placed = {
        Attempt(event.job, event.attempt, event.seq): event
        for event in events
        if isinstance(event, GangPlaced)
    }
    for job, gang in zip(jobs, wanted, strict=True):
        last = ended[job]
        size = len(placed[Attempt(job, last.attempt, last.seq)].nodes)
        assert gang.least <= size <= gang.most
        assert ran[job, last.attempt] == whole(gang, size), f"{job} did not run whole"
    for attempt, lines in ran.items():
        assert max(lines.values()) == 1, f"a task of {attempt} ran twice: {lines}"

    requeued = [event for event in events if isinstance(event, JobRequeued)]
    back = Counter(event.why for event in requeued)
    given_back = {(each.job, each.attempt - 1) for each in requeued if each.why is Back.UNPREPARED}
    assert given_back, "all gangs could be prepared"
    assert not given_back & ran.keys(), "a task ran although its gang was given back"
    assert back[Back.LOST] > 0, "no fault hit a gang that ran"
    started = {
        Attempt(each.job, each.attempt, each.seq): each.at for each in events if isinstance(each, JobStarted)
    }
    between = Counter(hit.what for hit in chaos.hits if started.get(hit.attempt, hit.at + 1) > hit.at)
    assert len(between) == GangChaos.AIMED, f"not hit between prepare and start: {between} of {chaos.hits}"
    sys.stderr.write(
        f"\n{GANGS} gangs, {sum(len(each.nodes) for each in placed.values())} tasks placed, in {took:.0f} s; "
        f"given back: {dict(back)}; faults: {dict(chaos.happened)}; between prepare and start: {dict(between)}\n"
    )


def read_stamps(stamps: Path) -> dict[tuple[str, int], Counter[str]]:
    """What the tasks of each attempt said."""
    found: defaultdict[tuple[str, int], Counter[str]] = defaultdict(Counter)
    for line in stamps.read_text().splitlines():
        word = re.fullmatch(r"(begin|end) (\S+) (\d+) (.*)", line)
        assert word is not None, f"a torn line: {line!r}"
        found[word[2], int(word[3])][f"{word[1]} {word[4]}"] += 1
    return dict(found)


def whole(gang: Wanted, size: int) -> Counter[str]:
    """What the tasks of a gang say that runs as a whole."""
    said = Counter[str]()
    for rank in range(size):
        group = ("worker" if rank else "leader") if gang.grouped else "-"
        last = int(gang.restarts and rank == FAILS)
        said.update(f"begin {rank} {size} {group} {run}" for run in range(last + 1))
        said[f"end {rank} {size} {group} {last}"] += 1
    return said
