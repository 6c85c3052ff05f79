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
from spillover.deciding.alarms import Alarms
from spillover.deciding.board import Board
from spillover.deciding.explain import Explanation, explain
from spillover.deciding.following import FOLLOWERS
from spillover.deciding.plan import RULES, Plan, digest_of, events_of
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
SLICE = 2000
"""Jobs that a new board takes in, and that are decided about before no other cycle is run, in one step that is to be short."""


class Step(Struct, frozen=True):
    """What one step did; nothing of it may leave the process before its events are durable."""

    events: list[AnyEvent]
    replies: list[Reply]
    """One for each proposal, in their order."""
    plan: Plan | None
    """Of the first cycle that decided anything; None if none did."""
    more: bool = False
    """Whether more could be decided right away: a step that is to be short does a part."""


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
        whole: bool = True,
    ) -> None:
        """With `whole`, ready to decide; else `build` has to be called until it says so."""
        self.state = state
        self.now = max(now, state.facts.now)
        self.debug = debug
        self.rules = RULES
        """By which rules plans are made."""
        self._digests = digests
        """Whether plans are told apart by digests, for whoever stores events."""
        self._load = load
        self._outdated = False
        """Whether the policies and the board are those of a book that has changed too much for them."""
        self._ready = False
        """Whether the board is up to date and has all jobs of the book."""
        self._old_board: Board | None = None
        """The one before, while it is freed."""
        self._take_policies(whole=whole)

    @property
    def board(self) -> Board:
        """What cycles look at. After a change that needs a new one, that is built by whoever asks first."""
        if self._outdated:
            self._take_policies(whole=True)
        return self._board

    @property
    def policies(self) -> Policies:
        """What decides."""
        if self._outdated:
            self._take_policies(whole=True)
        return self._policies

    @property
    def is_ready(self) -> bool:
        """Whether the board is up to date and has all jobs of the book."""
        return self._ready

    def build(self, most: int | None = None) -> bool:
        """Take so many more jobs into a new board; whether all are there, so that cycles can be run."""
        if most is None:
            most = SLICE
        if self._outdated:
            self._old_board = self._board
            self._take_policies(whole=False)
        if self._old_board is not None and self._old_board.dismantle(8 * most):
            self._old_board = None
        self._ready = self._board.build(most)
        return self._ready

    def _prepare(self, *, short: bool) -> bool:
        """Take a part of the jobs, or all, into a new board; whether it is ready."""
        if short:
            return self.build()
        self._ready = self.board.build()
        return self._ready

    def step(self, now: int, proposals: Iterable[Proposal] = (), *, short: bool = False) -> Step:
        """Decide proposals in their order, then run cycles for as long as anything could come of them.

        One that is to be short leaves the rest of a new board, or of what is to be decided, to the next.
        """
        if now < self.now:
            now = self.now
        self.now = now
        state = self.state
        events: list[AnyEvent] = []
        replies: list[Reply] = []
        more = not self._ready and not self._prepare(short=short)
        if self._board.alarms.heap:
            for what, job in self._board.alarms.due(now, SLICE if short else None):
                self._accept(_ALARMS[what](state, job, now), events)
        for proposal in proposals:
            happens, reply = DECIDERS[type(proposal)](state, proposal, now)
            self._accept(happens, events)
            replies.append(reply)
        plan: Plan | None = None
        decided = 0
        if not self._ready and not more:
            more = not self._prepare(short=short)
        board = self._board
        while not more and board.stirred(now):
            following = self._cycle(now, events)
            if following is None:
                break  # one that decided may have made way for others
            if plan is None:
                plan = following
            if short:
                decided += len(following.admitted) + len(following.expired) + len(following.placements)
                more = decided >= SLICE
        if self.debug:
            invariants.check(state)
            invariants.check_placed(state, events)
        return Step(events, replies, plan, more or (short and board.alarms.rings(now)))

    def apply(self, event: AnyEvent) -> None:
        """Take in an event of the journal, or of this very step."""
        self._accept([event], [])
        if not self._outdated:
            self._board.look_at_what_moved()

    def _take_policies(self, *, whole: bool) -> None:
        """Decide by the policies that the book names, from the book alone."""
        self._outdated = False
        self._policies = self._load(self.state.facts.policies)
        self._policies_digest = digest_of(self._policies.chosen) if self._digests else b""
        for guard in self._policies.guards:
            guard.look_at(self.state)
        self.state.moved.clear()
        self._board = Board(self.state, self._policies, whole=whole)
        self._ready = self._board.is_whole

    def next_time(self) -> int:
        """When to step again if nobody proposes anything."""
        return self.board.next_time() if self.is_ready else self.now

    def trial(self, now: int, proposal: Submit) -> "Trial | Refusal":
        """What a cycle would decide if these jobs were submitted now. They are withdrawn before this returns."""
        now = max(now, self.now)
        events, reply = decide(self.state, proposal, now)
        if isinstance(reply, Refusal):
            return reply
        board = self.board
        self._ready = board.build()
        numbered, dirty, alarms = self.state.facts.numbered, self.state.dirty, board.alarms
        tally = structs.replace(self.state.facts.tally)
        self.state.dirty, board.alarms = {}, Alarms(self.state)  # as both may be long
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
            self.state.facts.numbered, self.state.dirty, board.alarms = numbered, dirty, alarms
            self.state.facts.tally = tally
        return Trial(now, plan, jobs)

    def _tell_waits(self, plan: Plan, submitted: list[JobId]) -> None:
        """Let jobs that are only tried know what a plan says of their waits, so that they can be explained."""
        tried = dict.fromkeys(submitted)
        for job, latest in plan.admitted:
            if job in tried:
                self.state.jobs[job].latest, self.state.jobs[job].round = latest, self.state.facts.rounds
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
        state, board, debug = self.state, self._board, self.debug
        before = _fingerprint(board) if debug else None
        found = cycle.run(
            state, board, self._policies, now, state.facts.cycles, keep=not debug, rules=self.rules
        )
        if debug and before != _fingerprint(board):
            raise invariants.Broken("a cycle left the board otherwise than it found it")
        plan = found.plan
        decided = bool(plan.placements or plan.admitted or plan.expired)
        if decided:
            self._accept(events_of(plan, state, self._policies_digest, self.rules), events)
            if found.settled:
                state.moved.clear()
        board.calm(
            decided=decided, passed=found.passed, again=found.again, turn=found.turn, spent=found.spent
        )
        return plan if decided else None

    def _accept(self, decided: list[AnyEvent], events: list[AnyEvent]) -> None:
        state, board = self.state, self._board
        for event in decided:
            change, follow = _CHANGES[type(event)]
            change(state, event)
            if follow is not None:
                if not self._outdated:
                    follow(board, event)
            elif type(event) in _NEW_BOARD:
                self._ready, self._outdated = False, True  # one board for all such events, once it is needed
        events += decided


def _fingerprint(board: Board) -> object:
    """All that a cycle must leave as it was."""
    rooms = [(machine.name, *machine.free) for room in board.rooms.values() for machine in room.machines]
    lines = [
        (dict(line.first), list(line.woken), sum(map(len, line.heaps.values())))
        for line in (board.queue, board.due)
    ]
    return rooms, lines, list(board.fresh), list(board.patient), list(board.waits), board.gained
