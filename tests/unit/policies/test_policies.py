"""Each built-in policy by itself, and how a policy is found by its name."""

from importlib.metadata import EntryPoint

import pytest

from spillover.core.tally import Tally
from spillover.deciding.protocols import Case
from spillover.model.job import Shape
from spillover.model.policy import AXES, Choice, PolicySet
from spillover.model.resources import Resources
from spillover.model.units import FOREVER, HOUR, MINUTE, SECOND
from spillover.policies import loading
from spillover.policies.loading import UnknownPolicy, known, load
from spillover.policies.place_best_fit import BestFit
from spillover.policies.place_first_fit import FirstFit
from spillover.policies.wait_compute import Compute
from spillover.policies.wait_constant import Constant
from spillover.policies.wait_never import Never
from spillover.policies.wait_zero import Zero

MACHINE = Resources(8000, 2**40, 8)
TWO_CPUS = Shape(Resources(2000, 2**30, 0))
FOUR_GPUS = Shape(Resources(8000, 2**30, 4))


def a_case(shape: Shape, expected: int) -> Case:
    return Case(shape, expected, 0, Tally())


def test_waits_are_those_of_their_formulas() -> None:
    assert Zero().wait(a_case(TWO_CPUS, HOUR)) == 0
    assert Never().wait(a_case(TWO_CPUS, HOUR)) == FOREVER
    assert Constant(5 * MINUTE).wait(a_case(FOUR_GPUS, HOUR)) == 5 * MINUTE
    assert Compute(0.076).wait(a_case(TWO_CPUS, HOUR)) == 2 * 76 * HOUR // 1000
    assert Compute(0.076).wait(a_case(FOUR_GPUS, HOUR)) == 4 * 76 * HOUR // 1000
    assert Compute(0.5).wait(a_case(Shape(Resources(1000), tasks=3), MINUTE)) == 90 * SECOND


def test_best_fit_looks_at_what_is_asked_for() -> None:
    best, first = BestFit().score, FirstFit().score
    assert best(8000, 0, 2, FOUR_GPUS, MACHINE) < best(1000, 0, 4, FOUR_GPUS, MACHINE)
    assert best(2000, 0, 4, TWO_CPUS, MACHINE) < best(4000, 0, 0, TWO_CPUS, MACHINE)
    assert first(1, 1, 1, TWO_CPUS, MACHINE) == first(9, 9, 9, TWO_CPUS, MACHINE)


def test_floor_and_cap_combine_with_every_wait() -> None:
    options: dict[str, int | float | str | bool] = {
        "wait": MINUTE,
        "min_wait": 2 * MINUTE,
        "max_wait": 3 * MINUTE,
        "max_queue": 7,
    }
    policies = load(PolicySet(wait=Choice("constant", options)))
    assert policies.wait_of(a_case(TWO_CPUS, HOUR)) == 2 * MINUTE
    assert policies.max_queue == 7
    capped = load(PolicySet(wait=Choice("never", {"max_wait": MINUTE})))
    assert capped.wait_of(a_case(TWO_CPUS, HOUR)) == MINUTE


def test_all_that_the_package_promises_are_found() -> None:
    names = {f"{axis}.{name}" for axis in AXES for name in known(axis)}
    assert names == set(loading.BUILT_IN)
    assert {"wait.compute", "order.fifo", "backfill.strict", "place.first_fit"} <= names


def test_an_unknown_policy_or_option_is_refused_in_words() -> None:
    with pytest.raises(UnknownPolicy, match=r"no wait policy 'nap'; known: .*compute, constant"):
        load(PolicySet(wait=Choice("nap")))
    with pytest.raises(UnknownPolicy, match="wait: constant does not take these options"):
        load(PolicySet(wait=Choice("constant", {"length": 1})))


def test_a_policy_of_ones_own_is_found_by_its_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    own = EntryPoint("wait.double", f"{__name__}:Double", loading.GROUP)
    monkeypatch.setattr(loading, "_points", lambda: (own,))
    monkeypatch.setattr(EntryPoint, "load", lambda _: Double)
    policies = load(PolicySet(wait=Choice("double")))
    assert policies.wait_of(a_case(TWO_CPUS, MINUTE)) == 2 * MINUTE
    assert [(guard.axis, guard.name) for guard in policies.guards] == [("wait", "double")]
    assert load(PolicySet()).guards == (), "built-in ones are asked directly"


class Double:
    """Waits twice as long as the job is expected to run."""

    def wait(self, case: Case) -> int:
        return 2 * case.expected
