"""Expires leases of silent agents, each lease after its own term.

It also forgets agents that are lost for long and hold no lease. Otherwise they would be listed and counted forever.
"""

import asyncio
import itertools
from typing import Final

import structlog

from spillover.control.agents.lease_terms import lasting
from spillover.control.agents.requests import AgentRequests
from spillover.control.live.loop import Loop
from spillover.core.events import JobState, Lease
from spillover.core.proposals import AgentGone, Forget, Proposal, Reclaim, Refusal
from spillover.core.records.nodes import Node
from spillover.core.state import State
from spillover.model.ids import split_task
from spillover.model.units import DAY, SECOND
from spillover.ports.cluster import Agents, LeaseTerms
from spillover.ports.commands import CommandError

log = structlog.get_logger()

EVERY: Final = 0.5
"""Least seconds between two checks."""
LOOKS: Final = 20
"""Most checks within a heartbeat; each check looks at all agents, and many agents have longer heartbeats."""
FORGOTTEN: Final = 256
"""Most agents to forget in one check."""
FORGET_AFTER: Final = 7 * DAY
WHO: Final = "spillover"
"""Who forgets agents, as the journal records it."""
MANY: Final = 0.45
"""Share of agents that do not all fail at once; if more expire, the server or the network is at fault."""
FEW: Final = 3
"""Expired agents up to which that share does not matter."""
WORK: Final = "leases"


class Leases:
    """Reclaims leases that were not renewed."""

    def __init__(
        self, loop: Loop, agents: Agents, requests: AgentRequests, forget_after: int = FORGET_AFTER
    ) -> None:
        self._loop = loop
        self._agents = agents
        self._requests = requests
        self._forget_after = forget_after
        """Nanoseconds of steady time after which lost agents are forgotten."""
        self._since = loop.time.monotonic()
        """Monotonic time from which silence counts: the start of this server, or the end of a pause, as of a suspended
        machine. Heartbeats from before may not be read yet, so every lease gets a full term."""
        self._held_back: int | None = None
        """Monotonic time since which reclaims are delayed; None if they are not."""

    async def run(self) -> None:
        """Check regularly, until cancelled."""
        while True:
            pause = max(EVERY, self._requests.terms().heartbeat / SECOND / LOOKS)
            due = self._loop.time.monotonic() + round(pause * SECOND)
            await asyncio.sleep(pause)
            now = self._loop.time.monotonic()
            # This process paused, and leases of connected agents would seem expired.
            if now - due > self._requests.terms().short:
                self._since = now
            if self._loop.problem is None:
                try:
                    await self.look()
                except CommandError as error:
                    log.warning("cannot reclaim leases", error=error.message)

    async def look(self) -> None:
        """Propose lost agents, expired leases, gangs that were not prepared in time, and agents to forget."""
        engine = await self._loop.read()
        state = engine.state
        now = self._loop.time.monotonic()
        unheard = self._requests.longest_terms()
        """Terms of agents that have not registered with this server; an earlier one set theirs."""
        gone: list[Proposal] = []
        reclaims: list[Proposal] = []
        expired = counted = 0
        for key, node in state.agents.items():
            leased = node.holding or node.ahead
            if node.status == "lost" and not leased:
                continue
            counted += 1
            # Most agents pass here; checking 10,000 of them takes a few milliseconds.
            if not self._agents.is_silent(key, now):
                continue
            contact = self._agents.contact(key)
            terms = contact.terms if contact is not None else unheard
            silent = now - max(self._since, contact.heard if contact is not None else 0)
            if silent <= terms.heartbeat:
                continue
            # An agent that has just registered may have no stream yet, if the server is busy.
            left = contact is not None and contact.left
            if node.status != "lost" and (left or silent > terms.short):
                signed_off = contact is not None and contact.signed_off
                gone.append(AgentGone(node.cluster, node.name, node.incarnation, signed_off))
            if not leased:
                continue
            if leases := self._run_out(node, silent, terms):
                reclaims.append(Reclaim(node.key, leases))
            # Agents that fall silent together sent their last heartbeats within one interval, so they also expire
            # within one.
            expired += bool(self._run_out(node, silent + terms.heartbeat, terms))
        if not reclaims:
            self._held_back = None
        elif self._delays_reclaims(expired, counted, now):
            reclaims = []
        forgets = self._outdated(state)
        proposals = (*gone, *reclaims, *self._requests.gangs.overdue(), *forgets)
        replies = await self._loop.propose(*proposals) if proposals else []
        await self._one_by_one(
            [each for each, reply in zip(proposals, replies, strict=True) if isinstance(reply, Refusal)]
        )

    async def _one_by_one(self, failed: list[Proposal]) -> None:
        """Reclaim leases one by one that could not be reclaimed together, so that a bad one does not affect others."""
        leases = [(each.node, lease) for each in failed if isinstance(each, Reclaim) for lease in each.leases]
        aside = self._loop.aside
        wanted = {lease.job for _, lease in leases}
        for each in aside.of(WORK) if aside else ():
            if each.subject and each.subject not in wanted:  # reclaimed or ended meanwhile
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
        """Return proposals to forget agents that are lost for long; drained ones stay in the state."""
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
        """Return the leases of a node that have expired after this silence."""
        leases = []
        for each in node.held:
            job_id, _, rank = split_task(each)
            job = self._loop.state.jobs[job_id]
            running = job.tasks[rank].state is JobState.RUNNING
            lasts = lasting(job.terms.lost_after, terms.heartbeat) if running else terms.short
            if silent > lasts + terms.heartbeat:
                leases.append(job.lease_of(rank))
        return tuple(leases)

    def _delays_reclaims(self, expired: int, agents: int, now: int) -> bool:
        """Return whether to delay reclaims, because too many agents expire at once; for one term at most."""
        if expired <= FEW or expired <= MANY * agents:
            self._held_back = None
            return False
        if self._held_back is None:
            self._held_back = now
            log.warning(
                "many agents expired at once; delaying the reclaim of their leases",
                expired=expired,
                agents=agents,
            )
        return now - self._held_back < self._requests.terms().short
