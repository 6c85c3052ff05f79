"""Policies that raise, or answer what is no answer: the cycle falls back, says so and counts it."""

from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any

import pytest
from msgspec import structs

from spillover.core.events import PolicyDisabled
from spillover.core.proposals import DisablePolicy, SetPolicies, StartEpoch
from spillover.core.records.jobs import NO_EXTRA, Job
from spillover.deciding.explain.explain import explain
from spillover.deciding.guard import GuardedOrder, GuardedPlace, SeenMachine
from spillover.deciding.protocols import Case, MachineView
from spillover.model.job import Shape
from spillover.model.policy import Choice, PolicySet
from spillover.model.reasons import PolicyFailed
from spillover.model.resources import Resources
from spillover.model.units import FOREVER, SECOND
from spillover.policies.loading import UnknownPolicy, load, load_surely
from spillover.testing.builders import a_job
from spillover.testing.world import OWNED, RENTED, World
from tests.support.sameness import Checkpoints


class Own:
    """A policy of every axis that answers what a test wants."""

    def __init__(self, answer: Callable[[], Any]) -> None:
        self._answer = answer
        self.strict = False

    def key(self, job: Job) -> Any:
        return self._answer()

    def wait(self, case: Case) -> Any:
        return self._answer()

    def score(self, *machine: Any) -> Any:
        return self._answer()


def boom() -> Any:
    raise ValueError("boom\nwith a second line")


def leave() -> Any:
    raise SystemExit(3)


def deep() -> Any:
    return deep()


def a_world(axis: str, answer: Callable[[], Any], **options: int) -> World:
    """A world where a policy of one's own decides an axis, with one CPU owned and some rented."""
    more = {f"{axis}.own": lambda: Own(answer)}
    usual = PolicySet(wait=Choice("constant", {"wait": 5 * SECOND}))
    policies = structs.replace(usual, **{axis: Choice("own", dict(options))})
    world = World(partial(load, more=more), policies)
    world.agent("n1")
    world.agent("v1", cpus=4, cluster="cloud")
    return world


def failures(world: World) -> int:
    (guard,) = world.engine.policies.guards
    return guard.failures


class Sly(int):
    """A number that is another one when it is looked at."""

    def __int__(self) -> int:
        return 2**80


NO_WAITS = [
    boom,
    leave,
    deep,
    lambda: None,
    lambda: "1h",
    lambda: float("nan"),
    lambda: -1,
    lambda: -(2**70),
    lambda: True,
    lambda: b"5",
    lambda: 1j,
]


@pytest.mark.parametrize("answer", NO_WAITS)
def test_a_job_whose_wait_policy_fails_waits_for_owned_capacity(answer: Callable[[], Any]) -> None:
    world = a_world("wait", answer, max_wait=SECOND)
    world.submit(a_job("first"))
    world.submit(a_job("second"))
    assert world.where("first") == "onprem/n1"
    assert world.job("second").latest == FOREVER
    assert failures(world) == 1
    world.wait(seconds=100_000)
    assert world.where("second") is None
    world.finish("first")
    assert world.where("second") == "onprem/n1"


def test_why_says_which_policy_keeps_a_job_from_being_rented() -> None:
    world = a_world("wait", boom)
    world.submit(a_job("first"), a_job("second"))
    before = failures(world)
    reason = explain(world.engine, world.job("second")).reason
    assert reason == PolicyFailed("wait.own", "ValueError: boom with a second line")
    assert "waits for owned capacity because policy wait.own failed: ValueError: boom" in str(reason)
    assert failures(world) == before, "to be asked why is no failure"


def test_jobs_that_waited_for_a_failing_policy_wait_anew_under_another() -> None:
    world = a_world("wait", boom)
    world.submit(a_job("first"), a_job("second"))
    world.propose(SetPolicies(PolicySet(wait=Choice("zero")), "ada"))
    assert world.where("second") == "cloud/v1"


@pytest.mark.parametrize(
    ("wait", "latest"),
    [
        (2.5 * SECOND, 2_500_000_000),
        (float("inf"), FOREVER),
        (2**70, FOREVER),
        (1e300, FOREVER),
        (Sly(3), FOREVER),
    ],
)
def test_a_wait_may_be_any_number_from_zero(wait: float, latest: int) -> None:
    world = a_world("wait", lambda: wait)
    world.submit(a_job("first"))
    world.submit(a_job("second"))
    job = world.job("second")
    assert job.latest == (FOREVER if latest == FOREVER else job.arrived + latest)
    assert failures(world) == 0


NO_KEYS = [boom, leave, deep, lambda: None, lambda: float("nan"), dict, lambda: (1, object()), lambda: 1j]


@pytest.mark.parametrize("answer", NO_KEYS)
def test_jobs_whose_order_fails_are_tried_as_they_came(answer: Callable[[], Any]) -> None:
    world = a_world("order", answer)
    world.submit(*(a_job(name) for name in "abcd"))
    assert failures(world) >= 4
    for name in "abcd":
        assert world.where(name) == "onprem/n1", name
        world.finish(name)


def test_a_job_whose_key_fails_comes_behind_those_that_have_one() -> None:
    answers = iter([3, "text", (1, 2), ValueError("no"), 1.5])

    def next_one() -> Any:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    guard = GuardedOrder("own", Own(next_one))
    world = World(load, PolicySet(wait=Choice("never")), (OWNED,))
    world.submit(*(a_job(name) for name in "abcde"))
    keys = {job.id: guard.key(job) for job in world.state.jobs.values()}
    assert sorted(keys, key=keys.__getitem__) == ["e", "a", "b", "c", "d"]
    assert (guard.failures, guard.error) == (1, "ValueError: no")


def test_an_order_that_does_not_keep_to_its_word_loses_no_job() -> None:
    numbers = count()
    world = a_world("order", lambda: -next(numbers))
    world.submit(*(a_job(name) for name in "abcdef"))
    for _ in "abcdef":
        (placed,) = world.placed()
        world.finish(placed)
    assert world.state.queued == 0


class ByNumbers:
    """A place policy for release 0.4."""

    def score(self, cpu: int, memory: int, gpu: int, shape: Shape, total: Resources) -> int:
        return cpu + memory + gpu + shape.resources.cpu + total.cpu


class ByMachine:
    """A place policy that looks at what only a machine tells."""

    def score(self, machine: MachineView, shape: Shape) -> int:
        assert machine.labels == {"zone": "a"}
        return machine.cpu + machine.tasks + machine.amount("example.com/fpga") + shape.resources.cpu


def test_a_place_policy_is_asked_as_the_release_did_that_it_was_written_for() -> None:
    total, shape = Resources(8000, 7, 6, (("example.com/fpga", 2),)), Shape(Resources(100))
    machine = SeenMachine("n1", total, 4000, 3, 2, 5, (("example.com/fpga", 1),), {"zone": "a"})
    assert GuardedPlace("old", ByNumbers()).score(machine, shape) == 4000 + 3 + 2 + 100 + 8000
    assert GuardedPlace("new", ByMachine()).score(machine, shape) == 4000 + 5 + 1 + 100


def test_a_place_that_does_not_keep_to_its_word_finds_room_all_the_same() -> None:
    numbers = count()
    world = a_world("place", lambda: next(numbers))
    world.submit(a_job("a"))
    assert world.where("a") == "onprem/n1"


@pytest.mark.parametrize("answer", [boom, leave, lambda: None, lambda: 0.5, lambda: "1"])
def test_machines_whose_score_fails_are_taken_as_they_joined(answer: Callable[[], Any]) -> None:
    world = a_world("place", answer)
    world.agent("n2")
    world.agent("n3")
    world.submit(*(a_job(name) for name in "abc"))
    assert [world.where(name) for name in "abc"] == ["onprem/n1", "onprem/n2", "onprem/n3"]
    assert failures(world) > 0


def test_a_policy_sees_nothing_of_a_job_that_changes_while_it_is_queued() -> None:
    seen: list[Job] = []

    class Spy(Own):
        def key(self, job: Job) -> int:
            seen.append(job)
            job.priority = 99
            assert job.extra.members is not None
            job.extra.members.pending = ()
            job.extra.deadline = 1
            return job.number

    policies = PolicySet(order=Choice("spy"), wait=Choice("never"))
    world = World(partial(load, more={"order.spy": lambda: Spy(boom)}), policies)
    world.submit(a_job("a").array(1, 3))
    assert [job.id for job in seen] == ["a"]
    assert world.job("a").priority == 0
    assert world.state.queued == 3
    assert (NO_EXTRA.deadline, world.job("a").extra.deadline) == (None, None)
    assert seen[0].latest is None


@pytest.mark.parametrize(
    ("axis", "made", "told"),
    [
        ("wait", boom, "^policy wait: own: boom with a second line"),
        ("wait", object, "wait: own cannot be created: AttributeError"),
        ("order", lambda: Own, "^policy order: own does not take these options: x; it takes none$"),
        ("backfill", object, "backfill: own cannot be created: AttributeError"),
        ("backfill", lambda: type("Odd", (), {"strict": "yes"}), "strict must be true or false"),
    ],
)
def test_a_policy_that_cannot_be_made_is_refused_in_one_line(
    axis: str, made: Callable[[], Any], told: str
) -> None:
    choice = Choice("own", {"x": 1} if "takes none" in told else {})
    chosen = structs.replace(PolicySet(), **{axis: choice})
    with pytest.raises(UnknownPolicy, match=told) as refused:
        load(chosen, {f"{axis}.own": made})
    assert "\n" not in str(refused.value)
    assert refused.value.axis == axis


def test_what_is_not_installed_any_more_is_made_up_for_by_the_fallback() -> None:
    chosen = PolicySet(
        wait=Choice("gone", {"max_wait": SECOND, "max_queue": 1}),
        order=Choice("gone"),
        backfill=Choice("gone"),
        place=Choice("gone"),
    )
    policies = load_surely(chosen)
    assert set(policies.missing) == {"wait", "order", "backfill", "place"}
    assert "there is no wait policy 'gone'" in policies.missing["wait"]
    assert (policies.max_wait, policies.max_queue) == (None, None), "what bounds its wait would rent"
    world = World(load_surely, chosen)
    world.agent("n1")
    world.agent("v1", cluster="cloud")
    world.submit(a_job("first"), a_job("second"))
    world.wait(seconds=1000)
    assert (world.where("first"), world.where("second")) == ("onprem/n1", None)
    reason = explain(world.engine, world.job("second")).reason
    assert isinstance(reason, PolicyFailed)
    assert reason.policy == "wait.gone"


def test_a_policy_that_is_disabled_is_replaced_for_its_axis_alone_and_remembered() -> None:
    world = a_world("wait", lambda: 5 * SECOND)
    world.submit(a_job("first"), a_job("second"))
    world.propose(DisablePolicy("wait", "own", 3 * SECOND))
    assert world.state.facts.policies.wait == Choice("never")
    assert list(world.happened(PolicyDisabled)) == [PolicyDisabled(world.now, "wait", "own", 3 * SECOND)]
    world.wait(seconds=1000)
    assert world.where("second") is None
    reason = explain(world.engine, world.job("second")).reason
    assert reason == PolicyFailed("wait.own", "it took 3s in one step and was disabled")
    world.propose(DisablePolicy("wait", "own", 3 * SECOND))
    assert len(list(world.happened(PolicyDisabled))) == 1, "it decides nothing any more"


def test_what_was_disabled_stays_so_until_its_axis_is_set() -> None:
    world = a_world("wait", lambda: 5 * SECOND)
    chosen = world.state.facts.policies
    world.propose(DisablePolicy("wait", "own", SECOND))
    fallen = world.state.facts.policies
    world.propose(SetPolicies(PolicySet(order=Choice("priority"), wait=fallen.wait), "ada"))
    assert set(world.state.policies.disabled) == {"wait"}
    world.propose(StartEpoch(2, (OWNED, RENTED), chosen))
    assert set(world.state.policies.disabled) == {"wait"}, "a restart brings nothing back"
    world.propose(SetPolicies(chosen, "ada"))
    assert not world.state.policies.disabled
    assert [note.how for note in world.state.policies.notes] == ["configured", "disabled", "set", "set"]


def test_what_people_set_stays_until_the_configuration_says_something_else_than_it_did() -> None:
    world = World(load, PolicySet(wait=Choice("never")))
    configured, chosen = PolicySet(wait=Choice("never")), PolicySet(wait=Choice("zero"))
    world.propose(SetPolicies(chosen, "ada"))
    world.propose(StartEpoch(2, (OWNED, RENTED), configured))
    assert world.state.facts.policies == chosen
    other = PolicySet(order=Choice("priority"))
    world.propose(StartEpoch(3, (OWNED, RENTED), other))
    assert world.state.facts.policies == other
    assert world.state.policies.configured == other


def test_the_last_hundred_changes_outlive_the_events_that_made_them() -> None:
    world = World(load, PolicySet(wait=Choice("never")))
    for number in range(1, 131):
        world.propose(SetPolicies(PolicySet(depth=number), f"user{number}"))
    checkpoints = Checkpoints()
    checkpoints.write(world.state)
    book = checkpoints.load().policies
    assert [note.who for note in book.notes] == [f"user{number}" for number in range(31, 131)]
    assert book.notes[-1].before == PolicySet(depth=129)
    assert book == world.state.policies


@pytest.mark.parametrize("score", [2**70, -(2**70), 10**4000])
def test_a_score_may_be_any_whole_number(score: int) -> None:
    world = a_world("place", lambda: score)
    world.submit(a_job("first"))
    assert world.where("first") == "onprem/n1"
    assert failures(world) == 0


def test_what_a_policy_says_when_it_fails_can_be_written_down() -> None:
    def odd() -> Any:
        raise ValueError("\udc80\0\x1b[2J")

    world = a_world("wait", odd)
    world.submit(a_job("first"), a_job("second"))
    (guard,) = world.engine.policies.guards
    assert guard.error == "ValueError: \ufffd\ufffd\ufffd[2J"
