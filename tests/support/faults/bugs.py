"""Known bugs that can be planted while a story runs, to see that it would tell of them. Nothing of the product can switch them on."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Final

from msgspec.structs import replace

from spillover.agent import link
from spillover.agent.link import Link
from spillover.agent.state import AgentState
from spillover.control.controllers.stealing import Stealing
from spillover.control.lives import Lives
from spillover.control.loop import Loop
from spillover.core.decide import DECIDERS
from spillover.core.deciders import results
from spillover.core.events import AnyEvent, Lease
from spillover.core.jobs import Job, Placed, Running
from spillover.core.proposals import Proposal, Reply, Result, Yield, Yielded
from spillover.core.state import State
from spillover.model.ids import NodeKey
from spillover.model.units import SECOND

PATIENCE: Final = SECOND // 2
"""Nanoseconds for which the impatient server waits for an answer."""


@contextlib.contextmanager
def no_seq_check() -> Iterator[None]:
    """A result counts if its job is leased to whoever tells it, under whatever attempt and seq.

    Both numbers go: seq rises with every attempt, so that one of them alone would still tell most leases apart.
    """

    def holder(state: State, lease: Lease, node: NodeKey) -> Job | None:
        job = state.jobs.get(lease.job)
        phase = job.phase if job is not None else None
        return job if isinstance(phase, Placed | Running) and phase.key == node else None

    with _instead(results, "holder", holder):
        yield


@contextlib.contextmanager
def early_hand_out() -> Iterator[None]:
    """A lease that was asked for and not given up within a moment is handed to the one who wants it all the same."""
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

    with _instead(Stealing, "look", impatient), _instead(Stealing, "_waits", always):
        yield


@contextlib.contextmanager
def accepted_after_reclaim() -> Iterator[None]:
    """A result under a lease that was taken back counts for the lease that took its place."""
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
    """A registration counts whenever it arrives, also after one that was sent later."""

    def check(*_: object, **__: object) -> None:
        pass

    with _instead(Lives, "check", check):
        yield


@contextlib.contextmanager
def over_for_good() -> Iterator[None]:
    """A life of an agent that another one followed is never let in again, though that one may have come from long ago."""
    check = Lives.check

    def for_good(self: Lives, agent: str, life: str, number: int, *, present: str | None) -> None:
        check(self, agent, life, number, present=present or "somebody")

    with _instead(Lives, "check", for_good):
        yield


@contextlib.contextmanager
def unfenced_namesake() -> Iterator[None]:
    """An agent whose name another one has runs its tasks on when it is told so."""
    with _instead(link, "_FENCED", None):
        yield


@contextlib.contextmanager
def untellable_news() -> Iterator[None]:
    """An agent wants to report what it cannot report before it has registered anew, and looks for it without a pause.

    With the pause between two reports alone, it would look in vain a few times, until its connection has ended.
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

    with _instead(AgentState, "news", news), _instead(Link, "_linger", at_once):
        yield


BUGS: Final[dict[str, Callable[[], Any]]] = {
    "no-seq-check": no_seq_check,
    "early-hand-out": early_hand_out,
    "accepted-after-reclaim": accepted_after_reclaim,
    "late-registration": late_registration,
    "over-for-good": over_for_good,
    "unfenced-namesake": unfenced_namesake,
    "untellable-news": untellable_news,
}


@contextlib.contextmanager
def _instead(where: Any, name: str, what: Any) -> Iterator[None]:
    """Have one thing in the place of another."""
    was = getattr(where, name)
    setattr(where, name, what)
    try:
        yield
    finally:
        setattr(where, name, was)
