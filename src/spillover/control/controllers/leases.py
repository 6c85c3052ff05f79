"""Leases that run out: agents that are not heard from lose what they hold, each lease in its own time.

An agent that is lost and holds nothing leaves the book after a while, or it would be listed, and counted, for ever.
"""

import asyncio
import itertools
from typing import Final

import structlog

from spillover.control.agents import Desk
from spillover.control.loop import Loop
from spillover.control.terms import lasting
from spillover.core.events import JobState, Lease
from spillover.core.nodes import Node
from spillover.core.proposals import AgentGone, Forget, Proposal, Reclaim, Refusal
from spillover.core.state import State
from spillover.model.ids import split_task
from spillover.model.units import DAY, SECOND
from spillover.ports.cluster import Agents, LeaseTerms
from spillover.ports.commands import CommandError

log = structlog.get_logger()

EVERY: Final = 0.5
"""Seconds between two looks at the least."""
LOOKS: Final = 20
"""Looks within a heartbeat at the most: each is at all agents, and their heartbeats are longer where they are many."""
FORGOTTEN: Final = 256
"""Agents that leave the book at once, at the most."""
FORGET_AFTER: Final = 7 * DAY
WHO: Final = "spillover"
"""Who forgets agents, as the journal tells it."""
MANY: Final = 0.45
"""Share of agents that do not all die at once: if more expire, the fault is ours or the network's."""
FEW: Final = 3
"""Unless there are only so many."""
WORK: Final = "leases"


class Leases:
    """Reclaims what nobody renewed."""

    def __init__(self, loop: Loop, agents: Agents, desk: Desk, forget_after: int = FORGET_AFTER) -> None:
        self._loop = loop
        self._agents = agents
        self._desk = desk
        self._forget_after = forget_after
        """Nanoseconds of steady time."""
        self._since = loop.time.monotonic()
        """A new leader gives every lease one full term first, and so does one that stood still, as with a suspended machine: what
        agents said meanwhile is not heard yet."""
        self._held_back: int | None = None
        """Since when reclaiming is held back; None if it is not."""

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            pause = max(EVERY, self._desk.terms().heartbeat / SECOND / LOOKS)
            due = self._loop.time.monotonic() + round(pause * SECOND)
            await asyncio.sleep(pause)
            now = self._loop.time.monotonic()
            if (
                now - due > self._desk.terms().short
            ):  # or leases of agents that are there would seem to have run out
                self._since = now
            if self._loop.problem is None:
                try:
                    await self.look()
                except CommandError as error:
                    log.warning("could not reclaim leases", error=error.message)

    async def look(self) -> None:
        """Propose what ran out by now."""
        engine = await self._loop.read()
        state = engine.state
        now = self._loop.time.monotonic()
        unheard = self._desk.longest_terms()
        """Of agents that have not registered with this server: an earlier one has told them theirs."""
        gone: list[Proposal] = []
        reclaims: list[Proposal] = []
        expired = counted = 0
        for key, node in state.agents.items():
            leased = node.holding or node.ahead
            if node.status == "lost" and not leased:
                continue
            counted += 1
            if not self._agents.is_silent(
                key, now
            ):  # as most are not: a look at 10,000 of them is some milliseconds
                continue
            contact = self._agents.contact(key)
            terms = contact.terms if contact is not None else unheard
            silent = now - max(self._since, contact.heard if contact is not None else 0)
            if silent <= terms.heartbeat:
                continue
            # One that has just registered may not have its stream yet: a server with much to do is late with that.
            left = contact is not None and contact.left
            if node.status != "lost" and (left or silent > terms.short):
                gone.append(AgentGone(node.cluster, node.name, node.incarnation))
            if not leased:
                continue
            if leases := self._run_out(node, silent, terms):
                reclaims.append(Reclaim(node.key, leases))
            # Agents that fall silent together were last heard at any time within one heartbeat, and so run out within one.
            expired += bool(self._run_out(node, silent + terms.heartbeat, terms))
        if not reclaims:
            self._held_back = None
        elif self._holds_back(expired, counted, now):
            reclaims = []
        forgets = self._outdated(state)
        proposals = (*gone, *reclaims, *forgets)
        replies = await self._loop.propose(*proposals) if proposals else []
        await self._one_by_one(
            [each for each, reply in zip(proposals, replies, strict=True) if isinstance(reply, Refusal)]
        )

    async def _one_by_one(self, failed: list[Proposal]) -> None:
        """Reclaim leases apart that could not be together: what is wrong with one costs the others nothing."""
        leases = [(each.node, lease) for each in failed if isinstance(each, Reclaim) for lease in each.leases]
        aside = self._loop.aside
        wanted = {lease.job for _, lease in leases}
        for each in aside.of(WORK) if aside else ():
            if each.subject and each.subject not in wanted:  # it was reclaimed since, or ended otherwise
                aside.done(WORK, each.subject)
        if not leases:
            return
        tried = [(node, lease) for node, lease in leases if not aside.waits(WORK, lease.job)]
        replies = (
            await self._loop.propose(*[Reclaim(node, (lease,)) for node, lease in tried]) if tried else []
        )
        for (_, lease), reply in zip(tried, replies, strict=True):
            if isinstance(reply, Refusal):
                aside.put(WORK, lease.job, RuntimeError(reply.message))
            else:
                aside.done(WORK, lease.job)

    def _outdated(self, state: State) -> list[Proposal]:
        """Agents that are lost for so long that nobody expects them; one that a person drained is to stay so when it comes."""
        if not state.lost:
            return []
        before = state.steady(self._loop.now()) - self._forget_after
        outdated = (
            Forget(node.cluster, node.name, WHO)
            for node in state.agents.values()
            if node.missed is not None and node.missed < before
            if not (node.holding or node.ahead or node.drained)
        )
        return list(itertools.islice(outdated, FORGOTTEN))

    def _run_out(self, node: Node, silent: int, terms: LeaseTerms) -> tuple[Lease, ...]:
        """Leases of a node that its silence has ended."""
        leases = []
        for each in node.held:
            job_id, _, rank = split_task(each)
            job = self._loop.state.jobs[job_id]
            running = job.tasks[rank].state is JobState.RUNNING
            lasts = lasting(job.terms.lost_after, terms.heartbeat) if running else terms.short
            if silent > lasts + terms.heartbeat:
                leases.append(job.lease_of(rank))
        return tuple(leases)

    def _holds_back(self, expired: int, agents: int, now: int) -> bool:
        """Whether so many expire at once that it is not their fault; for one term at the most."""
        if expired <= FEW or expired <= MANY * agents:
            self._held_back = None
            return False
        if self._held_back is None:
            self._held_back = now
            log.warning(
                "many agents expired at once; reclaiming is held back", expired=expired, agents=agents
            )
        return now - self._held_back < self._desk.terms().short
