"""What each project has used of late: a fold over events, kept in the book while an order asks for it.

A project uses the sum of what its placed jobs hold, for as long as they hold it. What was used one half life ago counts half. In
place of letting old use decay, new use grows: time itself is counted by a clock that runs twice as fast after each half life,
in 64 steps, so a comparison of projects comes out the same and nothing is rounded. `grown` is that clock. A project's use at
any moment is then `rate * grown + spent`: two additions when a job starts or ends, in whole numbers, the same on every machine.
"""

from typing import Final

from spillover.core.jobs import Job, Placed, Running
from spillover.core.sharing import STEPS, Measure, Sharing, Using
from spillover.core.state import State
from spillover.model.policy import PolicySet
from spillover.model.units import DAY, MINUTE

ORDER: Final = "fair_share"
"""The order that asks for it."""
HALF_LIFE: Final = 7 * DAY
"""Nanoseconds, unless the policy says otherwise."""
GPU_WEIGHT: Final = 53
"""CPUs that one GPU counts as, unless the policy says otherwise."""
TICK: Final = MINUTE
"""How often projects are compared anew while nothing happens, in nanoseconds."""


def measure_of(policies: PolicySet) -> Measure | None:
    """How use is measured; None if no policy asks for it."""
    if policies.order.name != ORDER:
        return None
    options = policies.order.options
    weight = round(float(options.get("gpu_weight", GPU_WEIGHT)) * 1000)
    return Measure(max(STEPS, int(options.get("half_life", HALF_LIFE))), weight)


class Meter:
    """What projects have used of late as of some moment, in a unit that only serves to compare them.

    While nothing starts or ends it changes every TICK only, so that whoever asks twice gets one answer. It is read for the
    projects that somebody asks for, as there may be many that have used something once.
    """

    def __init__(self, state: State, now: int) -> None:
        self._usage = state.usage
        self._sharing = sharing = state.facts.sharing
        self._old = self._clock = 0
        if sharing is not None:
            at = moment(sharing, now)
            self._old = sharing.old(at)
            self._clock = (sharing.set_back(self._old) if self._old else sharing).grown(at)

    def used(self, project: str) -> int:
        """What one project has used; 0 if nothing, or nobody measures."""
        using = self._usage.get(project)
        if using is None or self._sharing is None:
            return 0
        spent = self._sharing.carried(using, self._old) if self._old else using.spent
        return max(0, using.rate * self._clock + spent)


def moment(sharing: Sharing, now: int) -> int:
    """As of when projects are compared: the last start or end, or the last TICK since."""
    return max(sharing.last, now - now % TICK)


def begin(state: State, job: Job, at: int) -> None:
    """A job holds its place from now on; use is being measured."""
    _change(state, job, at, 1)


def end(state: State, job: Job, at: int) -> None:
    """A job has given its place back."""
    _change(state, job, at, -1)


def follow(state: State, at: int) -> None:
    """Other policies decide: measure anew if they measure otherwise, with nothing used so far."""
    sharing = state.facts.sharing
    measure = measure_of(state.facts.policies)
    if measure == (None if sharing is None else sharing.measure):
        return
    for project in state.usage:
        state.dirty["usage"][project] = None
    state.usage.clear()
    state.holders = 0
    state.uses += 1
    state.facts.sharing = None if measure is None else Sharing(measure, at, at)
    state.touch_facts()
    for job in state.jobs.values() if measure is not None else ():
        if isinstance(job.phase, Placed | Running):
            begin(state, job, at)


def _change(state: State, job: Job, at: int, more: int) -> None:
    """More, or less, is held from a moment on."""
    sharing = state.facts.sharing
    if sharing is None:
        return
    if old := sharing.old(at):
        sharing = _set_back(state, sharing, old)
    project = job.kind.project
    using = state.usage.get(project)
    if using is None:
        using = state.usage[project] = Using(project)
    size = more * sharing.measure.size(job.kind.shape)
    state.holders -= using.rate > 0
    using.rate += size
    state.holders += using.rate > 0
    state.uses += 1
    using.spent -= size * sharing.grown(at)
    sharing.last = max(sharing.last, at)
    state.dirty["usage"][project] = None
    state.touch_facts()


def _set_back(state: State, sharing: Sharing, half_lives: int) -> Sharing:
    """Let the clock start later. Who has used nothing for long has used nothing."""
    for using in [state.usage[project] for project in state.usage]:
        using.spent = sharing.carried(using, half_lives)
        if not using.rate and using.spent <= 0:
            del state.usage[using.project]
        state.dirty["usage"][using.project] = None
    state.facts.sharing = sharing.set_back(half_lives)
    return state.facts.sharing
