"""The live loop times policies of installed packages, and has what is slow or missing disabled by an event."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
from structlog.testing import capture_logs

from spillover.control.live.policy_watch import EACH, SLOW_AFTER, STEPS, PolicyWatch
from spillover.core.events import PolicyDisabled
from spillover.core.proposals import DisablePolicy, Jump, SetPolicies
from spillover.core.records.jobs import Job
from spillover.deciding.guard import ShownMachine
from spillover.deciding.protocols import Case, Policies, SizeCase
from spillover.model.job import Shape
from spillover.model.policy import Choice, PolicySet
from spillover.model.resources import Resources
from spillover.model.units import SECOND
from spillover.policies.loading import load, load_surely
from spillover.testing.builders import a_job
from spillover.testing.world import World
from tests.support.live import Live, a_live_loop


class Clock:
    """Moved by the policy itself."""

    def __init__(self) -> None:
        self.now = 1

    def __call__(self) -> int:
        return self.now


class Slow:
    """Takes its time, and waits five seconds."""

    def __init__(self, clock: Clock, takes: int, *, fails: bool = False) -> None:
        self._clock = clock
        self.takes = takes
        self._fails = fails
        self.strict = False

    def key(self, job: Job) -> int:
        return self._answer(job.number)

    def wait(self, case: Case) -> int:
        return self._answer(5 * SECOND)

    def score(self, *machine: Any) -> int:
        return self._answer(0)

    def _answer(self, answer: int) -> int:
        self._clock.now += self.takes
        if self._fails:
            raise ValueError("no")
        return answer


class Watched:
    """A watch on a policy that takes so many nanoseconds a call."""

    def __init__(self, axis: str, takes: int, *, fails: bool = False) -> None:
        self.clock = Clock()
        self.policy = Slow(self.clock, takes, fails=fails)
        more = {f"{axis}.slow": lambda: self.policy}
        self.watch = PolicyWatch(partial(load, more=more), clock=self.clock)
        self.policies: Policies = self.watch.load(PolicySet(**{axis: Choice("slow")}))  # type: ignore[arg-type]
        self.job = _a_queued_job()

    def step(self, calls: int = 1) -> list[DisablePolicy]:
        """One step in which it is asked so often; what is to be disabled then."""
        self.watch.begin()
        for _ in range(calls):
            self.policies.wait.wait(
                Case(self.job.kind.shape, SECOND, 0, World(load).state.facts.tally, SECOND, known=True)
            )
        self.watch.end()
        return self.watch.due(self.policies)


def _a_queued_job() -> Job:
    world = World(load)
    world.submit(a_job("a"))
    return world.job("a")


def test_a_policy_that_takes_too_long_in_one_step_is_disabled() -> None:
    quick, slow = Watched("wait", SLOW_AFTER), Watched("wait", SLOW_AFTER + 2 * EACH)
    assert quick.step() == []
    assert slow.step() == [DisablePolicy("wait", "slow", SLOW_AFTER + EACH)]
    assert slow.watch.due(slow.policies) == [], "it is said once"


def test_a_policy_that_takes_too_long_on_average_is_disabled() -> None:
    watched = Watched("wait", SLOW_AFTER // 5 + 2 * EACH)
    for _ in range(STEPS - 1):
        assert watched.step() == []
    assert watched.step() == [DisablePolicy("wait", "slow", SLOW_AFTER // 5 + EACH)]


def test_policies_of_all_axes_answer_under_the_watch() -> None:
    class Last:
        def pick(self, queues: Sequence[Any], agents: int, seed: int) -> Any:
            return queues[-1]

        def most(self, case: SizeCase) -> int:
            return case.shape.tasks

    watch = PolicyWatch(partial(load, more={"route.last": Last, "size.least": Last}), clock=Clock())
    policies = watch.load(PolicySet(route=Choice("last"), size=Choice("least")))
    queues = [ShownMachine(0, 3, 1, 0), ShownMachine(1, 1, 1, 0)]
    assert policies.route.pick(queues, 2, 7) is queues[1]
    assert policies.size.most(SizeCase(Shape(Resources(), tasks=2, most=8), 8, ())) == 2
    assert watch.failures().total() == 0


def test_many_quick_answers_in_one_step_are_not_slow() -> None:
    assert Watched("wait", EACH).step(calls=20_000) == []


def test_what_is_asked_outside_of_steps_does_not_count() -> None:
    watched = Watched("wait", SLOW_AFTER)
    for _ in range(3):
        watched.policies.wait.wait(
            Case(watched.job.kind.shape, SECOND, 0, World(load).state.facts.tally, SECOND, known=True)
        )
    assert watched.step(calls=0) == []


def test_failures_are_counted_over_changes_of_policies_and_told_once_a_minute() -> None:
    watched = Watched("wait", SECOND // 1000, fails=True)
    with capture_logs() as logs:
        for _ in range(5):
            watched.step()
        watched.clock.now += 60 * SECOND
        watched.step()
    assert [(each["policy"], each["failures"], each["error"]) for each in logs] == [
        ("wait.slow", 1, "ValueError: no"),
        ("wait.slow", 6, "ValueError: no"),
    ]
    watched.policies = watched.watch.load(PolicySet(wait=Choice("slow")))
    watched.step()
    assert watched.watch.failures() == {("wait", "slow"): 7}


def test_what_is_missing_is_told_once_and_disabled() -> None:
    watch = PolicyWatch(load_surely)
    with capture_logs() as logs:
        policies = watch.load(PolicySet(place=Choice("gone")))
        first, again = watch.due(policies), watch.due(policies)
    assert first == again
    assert [(one.axis, one.name, one.took) for one in first] == [("place", "gone", 0)]
    assert len(logs) == 1


@pytest.fixture
def sluggish(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A clock that a policy of the loop moves."""
    clock = Clock()
    policies = {f"{axis}.slow": lambda: Slow(clock, SECOND) for axis in ("order", "wait", "place")}
    monkeypatch.setattr("tests.support.live.load", partial(load, more=policies))
    monkeypatch.setattr(PolicyWatch.__init__, "__defaults__", (SLOW_AFTER, clock))
    return clock


async def disabled(live: Live) -> list[PolicyDisabled]:
    """Policies that the journal says are disabled, after another step."""
    await live.loop.read()
    await live.loop.propose(Jump(0))
    return [event for event in live.heard if isinstance(event, PolicyDisabled)]


@pytest.mark.parametrize("axis", ["order", "wait", "place"])
async def test_a_slow_policy_of_the_live_loop_is_disabled_by_a_journaled_event(
    axis: str, sluggish: Clock
) -> None:
    chosen = {"wait": Choice("zero")} | {axis: Choice("slow")}
    async with a_live_loop(PolicySet(**chosen)) as live:  # type: ignore[arg-type]
        await live.agent("onprem", cpus=1)
        await live.submit(a_job("first"), a_job("second"))
        (event,) = await disabled(live)
        assert (event.axis, event.name, event.error) == (axis, "slow", "")
        assert event.took >= SECOND - EACH
        assert getattr(live.loop.state.facts.policies, axis).name in {"fifo", "never", "first_fit"}
        others = PolicySet(order=Choice("priority"), wait=Choice("zero"), place=Choice("best_fit"))
        await live.loop.propose(SetPolicies(others, "ada"))
        assert not live.loop.state.policies.disabled
