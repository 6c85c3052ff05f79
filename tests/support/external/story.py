"""Plays jobs on two external clusters, while servers die, links break, answers are lost and others interfere."""

from collections.abc import Callable
from itertools import pairwise
from random import Random
from typing import Final

from msgspec import Struct

from spillover.control.driving.pilot import Pilot
from spillover.core.events import (
    AnyEvent,
    Back,
    ClusterChanged,
    JobEnded,
    JobRequeued,
    JobState,
    Lease,
    TasksBound,
)
from spillover.core.proposals import Act, Change, NewJob, Proposal, StartEpoch, Submit
from spillover.core.records.jobs import Ended, Job, Placed
from spillover.core.state import State
from spillover.deciding.engine import Engine
from spillover.deciding.protocols import Policies
from spillover.model.cluster import ClusterHealth, ClusterSpec, Price, Role
from spillover.model.ids import ClusterName, JobId, NodeName, job_id
from spillover.model.job import JobSpec, OnFailure, Retry, Shape, Shell, Terms
from spillover.model.policy import Choice, PolicySet
from spillover.model.resources import Resources
from spillover.model.units import MINUTE, SECOND
from spillover.ports.driver import Made, Manner, Patience
from spillover.testing.world import START
from tests.support.external.cluster import Cluster
from tests.support.external.driver import Watcher

TICK: Final = SECOND // 4
TROUBLED: Final = 3 * MINUTE
"""How long faults occur."""
LONGEST: Final = 40 * MINUTE
"""Time by which everything has ended, unless there is a bug."""
MANNER: Final = Manner(
    Patience(10 * SECOND, MINUTE, 20 * SECOND, 30 * SECOND, prepare=30 * SECOND), 20 * SECOND
)
IN_PART: Final = MANNER.patience.prepare + 15 * SECOND
"""How long a server that sees its cluster may leave a gang in part, with the time to delete it when messages get lost."""
NAMES: Final = (ClusterName("onprem"), ClusterName("cloud"))


class Wrong(AssertionError):
    """Something happened that must not happen."""


class Tale(Struct):
    """What a story met."""

    crashes: int = 0
    outages: int = 0
    deleted: int = 0
    lost_answers: int = 0
    handed_back: int = 0
    """Attempts that returned to the queue without having run."""
    lost: int = 0
    unprepared: int = 0
    """Gangs that ran in part and returned to the queue."""
    nodes: int = 0
    """Nodes that failed."""
    failed: int = 0
    cleared: int = 0
    """Clusters that failed, and were cleaned up when they returned."""
    bound: int = 0
    """Attempts that ran on other nodes than planned."""
    overlaps: int = 0
    """Attempts that ran beside an earlier attempt of their job, as the job allows."""


class Story:
    """Plays the story of a seed."""

    def __init__(self, seed: int, load: Callable[[PolicySet], Policies]) -> None:
        self._dice = Random(seed)
        self._now = START
        self._seed = seed
        self._gangs = seed % 2 == 1
        """Whether some jobs are gangs, and nodes fail. Without, more attempts are on their way at a time."""
        self.tale = Tale()
        self._clusters = {
            name: Cluster(self._dice.randint(1, 3), self._dice.randint(1, 2), self._dice) for name in NAMES
        }
        self._policies = PolicySet(wait=Choice(self._dice.choice(["zero", "zero", "never"])))
        self._engine = Engine(State(), load, now=self._now, debug=True)
        self._epoch = 0
        self._calls: list[tuple[int, int, Callable[[], object]]] = []
        """Messages under way: when each arrives, the epoch of its server, and what it does."""
        self._down: dict[ClusterName, int] = {}
        """Time until which each cluster is unreachable."""
        self._frozen: set[Lease] = set()
        """Attempts that were deleted before the server knew that they run; they may run twice."""
        self._ended: dict[JobId, JobState] = {}
        self._pilots: dict[ClusterName, Pilot] = {}
        self._watchers: dict[ClusterName, Watcher] = {}
        self._away = 0
        """Time until which no server runs."""
        self._in_part: dict[Lease, int] = {}
        """For how long each attempt was seen in part by a server."""

    def play(self) -> Tale:
        """Play the story to its end; raise Wrong."""
        self._begin()
        self._submit(self._dice.randint(3, 12))
        calm = False
        while self._now < START + LONGEST:
            self._now += TICK
            troubled = self._now < START + TROUBLED
            if troubled:
                self._interfere()
            elif not calm:
                calm = True
                self._calm()
            for cluster in self._clusters.values():
                cluster.tick(self._now)
            self._arrive()
            if self._now >= self._away:
                if not self._pilots:
                    self._begin()
                self._serve(troubled=troubled)
            self._check_parts()
            if not troubled and self._is_quiet():
                self._check()
                return self.tale
        raise Wrong(f"seed {self._seed}: not over: {self._left()}")

    # --- the server

    def _begin(self) -> None:
        """Let a server take the lead."""
        self._epoch += 1
        specs = (
            ClusterSpec(NAMES[0], "kubernetes", Role.OWNED, gangs=True),
            ClusterSpec(NAMES[1], "kubernetes", Role.RENTED, Price(cpu_hour=3_600_000), gangs=True),
        )
        self._step(StartEpoch(self._epoch, specs, self._policies))
        for name, cluster in self._clusters.items():
            self._pilots[name] = Pilot(name, MANNER)
            self._pilots[name].ledger.adopt(self._engine.state)
            self._watchers[name] = Watcher(cluster, self._dice, self._now)

    def _serve(self, *, troubled: bool) -> None:
        """Let the server reconcile each of its clusters once."""
        for name, pilot in self._pilots.items():
            watcher = self._watchers[name]
            reachable = self._down.get(name, 0) <= self._now
            if not reachable:
                watcher.lose(self._now)
            watcher.connect(self._now, works=reachable, resumes=self._dice.random() < 0.5)
            pilot.take(watcher.take(lags=troubled and self._dice.random() < 0.3), self._now)
            orders = pilot.orders(self._engine.state, watcher.connection(), self._now, self._now)
            for job, error in orders.failed:
                raise Wrong(f"it could not be told what to do about {job}") from error
            if troubled and self._dice.random() < 0.03:
                pilot.undo(orders)
                continue
            self._step(*orders.proposals)
            for lease in orders.starts:
                if self._engine.state.jobs[lease.job].lease == lease:
                    pilot.ledger.asking(lease)
                    self._call(self._starter(name, lease, troubled=troubled))
            for lease, _ in orders.stops:
                self._call(self._stopper(name, lease, lost=troubled and self._dice.random() < 0.2))
        self._step()

    def _step(self, *proposals: Proposal) -> None:
        events = self._engine.step(self._now, proposals).events
        self._note(events)
        for pilot in self._pilots.values():
            pilot.ledger.note(events)

    def _note(self, events: list[AnyEvent]) -> None:
        for event in events:
            if isinstance(event, JobEnded):
                if event.job in self._ended:
                    raise Wrong(f"seed {self._seed}: {event.job} ended twice")
                self._ended[event.job] = event.state
            elif isinstance(event, JobRequeued):
                self.tale.handed_back += event.why is Back.RELEASED
                self.tale.lost += event.why is Back.LOST
                self.tale.unprepared += event.why is Back.UNPREPARED
            elif isinstance(event, ClusterChanged):
                self.tale.failed += event.health is ClusterHealth.FAILED
                self.tale.cleared += event.health is ClusterHealth.CLEARING
            elif isinstance(event, TasksBound):
                self.tale.bound += 1

    def _call(self, what: Callable[[], object]) -> None:
        """Send a message, which arrives after a while, even if the server dies meanwhile."""
        self._calls.append((self._now + self._dice.randrange(4 * TICK), self._epoch, what))

    def _starter(self, name: ClusterName, lease: Lease, *, troubled: bool) -> Callable[[], object]:
        pilot, watcher, epoch = self._pilots[name], self._watchers[name], self._epoch
        tasks = self._engine.state.jobs[lease.job].kind.shape.tasks

        def arrive() -> None:
            reachable = self._down.get(name, 0) <= self._now
            if not reachable:
                watcher.lose(self._now)
            answer = watcher.start(lease, tasks, self._now, 0.1 if troubled else 0.0)
            if answer.made is Made.UNKNOWN:
                self.tale.lost_answers += 1
                if self._dice.random() < 0.5:  # the same fault may cut the connection
                    self._cut(name)
            if epoch == self._epoch and self._pilots:
                pilot.ledger.answered(lease, answer, self._now, self._now)

        return arrive

    def _stopper(self, name: ClusterName, lease: Lease, *, lost: bool) -> Callable[[], object]:
        pilot, epoch = self._pilots[name], self._epoch

        def arrive() -> None:
            if lost or self._down.get(name, 0) > self._now:
                if epoch == self._epoch and self._pilots:
                    pilot.ledger.not_stopped(lease, self._now)
            else:
                self._clusters[name].delete(lease, self._now)

        return arrive

    def _arrive(self) -> None:
        due = [call for call in self._calls if call[0] <= self._now]
        self._calls = [call for call in self._calls if call[0] > self._now]
        for _, _, what in due:
            what()

    # --- faults

    def _interfere(self) -> None:
        dice = self._dice
        if dice.random() < 0.01 and self._pilots:
            self.tale.crashes += 1
            self._pilots, self._watchers = {}, {}
            self._away = self._now + dice.randrange(1, 60) * SECOND
            if dice.random() < 0.5:
                self._cut(dice.choice(NAMES))
        if dice.random() < 0.006:
            self._cut(dice.choice(NAMES))
        cluster = self._clusters[dice.choice(NAMES)]
        if dice.random() < 0.02:
            cluster.occupy(dice.choice(list(cluster.foreign)), dice.randint(0, 2))
        if dice.random() < 0.01 and cluster.objects:
            self._delete(cluster, dice.choice(list(cluster.objects)))
        if self._gangs and dice.random() < 0.004:
            self.tale.nodes += 1
            cluster.lose(dice.choice(list(cluster.foreign)), self._now)
        if dice.random() < 0.004 and self._pilots:
            job = dice.choice(list(self._engine.state.jobs))
            self._step(Change(dice.choice([Act.CANCEL, Act.REQUEUE]), (job,), "ada"))

    def _cut(self, name: ClusterName) -> None:
        """Make a cluster unreachable for a while."""
        self.tale.outages += 1
        self._down[name] = self._now + self._dice.randrange(1, 100) * SECOND

    def _calm(self) -> None:
        """End all faults and all foreign usage."""
        for cluster in self._clusters.values():
            for node in cluster.foreign:
                cluster.occupy(node, 0)

    def _delete(self, cluster: Cluster, lease: Lease) -> None:
        """Delete an attempt, as another user would."""
        self.tale.deleted += 1
        job = self._engine.state.jobs.get(lease.job)
        if job is not None and type(job.phase) is Placed:
            self._frozen.add(lease)
        cluster.delete(lease, self._now)

    def _submit(self, count: int) -> None:
        jobs = []
        for _ in range(count):
            failure = self._dice.choice(list(OnFailure))
            terms = Terms(retry=Retry(self._dice.randint(0, 1), 50), on_cluster_failure=failure)
            most = self._clusters[NAMES[0]].slots if self._gangs else 1
            tasks = self._dice.choice([1, self._dice.randint(1, most)]) if most > 1 else 1
            shape = Shape(Resources(1000), tasks=tasks)
            spec = JobSpec(Shell("true"), "job", "default", "default", shape, terms)
            jobs.append(NewJob(job_id(self._dice.getrandbits(60)), spec, b""))
        self._step(Submit(tuple(jobs), "ada"))

    def _check_parts(self) -> None:
        """Check that no server leaves a gang in part for longer than it may."""
        for name, cluster in self._clusters.items():
            if self._now < self._away or self._down.get(name, 0) > self._now:
                continue
            for lease, each in cluster.objects.items():
                if not each.in_part:
                    self._in_part.pop(lease, None)
                    continue
                self._in_part[lease] = self._in_part.get(lease, 0) + TICK
                if self._in_part[lease] > IN_PART:
                    raise Wrong(f"seed {self._seed}: {lease} stays in part: {each}")

    # --- the end

    def _is_quiet(self) -> bool:
        objects = any(cluster.objects for cluster in self._clusters.values())
        state = self._engine.state
        jobs, ready = state.jobs.values(), all(state.health(name) is ClusterHealth.READY for name in NAMES)
        return (
            ready
            and bool(self._pilots)
            and not objects
            and not self._calls
            and all(type(job.phase) is Ended for job in jobs)
        )

    def _left(self) -> str:
        jobs = [
            (job.id, job.phase) for job in self._engine.state.jobs.values() if type(job.phase) is not Ended
        ]
        return f"{jobs}; {[each for cluster in self._clusters.values() for each in cluster.objects.values()]}"

    def _check(self) -> None:
        """Check what must hold at the end."""
        state = self._engine.state
        for node in state.nodes.values():
            if node.holding or node.used != Resources():
                raise Wrong(f"seed {self._seed}: room leaks on {node.key}: {node.holding}")
            real = 1000 * self._clusters[node.cluster].foreign[NodeName(node.name)]
            if (node.foreign or Resources()).cpu != real:
                raise Wrong(
                    f"seed {self._seed}: {node.key} is taken to be used by others: {node.foreign}, not {real}"
                )
        runs: dict[JobId, list[tuple[int, int, Lease]]] = {}
        for cluster in self._clusters.values():
            for lease, began, over in cluster.runs:
                if over is None:
                    raise Wrong(f"seed {self._seed}: {lease} runs on")
                runs.setdefault(lease.job, []).append((began, over, lease))
        for job, each in runs.items():
            self._check_runs(state.jobs[job], sorted(each, key=lambda run: run[:2]))

    def _check_runs(self, job: Job, runs: list[tuple[int, int, Lease]]) -> None:
        """Check that no attempt ran twice, none overlapped unless the job allows it, and the result fits a run."""
        leases = [lease for _, _, lease in runs if lease not in self._frozen]
        if len(set(leases)) < len(leases):
            raise Wrong(f"seed {self._seed}: an attempt of {job.id} ran twice: {runs}")
        for (_, over, first), (began, _, second) in pairwise(runs):
            if began < over:
                self.tale.overlaps += 1
                if job.terms.on_cluster_failure is not OnFailure.REQUEUE:
                    raise Wrong(f"seed {self._seed}: {first} and {second} ran at one time")
        phase = job.phase
        if (
            isinstance(phase, Ended)
            and phase.exit_code is not None
            and not any((lease.attempt, lease.seq) == (job.attempt, job.seq) for _, _, lease in runs)
        ):
            raise Wrong(f"seed {self._seed}: the result of {job.id} is of no run: {phase}")
