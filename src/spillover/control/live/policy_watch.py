"""Watches how long policies of installed packages take and how often they fail.

Only the live loop has a clock. It proposes to disable a slow policy, and the journal records that. So a replay sees
the same event and needs no clock. The same applies to a chosen policy that is no longer installed.
"""

import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Any, Final

import structlog

from spillover.core.proposals import DisablePolicy
from spillover.deciding.protocols import Guarded, Policies
from spillover.model.policy import PolicySet, choice_of
from spillover.model.units import SECOND

log = structlog.get_logger()

SLOW_AFTER: Final = SECOND // 4
"""Nanoseconds that a policy may take in one step, unless configured."""
STEPS: Final = 20
"""Steps in the mean."""
SHARE: Final = 5
"""Divisor of the limit for the mean."""
EACH: Final = 20_000
"""Nanoseconds of each call that do not count, as a step may ask about a hundred thousand jobs."""
QUIET: Final = 60 * SECOND
"""Nanoseconds between two log lines about the same failing policy."""


class Stopwatch:
    """Times a policy; takes its place inside the guard."""

    def __init__(self, policy: Any, clock: Callable[[], int]) -> None:
        self._policy = policy
        self._clock = clock
        self.spent = 0
        """Nanoseconds in this step, beyond the allowance for each call."""

    def key(self, job: Any) -> Any:
        """See Order."""
        return self._timed(self._policy.key, job)

    def wait(self, case: Any) -> Any:
        """See Wait."""
        return self._timed(self._policy.wait, case)

    def score(self, *machine: Any) -> Any:
        """See Place."""
        return self._timed(self._policy.score, *machine)

    def pick(self, queues: Any, agents: int, seed: int) -> Any:
        """See Route."""
        return self._timed(self._policy.pick, queues, agents, seed)

    def most(self, case: Any) -> Any:
        """See Size."""
        return self._timed(self._policy.most, case)

    def _timed(self, ask: Callable[..., Any], *about: Any) -> Any:
        began = self._clock()
        try:
            return ask(*about)
        finally:
            self.spent += max(0, self._clock() - began - EACH)


class _Watched:
    """A policy in use, with its measurements."""

    def __init__(self, guard: Guarded, stopwatch: Stopwatch) -> None:
        self.guard = guard
        self.stopwatch = stopwatch
        self.steps: deque[int] = deque(maxlen=STEPS)
        """Nanoseconds in each of the last steps that used it."""
        self.reported = 0
        """Failures at the last log line."""
        self.reported_at = 0


class PolicyWatch:
    """Loads policies, and checks those of installed packages after every step."""

    def __init__(
        self,
        load: Callable[[PolicySet], Policies],
        slow_after: int = SLOW_AFTER,
        clock: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        self._load = load
        self._slow_after = slow_after
        self._clock = clock
        self._watched: list[_Watched] = []
        self._past: Counter[tuple[str, str]] = Counter()
        """Failures of policies that are no longer in use."""
        self._slow: list[DisablePolicy] = []
        self._missed: dict[str, str] = {}
        """Missing policies that were logged, by axis."""

    def load(self, chosen: PolicySet) -> Policies:
        """Load the policies of an engine, and watch them from now on."""
        policies = self._load(chosen)
        self._past = self.failures()
        self._watched = []
        self._slow = []
        for guard in policies.guards:
            guard.policy = stopwatch = Stopwatch(guard.policy, self._clock)
            self._watched.append(_Watched(guard, stopwatch))
        return policies

    def failures(self) -> Counter[tuple[str, str]]:
        """Return how often policies failed in this process, by axis and name."""
        total = Counter(self._past)
        for each in self._watched:
            total[each.guard.axis, each.guard.name] += each.guard.failures
        return total

    def due(self, policies: Policies) -> list[DisablePolicy]:
        """Return proposals to disable slow and missing policies before the next step."""
        slow, self._slow = self._slow, []
        for axis, error in policies.missing.items():
            name = choice_of(policies.chosen, axis).name
            if self._missed.get(axis) != name:
                log.error("a policy is missing; using the fallback", policy=f"{axis}.{name}", error=error)
                self._missed[axis] = name
            slow.append(DisablePolicy(axis, name, 0, error))
        return slow

    def begin(self) -> None:
        """Start to measure a step; calls outside of steps do not count."""
        for each in self._watched:
            each.stopwatch.spent = 0

    def end(self) -> bool:
        """End a step; return whether a policy must be disabled now."""
        for each in self._watched:
            if each.stopwatch.spent:
                each.steps.append(each.stopwatch.spent)
                self._disable_if_slow(each)
            if each.guard.failures > each.reported:
                self._tell(each)
        return bool(self._slow)

    def _disable_if_slow(self, watched: _Watched) -> None:
        """Disable a policy if it is too slow."""
        took, steps = watched.steps[-1], watched.steps
        mean = sum(steps) // STEPS if len(steps) == STEPS else 0
        if took <= self._slow_after and mean <= self._slow_after // SHARE:
            return
        guard = watched.guard
        log.error(
            "a policy was too slow and is disabled",
            policy=f"{guard.axis}.{guard.name}",
            took_s=took / SECOND,
            mean_s=mean / SECOND,
            limit_s=self._slow_after / SECOND,
        )
        self._slow.append(DisablePolicy(guard.axis, guard.name, took))

    def _tell(self, watched: _Watched) -> None:
        """Log that a policy fails, the first time and then once a minute."""
        guard, now = watched.guard, self._clock()
        if watched.reported and now - watched.reported_at < QUIET:
            return
        watched.reported, watched.reported_at = guard.failures, now
        log.warning(
            "a policy failed; the cycle fell back",
            policy=f"{guard.axis}.{guard.name}",
            failures=guard.failures,
            error=guard.error,
        )
