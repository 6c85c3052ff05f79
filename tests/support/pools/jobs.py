"""Plays jobs on a pool whose servers die and whose provider fails: the plan itself orders, fills and ends the machines.

`Story` draws at random which machines are wanted. Here the jobs decide that, and the machines really run their tasks. So
this checks besides: no job is lost or runs twice, no machine costs more than its budget holds, a fixed load comes to a
fixed point, and a provider that answers nothing gets few calls.
"""

from collections.abc import Callable
from random import Random
from typing import Final

from msgspec.structs import replace

from spillover.core.events import (
    AnyEvent,
    Decided,
    JobState,
    Lease,
    MachineFound,
    MachineGone,
    MachineMade,
    MachineRefused,
    MachinesEarmarked,
    MachinesHeld,
    MachinesWanted,
    PoolPaused,
    PoolResumed,
    Usage,
)
from spillover.core.pool_proposals import PausePool, ResumePool, SeeNotice
from spillover.core.proposals import Outcome, Reclaim, Result, Started, Submit
from spillover.core.records.jobs import Ended, Job, Placed, Running
from spillover.core.records.machines import machine_cost
from spillover.deciding.protocols import Policies
from spillover.model.budget import Per
from spillover.model.cluster import Billing, ClusterSpec, pool_price
from spillover.model.ids import JobId, NodeKey, NodeName, node_key
from spillover.model.job import Burst, Retry
from spillover.model.policy import PolicySet
from spillover.model.pools import MachineId, Pool, PoolBudget
from spillover.model.units import HOUR, MINUTE, SECOND
from spillover.testing.builders import a_job
from spillover.testing.world import START
from tests.support.pools.account import Machine
from tests.support.pools.story import CLOUD, SMALL, SPEC, TROUBLED, Story, Told, Wrong

STEPS: Final = (SECOND, MINUTE, 5 * MINUTE, HOUR)
"""Billing steps of which a story has one."""
SETS: Final = (7 * MINUTE, 7 * MINUTE, 59 * MINUTE, -7 * MINUTE, -59 * MINUTE)
"""By how much somebody sets the server's clock: across a step of each billing, or back."""
HELD_BEFORE: Final = 5 * MINUTE
"""How long before the end of a hold the plan extends it, at least."""
SETTLED: Final = 3 * MINUTE
"""How long a fixed load must have run on the same machines before the calm ends."""
MOST_CALLS: Final = 150
"""The most requests in all the time in which no request is answered. With a request a second there would be 480."""
RETRIES: Final = 1000


class JobsStory(Story):
    """Plays the story of a seed."""

    calm = 12 * MINUTE

    def __init__(self, seed: int, load: Callable[[PolicySet], Policies]) -> None:
        super().__init__(seed, load)
        dice = Random(f"setting {seed}")
        self.spec = drawn_spec(dice)
        pool = self.spec.pool
        if pool is not None and pool.idle is None:
            # A machine stays to the end of what is paid for it. A gang may wait for that, if it needs one in another zone.
            self.end += self.spec.billing.step
            self.calm += self.spec.billing.step
        self._dead = dice.random() < 0.1
        """Whether no request arrives in all the time of trouble."""
        jump_at = START + dice.randint(60, 400) * SECOND if dice.random() < 0.3 else 0
        self._sets = drawn_sets(Random(f"clock {seed}"), jump_at)
        """When somebody sets the server's clock, and by how much."""
        self._lasts: dict[JobId, int] = {}
        """How long each job runs; those of the fixed load until all is ended."""
        self._runs: dict[str, dict[Lease, int]] = {}
        """Tasks that run on each machine by the provider's id, and when they end."""
        self._done: dict[JobId, None] = {}
        """Jobs of which the server was told that they succeeded."""
        self._marked: dict[JobId, MachinesEarmarked] = {}
        """The machines that were last kept for each gang besides new ones."""
        self._kept: dict[MachineId, JobId] = {}
        """The gangs that the last plan kept machines for."""
        self._held: dict[MachineId, int] = {}
        """What is held for each machine, in millionths."""
        self._paid: dict[str, int] = {}
        """What was counted for each machine by the provider's id, in millionths: again if it is found after it was gone."""
        self._seen: dict[MachineId, tuple[str, int]] = {}
        """The provider's id of each machine, and when it was created, by the events so far."""
        self._planned = START
        """When the plan last saw to holds, by the server's clock."""
        self._paused = False
        """Whether the pool is paused, by the events so far."""
        self._ordered = 0
        """When the last machine was ordered, nanoseconds UTC."""

    def play(self) -> Told:
        """Play the story to its end; raise Wrong."""
        told = super().play()
        if left := [job.id for job in self._jobs() if job.state is not JobState.SUCCEEDED]:
            raise Wrong(
                f"seed {self._seed}: jobs were lost: {[self._engine.state.jobs[each] for each in left]}"
            )
        told.jobs = len(self._done)
        told.interrupted = self._events["JobRequeued"]
        return told

    # --- the machines and their tasks

    def _boot(self) -> None:
        if self._ledger is None:
            return
        before = dict(self._agents)
        super()._boot()
        for id_, (name, _) in before.items():
            if id_ not in self._agents:
                self._runs.pop(id_, None)
                leases = tuple([lease for lease, on in self._leases() if on == name])
                self._step(Reclaim(node_key(CLOUD, name), leases))
        self._work()

    def _work(self) -> None:
        """Let agents start tasks and report those that have ended."""
        for id_ in list(self._agents):
            if self.account.machines[id_].ended is not None or self._is_fenced(id_):
                self._runs.pop(id_, None)
        for id_, (name, _) in list(self._agents.items()):
            if self.account.machines[id_].ended is not None or self._is_fenced(id_):
                continue
            if id_ in self._joins:  # it looks for the new server
                continue
            key, runs = node_key(CLOUD, name), self._runs.setdefault(id_, {})
            for lease, on in self._leases():
                if on == name and lease not in runs:
                    self._start(key, lease, runs)
            stopping = self._stopping()
            for lease, end in list(runs.items()):
                if lease.job in stopping or end <= self._now:
                    del runs[lease]
                    self._report(key, lease, stopped=end > self._now)

    def _is_fenced(self, id_: str) -> bool:
        """Return whether the server has forgotten the agent of a machine, so that the agent stops its tasks."""
        name, incarnation = self._agents[id_]
        node = self._engine.state.agents.get(node_key(CLOUD, name))
        return node is None or node.incarnation != incarnation

    def _held_by(self, id_: str) -> tuple[Lease, ...]:
        return tuple(self._runs.get(id_, {}))

    def _keep(self, id_: str, keep: tuple[Lease, ...]) -> None:
        runs = self._runs.get(id_, {})
        for lease in [each for each in runs if each not in keep]:
            del runs[lease]

    def _start(self, key: NodeKey, lease: Lease, runs: dict[Lease, int]) -> None:
        if lease.job in self._done:
            raise Wrong(f"seed {self._seed}: {lease.job} starts again after it succeeded")
        twice = [
            id_
            for id_, others in self._runs.items()
            if self.account.machines[id_].ended is None
            for other in others
            if (other.job, other.task) == (lease.job, lease.task)
        ]
        if twice:
            raise Wrong(f"seed {self._seed}: {lease} starts on {key}, and runs on {twice}")
        runs[lease] = self._now + self._lasts[lease.job]
        self._step(Started(key, lease, 0))

    def _report(self, key: NodeKey, lease: Lease, *, stopped: bool) -> None:
        """Report the end of a task, sometimes twice."""
        outcome = Outcome.STOPPED if stopped else Outcome.EXITED
        usage = Usage(self._lasts[lease.job])
        result = Result(key, lease, outcome, None if stopped else 0, None, usage, 0)
        self._step(*[result] * (2 if self._fails(0.1) else 1))
        job = self._engine.state.jobs[lease.job]
        if job.state is JobState.SUCCEEDED:
            self._done[job.id] = None

    def _jobs(self) -> list[Job]:
        return list(self._engine.state.jobs.values())

    def _leases(self) -> list[tuple[Lease, NodeName]]:
        """Return the leases of tasks that are placed and not ended, with their nodes."""
        placed = [job for job in self._jobs() if isinstance(job.phase, Placed | Running)]
        return [
            (job.lease_of(task.rank), NodeName(task.node))
            for job in placed
            for task in job.tasks
            if task.lives
        ]

    def _stopping(self) -> dict[JobId, None]:
        return {
            job.id: None
            for job in self._jobs()
            if isinstance(job.phase, Placed | Running) and job.phase.stopping is not None
        }

    def _interfere(self) -> None:
        """Let machines be taken back with notice too, and let the server's clock jump."""
        super()._interfere()
        if self._dead:
            self.account.down = True
        while self._sets and self._now >= self._sets[0][0]:
            self.clock.ahead += self._sets.pop(0)[1]
        if self._ledger is not None and self._dice.random() < 0.005:
            for id_ in list(self._agents)[:1]:
                machine = self.account.machines[id_]
                self._step(SeeNotice(CLOUD, machine.order.machine, self._clock + 2 * MINUTE))
                until = self._now + 2 * MINUTE
                self._messages.append((until, lambda machine=machine: self._take_back(machine)))  # type: ignore[misc]

    def _take_back(self, machine: Machine) -> None:
        if machine.ended is None:
            machine.ended, machine.interrupted = self._now, True

    # --- what is wanted

    def _plan(self, *, troubled: bool) -> None:
        """Submit jobs, and pause and resume the pool."""
        dice, paused = self._dice, bool(self._engine.state.pools[CLOUD].paused)
        if not troubled:
            self.account.quota = 1000
            if not any(name.startswith("fixed") for name in self._lasts):
                self._submit("fixed", 3, 2000 * MINUTE, 2)
                self._step(ResumePool(CLOUD, "ada"))
            elif paused:
                self._step(ResumePool(CLOUD, "ada"))
            return
        if dice.random() < 0.05 and len(self._lasts) < 40:
            many, lasts = dice.randint(1, 4), dice.choice([2, 10, 30, 90]) * SECOND
            self._submit("job", many, lasts, dice.choice([1, 2, 4]), gang=dice.random() < 0.3)
        if dice.random() < 0.005:
            self._step(PausePool(CLOUD, "ada", end=dice.random() < 0.3))
        if paused and dice.random() < 0.03:
            self._step(ResumePool(CLOUD, "ada"))

    def _submit(self, kind: str, many: int, lasts: int, cpus: int, *, gang: bool = False) -> None:
        """Submit jobs, or one gang of that many tasks."""
        names = [f"{kind}-{len(self._lasts) + each}" for each in range(1 if gang else many)]
        jobs = [
            a_job(name)
            .cpus(cpus)
            .burst(Burst.ALWAYS)
            .tasks(many if gang else 1)
            .terms(estimate=lasts, retry=Retry(0, RETRIES))
            for name in names
        ]
        self._lasts.update({JobId(name): lasts for name in names})
        self._step(Submit(tuple([job.build() for job in jobs]), "ada"))

    def _end_all(self) -> None:
        """Let the fixed load end. The machines are given back because nothing needs them."""
        if self._now - self._ordered < SETTLED:
            raise Wrong(f"seed {self._seed}: machines are still ordered under a fixed load")
        for runs in self._runs.values():
            runs.update({lease: self._now for lease in runs if lease.job.startswith("fixed")})

    # --- what must hold

    def _count(self, events: list[AnyEvent]) -> None:
        super()._count(events)
        for event in events:
            match event:
                case MachinesHeld():
                    for each in event.holds:
                        self._held[each.machine] = self._held.get(each.machine, 0) + each.amount
                case MachinesWanted():
                    self._ordered = self._now
                    if self._paused:
                        raise Wrong(f"seed {self._seed}: a paused pool orders {event.wishes}")
                    self._check_gangs(event)
                case Decided():
                    self._kept.clear()
                case MachinesEarmarked():
                    self._check_kept(event)
                    self._marked[event.job] = event
                    self.told.earmarked += 1
                case PoolPaused() | PoolResumed():
                    self._paused = isinstance(event, PoolPaused)
                case MachineMade() | MachineFound():
                    self._seen[event.machine] = event.provider_id, event.made_at
                case MachineGone():
                    self._check_paid(event)
                case MachineRefused():
                    self._held.pop(event.machine, None)
                case _:
                    pass
        self._planned = self._engine.now

    def _check(self) -> None:
        super()._check()
        pool = self.spec.pool
        assert pool is not None
        if len(self._live()) > pool.max + self._events["MachineFound"]:
            raise Wrong(f"seed {self._seed}: more than {pool.max} machines: {self._live()}")
        self._check_refused()
        if self._dead and self._now < START + TROUBLED and self.told.calls > MOST_CALLS:
            raise Wrong(f"seed {self._seed}: {self.told.calls} calls to a provider that does not answer")

    def _check_gangs(self, event: MachinesWanted) -> None:
        """All new machines of a gang are ordered at once, of one offer, in the zone of those that it gets besides."""
        ordered: dict[str, list[str]] = {}
        for wish in event.wishes:
            if wish.group and not wish.offer.nodes:  # a whole cluster has nodes for all tasks
                ordered.setdefault(wish.group, []).append(wish.offer.key)
        for job, keys in ordered.items():
            shape, mark = self._engine.state.jobs[JobId(job)].shape, self._marked.get(JobId(job))
            there = mark.machines if mark is not None and mark.at == event.at else ()
            on_each = SMALL.resources.cpu // shape.resources.cpu
            needed, zones = -(-shape.tasks // on_each), {each.split("/")[1] for each in keys}
            zones |= {self._engine.state.machines[each].offer.zone for each in there}
            if len(set(keys)) > 1 or len(zones) > 1 or not needed - len(there) <= len(keys) <= needed:
                raise Wrong(f"seed {self._seed}: {job} of {shape.tasks} tasks gets {keys} besides {there}")

    def _check_kept(self, event: MachinesEarmarked) -> None:
        """A plan keeps a machine for one gang."""
        for each in event.machines:
            if each in self._kept:
                raise Wrong(f"seed {self._seed}: {each} is kept for {event.job} and {self._kept[each]}")
            self._kept[each] = event.job

    def _check_refused(self) -> None:
        """If one machine of a gang is refused, those of the same order do not go on booting."""
        machines = self._engine.state.machines.values()
        refused = {
            (each.group, each.wanted_at): each for each in machines if each.group and each.cause is not None
        }
        for each in self._live():
            if each.is_coming and (each.group, each.wanted_at) in refused:
                raise Wrong(
                    f"seed {self._seed}: {each} boots for a gang that lacks {refused[each.group, each.wanted_at]}"
                )

    def _check_paid(self, event: MachineGone) -> None:
        """What a machine cost was held for it, and is counted once."""
        machine, billing = self._engine.state.machines[event.machine], self.spec.billing
        if event.machine in self._seen:  # the same step may have found another one with its tags
            id_, made_at = self._seen[event.machine]
            machine = replace(machine, provider_id=id_, made_at=made_at)
        there = machine.provider_id or machine.id
        paid = self._paid[there] = self._paid.get(there, 0) + event.paid
        if paid != machine.bill(billing, event.at):
            raise Wrong(f"seed {self._seed}: {paid} paid for {machine}, which was gone at {event.at}")
        held = self._held.pop(machine.id, None)
        if held is None:  # without a budget, or found although nothing wanted it
            return
        # If the clock jumped, the machine may be gone before the next plan, which would have held more.
        missed = max(0, event.at - self._planned - HELD_BEFORE)
        most = held + (machine_cost(machine.offer, billing, missed) if missed else 0)
        if event.paid > most:
            raise Wrong(f"seed {self._seed}: {event} for {event.paid}, of which {held} was held: {machine}")

    def _check_wanted(self) -> None:
        super()._check_wanted()
        waiting = [job for job in self._jobs() if not isinstance(job.phase, Running | Ended)]
        if waiting:
            raise Wrong(f"seed {self._seed}: {self.calm // MINUTE} minutes are enough for {waiting}")


def drawn_sets(dice: Random, at: int) -> list[tuple[int, int]]:
    """Return when the server's clock is set, and by how much: once, or a second time to what it was; never if `at` is 0."""
    if not at:
        return []
    by = dice.choice(SETS)
    again = [(at + dice.randint(5, 120) * SECOND, -by)] if dice.random() < 0.4 else []
    return [(at, by), *again]


def drawn_spec(dice: Random) -> ClusterSpec:
    """Return a pool with one of several billings, budgets and sizes."""
    spot = replace(SMALL, spot=True, hour=300_000)
    offers = (SMALL, replace(SMALL, zone="b")) if dice.random() < 0.5 else (spot, SMALL)
    budget = PoolBudget(Per.EVER, 200_000_000) if dice.random() < 0.7 else None
    idle = dice.choice([None, MINUTE])
    pool = Pool(
        "story",
        offers,
        max=dice.choice([8, 20]),
        boot=40 * SECOND,
        join_within=3 * MINUTE,
        idle=idle,
        budget=budget,
    )
    billing = Billing(dice.choice(STEPS), dice.choice([0, MINUTE]))
    return replace(SPEC, pool=pool, price=pool_price(pool), billing=billing)
