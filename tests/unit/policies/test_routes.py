"""Whose queue a prefetched lease joins."""

from collections import Counter

import pytest

from spillover.core.proposals import SetPolicies
from spillover.deciding.cycle.draws import mixed, two_of
from spillover.deciding.cycle.plan import digest_of
from spillover.deciding.guard import GuardedRoute, ShownMachine
from spillover.model.policy import Choice, PolicySet
from spillover.policies.loading import UnknownPolicy, load
from spillover.policies.route import Biased, LeastLoaded, PowerOfTwo, RoundRobin
from spillover.testing.builders import a_job
from spillover.testing.world import World

FOUR = [
    ShownMachine(0, 3, 700, 4),
    ShownMachine(1, 9, 100, 1),
    ShownMachine(2, 9, 50, 3),
    ShownMachine(3, 1, 900, 2),
]


def test_least_loaded_takes_who_takes_the_most_more_and_the_first_among_equals() -> None:
    assert LeastLoaded().pick(FOUR, 4, 0).index == 1


def test_round_robin_takes_whose_turn_was_the_longest_ago() -> None:
    assert RoundRobin().pick(FOUR, 4, 0).index == 1


def test_power_of_two_takes_the_less_loaded_of_two_and_the_most_loaded_never() -> None:
    picked = Counter(PowerOfTwo().pick(FOUR, 4, mixed(7, at)).index for at in range(600))
    assert picked[3] == 0
    assert picked[2] > picked[1] > picked[0] > 50
    assert PowerOfTwo().pick(FOUR[3:], 4, 99).index == 3


def test_biased_prefers_those_who_joined_first_while_they_have_room() -> None:
    assert Biased(0.25).pick(FOUR, 4, 0).index == 0
    assert Biased(0.5).pick(FOUR, 4, 0).index == 1
    assert Biased(0.25).pick(FOUR[1:], 4, 0).index == 2, "the preferred one is full"
    assert Biased(0.01).pick(FOUR, 4, 0).index == 0, "one is preferred at the least"


@pytest.mark.parametrize("share", [0, 1.5])
def test_a_share_is_a_part_of_the_agents(share: float) -> None:
    with pytest.raises(UnknownPolicy, match="share"):
        load(PolicySet(route=Choice("biased", {"share": share})))


def test_draws_are_the_same_for_the_same_seed_and_reach_everybody() -> None:
    assert mixed(1, 2) == mixed(1, 2) != mixed(2, 1)
    assert {two_of(3, mixed(5, at)) for at in range(200)} == {
        (first, second) for first in range(3) for second in range(3) if first != second
    }
    assert two_of(1, 12345) == (0, 0)


class Wild:
    """Answers with what is not there, or not at all."""

    def __init__(self, answer: object) -> None:
        self._answer = answer

    def pick(self, queues: object, agents: int, seed: int) -> object:
        del queues, agents, seed
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


@pytest.mark.parametrize("answer", [ValueError("no"), None, ShownMachine(9, 9, 9, 9), 1])
def test_a_route_of_somebody_else_that_fails_is_made_up_for(answer: object) -> None:
    guard = GuardedRoute("wild", Wild(answer))
    assert guard.pick(FOUR, 4, 0).index == 1
    assert guard.failures == 1


def test_policies_that_route_as_always_are_called_as_they_were_before_there_was_a_choice() -> None:
    assert digest_of(PolicySet()).hex() == "d0b0d39ae238dc89fb768398a9786c2c", "as 0.1.0 wrote it"
    assert digest_of(PolicySet()) == digest_of(PolicySet(route=Choice("least_loaded")))
    assert digest_of(PolicySet()) != digest_of(PolicySet(route=Choice("biased")))


def busy(route: str, agents: int = 4) -> World:
    """Agents of one CPU, each with a running job and a short past."""
    world = World(load, PolicySet(wait=Choice("never")))
    for number in range(agents):
        world.agent(f"n{number}", queue=4)
    for number in range(agents):
        world.submit(a_job(f"warm{number}"))
    for number in range(agents):
        world.start(f"warm{number}")
        world.finish(f"warm{number}", ran=0.01)
    for number in range(agents):
        world.submit(a_job(f"runs{number}"))
        world.start(f"runs{number}")
    world.propose(SetPolicies(PolicySet(wait=Choice("never"), route=Choice(route)), "ada"))
    return world


def ahead(world: World) -> list[int]:
    return [len(node.ahead) for node in world.state.nodes.values()]


@pytest.mark.parametrize(
    ("route", "spread"),
    [("least_loaded", [2, 2, 1, 1]), ("round_robin", [2, 2, 1, 1]), ("biased", [4, 1, 1, 0])],
)
def test_leases_ahead_of_room_are_spread_as_the_route_says(route: str, spread: list[int]) -> None:
    world = busy(route)
    for number in range(6):
        world.submit(a_job(f"j{number}"))
    assert ahead(world) == spread


@pytest.mark.parametrize("route", ["least_loaded", "round_robin", "power_of_two", "biased"])
def test_while_anybody_has_room_in_its_queue_a_lease_finds_one(route: str) -> None:
    world = busy(route)
    world.submit(*[a_job(f"j{number}") for number in range(20)])
    assert ahead(world) == [4, 4, 4, 4]
    assert world.state.queued == 4
