"""The one step that everything runs: the live server, a standby, replay, dry run and simulation.

The live loop adds waiting, writing and the gate around it; a simulator adds a virtual clock.
"""

from collections.abc import Callable, Iterable
from typing import Final

from msgspec import Struct

from spillover.core import invariants
from spillover.core.apply import APPLIERS
from spillover.core.decide import DECIDERS
from spillover.core.deciders import changes
from spillover.core.events import (
    AgentsConfigured,
    AnyEvent,
    ClusterAdded,
    ClusterRemoved,
    ClustersConfigured,
    ClusterUpdated,
    PolicyChanged,
    PolicyDisabled,
)
from spillover.core.proposals import Proposal, Refusal, RefusalKind, Reply
from spillover.core.state import State
from spillover.deciding.cycle import cycle
from spillover.deciding.cycle.plan import RULES, Plan, digest_of, events_of, unwritable
from spillover.deciding.protocols import Policies
from spillover.deciding.queue.following import CLUSTER_FOLLOWERS, FOLLOWERS
from spillover.deciding.queue.index import SchedulingIndex
from spillover.model.backoff import Backoff, reason_of
from spillover.model.ids import JobId
from spillover.model.policy import PolicySet

_ALARMS: dict[str, Callable[[State, JobId, int], list[AnyEvent]]] = {
    "deadline": changes.deadline_passed,
    "not_before": changes.time_has_come,
    "return": changes.time_to_return,
    "backoff": changes.backoff_over,
    "walltime": changes.walltime_passed,
}


_CHANGES: Final = {kind: (applier, FOLLOWERS.get(kind)) for kind, applier in APPLIERS.items()}
"""For each event what changes the state, and what the index follows it by, if anything."""
_NEW_INDEX: Final = frozenset({AgentsConfigured, ClustersConfigured, PolicyChanged, PolicyDisabled})
"""Events after which everything is looked at anew."""
_CLUSTERS: Final = (ClusterAdded, ClusterUpdated, ClusterRemoved)
"""Events that are followed, unless they give everybody a new wait."""
_RARE: Final = _NEW_INDEX | frozenset(_CLUSTERS)
SLICE = 1000
"""Jobs that a new index takes in, and that are decided about before no other cycle is run, in one step that is to be short."""


CYCLE: Final = "cycle"
"""What jobs are set aside from that a cycle failed on."""
NO_JOB: Final = JobId("")
"""In the place of a job: all of them."""
MOST_ASIDE: Final = 8
"""Jobs that are set aside one after the other: if there are more, the fault is not theirs."""


class Failure(Struct, frozen=True):
    """A proposal, an alarm or a job in a cycle that could not be decided, or whose events could not be encoded. Nothing of it happened."""

    what: str
    subject: str
    """The job that it is about; empty if it is about none, or about several."""
    error: Exception


class Step(Struct):
    """What one step did; nothing of it may leave the process before its events are durable."""

    events: list[AnyEvent]
    replies: list[Reply]
    """One for each proposal, in their order."""
    plan: Plan | None = None
    """Of the first cycle that decided anything; None if none did."""
    encoded: list[bytes] = []
    """The events as they are to be written; empty if nobody writes them."""
    failures: list[Failure] = []
    more: bool = False
    """Whether more could be decided right away: a step that is to be short does a part."""


class Engine:
    """A state, the index beside it, and the policies that decide."""

    def __init__(
        self,
        state: State,
        load: Callable[[PolicySet], Policies],
        *,
        now: int = 0,
        debug: bool = False,
        digests: bool = True,
        encode: Callable[[AnyEvent], bytes] | None = None,
        whole: bool = True,
        ready: tuple[Policies, SchedulingIndex] | None = None,
    ) -> None:
        """With `whole`, ready to decide; else `build` has to be called until it says so. `ready` spares building anything."""
        self.state = state
        self.now = max(now, state.facts.now)
        self.debug = debug
        self.rules = RULES
        """By which rules plans are made."""
        self._digests = digests
        """Whether plans are told apart by digests, for whoever stores events."""
        self._encode = encode
        """How events are written; None if nobody writes them: then what cannot be decided is raised, as in tests and simulations."""
        self.aside = Backoff()
        """Alarms and jobs that could not be decided, by the engine's own time."""
        self.load = load
        self._outdated = False
        """Whether the policies and the index are those of a book that has changed too much for them."""
        self._ready = False
        """Whether the index is up to date and has all jobs of the book."""
        self._failed = 0
        """Jobs that cycles failed on since one did not fail."""
        self._old_index: SchedulingIndex | None = None
        """The one before, while it is freed."""
        self._policies_digest = b""
        if ready is None:
            self._take_policies(whole=whole)
        else:
            self._policies, self._index = ready
            self._ready = self._index.is_whole

    @property
    def index(self) -> SchedulingIndex:
        """What cycles look at. After a change that needs a new one, that is built by whoever asks first."""
        if self._outdated:
            self._take_policies(whole=True)
        return self._index

    @property
    def policies(self) -> Policies:
        """What decides."""
        if self._outdated:
            self._take_policies(whole=True)
        return self._policies

    @property
    def is_ready(self) -> bool:
        """Whether the index is up to date and has all jobs of the book."""
        return self._ready

    def build(self, most: int | None = None) -> bool:
        """Take so many more jobs into a new index; whether all are there, so that cycles can be run."""
        if most is None:
            most = SLICE
        if self._outdated:
            self._old_index = self._index
            self._take_policies(whole=False)
        done = self._old_index is None or self._old_index.dismantle(8 * most)
        self._ready = self._index.build(most)
        if self._old_index is not None and (done or self._ready):
            self._old_index.retire()
            self._old_index = None
        return self._ready

    def retire(self) -> None:
        """Let go of all that refers to itself: another engine takes its place."""
        self._index.retire()

    def _prepare(self, *, short: bool) -> bool:
        """Take a part of the jobs, or all, into a new index; whether it is ready."""
        if short:
            return self.build()
        self._ready = self.index.build()
        self._old_index = None
        return self._ready

    def step(self, now: int, proposals: Iterable[Proposal] = (), *, short: bool = False) -> Step:
        """Decide proposals in their order, then run cycles for as long as anything could come of them.

        One that is to be short leaves the rest of a new index, or of what is to be decided, to the next.
        """
        if now < self.now:
            now = self.now
        self.now = now
        state, step = self.state, Step([], [])
        step.more = not self._ready and not self._prepare(short=short)
        if self.aside:
            self._try_again(now, step)
        if self._index.alarms.heap:
            for what, job in self._index.alarms.due(now, SLICE if short else None):
                self._ring(what, job, now, step)
        for proposal in proposals:
            try:
                happens, reply = DECIDERS[type(proposal)](state, proposal, now)
                encoded = self._encoded(happens)
            except Exception as error:  # noqa: BLE001 - whatever it is, it costs this proposal alone
                step.replies.append(self._refuse(proposal, error, step))
                continue
            self._accept(happens, encoded, step)
            step.replies.append(reply)
        if not self._ready and (self._outdated or not step.more):
            step.more = not self._prepare(short=short)
        if step.more:
            self._index.look_at_what_moved()  # as no cycle does
        if not step.more:
            self._run_cycles(now, step, short=short)
        if self.debug:
            invariants.check(state)
            invariants.check_placed(state, step.events)
        if short and not step.more:
            step.more = self._index.alarms.rings(now)
        return step

    def _run_cycles(self, now: int, step: Step, *, short: bool) -> None:
        """Run cycles until none could decide anything, or enough was decided for one step."""
        decided = 0
        while self._index.stirred(now) and not (self.aside and self.aside.waits(CYCLE, NO_JOB, now)):
            try:
                plan = self._cycle(now, step)
            except _CycleFailed as failed:
                self._fail_cycle(failed, now, step, short=short)
                if self._ready:
                    continue
                step.more = True
                return
            self._failed = 0
            if plan is None:
                break  # one that decided may have made way for others
            if step.plan is None:
                step.plan = plan
            if short:
                decided += len(plan.admitted) + len(plan.expired) + len(plan.placements)
                if decided >= SLICE:
                    step.more = True
                    return
        if self.aside:
            self._forget_mended(now)

    def apply(self, event: AnyEvent) -> None:
        """Take in an event of the journal, or of this very step."""
        self._accept([event], [], Step([], []))
        if not self._outdated:
            self._index.look_at_what_moved()

    def _take_policies(self, *, whole: bool) -> None:
        """Decide by the policies that the book names, from the book alone."""
        self._outdated = False
        self._policies = self.load(self.state.facts.policies)
        self._policies_digest = digest_of(self._policies.chosen) if self._digests else b""
        for guard in self._policies.guards:
            guard.look_at(self.state)
        self._build_index(whole=whole)

    def _build_index(self, *, whole: bool = True) -> None:
        """Look at everything anew, but for jobs that are set aside."""
        self.state.moved.clear()
        aside = {JobId(each.subject): None for each in self.aside if each.work == CYCLE and each.subject}
        self._index = SchedulingIndex(self.state, self._policies, aside, whole=whole)
        self._ready = self._index.is_whole

    def next_time(self) -> int:
        """When to step again if nobody proposes anything."""
        if not self.is_ready:
            return self.now
        if not self.aside:
            return self.index.next_time()
        # While no cycle is run, what only a cycle could do falls due again and again.
        cycles = not self.aside.waits(CYCLE, NO_JOB, self.now)
        following = self.index.next_time() if cycles else self.index.alarms.next_time()
        return min(following, self.aside.next_try())

    def _cycle(self, now: int, step: Step) -> Plan | None:
        """Run a cycle and carry its plan out; None if it decided nothing. Raises _CycleFailed."""
        state, index, debug = self.state, self._index, self.debug
        before = _fingerprint(index) if debug else None
        index.looking_at = None
        plan: Plan | None = None
        try:
            found = cycle.run(
                state, index, self._policies, now, state.facts.cycles, keep=not debug, rules=self.rules
            )
            plan = found.plan
            decided = events_of(plan, state, self._policies_digest, self.rules) if plan else []
            encoded = self._encoded(decided)
        except Exception as error:
            if self._encode is None:
                raise
            raise _CycleFailed(plan, error) from error
        if debug and before != _fingerprint(index):
            raise invariants.Broken("a cycle left the index otherwise than it found it")
        if decided:
            self._accept(decided, encoded, step)
            if found.settled:
                state.moved.clear()
        index.calm(
            now,
            decided=bool(decided),
            passed=found.passed,
            again=found.again,
            turn=found.turn,
            spent=found.spent,
        )
        return plan if decided else None

    # --- what cannot be decided

    def _encoded(self, decided: list[AnyEvent]) -> list[bytes]:
        """Events as they are written, before any of them is applied; raises what keeps them from that."""
        encode = self._encode
        return [] if encode is None else [encode(event) for event in decided]

    def _refuse(self, proposal: Proposal, error: Exception, step: Step) -> Refusal:
        """Answer a proposal that could not be decided, or whose events could not be encoded."""
        if self._encode is None:
            raise error
        step.failures.append(Failure(type(proposal).__name__, _subject_of(proposal), error))
        told = f"the server failed on this, and nothing was done ({reason_of(error)}); its log says more"
        return Refusal(RefusalKind.INTERNAL, told)

    def _ring(self, what: str, job: JobId, now: int, step: Step) -> None:
        """Let an alarm change what it is to; one that fails is tried again later."""
        if self.aside and self.aside.waits(what, job, now):
            return
        try:
            decided = _ALARMS[what](self.state, job, now)
            encoded = self._encoded(decided)
        except Exception as error:
            if self._encode is None:
                raise
            self.aside.put(what, job, error, now)
            step.failures.append(Failure(what, job, error))
            return
        if self.aside:
            self.aside.done(what, job)
        self._accept(decided, encoded, step)

    def _fail_cycle(self, failed: "_CycleFailed", now: int, step: Step, *, short: bool) -> None:
        """Set aside the jobs that a cycle failed on; if it cannot be told which, or these are too many, no cycle is run for a while."""
        culprits: dict[JobId, Exception] = {}
        if failed.plan is not None and self._encode is not None:
            culprits = unwritable(failed.plan, self.state, self._encode)
        elif self.index.looking_at is not None:
            culprits = {self.index.looking_at: failed.error}
        self._failed += len(culprits)
        if not culprits or self._failed > MOST_ASIDE:
            for each in self.aside:  # all are looked at when cycles are run again
                if each.work == CYCLE and each.subject:
                    self.aside.done(CYCLE, each.subject)
            culprits = {NO_JOB: failed.error}
            self._failed = 0
        for job, error in culprits.items():
            self.aside.put(CYCLE, job, error, now)
            step.failures.append(Failure(CYCLE, job, error))
        # The cycle may have left it half way.
        self._old_index = self._index if short else None
        self._build_index(whole=not short)

    def _try_again(self, now: int, step: Step) -> None:
        """Look again at what was set aside long enough."""
        for what in _ALARMS:
            for job in self.aside.due(what, now):
                if self._index.alarms.is_due(what, JobId(job), now):
                    self._ring(what, JobId(job), now, step)
                else:  # of an attempt that is over
                    self.aside.done(what, job)
        for subject in self.aside.due(CYCLE, now):
            found = self.state.jobs.get(JobId(subject))
            self.index.aside.pop(JobId(subject), None)
            if found is not None:
                self.index.take_up(found)
                self.index.gained = True  # so that a cycle is run, which says whether it is mended

    def _forget_mended(self, now: int) -> None:
        """All that is on the index was looked at without a failure, or there was no need to."""
        for each in self.aside:
            on_board = each.subject not in self.index.aside if each.subject else each.next_try <= now
            if each.work == CYCLE and on_board:
                self.aside.done(CYCLE, each.subject)

    def _accept(self, decided: list[AnyEvent], encoded: list[bytes], step: Step) -> None:
        state, index = self.state, self._index
        for event in decided:
            change, follow = _CHANGES[type(event)]
            change(state, event)
            if follow is not None:
                if not self._outdated:
                    follow(index, event)
            elif type(event) in _RARE:
                self._follow_rare(event)
        step.events += decided
        step.encoded += encoded

    def _follow_rare(self, event: AnyEvent) -> None:
        """The clusters or the policies changed: follow that, or build another index once it is needed, one for all such events."""
        if not isinstance(event, _CLUSTERS) or event.anew:
            self._ready, self._outdated = False, True
        elif not self._outdated:
            CLUSTER_FOLLOWERS[type(event)](self._index, event)


class _CycleFailed(Exception):
    """A cycle that raised, or whose plan could not be encoded."""

    def __init__(self, plan: Plan | None, error: Exception) -> None:
        super().__init__(str(error))
        self.plan = plan
        """What it decided; None if it did not come so far."""
        self.error = error


def _subject_of(proposal: Proposal) -> str:
    """Whom a proposal is about, for people."""
    about = getattr(proposal, "lease", proposal)
    return str(getattr(about, "job", "") or getattr(about, "node", "") or getattr(about, "cluster", ""))


def _fingerprint(index: SchedulingIndex) -> object:
    """All that a cycle must leave as it was."""
    clusters = [
        (machine.name, machine.ahead, *machine.free)
        for cluster in index.capacity.values()
        for machine in cluster.machines
    ]
    lines = [
        (dict(line.first), list(line.woken), sum(map(len, line.heaps.values())))
        for line in (index.queue, index.due)
    ]
    return clusters, lines, list(index.fresh), list(index.patient), list(index.waits), index.gained
