"""A simulation: the engine of the live server on a virtual clock, with clusters that do as they are told.

Nothing here decides. The clock goes to the next moment at which something happens; what is observed then is proposed in one
step, and what the engine decided is carried out.
"""

from collections.abc import Callable, Sequence

from spillover.control.collecting import not_collecting
from spillover.core.events import AnyEvent
from spillover.core.proposals import (
    Archived,
    NewJob,
    Proposal,
    Register,
    SetPolicies,
    StartEpoch,
    Submit,
)
from spillover.core.state import State
from spillover.deciding.engine import Engine
from spillover.deciding.protocols import Guarded, Policies
from spillover.model.ids import JobId
from spillover.model.job import Argv, JobSpec, Terms
from spillover.model.policy import PolicySet
from spillover.model.units import FOREVER
from spillover.policies.loading import load
from spillover.sim.failing import JobFailure, failures_of
from spillover.sim.outcome import JobOutcome
from spillover.sim.setting import Scene, Setting
from spillover.sim.shapes import Shapes
from spillover.sim.trace import TraceJob
from spillover.sim.world import SimulatedWorld

ARCHIVED_AT_ONCE = 1000
"""Ended jobs that leave the state together."""
NOTHING = Argv(())
WHO = "simulation"
"""Who changes policies."""

Sink = Callable[[int, Sequence[AnyEvent]], None]
"""Given the time and the events of each step that had any."""
Ended = Callable[[int], None]
"""Given how many jobs have ended, now and then."""


def simulate(
    jobs: Sequence[TraceJob],
    setting: Setting | Scene,
    sink: Sink | None = None,
    *,
    failures: list[JobFailure] | None = None,
    ended: Ended | None = None,
) -> list[JobOutcome]:
    """What would become of these jobs, in their order; policies that failed are added to `failures`."""
    with not_collecting():
        scene = setting.scene if isinstance(setting, Setting) else setting
        simulation = _Simulation(jobs, scene, sink, ended)
        outcomes = simulation.run()
        if failures is not None:
            failures += failures_of(simulation.guards)
        return outcomes


def submission(index: int, job: TraceJob, shapes: Shapes) -> Submit:
    """A job of a trace as its owner would submit it to a fleet with these shapes."""
    own = job.own
    if own is None:
        spec = JobSpec(
            NOTHING,
            "job",
            job.project or "default",
            "default",
            shapes[job.gpus, job.cpus, job.memory, job.nodes],
            Terms(job.walltime, job.estimate),
        )
    else:
        spec = JobSpec(
            NOTHING,
            own.name,
            job.project,
            own.queue,
            own.shape,
            Terms(job.walltime, job.estimate, max_cost=own.max_cost, data=own.data),
            priority=own.priority,
            deadline=own.deadline,
        )
    return Submit((NewJob(JobId(str(index)), spec, b""),), job.user)


def opening(setting: Setting | Scene) -> list[Proposal]:
    """What is proposed before the first job: the clusters, the policies, and the machines."""
    scene = setting.scene if isinstance(setting, Setting) else setting
    return [
        StartEpoch(1, scene.site.clusters, scene.policies, budgets=scene.budgets),
        *(
            Register(one.cluster, one.name, number, one.capacity, one.offers, {}, 0, ())
            for number, one in enumerate(scene.site.machines, 1)
        ),
    ]


class _Simulation:
    """The clock, the engine and the world."""

    def __init__(
        self, jobs: Sequence[TraceJob], scene: Scene, sink: Sink | None, ended: Ended | None
    ) -> None:
        self._jobs = jobs
        self._scene = scene
        self._sink = sink
        self._ended = ended
        self.guards: list[Guarded] = []
        """Policies of installed packages that decided at any time."""
        self._engine = Engine(State(), self._load, digests=sink is not None)
        self._world = SimulatedWorld(jobs, scene.site)
        begun = self._engine.step(scene.begin, opening(scene)).events
        if sink is not None:
            sink(scene.begin, begun)

    def run(self) -> list[JobOutcome]:
        """Until every job has ended, or nothing more can happen."""
        jobs, world, engine, scene, sink = self._jobs, self._world, self._engine, self._scene, self._sink
        shapes = Shapes(scene.fleet)
        at, count, ended = 0, len(jobs), 0
        changes = list(reversed(scene.changes))
        changing = changes[-1][0] if changes else FOREVER
        submitting = jobs[0].submit if jobs else FOREVER
        while True:
            happening = world.next_time()
            now = min(happening, engine.index.next_time(), submitting, changing)
            if now >= FOREVER:
                break
            proposals: list[Proposal] = []
            if happening <= now:
                if len(world.ended) >= ARCHIVED_AT_ONCE:
                    ended += len(world.ended)
                    proposals.append(self._archive(ended))
                proposals += world.observe(now)
            while changing <= now:
                proposals.append(SetPolicies(changes.pop()[1], WHO))
                changing = changes[-1][0] if changes else FOREVER
            while submitting <= now:
                proposals.append(submission(at, jobs[at], shapes))
                at += 1
                submitting = jobs[at].submit if at < count else FOREVER
            events = engine.step(now, proposals).events
            if sink is not None and events:
                sink(now, events)
            world.carry_out(events)
        return world.outcomes()

    def _archive(self, ended: int) -> Archived:
        """Let jobs that ended leave the state, so many by now; nobody writes checkpoints."""
        gone = Archived(tuple(self._world.ended))
        self._world.ended.clear()
        self._engine.state.dirty.clear()
        if self._ended is not None:
            self._ended(ended)
        return gone

    def _load(self, chosen: PolicySet) -> Policies:
        """Make policies, and remember those that may fail."""
        policies = load(chosen)
        self.guards += policies.guards
        return policies
