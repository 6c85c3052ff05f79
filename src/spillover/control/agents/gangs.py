"""Starts gangs on agents: once every agent has prepared its tasks, all get the word to start them.

Nothing here is journaled. Agents say again which tasks they have prepared whenever they register, so another server
knows as much as this one as soon as they have. An agent that misses the word asks for it in the same way. How long a
gang may take counts from its placement, which is journaled, so that a restart of the server gives it no new time.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import structlog
from msgspec import Struct, field

from spillover.control.live.loop import Loop
from spillover.core.deciders.gangs import starts_still
from spillover.core.deciders.results import holder
from spillover.core.events import (
    AgentRegistered,
    AnyEvent,
    GangPlaced,
    JobEnded,
    JobRequeued,
    JobStarted,
    Lease,
    TasksStarted,
)
from spillover.core.proposals import GangOverdue, Prepared
from spillover.core.records.jobs import Job, Placed, Running
from spillover.core.records.tasks import LEADER
from spillover.model.hosts import is_loopback
from spillover.model.ids import JobId, NodeKey, node_key, split_task
from spillover.ports.cluster import Agents, GangStart

log = structlog.get_logger()

_OF_PLACED: Final = frozenset({JobStarted, TasksStarted, JobEnded, JobRequeued})
_FOLLOWED: Final = _OF_PLACED | {GangPlaced, AgentRegistered}


class _Gang(Struct):
    """A placed gang of which some tasks are prepared."""

    lease: Lease
    """Of the first task."""
    tasks: dict[int, Prepared] = field(default_factory=dict)
    """Prepared tasks by rank."""


class GangStarts:
    """The gangs that wait until all of their tasks are prepared."""

    def __init__(self, loop: Loop, agents: Agents, prepare_within: int) -> None:
        self._loop = loop
        self._agents = agents
        self._within = prepare_within
        """Nanoseconds in which all tasks of a gang must be prepared."""
        self._gangs: dict[JobId, _Gang] = {}
        self._waiting: set[JobId] = set()
        """Gangs that have not started as a whole."""
        loop.listen(self._see)

    def _see(self, _: int, events: Sequence[AnyEvent]) -> None:
        """Follow which gangs are placed, start, end or return to the queue."""
        for event in events:
            if type(event) not in _FOLLOWED or (
                type(event) in _OF_PLACED and not self._waiting and not self._gangs
            ):
                continue  # as for nearly all events, if there are few gangs
            match event:
                case GangPlaced():
                    self._await(event.job)
                case AgentRegistered():  # after a restart of the server, placed gangs are found here
                    node = self._loop.state.agents.get(node_key(event.cluster, event.node))
                    for task in node.held if node is not None else ():
                        self._await(split_task(task)[0])
                case JobStarted() | TasksStarted():
                    job = self._loop.state.jobs.get(event.job)
                    if job is None or not starts_still(job):
                        self._waiting.discard(event.job)
                case JobEnded() | JobRequeued():
                    self._waiting.discard(event.job)
                    self._gangs.pop(event.job, None)
                case _:
                    pass

    def _await(self, job_id: JobId) -> None:
        """Follow a gang until it has started as a whole."""
        job = self._loop.state.jobs.get(job_id)
        if job is not None and starts_still(job):
            self._waiting.add(job_id)

    def overdue(self) -> list[GangOverdue]:
        """Return the gangs of which not all tasks have started in time."""
        state, now = self._loop.state, self._loop.now()
        waiting = [state.jobs[job] for job in self._waiting if job in state.jobs]
        return [GangOverdue(job.lease) for job in waiting if self._is_late(job, now, state.facts.jumped)]

    def _is_late(self, job: Job, now: int, jumped: int) -> bool:
        """Return whether a gang should have started as a whole; `jumped` is the sum of clock jumps so far.

        While the server is away, no gang can start, so that time does not count: but only up to as much time again.
        How long a server was away is only known from its last event, which may be much older than its end, so a server
        that restarts again and again would count no time at all.
        """
        gang, phase = job.extra.gang, job.phase
        if gang is None or not isinstance(phase, Placed | Running):
            return False
        away = min(jumped - gang.jumped, self._within)
        return now > phase.at + away + self._within

    def prepared(self, node: NodeKey, prepared: Iterable[Prepared]) -> None:
        """Record tasks that an agent has prepared, and start gangs that are complete."""
        for task in prepared:
            job = holder(self._loop.state, task.lease, node)
            if job is None or job.extra.gang is None:
                continue
            gang = self._gangs.get(job.id)
            if gang is None or gang.lease != job.lease:
                gang = self._gangs[job.id] = _Gang(job.lease)
            again = len(gang.tasks) == len(job.tasks)
            gang.tasks[task.lease.task] = task
            if again:
                self._start(job, gang, (node,))
            elif len(gang.tasks) == len(job.tasks):
                self._start(job, gang, self._nodes(job))

    @staticmethod
    def _nodes(job: Job) -> list[NodeKey]:
        """Return the nodes of a gang, each once."""
        if not isinstance(job.phase, Placed | Running):
            return []
        return [node_key(job.phase.cluster, name) for name in dict.fromkeys(each.node for each in job.tasks)]

    def _start(self, job: Job, gang: _Gang, nodes: Iterable[NodeKey]) -> None:
        """Give agents the word to start their tasks, unless the job is being stopped."""
        phase = job.phase
        if not isinstance(phase, Placed | Running) or phase.stopping is not None:
            return
        names = tuple([task.node for task in job.tasks])
        addresses = {name: self._address(node_key(phase.cluster, name)) for name in dict.fromkeys(names)}
        hosts = tuple([addresses[name] or name for name in names])
        if len(set(hosts)) > 1 and (here := [name for name in addresses if _is_local(addresses[name])]):
            log.warning(
                "other machines cannot reach an agent of a gang; start it with --address",
                job=job.id,
                agents=here,
            )
        leader = gang.tasks[LEADER]
        shells = tuple([gang.tasks[rank].shell for rank in range(len(names))])
        start = GangStart(gang.lease, names, hosts, leader.port, shells, leader.token)
        for node in nodes:
            self._agents.start_gang(node, start)

    def _address(self, node: NodeKey) -> str:
        """Return where tasks on a node are reached; empty if unknown."""
        contact = self._agents.contact(node)
        return "" if contact is None else contact.address


def _is_local(address: str) -> bool:
    """Return whether an address means the machine itself wherever it is used."""
    return is_loopback(f"{address}:0")
