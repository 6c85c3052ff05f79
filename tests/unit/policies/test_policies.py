"""Each built-in policy by itself, and how a policy is found by its name."""

from importlib.metadata import EntryPoint

import pytest

from spillover.core.learned.tally import Tally
from spillover.core.records.jobs import QUEUED, Extra, Job, Kind
from spillover.deciding.guard import SeenMachine
from spillover.deciding.protocols import Case
from spillover.model.ids import JobId
from spillover.model.job import Shape, Terms
from spillover.model.policy import AXES, Choice, PolicySet
from spillover.model.policy_options import OPTIONS
from spillover.model.resources import Resources
from spillover.model.units import FOREVER, HOUR, MINUTE, SECOND
from spillover.policies import loading
from spillover.policies.loading import UnknownPolicy, known, load
from spillover.policies.order import FairShare
from spillover.policies.place import BestFit, FirstFit, Pack, SpreadOut, WorstFit, position_of
from spillover.policies.wait import Compute, Constant, NeverRent, Resource, Runtime, Zero

MACHINE = Resources(8000, 2**40, 8)
TWO_CPUS = Shape(Resources(2000, 2**30, 0))
FOUR_GPUS = Shape(Resources(8000, 2**30, 4))


def a_case(shape: Shape, expected: int) -> Case:
    return Case(shape, expected, 0, Tally(), expected, known=True)


def test_waits_are_those_of_their_formulas() -> None:
    assert Zero().wait(a_case(TWO_CPUS, HOUR)) == 0
    assert NeverRent().wait(a_case(TWO_CPUS, HOUR)) == FOREVER
    assert Constant(5 * MINUTE).wait(a_case(FOUR_GPUS, HOUR)) == 5 * MINUTE
    assert Compute(0.076).wait(a_case(TWO_CPUS, HOUR)) == 2 * 76 * HOUR // 1000
    assert Compute(0.076).wait(a_case(FOUR_GPUS, HOUR)) == 4 * 76 * HOUR // 1000
    assert Compute(0.5).wait(a_case(Shape(Resources(1000), tasks=3), MINUTE)) == 90 * SECOND
    assert Runtime(0.25).wait(a_case(FOUR_GPUS, HOUR)) == 15 * MINUTE
    assert Runtime(0.1).wait(a_case(TWO_CPUS, 30)) == 3, (
        "exactly, where floating-point numbers would give 3.0000000000000004"
    )
    assert Resource(30 * MINUTE).wait(a_case(FOUR_GPUS, 1)) == 2 * HOUR
    assert Resource(30 * MINUTE).wait(a_case(Shape(Resources(500)), HOUR)) == 15 * MINUTE
    assert Resource(MINUTE).wait(a_case(Shape(Resources(1000, 0, 8), tasks=3), HOUR)) == 24 * MINUTE


def free(cpu: int, gpu: int, total: Resources) -> SeenMachine:
    return SeenMachine("n1", total, cpu, 0, gpu, FOREVER, (), {})


def test_best_fit_looks_at_what_is_asked_for() -> None:
    best, first = BestFit().score, FirstFit().score
    assert best(free(8000, 2, MACHINE), FOUR_GPUS) < best(free(1000, 4, MACHINE), FOUR_GPUS)
    assert best(free(2000, 4, MACHINE), TWO_CPUS) < best(free(4000, 0, MACHINE), TWO_CPUS)
    assert first(free(1, 1, MACHINE), TWO_CPUS) == first(free(9, 9, MACHINE), TWO_CPUS)


def test_worst_fit_takes_the_emptiest_and_spread_the_one_that_is_used_least_for_its_size() -> None:
    large, small = Resources(8000, 0, 8), Resources(2000, 0, 2)
    worst, spread = WorstFit().score, SpreadOut().score
    one_gpu, one_cpu = Shape(Resources(0, 0, 1)), Shape(Resources(1000))
    assert worst(free(8000, 4, large), one_gpu) < worst(free(2000, 2, small), one_gpu)
    assert spread(free(2000, 2, small), one_gpu) < spread(free(8000, 4, large), one_gpu)
    assert worst(free(4000, 0, large), one_cpu) < worst(free(2000, 2, small), one_cpu)
    assert spread(free(2000, 0, small), one_cpu) < spread(free(4000, 8, large), one_cpu)
    assert spread(free(0, 0, Resources()), Shape(Resources())) == spread(free(0, 0, large), one_gpu), (
        "full, or nothing to use"
    )


def test_pack_takes_the_one_that_is_used_most_for_its_size() -> None:
    large, small = Resources(8000, 0, 8), Resources(2000, 0, 2)
    pack, one_gpu = Pack().score, Shape(Resources(0, 0, 1))
    assert pack(free(8000, 7, large), one_gpu) < pack(free(2000, 2, small), one_gpu)
    assert BestFit().score(free(2000, 2, small), one_gpu) < BestFit().score(free(8000, 7, large), one_gpu)


def test_names_are_in_the_order_in_which_people_count() -> None:
    names = ["a", "n", "n2", "n9", "n10", "n10-b", "n100", "nb", "rack1/n3", "rack2/n1", "rack10"]
    assert sorted(names, key=position_of) == names
    assert position_of("n007") == position_of("n7"), "then the first that joined is first"
    assert position_of("x" * 600) == position_of("x" * 599), "longer than any name: still an answer"


def a_queued_job(
    number: int,
    estimate: int | None = None,
    *,
    walltime: int | None = None,
    predicted: int | None = None,
    deadline: int | None = None,
    priority: int = 0,
    project: str = "p",
) -> Job:
    return Job(
        JobId(f"job-{number}"),
        number,
        "ada",
        "train",
        Kind(TWO_CPUS, "default", project),
        Terms(walltime=walltime, estimate=estimate),
        b"",
        0,
        0,
        priority,
        QUEUED,
        extra=Extra(deadline=deadline),
        predicted=predicted,
    )


def order_of(name: str, *jobs: Job) -> list[int]:
    """The numbers of jobs as an order has them."""
    key = load(PolicySet(order=Choice(name), unknown_runtime=10 * MINUTE)).order.key
    return [job.number for job in sorted(jobs, key=lambda job: (key(job), job.number))]


def test_orders_sort_as_their_names_say() -> None:
    jobs = [
        a_queued_job(1, HOUR, deadline=3 * HOUR),
        a_queued_job(2, MINUTE, priority=1),
        a_queued_job(3, 4 * HOUR, deadline=5 * HOUR, priority=1),
        a_queued_job(4, MINUTE, deadline=4 * HOUR),
    ]
    assert order_of("fifo", *jobs) == [1, 2, 3, 4]
    assert order_of("lifo", *jobs) == [4, 3, 2, 1]
    assert order_of("priority", *jobs) == [2, 3, 1, 4]
    assert order_of("sjf", *jobs) == [2, 4, 1, 3]
    assert order_of("ljf", *jobs) == [3, 1, 2, 4]
    assert order_of("edf", *jobs) == [1, 4, 3, 2]
    assert order_of("slack", *jobs) == [3, 1, 4, 2]
    assert order_of("fair_share", *jobs) == [2, 3, 1, 4], "within one project, by priority"


def test_orders_by_runtime_go_by_the_best_that_is_known() -> None:
    jobs = [
        a_queued_job(1),
        a_queued_job(2, predicted=9 * MINUTE),
        a_queued_job(3, walltime=8 * MINUTE),
        a_queued_job(4, 11 * MINUTE, walltime=MINUTE, predicted=1),
    ]
    assert order_of("sjf", *jobs) == [3, 2, 1, 4]
    assert order_of("ljf", *jobs) == [4, 1, 2, 3]


def test_fair_share_ranks_projects_by_what_they_used_of_their_share() -> None:
    used = {"vision": 40, "nlp": 15, "idle": 0, "web": 30}
    alike, shares = FairShare(), FairShare(shares="vision=4; nlp=0.5")
    assert sorted(used, key=lambda project: alike.ranks(project, used[project])) == [
        "idle",
        "nlp",
        "web",
        "vision",
    ]
    ranks = {project: shares.ranks(project, amount) for project, amount in used.items()}
    assert ranks["idle"] == 0 < ranks["vision"] < ranks["nlp"] == ranks["web"]
    for wrong in ("vision", "vision=0", "vision=two", "vision=1/0"):
        with pytest.raises(UnknownPolicy, match="is not a share; write vision=2;nlp=1"):
            load(PolicySet(order=Choice("fair_share", {"shares": wrong})))


@pytest.mark.parametrize(
    "wait",
    [
        Choice("zero"),
        Choice("never"),
        Choice("constant", {"wait": HOUR}),
        Choice("runtime", {"coefficient": 0.5}),
        Choice("resource", {"coefficient": MINUTE}),
        Choice("compute", {"coefficient": 0.076}),
    ],
    ids=lambda wait: wait.name,
)
def test_common_options_combine_with_every_wait(wait: Choice) -> None:
    def waits(shape: Shape, expected: int, **options: int | bool) -> int:
        chosen = PolicySet(wait=Choice(wait.name, {**wait.options, **options}))
        return load(chosen).wait_of(a_case(shape, expected))

    plain = waits(FOUR_GPUS, HOUR)
    assert waits(FOUR_GPUS, HOUR, min_wait=2 * HOUR) == max(plain, 2 * HOUR)
    assert waits(FOUR_GPUS, HOUR, max_wait=SECOND) == min(plain, SECOND)
    assert waits(FOUR_GPUS, HOUR, min_wait=SECOND, max_wait=SECOND) == SECOND
    assert waits(FOUR_GPUS, HOUR, rent_cpu_only=True) == plain
    assert waits(TWO_CPUS, HOUR, rent_cpu_only=True, min_wait=MINUTE) == 0, (
        "rented at once, whatever the floor"
    )
    assert waits(FOUR_GPUS, HOUR, short_job_threshold=HOUR) == plain
    assert waits(FOUR_GPUS, HOUR - 1, short_job_threshold=HOUR, min_wait=MINUTE) == 0
    assert load(PolicySet(wait=Choice(wait.name, {**wait.options, "max_queue": 3}))).max_queue == 3


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
    assert names == set(loading.BUILT_IN) == set(OPTIONS)
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
