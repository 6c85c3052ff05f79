"""Decides anew what a journal says was decided, and tells where that differs.

A plan follows from the book before it alone: what the server remembered beside the book only spared it work. So at each `Decided`
event a cycle is run on the state that the events before it led to. Its plan must have the digest that was stored, and the
events that follow must be the ones that carry this plan out.
"""

from collections.abc import Callable
from typing import Final

from msgspec import Struct

from spillover.core.events import (
    AnyEvent,
    CostHeld,
    Decided,
    GangPlaced,
    JobPlaced,
    JobsAdmitted,
    LeasesRevoked,
    MemberPlaced,
    WaitsExpired,
)
from spillover.core.state import State
from spillover.core.transitions import Impossible
from spillover.deciding.cycle import cycle
from spillover.deciding.cycle.plan import digest_of, events_of
from spillover.deciding.engine import Engine
from spillover.deciding.protocols import Policies
from spillover.model.backoff import reason_of
from spillover.model.ids import member_id
from spillover.model.policy import PolicySet
from spillover.model.reasons import code_of
from spillover.model.units import FOREVER, MONEY, format_duration, format_time

_OF_A_PLAN: Final = (CostHeld, GangPlaced, JobPlaced, JobsAdmitted, LeasesRevoked, MemberPlaced, WaitsExpired)
"""Events that only a plan leads to."""
_UNFIT: Final = (Impossible, LookupError, TypeError, ValueError, AttributeError, ArithmeticError)
"""What an event may raise that does not belong to the state before it."""


class Difference(Struct, frozen=True):
    """The first event that does not follow from those before it."""

    revision: int
    at: int
    """Nanoseconds UTC of the plan, or of the last one before it."""
    what: str
    """In one line."""
    stored: tuple[str, ...] = ()
    """The plan that the journal has, a line for each part."""
    found: tuple[str, ...] = ()
    """The plan that was made anew."""


class Replay:
    """One pass over a journal, from an empty book or from a checkpoint."""

    def __init__(self, load: Callable[[PolicySet], Policies], state: State | None = None) -> None:
        self._engine = Engine(State() if state is None else state, load)
        self._at = self._engine.now
        self._due: list[AnyEvent] = []
        """What has still to follow of the plan that was made last, the next one last."""
        self._found: tuple[str, ...] = ()
        """That plan in words."""
        self._stored: list[str] = []
        """As much of it as was read."""
        self._wrong: tuple[int, str] | None = None
        """Where a plan differs, and how, while the rest of what was stored is read."""
        self.events = 0
        """Events that were read."""
        self.plans = 0
        """Plans that were made anew and are as they were stored."""
        self.difference: Difference | None = None
        """The first one; None while there is none."""

    def take(self, revision: int, event: AnyEvent) -> bool:
        """Look at the next event; whether the one after it is worth a look."""
        if self._wrong is not None:
            if isinstance(event, _OF_A_PLAN):
                self._stored.append(self._told(event))
                return True
            self._differ(*self._wrong)
            return False
        self.events += 1
        if type(event) is Decided:
            self._decided(revision, event)
        elif isinstance(event, _OF_A_PLAN):
            self._carried_out(revision, event)
        elif self._due:
            self._differ(revision, f"{_kind(event)} comes before all of a plan was carried out")
        if not self._differs():
            self._apply(revision, event)
        return self.difference is None

    def refuse(self, revision: int, why: str) -> None:
        """An event could not even be read."""
        self._differ(revision, f"cannot be read: {why}")

    def end(self, revision: int) -> None:
        """The journal ends with this event."""
        if self.difference is not None:
            return
        if self._wrong is not None:
            self._differ(*self._wrong)
        elif self._due:
            self._differ(revision, "the journal ends before all of a plan was carried out")

    def _differs(self) -> bool:
        return self._wrong is not None or self.difference is not None

    def _decided(self, revision: int, event: Decided) -> None:
        """Make a plan of the book as it is, and compare it with the one that was stored."""
        engine = self._engine
        state, index, policies = engine.state, engine.index, engine.policies
        if self._due:
            self._differ(revision, "another plan begins before all of the last one was carried out")
            return
        self._at = event.now
        index.gained = True  # what the server knew to be in vain is tried all the same
        try:
            plan = cycle.run(state, index, policies, event.now, event.seed, rules=event.rules).plan
        except Exception as error:  # noqa: BLE001 - the server set aside a job on which its cycle failed, and decided without it
            self._differ(revision, f"no plan can be made of what is before it: {reason_of(error)}")
            return
        index.calm(event.now, decided=True, passed=True, again=FOREVER)
        events = events_of(plan, state, event.policy)[1:]
        self._found, self._stored = tuple(map(self._told, events)), []
        self._due = events[::-1]
        if event.seed != state.facts.cycles:
            self._wrong = revision, f"plan {event.seed} follows {state.facts.cycles} plans"
        elif event.policy != digest_of(policies.chosen):
            self._wrong = revision, "it was made by other policies than those that were chosen"
        elif event.plan != plan.digest():
            missing = "; ".join(policies.missing.values())
            self._wrong = revision, f"the plan is another{f' ({missing})' if missing else ''}"
        else:
            self.plans += 1

    def _carried_out(self, revision: int, event: AnyEvent) -> None:
        """Compare what was done with what was planned."""
        if self._due and self._due[-1] == event:
            self._due.pop()
            self._stored.append(self._told(event))
        else:
            self._wrong = revision, f"{_kind(event)} is no part of the plan before it"
            self._stored.append(self._told(event))

    def _apply(self, revision: int, event: AnyEvent) -> None:
        try:
            self._engine.apply(event)
        except _UNFIT as error:
            said = " ".join(str(error).split())[:200]
            self._differ(revision, f"{_kind(event)} cannot have happened: {said or type(error).__name__}")

    def _told(self, event: AnyEvent) -> str:
        """One part of a plan, in words."""
        return told(event, self._engine.state.facts.jumped)

    def _differ(self, revision: int, what: str) -> None:
        self.difference = Difference(revision, self._at, what, tuple(self._stored), self._found)


def told(event: AnyEvent, jumped: int = 0) -> str:
    """One part of a plan, in words, but exact: what differs must be seen. Waits are shifted by what the clock jumped."""
    match event:
        case JobsAdmitted():
            waits = zip(event.jobs, event.latest, strict=True)
            return "wait: " + ", ".join(
                job if until >= FOREVER else f"{job} until {format_time(until + jumped)}"
                for job, until in waits
            )
        case WaitsExpired():
            some = f"{event.members} members of " if event.members else ""
            return f"may be rented: {some}{', '.join(event.jobs)} ({code_of(event.why)})"
        case LeasesRevoked():
            return f"asked back: {', '.join(event.jobs)}"
        case JobPlaced():
            return f"{event.job} on {event.cluster}/{event.node} ({code_of(event.why)})"
        case GangPlaced():
            return f"{event.job} on {event.cluster}/{'+'.join(event.nodes)} ({code_of(event.why)})"
        case MemberPlaced():
            return f"{member_id(event.array, event.index)} on {event.cluster}/{event.node} ({code_of(event.why)})"
        case CostHeld():
            runs = "" if event.limit is None else f", which may run {format_duration(event.limit)}"
            return f"hold {_money(event.amount)} for {event.job}{runs}"
        case _:
            return _kind(event)


def _money(millionths: int) -> str:
    """An amount with all of its digits, two at the least."""
    whole, rest = divmod(millionths, MONEY)
    return f"{whole}.{f'{rest:06}'.rstrip('0'):0<2}"


def _kind(event: AnyEvent) -> str:
    """The name of an event, as the journal has it."""
    return str(event.__struct_config__.tag)
