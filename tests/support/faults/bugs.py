"""Plants known bugs while a story runs, to prove that the checks find them. The product cannot enable them."""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from msgspec.structs import replace

from spillover.agent.connection import link
from spillover.agent.connection.link import Link
from spillover.agent.leases.state import AgentState
from spillover.agent.leases.values import Instruction, Welcome
from spillover.control.agents.gangs import GangStarts, _Gang
from spillover.control.agents.registrations import Registrations
from spillover.control.controllers.stealing import Stealing
from spillover.control.live.loop import Loop
from spillover.core.decide import DECIDERS
from spillover.core.deciders import results
from spillover.core.events import AnyEvent, Lease
from spillover.core.proposals import Prepared, Proposal, Reply, Result, Yield, Yielded
from spillover.core.records.jobs import Job, Placed, Running
from spillover.core.state import State
from spillover.model.ids import NodeKey
from spillover.model.units import SECOND
from tests.support.planting import instead

PATIENCE: Final = SECOND // 2
"""Nanoseconds that the impatient server waits for an answer."""


@contextlib.contextmanager
def no_seq_check() -> Iterator[None]:
    """Accept a result if its job is leased to the reporting agent, under any attempt and seq.

    Both checks go: seq rises with every attempt, so that either alone would distinguish most leases.
    """

    def holder(state: State, lease: Lease, node: NodeKey) -> Job | None:
        job = state.jobs.get(lease.job)
        phase = job.phase if job is not None else None
        return job if isinstance(phase, Placed | Running) and phase.key == node else None

    with instead(results, "holder", holder):
        yield


@contextlib.contextmanager
def early_hand_out() -> Iterator[None]:
    """Move a requested lease to the other agent after a moment, even if its agent has not returned it."""
    look = Stealing.look

    async def impatient(self: Stealing) -> int:
        loop: Loop = self._loop
        state = (await loop.read()).state
        asked: dict[Lease, int] = self.__dict__.setdefault("_asked", {})
        now, early = loop.time.monotonic(), list[Proposal]()
        for job in state.jobs.values():
            phase = job.phase
            if not isinstance(phase, Placed) or phase.thief is None:
                continue
            if now - asked.setdefault(job.lease, now) > PATIENCE:
                early.append(Yielded(phase.key, job.lease, Yield.RELEASED))
        if early:
            await loop.propose(*early)
        return await look(self)

    def always(_: Stealing) -> bool:
        return True

    with instead(Stealing, "look", impatient), instead(Stealing, "_waits", always):
        yield


@contextlib.contextmanager
def accepted_after_reclaim() -> Iterator[None]:
    """Accept a result of a reclaimed lease for the lease that replaced it."""
    real = results.result

    def result(state: State, proposal: Result, now: int) -> tuple[list[AnyEvent], Reply]:
        job = state.jobs.get(proposal.lease.job)
        if job is not None and isinstance(job.phase, Placed | Running):
            proposal = replace(proposal, lease=job.lease, node=job.phase.node)
        return real(state, proposal, now)

    DECIDERS[Result] = result
    try:
        yield
    finally:
        DECIDERS[Result] = real


@contextlib.contextmanager
def late_registration() -> Iterator[None]:
    """Accept a registration at any time, even after one that was sent later."""

    def check(*_: object, **__: object) -> None:
        pass

    with instead(Registrations, "check", check):
        yield


@contextlib.contextmanager
def over_for_good() -> Iterator[None]:
    """Never accept a replaced process of an agent again, even if its replacement came from a delayed message."""
    check = Registrations.check

    def for_good(self: Registrations, agent: str, life: str, number: int, *, present: str | None) -> None:
        check(self, agent, life, number, present=present or "somebody")

    with instead(Registrations, "check", for_good):
        yield


@contextlib.contextmanager
def unfenced_namesake() -> Iterator[None]:
    """Let an agent continue its tasks after it learns that another agent has its name."""
    with instead(link, "_FENCED", None):
        yield


@contextlib.contextmanager
def untellable_news() -> Iterator[None]:
    """Let an agent try without pause to report what it can report only after it registers again.

    With the usual pause between reports, it would only try a few times in vain, until its connection ends.
    """
    real = AgentState.news

    def news(self: AgentState) -> bool:
        was = self.incarnation
        self.incarnation = was or 0
        try:
            return real(self)
        finally:
            self.incarnation = was

    async def at_once(*_: object) -> None:
        pass

    with instead(AgentState, "news", news), instead(Link, "_wait_for_more", at_once):
        yield


@contextlib.contextmanager
def idle_with_results() -> Iterator[None]:
    """Let an agent that only has results to report wait as long for its server as one that has nothing."""
    real = Link._longest_wait

    def longest_wait(self: Link) -> float:
        state = self._state
        results, state.results = state.results, {}
        try:
            return real(self)
        finally:
            state.results = results

    with instead(Link, "_longest_wait", longest_wait):
        yield


@contextlib.contextmanager
def first_come_first_start() -> Iterator[None]:
    """Start a gang when the first of its tasks is prepared."""
    real = GangStarts.prepared

    def prepared(self: GangStarts, node: NodeKey, tasks: Iterable[Prepared]) -> None:
        tasks = list(tasks)
        for each in tasks:
            job = results.holder(self._loop.state, each.lease, node)
            if job is not None and job.id not in self._gangs:
                all_of_them = {rank: Prepared(job.lease_of(rank)) for rank in range(len(job.tasks))}
                self._start(job, _Gang(job.lease, all_of_them), self._nodes(job))
        real(self, node, tasks)

    with instead(GangStarts, "prepared", prepared):
        yield


@contextlib.contextmanager
def said_only_once() -> Iterator[None]:
    """Give the word to start a gang only once, even if an agent did not hear it."""
    real = GangStarts._start

    def start(self: GangStarts, job: Job, gang: _Gang, nodes: Iterable[NodeKey]) -> None:
        said: set[Lease] = self.__dict__.setdefault("_said", set())
        if job.lease not in said:
            said.add(job.lease)
            real(self, job, gang, nodes)

    with instead(GangStarts, "_start", start):
        yield


@contextlib.contextmanager
def prepared_in_silence() -> Iterator[None]:
    """Do not tell another server which tasks of gangs are prepared."""
    real = AgentState.registered

    def registered(self: AgentState, now: int, sent: int, welcome: Welcome) -> list[Instruction]:
        before = dict(self._reports.prepared)
        out = real(self, now, sent, welcome)
        self._reports.prepared.clear()
        self._reports.prepared.update(before)
        return out

    with instead(AgentState, "registered", registered):
        yield


BUGS: Final[dict[str, Callable[[], Any]]] = {
    "no-seq-check": no_seq_check,
    "early-hand-out": early_hand_out,
    "accepted-after-reclaim": accepted_after_reclaim,
    "late-registration": late_registration,
    "over-for-good": over_for_good,
    "unfenced-namesake": unfenced_namesake,
    "untellable-news": untellable_news,
    "idle-with-results": idle_with_results,
    "first-come-first-start": first_come_first_start,
    "said-only-once": said_only_once,
    "prepared-in-silence": prepared_in_silence,
}
