"""Tracks the recent usage of each project, if the order policy needs it. It follows from events.

A project uses the sum of what its placed jobs hold, for as long as they hold it. Usage from one half-life ago counts
half. Instead of letting old usage decay, new usage grows: the clock runs twice as fast after each half-life, in 64
steps. That compares projects in the same way without rounding. `grown` reads this clock. The usage of a project at any
time is `rate * grown + spent`. So the start or end of a job costs two additions of integers, the same on every machine.
"""

from typing import Final

from spillover.core.learned.sharing import STEPS, Measure, Sharing, Using
from spillover.core.records.jobs import Job, Placed, Running
from spillover.core.state import State
from spillover.model.policy import PolicySet
from spillover.model.units import DAY, MINUTE

ORDER: Final = "fair_share"
"""The order policy that needs usage."""
HALF_LIFE: Final = 7 * DAY
"""Nanoseconds, unless the policy sets another value."""
GPU_WEIGHT: Final = 53
"""CPUs that one GPU counts as, unless the policy sets another value."""
TICK: Final = MINUTE
"""How often projects are compared again while nothing happens, in nanoseconds."""


def measure_of(policies: PolicySet) -> Measure | None:
    """Return how usage is measured; None if no policy needs it."""
    if policies.order.name != ORDER:
        return None
    options = policies.order.options
    weight = round(float(options.get("gpu_weight", GPU_WEIGHT)) * 1000)
    return Measure(max(STEPS, int(options.get("half_life", HALF_LIFE))), weight)


class Meter:
    """The recent usage of projects at one time, in a unit that only serves to compare them.

    While nothing starts or ends, it changes only every TICK, so that repeated reads give the same answer. It computes
    values on demand, because many projects may have used something once.
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
        """Return the usage of one project; 0 if there is none, or if usage is not measured."""
        using = self._usage.get(project)
        if using is None or self._sharing is None:
            return 0
        spent = self._sharing.carried(using, self._old) if self._old else using.spent
        return max(0, using.rate * self._clock + spent)


def moment(sharing: Sharing, now: int) -> int:
    """Return the time as of which projects are compared: the latest start or end, or the latest TICK after it."""
    return max(sharing.last, now - now % TICK)


def begin(state: State, job: Job, at: int) -> None:
    """Add what a placed job holds, from now on."""
    _change(state, job, at, 1)


def end(state: State, job: Job, at: int) -> None:
    """Subtract what a job held."""
    _change(state, job, at, -1)


def follow(state: State, at: int) -> None:
    """After a change of policies, start measuring again from zero if they measure differently."""
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
    """Change what a project holds from a time on."""
    sharing = state.facts.sharing
    if sharing is None:
        return
    if old := sharing.old(at):
        sharing = _set_back(state, sharing, old)
    project = job.kind.project
    using = state.usage.get(project)
    if using is None:
        using = state.usage[project] = Using(project)
    size = more * sharing.measure.size(job.shape)
    state.holders -= using.rate > 0
    using.rate += size
    state.holders += using.rate > 0
    state.uses += 1
    using.spent -= size * sharing.grown(at)
    sharing.last = max(sharing.last, at)
    state.dirty["usage"][project] = None
    state.touch_facts()


def _set_back(state: State, sharing: Sharing, half_lives: int) -> Sharing:
    """Set the clock back, and drop projects whose usage has faded to nothing."""
    for using in [state.usage[project] for project in state.usage]:
        using.spent = sharing.carried(using, half_lives)
        if not using.rate and using.spent <= 0:
            del state.usage[using.project]
        state.dirty["usage"][using.project] = None
    state.facts.sharing = sharing.set_back(half_lives)
    return state.facts.sharing
