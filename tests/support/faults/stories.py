"""Plays a story and reports the invariants that it broke."""

import contextlib
import logging
import random
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import structlog
from msgspec import Struct

from spillover.core.events import JobState, Lease
from spillover.model.ids import JobId, job_id
from spillover.model.units import SECOND
from spillover.stores.memory import Shelf
from tests.support.faults.agents import AgentLife
from tests.support.faults.checks import AWAKE, Checks
from tests.support.faults.hosts import MILLISECOND, Host, Universe
from tests.support.faults.names import Names, fences
from tests.support.faults.network import ADDRESS, SERVER, Network, Weather
from tests.support.faults.people import People
from tests.support.faults.plans import (
    BadDisk,
    Cut,
    Fault,
    KillAgent,
    KillServer,
    PauseAgent,
    PauseServer,
    ReplaceAgent,
    StopAgent,
    Storm,
    Story,
)
from tests.support.faults.servers import Disk, ServerLife
from tests.support.faults.situations import KINDS, Tally
from tests.support.faults.standstill import LIMIT, Standstill, noticed
from tests.support.faults.tasks import Execution, Machine

LOOK: Final = 250 * MILLISECOND
UNTOUCHED: Final = 10 * SECOND
"""Time without faults after which a paused process had no call under way that fails later."""


class Outcome(Struct, frozen=True):
    """The result of a story."""

    story: Story
    breaches: tuple[str, ...]
    """Empty if no invariant was broken."""
    told: tuple[tuple[int, str], ...]
    lasted: int
    """Nanoseconds of true time."""
    met: Tally
    """The situations that the story met, and how often."""


class Stage:
    """The hosts, network and users of a story."""

    def __init__(self, story: Story, folder: Path, *, tell: bool) -> None:
        self.story = story
        self.setting = story.setting
        self.universe = Universe(tell)
        self.met: Tally = Tally()
        self.network = Network(self.universe, f"{story.seed}")
        self.network.heard = self._heard
        term = max(self.setting.lost_after, 4 * self.setting.heartbeat) + self.setting.heartbeat
        names = Names(lambda: self.universe.now, term, AWAKE)
        self.checks = Checks(self.universe, self._absent, names, self.met)
        self._folder = folder
        self._shelf = Shelf()
        self._disk = Disk(self._dice("disk"), self.met)
        self._disk.wrote = self.checks.wrote
        self._ids = 0
        self._lives = 0
        self.machines: dict[str, Machine] = {}
        self.agents: dict[str, AgentLife | None] = {}
        """None while dead."""
        self._replaced: dict[ReplaceAgent, AgentLife] = {}
        """Processes that are paused, or awake again, while another has their name."""
        self._woke: dict[str, int] = {}
        self._down: dict[str, int] = {}
        """Number of faults that keep an agent or the server dead or paused."""
        self.server: ServerLife | None = None
        self.people = People(self.universe, self.checks, self.setting.lost_after, self._leader)
        for plan in self.setting.agents:
            self.network.weather[plan.name] = Weather()
            self._new_machine(plan.name, plan.name)

    def _dice(self, what: str) -> random.Random:
        return random.Random(f"{self.story.seed}/{what}")

    # --- course of the story

    def play(self) -> None:
        """Play the story from beginning to end."""
        self._start_server()
        for plan in self.setting.agents:
            self._start_agent(plan.name)
        for job in self.story.jobs:
            self.universe.at(job.at, partial(self.people.submit, job))
        for fault in self.story.faults:
            self.universe.at(fault.at, partial(self._begin, fault))
        faults = [fault.at + fault.lasts for fault in self.story.faults]
        people = [max(job.at, job.cancel or 0) for job in self.story.jobs]
        calm = max([*faults, *people, 0]) + SECOND
        bound = self._bound()
        self.universe.after(LOOK, self._look)
        self.universe.run(lambda: bool(self._broken() or self.universe.now >= calm))
        self.universe.tell("all faults are over")
        self.universe.run(lambda: bool(self._broken() or self._over() or self.universe.now > calm + bound))
        if not self._broken():
            self.checks.all_ended(self.people.expected(self.story.jobs), bound)
            self._check_ends()

    def _broken(self) -> bool:
        """Tell whether to stop early, because something is broken already."""
        if self.universe.mistakes:
            self.checks.breach("no mistakes", self.universe.mistakes[0])
        if self.server is not None and self.server.ended is not None and not self.checks.breaches:
            self.checks.breach("the book is sound", _why(self.server.ended))
        return bool(self.checks.breaches)

    def _bound(self) -> int:
        """Return the time after the last fault within which every job ends."""
        work = sum(
            max(job.runs, job.tail) * max(1, job.members) * (job.failures + 2) for job in self.story.jobs
        )
        terms = max(self.setting.lost_after, 4 * self.setting.heartbeat) + 2 * self.setting.heartbeat
        return work + 3 * terms + 60 * SECOND

    def _over(self) -> bool:
        """Tell whether everything has ended, and both sides know."""
        return (
            len(self.people.jobs) == len(self.story.jobs)
            and all(job in self.checks.ended for job in self.people.expected(self.story.jobs))
            and self.checks.agree(self._held(), 1 << 62)
            and not any(machine.executions for machine in self.machines.values())
        )

    def _held(self) -> dict[str, set[Lease]]:
        return {name: life.leases if life is not None else set() for name, life in self.agents.items()}

    def _look(self) -> None:
        """Run the periodic checks."""
        self.checks.look()
        calm = not self._down and not any(
            fault.at + fault.lasts > self.universe.now for fault in self.story.faults
        )
        if calm and self.server is not None and self.server.leading:
            terms = max(self.setting.lost_after, 4 * self.setting.heartbeat)
            self.checks.agree(self._held(), terms + 2 * self.setting.heartbeat + 20 * SECOND)
            self._check_room(self.server)
        self.universe.after(LOOK, self._look)

    def _check_room(self, server: ServerLife) -> None:
        for node in server.loop.state.agents.values():
            if len(node.ahead) > node.queue:
                self.checks.breach(
                    "room", f"{node.key} holds {len(node.ahead)} prefetched leases, has {node.queue}"
                )

    def _check_ends(self) -> None:
        """Check that the jobs that had to succeed did."""
        for job in self.story.jobs:
            ended = self.checks.ended.get(self.people.jobs.get(job.name, JobId("")))
            sure = not job.walltime and job.cancel is None and job.lost_retries > 1
            if ended is None or not sure or job.failures > job.exit_retries:
                continue
            if ended.state is not JobState.SUCCEEDED:
                self.checks.breach(
                    "every job ends", f"{job.name} was to succeed and {ended.state}: {ended.why}"
                )

    def _absent(self, machine: str) -> bool:
        """Tell whether the agent of a machine is paused, dead, cleaning up after an earlier process, or unaware.

        It is unaware when it is just awake, or when another agent has its name and nobody has told it.
        """
        life = next((life for life in self._living() if life.machine.name == machine), None)
        if life is None or life.host.paused or not life.recovered or self.checks.names.unaware(life.name):
            return True
        return self._only_just_awake(machine)

    def _only_just_awake(self, machine: str) -> bool:
        return self.universe.now - self._woke.get(machine, -AWAKE) < AWAKE

    def _living(self) -> list[AgentLife]:
        """Return all living agents, including those whose name another has."""
        lives = (*self.agents.values(), *self._replaced.values())
        return [life for life in lives if life is not None and not life.host.dead]

    def _heard(self, host: Host, path: str, answer: Any) -> None:
        """Follow an answer to an agent. A paused agent may read it too late, after giving up the call."""
        life = next((life for life in self._living() if life.host is host), None)
        if life is None or host.paused:
            return
        self.checks.names.heard(life.name, path, answer)
        if fences(path, answer):
            had = list(life.machine.executions.values())
            self.universe.after(AWAKE, lambda: self._check_fenced(life, had))

    def _check_fenced(self, life: AgentLife, had: list[Execution]) -> None:
        """Check that an agent that was refused for its name has ended its tasks, unless it was paused since."""
        if life.host.dead or life.host.paused or self._only_just_awake(life.machine.name):
            return
        self.checks.ended_all(life.machine, had)

    def _leader(self) -> ServerLife | None:
        return self.server if self.server is not None and self.server.leading else None

    # --- faults

    def _begin(self, fault: Fault) -> None:
        """Begin a fault."""
        self.universe.tell(f"fault: {describe(fault)}")
        if self._meets(fault):
            self.met[KINDS[type(fault)]] += 1
        weather = self.network.weather.get(getattr(fault, "agent", ""), Weather())
        match fault:
            case Storm():
                weather.drop, weather.repeat, weather.delay = fault.drop, fault.repeat, fault.delay
            case Cut():
                weather.cut_out, weather.cut_in, weather.holds = fault.outwards, fault.inwards, fault.holds
            case KillAgent():
                self._keep_down(fault.agent)
                life = self.agents[fault.agent]
                if life is not None:
                    life.host.light(
                        fault.turns, partial(self._kill_agent, fault.agent, life, orphans=fault.orphans)
                    )
            case StopAgent():
                self._keep_down(fault.agent)
                life = self.agents[fault.agent]
                if life is not None and life.recovered:
                    life.host.create_task(life.leave(partial(self._kill_agent, fault.agent, life)))
            case PauseAgent():
                self._keep_down(f"{fault.agent} paused")
                life = self.agents[fault.agent]
                if life is not None:
                    life.host.paused = True
            case ReplaceAgent():
                self._replace(fault)
            case KillServer(moment="now"):
                self._keep_down(SERVER)
                server = self.server
                if server is not None:
                    server.host.light(fault.turns, partial(self._kill_server, server))
            case KillServer():
                self._keep_down(SERVER)
                server = self.server
                if server is not None:
                    self._disk.fatal = (fault.moment, partial(self._kill_server, server))
            case PauseServer():
                self._keep_down("server paused")
                if self.server is not None:
                    self.server.host.paused = True
            case BadDisk():
                self._disk.fault = fault.fault
        self.universe.after(fault.lasts, lambda: self._mend(fault))

    def _mend(self, fault: Fault) -> None:
        """End a fault."""
        self.universe.tell(f"mended: {describe(fault)}")
        match fault:
            case Storm(agent=name):
                weather = self.network.weather[name]
                weather.drop = weather.repeat = 0.0
                weather.delay = 0
            case Cut(agent=name):
                weather = self.network.weather[name]
                weather.cut_out = weather.cut_in = weather.holds = False
                self.network.mend(name)
            case KillAgent(agent=name) | StopAgent(agent=name):
                life = self.agents[name]
                if life is not None:  # it was idle since, or is still busy; kill it in any case
                    self._kill_agent(name, life)
                if self._let_up(name):
                    self._start_agent(name)
            case PauseAgent(agent=name):
                life = self.agents[name]
                if self._let_up(f"{name} paused") and life is not None and life.host.paused:
                    self._wake(life)
            case ReplaceAgent():
                if (replaced := self._replaced.pop(fault, None)) is not None:
                    replaced.kill(orphans=False)
            case KillServer():
                self._disk.fatal = None
                if self.server is not None:
                    self._kill_server(self.server)
                if self._let_up(SERVER):
                    self._start_server()
            case PauseServer():
                if self._let_up("server paused") and self.server is not None:
                    self.server.host.paused = False
            case BadDisk():
                self._disk.fault = None

    def _keep_down(self, who: str) -> None:
        self._down[who] = self._down.get(who, 0) + 1

    def _let_up(self, who: str) -> bool:
        """Remove one reason to stay down; tell whether none is left."""
        self._down[who] -= 1
        if self._down[who] == 0:
            del self._down[who]
        return who not in self._down

    def _meets(self, fault: Fault) -> bool:
        """Tell whether a fault has an effect now."""
        match fault:
            case KillAgent(agent=name) | StopAgent(agent=name):
                return self.agents[name] is not None
            case PauseAgent(agent=name) | ReplaceAgent(agent=name):
                life = self.agents[name]
                return life is not None and life.recovered and not life.host.paused
            case KillServer():
                return self.server is not None
            case PauseServer():
                return self.server is not None and not self.server.host.paused
            case Storm() | Cut() | BadDisk():
                return True

    def _wake(self, life: AgentLife) -> None:
        life.host.paused = False
        self._woke[life.machine.name] = self.universe.now
        self.checks.woke(life.machine.name)

    def _replace(self, fault: ReplaceAgent) -> None:
        """Start another agent with the same name on another machine; the paused one wakes up later."""
        life = self.agents[fault.agent]
        if life is None or not self._meets(fault):
            return
        life.host.paused = True
        self._replaced[fault] = life
        self._new_machine(fault.agent, f"{fault.agent}/{self._lives + 1}")
        self._start_agent(fault.agent)
        self.universe.after(fault.sleeps, lambda: self._wake(life))
        if not self._disturbed(fault):
            had = life.machine.executions
            self.universe.after(
                fault.sleeps + AWAKE, lambda: self.checks.ended_all(life.machine, had.values())
            )

    def _disturbed(self, fault: ReplaceAgent) -> bool:
        """Tell whether another fault may have kept an agent from learning that it was replaced."""
        return any(
            other is not fault
            and other.at < fault.at + fault.lasts
            and other.at + other.lasts > fault.at - UNTOUCHED
            and getattr(other, "agent", fault.agent) == fault.agent
            for other in self.story.faults
        )

    def _kill_agent(self, name: str, life: AgentLife, *, orphans: bool = False) -> None:
        if not life.host.dead:
            self.universe.tell(f"{life.machine.name} is dead")
            if self.agents[name] is life:
                self.agents[name] = None
            life.kill(orphans=orphans)

    def _new_machine(self, name: str, called: str) -> None:
        machine = self.machines[name] = Machine(self.universe, called, self._dice(called))
        machine.made, machine.gone = self.checks.made, self.checks.gone
        machine.prepared = self.checks.prepared.add

    def _start_agent(self, name: str) -> None:
        plan = next(plan for plan in self.setting.agents if plan.name == name)
        self._lives += 1
        machine = self.machines[name]
        folder = self._folder / machine.name
        folder.mkdir(parents=True, exist_ok=True)
        life = AgentLife(plan, machine, self.network, folder, self._dice(f"{name}/{self._lives}"))
        life.host.paused = f"{name} paused" in self._down
        self.agents[name] = life
        self.universe.tell(f"{name} begins a life")

    def _kill_server(self, server: ServerLife) -> None:
        if not server.host.dead:
            self.universe.tell("the server is dead")
            self.server = None
            server.kill()

    def _start_server(self) -> None:
        self.server = ServerLife(
            self.universe, self.setting, self._shelf, self._disk, self._draw, self.checks
        )
        self.server.host.paused = "server paused" in self._down
        self.network.endpoints[ADDRESS] = self.server.endpoint
        self.universe.tell("a server begins")

    def _draw(self) -> JobId:
        self._ids += 1
        return job_id(self._ids << 20)

    def close(self) -> None:
        """End all hosts."""
        for host in list(self.universe.hosts):
            host.paused = False
        for life in self._living():
            life.kill(orphans=True)
        if self.server is not None:
            self.server.kill()


def play(story: Story, *, tell: bool = False, limit: float = LIMIT) -> Outcome:
    """Play a story within a limit of CPU seconds."""
    with tempfile.TemporaryDirectory(prefix="story-") as folder, _quietly():
        stage = Stage(story, Path(folder), tell=tell)
        try:
            with noticed(limit) as stage.universe.patience:
                stage.play()
        except Standstill as where:
            stage.checks.breach("time goes on", f"the story stands still in {where}")
        finally:
            stage.close()
        return Outcome(
            story,
            tuple(stage.checks.breaches),
            tuple(stage.universe.told),
            stage.universe.now,
            stage.met + stage.network.met,
        )


def describe(fault: Fault) -> str:
    """Describe a fault in one line."""
    fields = {name: getattr(fault, name) for name in fault.__struct_fields__ if name not in {"at", "lasts"}}
    told = " ".join(f"{name}={value}" for name, value in fields.items())
    return f"{type(fault).__name__} for {fault.lasts / SECOND:.2f} s {told}"


def _why(error: BaseException) -> str:
    """Describe the error that ended a server, including the members of groups."""
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(_why(each) for each in error.exceptions)
    return f"{type(error).__name__}: {error}"


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Silence logs, which nobody reads for thousands of stories."""
    before, agents = structlog.get_config(), logging.getLogger("spillover.agent")
    level = agents.level
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    agents.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        structlog.configure(**before)
        agents.setLevel(level)
