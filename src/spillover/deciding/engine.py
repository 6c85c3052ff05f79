"""The one step that everything runs: the live server, a standby, replay, dry run and simulation.

The live loop adds waiting, writing and the gate around it; a simulator adds a virtual clock.
"""

from collections.abc import Callable, Iterable
from typing import Final

from msgspec import Struct, structs

from spillover.core import invariants, ranges
from spillover.core.appliers.queue import live_of
from spillover.core.apply import APPLIERS
from spillover.core.decide import DECIDERS, decide
from spillover.core.deciders import changes
from spillover.core.events import (
    AgentsConfigured,
    AnyEvent,
    ClustersConfigured,
    JobSubmitted,
    PolicyChanged,
    PolicyDisabled,
)
from spillover.core.jobs import Job, Queued
from spillover.core.proposals import Proposal, Refusal, Reply, Submit
from spillover.core.state import State
from spillover.deciding import cycle
from spillover.deciding.board import Board
from spillover.deciding.explain import Explanation, explain
from spillover.deciding.following import FOLLOWERS
from spillover.deciding.plan import Plan, digest_of, events_of
from spillover.deciding.protocols import Policies
from spillover.model.ids import JobId
from spillover.model.policy import PolicySet

_ALARMS: dict[str, Callable[[State, JobId, int], list[AnyEvent]]] = {
    "deadline": changes.deadline_passed,
    "not_before": changes.time_has_come,
    "return": changes.time_to_return,
    "shun": changes.shun_over,
    "walltime": changes.walltime_passed,
}


_CHANGES: Final = {kind: (applier, FOLLOWERS.get(kind)) for kind, applier in APPLIERS.items()}
"""For each event what changes the state, and what the board follows it by, if anything."""
_NEW_BOARD: Final = frozenset({AgentsConfigured, ClustersConfigured, PolicyChanged, PolicyDisabled})
"""Events after which everything is looked at anew."""


class Step(Struct, frozen=True):
    """What one step did; nothing of it may leave the process before its events are durable."""

    events: list[AnyEvent]
    replies: list[Reply]
    """One for each proposal, in their order."""
    plan: Plan | None
    """Of the first cycle that decided anything; None if none did."""


class Trial(Struct, frozen=True):
    """What would become of jobs that were not submitted."""

    now: int
    plan: Plan
    jobs: dict[JobId, tuple[Job, Explanation]]


class Engine:
    """A state, the board beside it, and the policies that decide."""

    def __init__(
        self,
        state: State,
        load: Callable[[PolicySet], Policies],
        *,
        now: int = 0,
        debug: bool = False,
        digests: bool = True,
    ) -> None:
        self.state = state
        self.now = max(now, state.facts.now)
        self.debug = debug
        self._digests = digests
        """Whether plans are told apart by digests, for whoever stores events."""
        self._load = load
        self._take_policies()

    def step(self, now: int, proposals: Iterable[Proposal] = ()) -> Step:
        """Decide proposals in their order, then run a cycle if anything could come of it."""
        if now < self.now:
            now = self.now
        self.now = now
        state = self.state
        events: list[AnyEvent] = []
        replies: list[Reply] = []
        if self.board.alarms.heap:
            for what, job in self.board.alarms.due(now):
                self._accept(_ALARMS[what](state, job, now), events)
        for proposal in proposals:
            decided, reply = DECIDERS[type(proposal)](state, proposal, now)
            self._accept(decided, events)
            replies.append(reply)
        plan: Plan | None = None
        while self.board.stirred(now):
            following = self._cycle(now, events)
            if following is None:
                break  # one that decided may have made way for others
            if plan is None:
                plan = following
        if self.debug:
            invariants.check(state)
            invariants.check_placed(state, events)
        return Step(events, replies, plan)

    def apply(self, event: AnyEvent) -> None:
        """Take in an event of the journal, or of this very step."""
        self._accept([event], [])
        self.board.look_at_what_moved()

    def _take_policies(self) -> None:
        """Decide by the policies that the book names, from the book alone."""
        self.policies = self._load(self.state.facts.policies)
        self._policies_digest = digest_of(self.policies.chosen) if self._digests else b""
        for guard in self.policies.guards:
            guard.look_at(self.state)
        self.state.moved.clear()
        self.board = Board(self.state, self.policies)

    def next_time(self) -> int:
        """When to step again if nobody proposes anything."""
        return self.board.next_time()

    def trial(self, now: int, proposal: Submit) -> "Trial | Refusal":
        """What a cycle would decide if these jobs were submitted now. They are withdrawn before this returns."""
        now = max(now, self.now)
        events, reply = decide(self.state, proposal, now)
        if isinstance(reply, Refusal):
            return reply
        numbered, dirty = self.state.facts.numbered, dict(self.state.dirty)
        tally = structs.replace(self.state.facts.tally)
        submitted = [event.job for event in events if type(event) is JobSubmitted]
        try:
            for event in events:
                self.apply(event)
            plan = cycle.run(self.state, self.board, self.policies, now, self.state.facts.cycles).plan
            self._tell_waits(plan, submitted)
            held = [hold for _, hold in plan.holds]
            tried = [self.state.jobs[job] for job in submitted]
            jobs = {job.id: (job, explain(self, job, held)) for job in tried}
        finally:
            for job in submitted:
                self._withdraw(job)
            self.state.facts.numbered, self.state.dirty = numbered, dirty
            self.state.facts.tally = tally
        return Trial(now, plan, jobs)

    def _tell_waits(self, plan: Plan, submitted: list[JobId]) -> None:
        """Let jobs that are only tried know what a plan says of their waits, so that they can be explained."""
        tried = dict.fromkeys(submitted)
        for job, latest in plan.admitted:
            if job in tried:
                self.state.jobs[job].latest = latest
        for expiry in plan.expired:
            if expiry.job in tried and not expiry.members:
                self.state.jobs[expiry.job].due = expiry.why

    def _withdraw(self, job_id: JobId) -> None:
        """Undo a submission that nothing rests on yet."""
        job = self.state.jobs.pop(job_id, None)
        if job is None:
            return
        members = job.extra.members
        if (count := live_of(job)) > 0:
            self.state.count_live(job.kind.project, -count)
        if type(job.phase) is Queued:
            self.state.queued -= 1 if members is None else ranges.size(members.pending)
        if job.extra.key is not None:
            self.state.keys.pop(job.extra.key, None)
        for wanted in job.extra.after:
            self.state.no_longer_waits(job_id, wanted.job)
        self.board.withdraw(job)

    def _cycle(self, now: int, events: list[AnyEvent]) -> Plan | None:
        """Run a cycle and carry its plan out; None if it decided nothing."""
        state, board, debug = self.state, self.board, self.debug
        before = _fingerprint(board) if debug else None
        found = cycle.run(state, board, self.policies, now, state.facts.cycles, keep=not debug)
        if debug and before != _fingerprint(board):
            raise invariants.Broken("a cycle left the board otherwise than it found it")
        plan = found.plan
        decided = bool(plan.placements or plan.admitted or plan.expired)
        if decided:
            self._accept(events_of(plan, state, self._policies_digest), events)
            if found.settled:
                state.moved.clear()
        board.calm(decided=decided, passed=found.passed, again=found.again)
        return plan if decided else None

    def _accept(self, decided: list[AnyEvent], events: list[AnyEvent]) -> None:
        state, board = self.state, self.board
        for event in decided:
            change, follow = _CHANGES[type(event)]
            change(state, event)
            if follow is not None:
                follow(board, event)
            elif type(event) in _NEW_BOARD:
                self._take_policies()
                board = self.board
        events += decided


def _fingerprint(board: Board) -> object:
    """All that a cycle must leave as it was."""
    rooms = [(machine.name, *machine.free) for room in board.rooms.values() for machine in room.machines]
    lines = [
        (dict(line.first), list(line.woken), sum(map(len, line.heaps.values())))
        for line in (board.queue, board.due)
    ]
    return rooms, lines, list(board.fresh), list(board.patient), list(board.waits), board.gained
