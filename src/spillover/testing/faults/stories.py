"""Lets a story happen and says what must not have happened in it."""

import contextlib
import logging
import random
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import structlog
from msgspec import Struct

from spillover.core.events import JobState, Lease
from spillover.core.proposals import Act, Change
from spillover.forms.jobs import JobForm, read_job
from spillover.model.ids import JobId, job_id
from spillover.model.units import SECOND
from spillover.ports.commands import CommandError, Kind
from spillover.ports.journal import StoreError
from spillover.stores.memory import Shelf
from spillover.testing.faults.agents import AgentLife
from spillover.testing.faults.checks import AWAKE, Checks
from spillover.testing.faults.hosts import MILLISECOND, Universe
from spillover.testing.faults.network import ADDRESS, SERVER, Network, Weather
from spillover.testing.faults.plans import (
    BadDisk,
    Cut,
    Fault,
    JobPlan,
    KillAgent,
    KillServer,
    PauseAgent,
    PauseServer,
    StopAgent,
    Storm,
    Story,
)
from spillover.testing.faults.servers import Disk, ServerLife
from spillover.testing.faults.tasks import Machine

LOOK: Final = 250 * MILLISECOND
AGAIN: Final = 2 * SECOND
"""After which somebody who was not answered asks again."""


class Outcome(Struct, frozen=True):
    """What became of a story."""

    story: Story
    breaches: tuple[str, ...]
    """Empty if all is well."""
    told: tuple[tuple[int, str], ...]
    lasted: int
    """Nanoseconds of true time."""
    overlaps: int
    lost: int
    """Messages."""


class Stage:
    """Where a story happens."""

    def __init__(self, story: Story, folder: Path, *, tell: bool) -> None:
        self.story = story
        self.setting = story.setting
        self.universe = Universe(tell)
        self.network = Network(self.universe, f"{story.seed}")
        self.checks = Checks(self.universe, self._absent)
        self._folder = folder
        self._shelf = Shelf()
        self._disk = Disk(self._dice("disk"))
        self._disk.wrote = self.checks.wrote
        self._ids = 0
        self._lives = 0
        self.machines: dict[str, Machine] = {}
        self.agents: dict[str, AgentLife | None] = {}
        """None while dead."""
        self._woke: dict[str, int] = {}
        self._down: dict[str, int] = {}
        """How many faults keep an agent, or the server, dead or stopped."""
        self.server: ServerLife | None = None
        self.jobs: dict[str, JobId] = {}
        """Acknowledged submissions, by their names."""
        self._cancelled: set[str] = set()
        for plan in self.setting.agents:
            self.network.weather[plan.name] = Weather()
            machine = self.machines[plan.name] = Machine(self.universe, plan.name, self._dice(plan.name))
            machine.made, machine.gone = self.checks.made, self.checks.gone
            self._woke[plan.name] = -AWAKE

    def _dice(self, what: str) -> random.Random:
        return random.Random(f"{self.story.seed}/{what}")  # noqa: S311 - it is to be foreseen

    # --- the run of it

    def play(self) -> None:
        """From the beginning to the end."""
        self._start_server()
        for plan in self.setting.agents:
            self._start_agent(plan.name)
        for job in self.story.jobs:
            self.universe.at(job.at, partial(self._submit, job))
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
            self.checks.all_ended(self._expected(), bound)
            self._check_ends()

    def _broken(self) -> bool:
        """Whether there is no point in going on."""
        if self.universe.mistakes:
            self.checks.breach("no mistakes", self.universe.mistakes[0])
        if self.server is not None and self.server.ended is not None and not self.checks.breaches:
            self.checks.breach("the book is sound", _why(self.server.ended))
        return bool(self.checks.breaches)

    def _bound(self) -> int:
        """Within this time after the last fault every job has ended."""
        work = sum(
            max(job.runs, job.tail) * max(1, job.members) * (job.failures + 2) for job in self.story.jobs
        )
        terms = max(self.setting.lost_after, 4 * self.setting.heartbeat) + 2 * self.setting.heartbeat
        return work + 3 * terms + 60 * SECOND

    def _over(self) -> bool:
        """Whether all has ended, and both sides know."""
        return (
            len(self.jobs) == len(self.story.jobs)
            and all(job in self.checks.ended for job in self._expected())
            and self.checks.agree(self._held(), 1 << 62)
            and not any(machine.executions for machine in self.machines.values())
        )

    def _expected(self) -> list[JobId]:
        """Jobs that must have ended: also those whose submission nobody acknowledged in time, which is a breach then."""
        return [self.jobs.get(job.name, JobId(job.name)) for job in self.story.jobs]

    def _held(self) -> dict[str, set[Lease]]:
        return {name: life.leases if life is not None else set() for name, life in self.agents.items()}

    def _look(self) -> None:
        """What is checked as time goes by."""
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
        for node in server.loop.state.nodes.values():
            if len(node.ahead) > node.queue:
                self.checks.breach(
                    "room", f"{node.key} holds {len(node.ahead)} ahead of room, has {node.queue}"
                )

    def _check_ends(self) -> None:
        """What was to succeed did."""
        for job in self.story.jobs:
            ended = self.checks.ended.get(self.jobs.get(job.name, JobId("")))
            sure = not job.walltime and job.cancel is None and job.lost_retries > 1
            if ended is None or not sure or job.failures > job.exit_retries:
                continue
            if ended.state is not JobState.SUCCEEDED:
                self.checks.breach(
                    "every job ends", f"{job.name} was to succeed and {ended.state}: {ended.why}"
                )

    def _absent(self, name: str) -> bool:
        """Whether an agent is stopped, dead, ending what an earlier life left, or only just awake."""
        life = self.agents.get(name)
        if life is None or life.host.paused or not life.recovered:
            return True
        return self.universe.now - self._woke[name] < AWAKE

    # --- people

    def _submit(self, job: JobPlan) -> None:
        """Submit a job until that is acknowledged."""
        if job.name in self.jobs:
            return
        if self.server is not None and self.server.leading:
            self.server.host.create_task(self._ask(self.server, job))
        self.universe.after(AGAIN, lambda: self._submit(job))

    async def _ask(self, server: ServerLife, job: JobPlan) -> None:
        try:
            (taken,) = await server.submitting.submit([_form(job, self.setting.lost_after)], "ada")
        except (CommandError, StoreError):
            return
        if server.host.dead:
            return
        known = self.jobs.setdefault(job.name, JobId(taken))
        if known != taken:
            self.checks.breach("one submission", f"{job.name} is both {known} and {taken}")
        self.universe.tell(f"people: {job.name} is {taken}")
        if job.cancel is not None:
            self.universe.at(job.cancel, lambda: self._cancel(job))

    def _cancel(self, job: JobPlan) -> None:
        if job.name in self._cancelled:
            return
        if self.server is not None and self.server.leading:
            self.server.host.create_task(self._ask_cancel(self.server, job))
        self.universe.after(AGAIN, lambda: self._cancel(job))

    async def _ask_cancel(self, server: ServerLife, job: JobPlan) -> None:
        try:
            await server.loop.propose(Change(Act.CANCEL, (self.jobs[job.name],), "ada"))
        except CommandError as error:
            if error.kind in {Kind.UNAVAILABLE, Kind.NOT_LEADER}:
                return
        if not server.host.dead:
            self.universe.tell(f"people: {job.name} is cancelled")
            self._cancelled.add(job.name)

    # --- faults

    def _begin(self, fault: Fault) -> None:
        """A fault comes, and goes after a while."""
        self.universe.tell(f"fault: {describe(fault)}")
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
        """A fault is over."""
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
                if (
                    life is not None
                ):  # it had nothing to do since, or is still at it: its time has come all the same
                    self._kill_agent(name, life)
                if self._let_up(name):
                    self._start_agent(name)
            case PauseAgent(agent=name):
                if self._let_up(f"{name} paused"):
                    self._wake(name)
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
        """Whether nothing keeps somebody down any more."""
        self._down[who] -= 1
        if self._down[who] == 0:
            del self._down[who]
        return who not in self._down

    def _wake(self, name: str) -> None:
        life = self.agents[name]
        if life is not None and life.host.paused:
            life.host.paused = False
            self._woke[name] = self.universe.now

    def _kill_agent(self, name: str, life: AgentLife, *, orphans: bool = False) -> None:
        if not life.host.dead:
            self.universe.tell(f"{name} is dead")
            self.agents[name] = None
            life.kill(orphans=orphans)

    def _start_agent(self, name: str) -> None:
        plan = next(plan for plan in self.setting.agents if plan.name == name)
        self._lives += 1
        life = AgentLife(
            plan, self.machines[name], self.network, self._folder, self._dice(f"{name}/{self._lives}")
        )
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
            self.universe, self.setting, self._shelf, self._disk, self._draw, self.checks.accepted
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
        for life in self.agents.values():
            if life is not None:
                life.kill(orphans=True)
        if self.server is not None:
            self.server.kill()


def play(story: Story, *, tell: bool = False) -> Outcome:
    """What becomes of a story."""
    with tempfile.TemporaryDirectory(prefix="story-") as folder, _quietly():
        stage = Stage(story, Path(folder), tell=tell)
        try:
            stage.play()
        finally:
            stage.close()
        return Outcome(
            story,
            tuple(stage.checks.breaches),
            tuple(stage.universe.told),
            stage.universe.now,
            stage.checks.overlaps,
            stage.network.lost,
        )


def describe(fault: Fault) -> str:
    """A fault in a line."""
    fields = {name: getattr(fault, name) for name in fault.__struct_fields__ if name not in {"at", "lasts"}}
    told = " ".join(f"{name}={value}" for name, value in fields.items())
    return f"{type(fault).__name__} for {fault.lasts / SECOND:.2f} s {told}"


def _form(job: JobPlan, lost_after: int) -> JobForm:
    """A plan as a person would write it."""
    script = {"runs": job.runs, "failures": job.failures, "stubborn": job.stubborn, "tail": job.tail}
    spec: dict[str, object] = {
        "run": msgspec.json.encode(script).decode(),
        "resources": {"cpu": job.cpus},
        "retry": {"exit": job.exit_retries, "lost": job.lost_retries},
        "lost_after": f"{lost_after // MILLISECOND}ms",
        "grace": f"{job.grace // MILLISECOND}ms",
        "key": job.name,
    }
    if job.members:
        spec["array"] = f"1-{job.members}"
    if job.walltime:
        spec["walltime"] = f"{max(1, job.walltime // MILLISECOND)}ms"
    return read_job(
        {"apiVersion": "spillover/v1", "kind": "Job", "metadata": {"name": job.name}, "spec": spec}
    )


def _why(error: BaseException) -> str:
    """What ended a server, with what is inside of groups."""
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(_why(each) for each in error.exceptions)
    return f"{type(error).__name__}: {error}"


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Nobody reads logs of thousands of stories."""
    before, agents = structlog.get_config(), logging.getLogger("spillover.agent")
    level = agents.level
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    agents.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        structlog.configure(**before)
        agents.setLevel(level)
