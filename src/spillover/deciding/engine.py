"""Runs the scheduler one synchronous step at a time.

The live server, standbys, replay, dry runs and the simulator all use this engine, so there is no second scheduler. The
live server adds waiting, writing and the gate around it. The simulator adds a virtual clock.
"""

from collections.abc import Callable, Iterable
from typing import Final

from msgspec import Struct

from spillover.core import invariants
from spillover.core.apply import APPLIERS
from spillover.core.decide import DECIDERS
from spillover.core.deciders import changes, reservations
from spillover.core.deciders.arrays import settle
from spillover.core.events import (
    AgentsConfigured,
    AnyEvent,
    ClusterAdded,
    ClusterRemoved,
    ClustersConfigured,
    ClusterUpdated,
    PolicyChanged,
    PolicyDisabled,
    QueuesConfigured,
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
    "not_before": changes.not_before_passed,
    "return": changes.return_due,
    "backoff": changes.backoff_over,
    "walltime": changes.walltime_passed,
    "reservation": reservations.ended,
}


_CHANGES: Final = {kind: (applier, FOLLOWERS.get(kind)) for kind, applier in APPLIERS.items()}
"""For each event type, its applier and its index follower; None if the index does not follow it."""
_NEW_INDEX: Final = frozenset(
    {AgentsConfigured, ClustersConfigured, PolicyChanged, PolicyDisabled, QueuesConfigured}
)
"""Events after which the engine rebuilds the index."""
_CLUSTERS: Final = (ClusterAdded, ClusterUpdated, ClusterRemoved)
"""Events that the index follows, unless they change the waits of all jobs. Then the engine rebuilds the index."""
_RARE: Final = _NEW_INDEX | frozenset(_CLUSTERS)
SLICE = 1000
"""In a short step: the most jobs added to a new index, and the number of decisions after which no more cycles run."""
MOST_CYCLES: Final = 1000
"""The most cycles of a short step. While debugging, more of them in any step are a bug."""


CYCLE: Final = "cycle"
"""The backoff key for jobs on which a cycle failed."""
NO_JOB: Final = JobId("")
"""Stands for all jobs where a job id is expected."""
MOST_ASIDE: Final = 8
"""The most jobs set aside in a row. If cycles still fail after that, single jobs are not the cause."""


class Failure(Struct, frozen=True):
    """A proposal, an alarm or a job of a cycle that failed, in deciding or in encoding. It had no effect."""

    what: str
    subject: str
    """The job concerned; empty if none or several are."""
    error: Exception


class Step(Struct):
    """The result of one step. None of it may leave the process before its events are durable."""

    events: list[AnyEvent]
    replies: list[Reply]
    """One for each proposal, in the same order."""
    plan: Plan | None = None
    """The plan of the first cycle that decided anything; None if none did."""
    encoded: list[bytes] = []
    """The events as bytes for the journal; empty if the engine has no encoder."""
    failures: list[Failure] = []
    more: bool = False
    """Whether a short step left work that the next step can do at once."""


class Engine:
    """A state, its scheduling index, and the policies that decide."""

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
        """Build the whole index, or with `whole=False` let `build` do it in slices. `ready` skips building."""
        self.state = state
        self.now = max(now, state.facts.now)
        self.debug = debug
        self.rules = RULES
        """The version of the planning rules."""
        self._digests = digests
        """Whether plans carry digests, for a journal that stores events."""
        self._encode = encode
        """Encodes events for the journal. None in tests and simulations: then failures to decide are raised."""
        self.aside = Backoff()
        """Alarms and jobs that the engine failed to decide, with the time of their next try on the engine's clock."""
        self.load = load
        self._outdated = False
        """Whether the state has changed so much that the policies and the index must be replaced."""
        self._ready = False
        """Whether the index is up to date and holds all jobs of the state."""
        self._failed = 0
        """The number of jobs on which cycles have failed since the last cycle that succeeded."""
        self._old_index: SchedulingIndex | None = None
        """The previous index while it is freed in slices; None otherwise."""
        self._policies_digest = b""
        if ready is None:
            self._take_policies(whole=whole)
        else:
            self._policies, self._index = ready
            self._ready = self._index.is_whole

    @property
    def index(self) -> SchedulingIndex:
        """The scheduling index. Reading it after a change that needs a new index builds that index."""
        if self._outdated:
            self._take_policies(whole=True)
        return self._index

    @property
    def policies(self) -> Policies:
        """The current policies. Reading them after a change that needs a new index builds that index."""
        if self._outdated:
            self._take_policies(whole=True)
        return self._policies

    @property
    def is_ready(self) -> bool:
        """Whether the index is up to date and holds all jobs of the state."""
        return self._ready

    def build(self, most: int | None = None) -> bool:
        """Add at most `most` more jobs to a new index; return whether it is complete, so that cycles can run."""
        if most is None:
            most = SLICE
        if self._outdated:
            self._old_index = self._index
            self._take_policies(whole=False)
        done = self._old_index is None or self._old_index.free_some(8 * most)
        self._ready = self._index.build(most)
        if self._old_index is not None and (done or self._ready):
            self._old_index.retire()
            self._old_index = None
        return self._ready

    def plan_by(self, rules: int) -> None:
        """Make plans by rules of another time, as replays do."""
        before, self.rules = self.rules, rules
        if (before >= cycle.MEMORY_INSIDE) != (rules >= cycle.MEMORY_INSIDE):
            self._build_index()

    def retire(self) -> None:
        """Break reference cycles, because another engine replaces this one."""
        self._index.retire()

    def _prepare(self, *, short: bool) -> bool:
        """Add a slice of the jobs, or all of them, to a new index; return whether it is ready."""
        if short:
            return self.build()
        self._ready = self.index.build()
        self._old_index = None
        return self._ready

    def step(self, now: int, proposals: Iterable[Proposal] = (), *, short: bool = False) -> Step:
        """Decide proposals in order, then run cycles while they can decide anything.

        A short step leaves the rest of a new index, and of what cycles could decide, to the next step.
        """
        if now < self.now:
            now = self.now
        self.now = now
        state, step, encode = self.state, Step([], []), self._encode
        if not self._ready:
            step.more = not self._prepare(short=short)
        if self.aside.failed:  # without a call: this runs in every step
            self._try_again(now, step)
        if self._index.alarms.heap:
            for what, job in self._index.alarms.due(now, SLICE if short else None):
                self._ring(what, job, now, step)
        for proposal in proposals:
            try:
                # As `decide`, without a call for every proposal.
                happens, reply = DECIDERS[type(proposal)](state, proposal, now)
                happens = [*happens, *settle(state, happens, now)] if state.members else happens
                encoded = [] if encode is None else [encode(event) for event in happens]
            except Exception as error:  # noqa: BLE001 - any error may cost this proposal, but no other
                step.replies.append(self._refuse(proposal, error, step))
                continue
            self._accept(happens, encoded, step)
            step.replies.append(reply)
        if not self._ready and (self._outdated or not step.more):
            step.more = not self._prepare(short=short)
        if step.more:
            self._index.apply_moves()  # normally a cycle does this
        else:
            self._run_cycles(now, step, short=short)
        if self.debug:
            invariants.check(state)
            invariants.check_placed(state, step.events)
        if short and not step.more:
            step.more = self._index.alarms.rings(now)
        return step

    def _run_cycles(self, now: int, step: Step, *, short: bool) -> None:
        """Run cycles until none can decide anything, or until a short step has decided enough."""
        decided, cycles, aside = 0, 0, self.aside
        while self._index.may_decide(now) and not (aside.failed and aside.waits(CYCLE, NO_JOB, now)):
            cycles += 1
            if cycles > MOST_CYCLES:  # something is decided again and again, at the same moment
                if self.debug:
                    raise invariants.Broken(f"{cycles} cycles of one step did not come to an end")
                if short:
                    step.more = True  # at least proposals of people still get their turn
                    return
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
                break  # after a cycle that decided something, another one may find more to do
            if step.plan is None:
                step.plan = plan
            if short:
                decided += len(plan.admitted) + len(plan.expired) + len(plan.placements)
                if decided >= SLICE:
                    step.more = True
                    return
        if aside.failed:
            self._clear_set_aside(now)

    def apply(self, event: AnyEvent) -> None:
        """Apply an event from the journal or from this step, and update the index."""
        self._accept([event], [], Step([], []))
        if not self._outdated:
            self._index.apply_moves()

    def _take_policies(self, *, whole: bool) -> None:
        """Load the policies that the state names, and build an index for them."""
        self._outdated = False
        self._policies = self.load(self.state.facts.policies)
        self._policies_digest = digest_of(self._policies.chosen) if self._digests else b""
        for guard in self._policies.guards:
            guard.look_at(self.state)
        self._build_index(whole=whole)

    def _build_index(self, *, whole: bool = True) -> None:
        """Build a new index without the jobs that are set aside."""
        self.state.moved.clear()
        aside = {JobId(each.subject): None for each in self.aside if each.work == CYCLE and each.subject}
        inside = self.rules >= cycle.MEMORY_INSIDE
        self._index = SchedulingIndex(self.state, self._policies, aside, whole=whole, memory_inside=inside)
        self._ready = self._index.is_whole

    def next_time(self) -> int:
        """Return when to step again if no proposal arrives."""
        if not self.is_ready:
            return self.now
        if not self.aside:
            return self.index.next_time()
        # While cycles are suspended, work that only a cycle can do would fall due again and again.
        cycles = not self.aside.waits(CYCLE, NO_JOB, self.now)
        following = self.index.next_time() if cycles else self.index.alarms.next_time()
        return min(following, self.aside.next_try())

    def _cycle(self, now: int, step: Step) -> Plan | None:
        """Run a cycle and carry out its plan; return None if it decided nothing. Raise _CycleFailed if it failed."""
        state, index, debug = self.state, self._index, self.debug
        before = _fingerprint(index) if debug else None
        index.looking_at = None
        plan: Plan | None = None
        try:
            found = cycle.run(
                state,
                index,
                self._policies,
                now,
                state.facts.cycles,
                keep=not debug,
                rules=self.rules,
                machines=index.rents_after <= now,
            )
            plan = found.plan
            decided = events_of(plan, state, self._policies_digest, self.rules) if plan else []
            encoded = self._encoded(decided) if self._encode is not None else []
        except Exception as error:
            if self._encode is None:
                raise
            raise _CycleFailed(plan, error) from error
        if debug and before != _fingerprint(index):
            raise invariants.Broken("a cycle changed the index")
        if decided:
            self._accept(decided, encoded, step)
            if found.settled:
                state.moved.clear()
        moved = not found.final and bool(plan.placements or plan.expired or plan.revoked)
        index.end_cycle(now, bool(decided), moved, found.passed, found.again, found.turn, found.spent)
        if index.pooled:
            index.end_machines(
                now,
                rents_at=found.rents_at,
                changed=bool(decided) or not plan.plans_machines,
                looked_at=found.looked_at,
                kept_off=found.kept_off,
            )
        return plan if decided else None

    # --- failures to decide

    def _encoded(self, decided: list[AnyEvent]) -> list[bytes]:
        """Encode events before any of them is applied; raise the error of an event that cannot be encoded."""
        encode = self._encode
        return [] if encode is None else [encode(event) for event in decided]

    def _refuse(self, proposal: Proposal, error: Exception, step: Step) -> Refusal:
        """Refuse a proposal that the engine failed to decide, or whose events it failed to encode."""
        if self._encode is None:
            raise error
        step.failures.append(Failure(type(proposal).__name__, _subject_of(proposal), error))
        message = f"internal error ({reason_of(error)}); nothing was changed; see the log of the server"
        return Refusal(RefusalKind.INTERNAL, message)

    def _ring(self, what: str, job: JobId, now: int, step: Step) -> None:
        """Carry out what an alarm is for; if that fails, try again later."""
        if self.aside and self.aside.waits(what, job, now):
            return
        try:
            decided = _ALARMS[what](self.state, job, now)
            if self.state.members:
                decided = [*decided, *settle(self.state, decided, now)]
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
        """Set aside the jobs on which a cycle failed. If they are unknown or too many, suspend cycles for a while."""
        culprits: dict[JobId, Exception] = {}
        if failed.plan is not None and self._encode is not None:
            culprits = unwritable(failed.plan, self.state, self._encode)
        elif self.index.looking_at is not None:
            culprits = {self.index.looking_at: failed.error}
        self._failed += len(culprits)
        if not culprits or self._failed > MOST_ASIDE:
            for each in self.aside:  # the next cycle looks at all of them again
                if each.work == CYCLE and each.subject:
                    self.aside.done(CYCLE, each.subject)
            culprits = {NO_JOB: failed.error}
            self._failed = 0
        for job, error in culprits.items():
            self.aside.put(CYCLE, job, error, now)
            step.failures.append(Failure(CYCLE, job, error))
        # The failed cycle may have left trial placements in the index.
        self._old_index = self._index if short else None
        self._build_index(whole=not short)

    def _try_again(self, now: int, step: Step) -> None:
        """Retry alarms and jobs whose backoff is over."""
        for what in _ALARMS:
            for job in self.aside.due(what, now):
                if self._index.alarms.is_due(what, JobId(job), now):
                    self._ring(what, JobId(job), now, step)
                else:  # the alarm belonged to an attempt that has ended
                    self.aside.done(what, job)
        for subject in self.aside.due(CYCLE, now):
            found = self.state.jobs.get(JobId(subject))
            self.index.aside.pop(JobId(subject), None)
            if found is not None:
                self.index.add_job(found)
                self.index.gained = True  # so that a cycle runs and shows whether the job still fails

    def _clear_set_aside(self, now: int) -> None:
        """Clear failures of cycles and jobs that cycles have now handled without a failure."""
        for each in self.aside:
            handled = each.subject not in self.index.aside if each.subject else each.next_try <= now
            if each.work == CYCLE and handled:
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
        step.events.extend(decided)
        if encoded:
            step.encoded.extend(encoded)

    def _follow_rare(self, event: AnyEvent) -> None:
        """Follow a change of clusters or policies, or mark the index as outdated; one rebuild covers them all."""
        if not isinstance(event, _CLUSTERS) or event.anew:
            self._ready, self._outdated = False, True
        elif not self._outdated:
            CLUSTER_FOLLOWERS[type(event)](self._index, event)


class _CycleFailed(Exception):
    """Raised when a cycle raised, or when its plan could not be encoded."""

    def __init__(self, plan: Plan | None, error: Exception) -> None:
        super().__init__(str(error))
        self.plan = plan
        """What the cycle decided; None if it failed before that."""
        self.error = error


def _subject_of(proposal: Proposal) -> str:
    """Return the name of what a proposal is about, for messages."""
    about = getattr(proposal, "lease", proposal)
    return str(getattr(about, "job", "") or getattr(about, "node", "") or getattr(about, "cluster", ""))


def _fingerprint(index: SchedulingIndex) -> object:
    """Return everything that a cycle must leave unchanged."""
    clusters = [
        (machine.name, machine.ahead, *machine.free)
        for cluster in index.capacity.values()
        for machine in cluster.machines
    ]
    lines = [
        (dict(line.first), list(line.woken), sum(map(len, line.heaps.values())))
        for line in (index.queue, index.due)
    ]
    return clusters, lines, list(index.fresh), list(index.waits.patient), list(index.waits.heap), index.gained
