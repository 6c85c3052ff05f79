"""Plays jobs on whole clusters whose servers die and whose maker fails: the plan orders, sizes, fills and ends the clusters.

The same must hold as for machines. Besides: no node that has a task is dropped, no cluster has more nodes than its offer
allows, and in the end each cluster has as many nodes as the plan says.
"""

from collections.abc import Callable
from random import Random
from typing import Final

from msgspec.structs import replace

from spillover.control.pools.knowledge import Size
from spillover.control.pools.ledger import PoolCalls
from spillover.core.events import Lease, SeenNode, Usage
from spillover.core.pool_proposals import SeeRunning
from spillover.core.proposals import DRIVER, OpenedCluster, Outcome, Result, SeeCluster, SeeNodes, Started
from spillover.core.records.jobs import Job, Placed, Running
from spillover.core.records.machines import RentedMachine
from spillover.deciding.protocols import Policies
from spillover.model.budget import Per
from spillover.model.cluster import Billing, ClusterHealth, ClusterLife, ClusterSpec, pool_price
from spillover.model.ids import ClusterName, JobId, NodeName
from spillover.model.policy import PolicySet
from spillover.model.pools import Offer, Pool, PoolBudget
from spillover.model.resources import Resources
from spillover.model.units import MINUTE, SECOND
from spillover.testing.world import START
from tests.support.pools.jobs import JobsStory
from tests.support.pools.story import CLOUD, LOST_AFTER, SPEC, Wrong

NODE: Final = Resources(4000, 2**33)
OFFER: Final = Offer("std", NODE, 400_000, "a", nodes=5, least=1, cluster_hour=100_000)
UP: Final = 15 * SECOND
"""How long a new node takes."""


class ClustersStory(JobsStory):
    """Plays the story of a seed."""

    slow_listings = 0.0  # stories of seeds that once found bugs stay as they are

    def __init__(self, seed: int, load: Callable[[PolicySet], Policies]) -> None:
        super().__init__(seed, load)
        self.spec = drawn_template(Random(f"template {seed}"))
        self._answering: dict[str, int] = {}
        """From when clusters answer, by the maker's id; those that never do are missing."""
        self._nodes: dict[str, dict[NodeName, int]] = {}
        """The nodes of clusters by the maker's id, and when each was added."""
        self._named = 0
        self._pods: dict[JobId, tuple[Lease, str, int]] = {}
        """Jobs that run, with their lease, the maker's id of their cluster, and when they end."""

    # --- the maker

    def _will_join(self, id_: str) -> None:
        self._nodes[id_] = {}
        self._add_nodes(id_, self.account.machines[id_].order.nodes)
        if not self._fails(0.1):
            self._answering[id_] = self._now + self._dice.randint(5, 60) * SECOND

    def _add_nodes(self, id_: str, count: int) -> None:
        for _ in range(count):
            self._named += 1
            self._nodes[id_][NodeName(f"node-{self._named}")] = self._now
        self.account.machines[id_].nodes = len(self._nodes[id_])

    def _resize(self, id_: str, size: Size) -> None:
        nodes = self._nodes[id_]
        going = [
            *[each for each in nodes if each in size.drop],
            *[each for each in nodes if each not in size.drop],
        ]
        for name in going[: max(0, len(nodes) - size.nodes)]:
            del nodes[name]
            if any(name in self._places(job) for job in self._on(id_)):
                raise Wrong(f"seed {self._seed}: {name} has a task and is dropped by {size}")
        self._add_nodes(id_, size.nodes - len(nodes))

    def _connect(self, due: PoolCalls) -> None:
        """Ask clusters how to connect to them, and tell them their sizes."""
        ledger = self._ledger
        assert ledger is not None
        for machine in due.opens:
            ledger.opening(machine.id)
            self._messages.append((self._now + self._delay(), lambda machine=machine: self._opened(machine)))  # type: ignore[misc]
        for machine, size in due.sizes:
            ledger.sizing(machine.id)
            arrive = self._sizing(machine, size)
            self._messages.append((self._now + self._delay(), arrive))

    def _opened(self, machine: RentedMachine) -> None:
        if self._ledger is None:
            return
        well = not self._fails(0.2) and self.account.machines[machine.provider_id].ended is None
        if well:
            self._step(SeeRunning(CLOUD, machine.id, made_spec(self.spec, machine), "{}"))
        self._ledger.opened(machine.id, self._now - START, well=well)

    def _sizing(self, machine: RentedMachine, size: Size) -> Callable[[], None]:
        ledger = self._ledger

        def arrive() -> None:
            known = self.account.machines[machine.provider_id]
            well = not self.account.down and known.ended is None and not self._fails(0.2)
            if well and ledger is self._ledger:
                self._resize(known.id, size)
            if ledger is self._ledger and ledger is not None:
                ledger.sized(machine.id, size, self._now - START, well=well and not self._fails(0.2))

        return arrive

    # --- the clusters

    def _boot(self) -> None:
        """Let the server watch clusters, and the clusters run jobs."""
        if self._ledger is None:
            return
        state = self._engine.state
        for name, record in list(state.lives.items()):
            if not state.clusters[name].made_by:
                continue
            if record.life is ClusterLife.REQUESTED:
                self._step(OpenedCluster(name))
            self._watch(name)
        self._work()

    def _watch(self, name: ClusterName) -> None:
        machine = self._engine.state.made(name)
        assert machine is not None
        there = self.account.machines[machine.provider_id]
        health = self._engine.state.health(name)
        if there.ended is not None:
            after = {
                ClusterHealth.READY: ClusterHealth.DEGRADED,
                ClusterHealth.DEGRADED: ClusterHealth.FAILED,
            }
            if health in after and self._now > there.ended + LOST_AFTER:
                self._step(SeeCluster(name, after[health], "no answer"))
            return
        if not self._answers(there.id):
            return
        up = [each for each, since in self._nodes[there.id].items() if since + UP <= self._now]
        seen = [SeenNode(each, NODE, Resources(), offers=("container",)) for each in up]
        self._step(SeeNodes(name, tuple(seen), whole=True))
        if health is not ClusterHealth.READY:
            self._step(SeeCluster(name, ClusterHealth.READY))

    def _answers(self, id_: str) -> bool:
        return self._answering.get(id_, self._now + 1) <= self._now

    # --- jobs

    def _on(self, id_: str) -> list[Job]:
        """Return the jobs that run on a cluster."""
        return [self._engine.state.jobs[job] for job, (_, on, _) in self._pods.items() if on == id_]

    def _places(self, job: Job) -> list[NodeName]:
        return [NodeName(task.node) for task in job.tasks]

    def _work(self) -> None:
        """Let clusters start jobs, and report those that have ended."""
        for job in [each for each in self._jobs() if isinstance(each.phase, Placed | Running)]:
            assert isinstance(job.phase, Placed | Running)
            machine = self._engine.state.made(job.phase.cluster)
            there = None if machine is None else self.account.machines.get(machine.provider_id)
            if there is None or there.ended is not None:
                continue
            if job.id not in self._pods and all(each in self._nodes[there.id] for each in self._places(job)):
                self._start_pod(job, there.id)
        for job_id, (lease, on, end) in list(self._pods.items()):
            if self.account.machines[on].ended is not None:
                del self._pods[job_id]  # nobody hears of it again
                continue
            found = self._engine.state.jobs[job_id]
            stopping = isinstance(found.phase, Placed | Running) and found.phase.stopping is not None
            if stopping or end <= self._now:
                del self._pods[job_id]
                self._report_job(found, lease, stopped=end > self._now)

    def _start_pod(self, job: Job, on: str) -> None:
        if job.id in self._done:
            raise Wrong(f"seed {self._seed}: {job.id} starts again after it succeeded")
        self._pods[job.id] = (job.lease, on, self._now + self._lasts[job.id])
        self._step(Started(DRIVER, job.lease, 0))

    def _report_job(self, job: Job, lease: Lease, *, stopped: bool) -> None:
        outcome = Outcome.STOPPED if stopped else Outcome.EXITED
        usage = Usage(self._lasts[job.id])
        for task in tuple(job.tasks):
            if job.lease == lease and isinstance(job.phase, Placed | Running):
                code = None if stopped else 0
                self._step(Result(DRIVER, job.lease_of(task.rank), outcome, code, None, usage, 0))
        if job.state.value == "SUCCEEDED":
            self._done[job.id] = None

    # --- what must hold

    def _check(self) -> None:
        super()._check()
        for each in self._live():
            if each.nodes > each.offer.nodes:
                raise Wrong(f"seed {self._seed}: {each.id} is to have {each.nodes} nodes")

    def _check_wanted(self) -> None:
        super()._check_wanted()
        for each in self._live():
            there = len(self._nodes[each.provider_id])
            if there != each.nodes:
                raise Wrong(f"seed {self._seed}: {each.id} has {there} nodes, not {each.nodes}")

    def _end_all(self) -> None:
        """Let the fixed load end. The clusters are given back because nothing needs them."""
        super()._end_all()
        self._pods.update(
            {
                job: (lease, on, self._now)
                for job, (lease, on, _) in self._pods.items()
                if job.startswith("fixed")
            }
        )


def drawn_template(dice: Random) -> ClusterSpec:
    """Return a template with one of several billings, budgets and sizes."""
    budget = PoolBudget(Per.EVER, 200_000_000) if dice.random() < 0.7 else None
    offer = replace(OFFER, nodes=dice.choice([4, 5, 10]), least=dice.choice([1, 2]))
    pool = Pool(
        "story",
        (offer, replace(offer, zone="b")),
        max=dice.choice([4, 8]),
        boot=40 * SECOND,
        join_within=3 * MINUTE,
        idle=dice.choice([None, MINUTE]),
        budget=budget,
    )
    billing = Billing(dice.choice([SECOND, MINUTE]), dice.choice([0, MINUTE]))
    return replace(SPEC, kind="kubernetes", pool=pool, price=pool_price(pool), billing=billing)


def made_spec(template: ClusterSpec, machine: RentedMachine) -> ClusterSpec:
    """Return the cluster that a template becomes."""
    price = pool_price(Pool("story", (machine.offer,)))
    spec = replace(template, name=machine.cluster_made, pool=None, made_by=template.name)
    return replace(spec, price=price, billing=Billing(step=1))
