"""A simulation: the engine of the live server on a virtual clock, with clusters that do as they are told.

Nothing here decides. The clock goes to the next moment at which something happens; what is observed then is proposed in one
step, and what the engine decided is carried out.
"""

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from spillover.core.events import AnyEvent, JobEnded
from spillover.core.proposals import Archived, NewJob, Proposal, Register, StartEpoch, Submit
from spillover.core.state import State
from spillover.deciding.engine import Engine
from spillover.model.cluster import ClusterSpec, Role
from spillover.model.ids import JobId, NodeName
from spillover.model.job import Argv, JobSpec, Terms
from spillover.model.resources import Resources
from spillover.model.units import FOREVER
from spillover.policies.loading import load
from spillover.sim.outcome import Outcome
from spillover.sim.setting import OWNED, RENTED, Setting
from spillover.sim.shapes import shape_of
from spillover.sim.trace import TraceJob
from spillover.sim.world import World

ENOUGH = Resources(10**15, 2**62, 10**12)
"""What the one machine of the rented cluster has: more than any trace asks for."""
ARCHIVED_AT_ONCE = 1000
"""Ended jobs that leave the state together."""
NOTHING = Argv(())

Sink = Callable[[int, Sequence[AnyEvent]], None]
"""Given the time and the events of each step that had any."""


def simulate(jobs: Sequence[TraceJob], setting: Setting, sink: Sink | None = None) -> list[Outcome]:
    """What would become of these jobs, in their order."""
    with _no_sweeping():
        return _Simulation(jobs, setting, sink).run()


def submission(index: int, job: TraceJob, setting: Setting) -> Submit:
    """A job of a trace as its owner would submit it."""
    spec = JobSpec(
        NOTHING,
        "job",
        job.project or "default",
        "default",
        shape_of(job, setting.fleet),
        Terms(job.walltime, job.estimate),
    )
    return Submit((NewJob(JobId(str(index)), spec, b""),), job.user)


def opening(setting: Setting) -> list[Proposal]:
    """What is proposed before the first job: the clusters, the policies, and the machines."""
    rent = setting.rent
    owned = ClusterSpec(OWNED, "agents", Role.OWNED, gangs=True)
    rented = ClusterSpec(
        RENTED, "agents", Role.RENTED, rent.price, rent.billing, gangs=True, startup=rent.startup
    )
    machines = [(OWNED, f"n{number}", setting.fleet.node) for number in range(1, setting.fleet.count + 1)]
    machines.append((RENTED, "rented", ENOUGH))
    return [
        StartEpoch(1, (owned, rented), setting.policies),
        *(
            Register(cluster, NodeName(name), number, capacity, (), {}, 0, ())
            for number, (cluster, name, capacity) in enumerate(machines, 1)
        ),
    ]


class _Simulation:
    """The clock, the engine and the world."""

    def __init__(self, jobs: Sequence[TraceJob], setting: Setting, sink: Sink | None) -> None:
        self._jobs = jobs
        self._setting = setting
        self._sink = sink
        self._engine = Engine(State(), load)
        self._world = World(jobs, setting)
        self._step(0, opening(setting))

    def run(self) -> list[Outcome]:
        """Until every job has ended, or nothing more can happen."""
        jobs, world, engine, setting = self._jobs, self._world, self._engine, self._setting
        at, count = 0, len(jobs)
        ended: list[JobId] = []
        while True:
            now = min(world.next_time(), engine.next_time(), jobs[at].submit if at < count else FOREVER)
            if now >= FOREVER:
                break
            proposals: list[Proposal] = []
            if len(ended) >= ARCHIVED_AT_ONCE:
                proposals.append(Archived(tuple(ended)))
                ended.clear()
            proposals += world.observe(now)
            while at < count and jobs[at].submit <= now:
                proposals.append(submission(at, jobs[at], setting))
                at += 1
            events = self._step(now, proposals)
            ended += [event.job for event in events if type(event) is JobEnded]
        return world.outcomes()

    def _step(self, now: int, proposals: list[Proposal]) -> list[AnyEvent]:
        """Decide, and carry it out."""
        events = self._engine.step(now, proposals).events
        if self._sink is not None and events:
            self._sink(now, events)
        self._world.carry_out(events)
        return events


@contextmanager
def _no_sweeping() -> Iterator[None]:
    """Without looking for reference cycles, of which a simulation makes none."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
