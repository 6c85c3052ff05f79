"""The one step that everything runs: the live server, a standby, replay, dry run and simulation.

The live loop adds waiting, writing and the gate around it; a simulator adds a virtual clock.
"""

from collections.abc import Callable, Iterable

from msgspec import Struct

from spillover.core import invariants
from spillover.core.apply import apply
from spillover.core.decide import decide
from spillover.core.deciders import changes
from spillover.core.events import AnyEvent, ClustersConfigured, PolicyChanged
from spillover.core.proposals import Proposal, Reply
from spillover.core.state import State
from spillover.deciding import cycle
from spillover.deciding.board import Board
from spillover.deciding.plan import Plan, events_of
from spillover.deciding.protocols import Policies
from spillover.model.ids import JobId
from spillover.model.policy import PolicySet

_ALARMS: dict[str, Callable[[State, JobId, int], list[AnyEvent]]] = {
    "deadline": changes.deadline_passed,
    "not_before": changes.time_has_come,
    "walltime": changes.walltime_passed,
}


class Step(Struct, frozen=True):
    """What one step did; nothing of it may leave the process before its events are durable."""

    events: list[AnyEvent]
    replies: list[Reply]
    """One for each proposal, in their order."""
    plan: Plan | None
    """None if no cycle ran."""


class Engine:
    """A state, the board beside it, and the policies that decide."""

    def __init__(
        self, state: State, load: Callable[[PolicySet], Policies], *, now: int = 0, debug: bool = False
    ) -> None:
        self.state = state
        self.now = max(now, state.facts.now)
        self.debug = debug
        self._load = load
        self.policies = load(state.facts.policies)
        self.board = Board(state, self.policies)

    def step(self, now: int, proposals: Iterable[Proposal] = ()) -> Step:
        """Decide proposals in their order, then run a cycle if anything could come of it."""
        now = self.now = max(now, self.now)
        events: list[AnyEvent] = []
        replies: list[Reply] = []
        for what, job in self.board.alarms_due(now):
            self._accept(_ALARMS[what](self.state, job, now), events)
        for proposal in proposals:
            decided, reply = decide(self.state, proposal, now)
            self._accept(decided, events)
            replies.append(reply)
        plan = self._cycle(now, events) if self.board.stirred(now) else None
        if self.debug:
            invariants.check(self.state)
        return Step(events, replies, plan)

    def apply(self, event: AnyEvent) -> None:
        """Take in an event of the journal, or of this very step."""
        apply(self.state, event)
        if type(event) is ClustersConfigured or type(event) is PolicyChanged:
            self.policies = self._load(self.state.facts.policies)
            self.state.moved.clear()
            self.board = Board(self.state, self.policies)
        else:
            self.board.follow(event)

    def next_time(self) -> int:
        """When to step again if nobody proposes anything."""
        return self.board.next_time()

    def forecast(self, now: int) -> Plan:
        """What a cycle would decide now; nothing changes."""
        return cycle.run(self.state, self.board, self.policies, max(now, self.now), self.state.facts.cycles)

    def _cycle(self, now: int, events: list[AnyEvent]) -> Plan:
        before = _fingerprint(self.board) if self.debug else None
        plan = cycle.run(self.state, self.board, self.policies, now, self.state.facts.cycles)
        if before != (_fingerprint(self.board) if self.debug else None):
            raise invariants.Broken("a cycle left the board otherwise than it found it")
        if plan:
            self._accept(events_of(plan, self.state, self.policies.chosen), events)
        self.board.calm()
        return plan

    def _accept(self, decided: list[AnyEvent], events: list[AnyEvent]) -> None:
        for event in decided:
            self.apply(event)
        events += decided


def _fingerprint(board: Board) -> object:
    """All that a cycle must leave as it was."""
    rooms = [
        (machine.name, machine.cpu, machine.memory, machine.gpu, machine.ahead)
        for room in board.rooms.values()
        for machine in room.machines
    ]
    return rooms, list(board.fresh), list(board.waits), list(board.queue.woken), board.gained
