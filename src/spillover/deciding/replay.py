"""Repeats the decisions of a journal and reports the first difference.

A plan follows from the state alone; other data in the server's memory only saves work. So at each `Decided` event,
replay runs a cycle on the state that the earlier events produced. The plan must have the stored digest, and the events
that follow must be those that carry out this plan.
"""

from collections.abc import Callable
from typing import Final

from msgspec import Struct

from spillover.core.events import (
    AnyEvent,
    ClusterSized,
    CostHeld,
    Decided,
    GangPlaced,
    JobPlaced,
    JobsAdmitted,
    LeasesRevoked,
    MachinesEarmarked,
    MachinesHeld,
    MachinesKept,
    MachinesWanted,
    MemberPlaced,
    MemberSplit,
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

_OF_A_PLAN: Final = (
    ClusterSized,
    CostHeld,
    GangPlaced,
    JobPlaced,
    JobsAdmitted,
    LeasesRevoked,
    MachinesEarmarked,
    MachinesHeld,
    MachinesKept,
    MachinesWanted,
    MemberPlaced,
    MemberSplit,
    WaitsExpired,
)
"""Events that only a plan produces. It also produces some that others produce, such as drains of machines."""
_UNFIT: Final = (Impossible, LookupError, TypeError, ValueError, AttributeError, ArithmeticError)
"""Errors that applying an event can raise if it does not fit the state before it."""


class Difference(Struct, frozen=True):
    """The first event that does not follow from the events before it."""

    revision: int
    at: int
    """Time of this plan, or of the last plan before it; nanoseconds UTC."""
    what: str
    """One line that describes the difference."""
    stored: tuple[str, ...] = ()
    """The plan in the journal, one line for each part."""
    found: tuple[str, ...] = ()
    """The plan that the replay made, one line for each part."""


class Replay:
    """One pass over a journal, from an empty state or from a checkpoint."""

    def __init__(self, load: Callable[[PolicySet], Policies], state: State | None = None) -> None:
        self._engine = Engine(State() if state is None else state, load)
        self._at = self._engine.now
        self._due: list[AnyEvent] = []
        """Events of the last plan that have not been read yet, the next one last."""
        self._found: tuple[str, ...] = ()
        """The last plan as text."""
        self._stored: list[str] = []
        """The events of that plan read so far, as text."""
        self._wrong: tuple[int, str] | None = None
        """Revision and description of a difference, while the rest of the stored plan is read."""
        self.events = 0
        """Number of events read."""
        self.plans = 0
        """Number of plans that match the stored ones."""
        self.difference: Difference | None = None
        """The first difference; None if there is none so far."""

    def take(self, revision: int, event: AnyEvent) -> bool:
        """Check and apply the next event; return whether to continue."""
        if self._wrong is not None:
            if isinstance(event, _OF_A_PLAN):
                self._stored.append(self._describe(event))
                return True
            self._differ(*self._wrong)
            return False
        self.events += 1
        if type(event) is Decided:
            self._decided(revision, event)
        elif isinstance(event, _OF_A_PLAN) or (self._due and self._due[-1] == event):
            self._carried_out(revision, event)
        elif self._due:
            self._differ(revision, f"{_kind(event)} comes in the middle of a plan")
        if not self._differs():
            self._apply(revision, event)
        return self.difference is None

    def refuse(self, revision: int, why: str) -> None:
        """Report an event that cannot be read."""
        self._differ(revision, f"cannot be read: {why}")

    def end(self, revision: int) -> None:
        """Check that no plan is incomplete where the journal ends."""
        if self.difference is not None:
            return
        if self._wrong is not None:
            self._differ(*self._wrong)
        elif self._due:
            self._differ(revision, "the journal ends in the middle of a plan")

    def _differs(self) -> bool:
        return self._wrong is not None or self.difference is not None

    def _decided(self, revision: int, event: Decided) -> None:
        """Make a plan from the current state and compare it with the stored one."""
        engine = self._engine
        engine.plan_by(event.rules)
        state, index, policies = engine.state, engine.index, engine.policies
        if self._due:
            self._differ(revision, "a plan begins in the middle of another one")
            return
        self._at = event.now
        index.gained = True  # the server may have known that a try is futile; the replay does not, and tries
        try:
            found = cycle.run(
                state, index, policies, event.now, event.seed, rules=event.rules, machines=event.machines
            )
            plan = found.plan
        except Exception as error:  # noqa: BLE001 - the server set aside jobs that made a cycle fail
            self._differ(revision, f"cannot make a plan from the events before it: {reason_of(error)}")
            return
        index.end_cycle(event.now, True, True, True, FOREVER)
        if index.pooled:
            index.end_machines(event.now, rents_at=FOREVER, changed=True, looked_at=0, kept_off=False)
        events = events_of(plan, state, event.policy)[1:]
        self._found, self._stored = tuple(map(self._describe, events)), []
        self._due = events[::-1]
        if event.seed != state.facts.cycles:
            self._wrong = revision, f"plan {event.seed} comes after {state.facts.cycles} plans"
        elif event.policy != digest_of(policies.chosen):
            self._wrong = revision, "the plan was made by policies that were not in effect"
        elif event.plan != plan.digest():
            missing = "; ".join(policies.missing.values())
            self._wrong = revision, f"the plan differs{f' ({missing})' if missing else ''}"
        else:
            self.plans += 1

    def _carried_out(self, revision: int, event: AnyEvent) -> None:
        """Compare an event of a plan with the next one expected."""
        if self._due and self._due[-1] == event:
            self._due.pop()
            self._stored.append(self._describe(event))
        else:
            self._wrong = revision, f"{_kind(event)} is not part of the plan before it"
            self._stored.append(self._describe(event))

    def _apply(self, revision: int, event: AnyEvent) -> None:
        try:
            self._engine.apply(event)
        except _UNFIT as error:
            said = " ".join(str(error).split())[:200]
            self._differ(revision, f"{_kind(event)} is not possible here: {said or type(error).__name__}")

    def _describe(self, event: AnyEvent) -> str:
        """Describe one part of a plan."""
        return describe(event, self._engine.state.facts.jumped)

    def _differ(self, revision: int, what: str) -> None:
        self.difference = Difference(revision, self._at, what, tuple(self._stored), self._found)


def describe(event: AnyEvent, jumped: int = 0) -> str:
    """Describe one part of a plan exactly, so that differences show. `jumped` converts waits to clock time."""
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
            return f"{_kind(event)}: {event}"


def _money(millionths: int) -> str:
    """Format an amount with all of its digits, at least two."""
    whole, rest = divmod(millionths, MONEY)
    return f"{whole}.{f'{rest:06}'.rstrip('0'):0<2}"


def _kind(event: AnyEvent) -> str:
    """Return the name of an event in the journal."""
    return str(event.__struct_config__.tag)
