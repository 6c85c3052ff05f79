"""Tells of jobs whose agent does not answer: since when, and what the server does next.

The state says that such a job runs, because it may: until its lease expires, nobody else may start it.
"""

from typing import Final

from spillover.control.agents.lease_terms import lasting
from spillover.control.live.loop import Loop
from spillover.core.deciders.verdicts import again
from spillover.core.events import JobState, Outcome
from spillover.core.records.jobs import Job, Placed, Running
from spillover.core.records.tasks import JobTask
from spillover.model.ids import ClusterName, node_key
from spillover.model.reasons import AgentSilent, Reason, Stopping
from spillover.model.units import FOREVER
from spillover.ports.cluster import Agents

MISSED: Final = 3
"""Heartbeats without a message after which an agent counts as silent, if its connection did not close before."""


def silence_of(loop: Loop, agents: Agents, job: Job) -> Reason | None:
    """Return that an agent of a placed job does not answer; None if all do, or if it is not on agents."""
    phase = job.phase
    if not isinstance(phase, Placed | Running):
        return None
    for task in job.tasks:
        if task.lives and (silent := _silence(loop, agents, job, phase.cluster, task)) is not None:
            if phase.stopping is None:
                return silent
            return Stopping(phase.stopping, silent.unanswered)
    return None


def _silence(loop: Loop, agents: Agents, job: Job, cluster: ClusterName, task: JobTask) -> AgentSilent | None:
    """Return that the agent of one task does not answer; None if it does."""
    key = node_key(cluster, task.node)
    node = loop.state.agents.get(key)
    if node is None:
        return None
    started = task.state is JobState.RUNNING
    retried = not started or again(job, Outcome.LOST, None) is not None
    contact = agents.contact(key)
    if contact is None:
        if node.status not in {"lost", "unobserved"}:
            return None
        return AgentSilent(key, FOREVER, FOREVER, started, retried)
    terms = contact.terms
    silent = loop.time.monotonic() - contact.heard
    if node.status != "lost" and silent <= MISSED * terms.heartbeat:
        return None
    lasts = lasting(job.terms.lost_after, terms.heartbeat) if started else terms.short
    heard = loop.now() - silent
    return AgentSilent(key, heard, heard + lasts + terms.heartbeat, started, retried)
