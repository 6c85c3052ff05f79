"""Runs a simulation: the engine of the live server on a virtual clock, with simulated clusters.

Nothing here decides. The clock jumps to the next time at which something happens. One step proposes everything that
happens then, and the simulated clusters carry out the events.
"""

from collections.abc import Callable, Sequence

from spillover.control.live.garbage import not_collecting
from spillover.core.events import AnyEvent
from spillover.core.proposals import (
    Archived,
    NewJob,
    Proposal,
    Register,
    Reserve,
    SetPolicies,
    StartEpoch,
    Submit,
)
from spillover.core.state import State
from spillover.deciding.engine import Engine
from spillover.deciding.protocols import Guarded, Policies
from spillover.deciding.reserving import NoChoice, Request, choose
from spillover.forms.problems import BadForm, FormProblem
from spillover.model.ids import ClusterName, JobId
from spillover.model.job import Argv, JobSpec, Terms
from spillover.model.policy import PolicySet
from spillover.model.reservation import AdvanceReservation
from spillover.model.units import FOREVER
from spillover.policies.loading import load
from spillover.sim.outcome import JobOutcome
from spillover.sim.pools import PoolNumbers, SimulatedProvider
from spillover.sim.reports.failures import JobFailure, failures_of
from spillover.sim.setting import OWNED, ReservedNodes, Scene, Setting
from spillover.sim.shapes import Shapes
from spillover.sim.trace import TraceJob
from spillover.sim.world import SimulatedWorld

ARCHIVED_AT_ONCE = 1000
"""Ended jobs that leave the state together."""
MOST_MACHINES = 10**9
"""Machines that a provider may have in a simulation; each agent of another provider gets another incarnation."""
NOTHING = Argv(())
WHO = "simulation"
"""User who changes policies."""

Sink = Callable[[int, Sequence[AnyEvent]], None]
"""Called with the time and the events of each step that has events."""
Ended = Callable[[int], None]
"""Called from time to time with the number of ended jobs."""


def simulate(
    jobs: Sequence[TraceJob],
    setting: Setting | Scene,
    sink: Sink | None = None,
    *,
    failures: list[JobFailure] | None = None,
    ended: Ended | None = None,
    pools: dict[ClusterName, PoolNumbers] | None = None,
) -> list[JobOutcome]:
    """Simulate jobs and return the outcomes in their order; add policies that failed to `failures`.

    What the machines of pools cost is added to `pools`.
    """
    with not_collecting():
        scene = setting.scene if isinstance(setting, Setting) else setting
        simulation = Simulation(jobs, scene, sink, ended)
        outcomes = simulation.run()
        if failures is not None:
            failures += failures_of(simulation.guards)
        if pools is not None:
            pools |= {name: each.numbers() for name, each in simulation.providers.items()}
        return outcomes


def submission(index: int, job: TraceJob, shapes: Shapes) -> Submit:
    """Return the submission of a job of a trace, on a fleet with these shapes."""
    own = job.own
    if own is None:
        spec = JobSpec(
            NOTHING,
            "job",
            job.project or "default",
            "default",
            shapes[job.gpus, job.cpus, job.memory, job.nodes]
            if job.topology is None
            else shapes.located(job, job.topology),
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
    """Return the first proposals: clusters, policies and machines."""
    scene = setting.scene if isinstance(setting, Setting) else setting
    return [
        StartEpoch(1, scene.site.clusters, scene.policies, budgets=scene.budgets, queues=scene.queues),
        *(
            Register(
                one.cluster,
                one.name,
                number,
                one.capacity,
                one.offers,
                dict(one.labels),
                0,
                (),
                inside=one.inside,
            )
            for number, one in enumerate(scene.site.machines, 1)
        ),
    ]


class Simulation:
    """The clock, the engine and the simulated clusters."""

    def __init__(
        self, jobs: Sequence[TraceJob], scene: Scene, sink: Sink | None = None, ended: Ended | None = None
    ) -> None:
        self._jobs = jobs
        self._scene = scene
        self._sink = sink
        self._ended = ended
        self.guards: list[Guarded] = []
        """Policies of installed packages that were in effect at any time."""
        self.engine = Engine(State(), self._load, digests=sink is not None)
        self._world = SimulatedWorld(jobs, scene.site)
        first = len(scene.site.machines)
        self.providers = {
            name: SimulatedProvider(name, pool, first + number * MOST_MACHINES)
            for number, (name, pool) in enumerate(scene.site.pools.items())
        }
        """The providers of pools, by cluster."""
        begun = self.engine.step(scene.begin, opening(scene)).events
        for number, wish in enumerate(scene.reserved, 1):
            begun += self.engine.step(scene.begin, [self._reserve(wish, number)]).events
        self._follow(begun)
        if sink is not None:
            sink(scene.begin, begun)

    def _follow(self, events: Sequence[AnyEvent]) -> None:
        """Let the clusters and the providers carry out events."""
        self._world.carry_out(events)
        for provider in self.providers.values():
            provider.carry_out(events)

    def _is_over(self) -> bool:
        """Return whether all jobs have ended, and no machine is left but those that are always there."""
        state = self.engine.state
        if not self.providers or state.alive:
            return False
        pools = self._scene.site.pools.items()
        # Otherwise a budget that renews each day would go on for ever.
        return all(len(state.live_rented.get(name, ())) <= each.pool.min for name, each in pools)

    def run(self) -> list[JobOutcome]:
        """Run until every job has ended, or nothing more can happen."""
        jobs, world, engine, scene, sink = self._jobs, self._world, self.engine, self._scene, self._sink
        shapes = Shapes(scene.fleet)
        at, count, ended = 0, len(jobs), 0
        changes = list(reversed(scene.changes))
        changing = changes[-1][0] if changes else FOREVER
        submitting = jobs[0].submit if jobs else FOREVER
        providers = tuple(self.providers.values())
        follow = self._follow if providers else world.carry_out
        while True:
            happening = world.next_time()
            now = min(happening, engine.index.next_time(), submitting, changing)
            if providers:
                now = min(now, *[provider.next_time() for provider in providers])
            if now >= FOREVER or (submitting >= FOREVER and providers and self._is_over()):
                break
            proposals: list[Proposal] = []
            if happening <= now:
                if len(world.ended) >= ARCHIVED_AT_ONCE:
                    ended += len(world.ended)
                    proposals.append(self._archive(ended))
                proposals += world.observe(now)
            for provider in providers:
                proposals += provider.observe(now)
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
            follow(events)
        for name, provider in self.providers.items():
            provider.count_live(engine.state, name, engine.now)
        return world.outcomes()

    def _reserve(self, wish: ReservedNodes, number: int) -> Reserve:
        """Choose the machines of a reservation; raise BadForm if there are none."""
        begin = self._scene.begin
        request = Request(wish.start, wish.length, wish.count, within=wish.within, cluster=OWNED)
        found = choose(self.engine.index, request, begin)
        if isinstance(found, NoChoice):
            taken = "other reservations have too many of the machines at that time; name another time, or fewer nodes"
            message = taken if found.possible else found.message
            raise BadForm([FormProblem("--reserve", None, "", f"reservation {number}: {message}")])
        end = wish.start + wish.length
        return Reserve(
            AdvanceReservation(
                f"reserved-{number}",
                OWNED,
                found.nodes,
                wish.start,
                end,
                wish.project,
                begin,
                WHO,
                wish.within,
            )
        )

    def _archive(self, ended: int) -> Archived:
        """Let ended jobs leave the state; drop the dirty records, because nobody writes checkpoints."""
        gone = Archived(tuple(self._world.ended))
        self._world.ended.clear()
        self.engine.state.dirty.clear()
        if self._ended is not None:
            self._ended(ended)
        return gone

    def _load(self, chosen: PolicySet) -> Policies:
        """Load policies, and remember those that may fail."""
        policies = load(chosen)
        self.guards += policies.guards
        return policies
