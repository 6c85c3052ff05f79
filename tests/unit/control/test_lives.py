"""A registration that was late on its way does not undo the one that overtook it; of two agents of one name, one is fenced."""

import pytest
from msgspec.structs import replace

from spillover.clusters.agents.hub import Hub
from spillover.control.agents.lease_sender import LeaseSender
from spillover.control.agents.registrations import Followed, Registrations
from spillover.control.agents.requests import AgentRequests, AgentWelcome, Introduction
from spillover.core.events import Lease
from spillover.model.ids import ClusterName, NodeName
from spillover.model.resources import Resources
from spillover.model.units import DAY, SECOND
from spillover.ports.commands import CommandError
from tests.support.inside import Inside

N1 = "onprem/n1"


def late(lives: Registrations, life: str, number: int, *, present: str | None) -> bool:
    """Whether a registration is refused as a late one, which fences nobody."""
    with pytest.raises(CommandError, match="replaced this one") as refused:
        lives.check(N1, life, number, present=present)
    return not isinstance(refused.value, Followed)


def test_registrations_of_a_life_count_in_their_order() -> None:
    lives = Registrations()
    lives.check(N1, "a", 1, present=None)
    lives.check(N1, "a", 3, present="a")
    assert all(late(lives, "a", number, present="a") for number in (1, 2, 3))
    lives.check("onprem/n2", "a", 1, present=None)
    lives.check(N1, "a", 4, present="a")


def test_an_earlier_life_is_fenced_when_a_later_one_has_registered() -> None:
    lives = Registrations()
    lives.check(N1, "a", 7, present=None)
    lives.check(N1, "b", 1, present="a")
    with pytest.raises(Followed, match="another agent took the name 'n1'"):
        lives.check(N1, "a", 8, present="b")
    lives.check(N1, "b", 2, present="b")


def test_a_late_registration_of_an_earlier_life_fences_nobody() -> None:
    lives = Registrations()
    lives.check(N1, "a", 7, present=None)
    lives.check(N1, "b", 1, present="a")
    assert all(late(lives, "a", number, present="b") for number in (1, 6, 7))


def test_a_refused_registration_that_comes_once_more_is_late() -> None:
    lives = Registrations()
    lives.check(N1, "a", 7, present=None)
    lives.check(N1, "b", 1, present="a")
    with pytest.raises(Followed):
        lives.check(N1, "a", 8, present="b")
    assert late(lives, "a", 8, present="b")
    assert late(lives, "a", 8, present=None)


def test_nobody_is_fenced_by_a_life_that_is_not_registered_for_good() -> None:
    lives = Registrations()
    lives.check(N1, "a", 7, present=None)
    lives.check(N1, "b", 1, present="a")
    assert late(lives, "a", 8, present="a")


def test_an_earlier_life_is_let_in_again_when_the_later_one_is_gone() -> None:
    lives = Registrations()
    lives.check(N1, "a", 7, present=None)
    lives.check(N1, "b", 1, present="a")
    assert late(lives, "a", 7, present=None)
    lives.check(N1, "a", 8, present=None)
    with pytest.raises(Followed):
        lives.check(N1, "b", 2, present="a")


def test_an_agent_that_does_not_count_is_let_in() -> None:
    lives = Registrations()
    lives.check(N1, "a", 2, present=None)
    lives.check(N1, "a", 0, present="a")


# --- two agents of one name at a requests


class Namesakes:
    """Agents that live under one name and register with one server."""

    def __init__(self, control: Inside) -> None:
        self.control = control
        self.hub = Hub()
        self.requests = AgentRequests(control.loop, self.hub, DAY)
        LeaseSender(control.loop, self.hub, control.specs)
        self._numbers: dict[str, int] = {}

    async def register(self, life: str, *held: Lease) -> AgentWelcome:
        self._numbers[life] = number = self._numbers.get(life, 0) + 1
        intro = Introduction(
            ClusterName("onprem"), NodeName("n1"), Resources(1000, 2**40), (), {}, 0, tuple(held), 0
        )
        return await self.requests.register(replace(intro, life=life, number=number))


async def test_who_is_fenced_holds_no_lease(control: Inside) -> None:
    agents = Namesakes(control)
    (job,) = await control.submit("train")
    await agents.register("a")
    first = control.lease(job)
    await agents.register("b")
    with pytest.raises(Followed):
        await agents.register("a", first)
    assert control.lease(job).seq > first.seq


async def test_two_agents_of_one_name_do_not_take_it_from_each_other_in_turn(control: Inside) -> None:
    agents = Namesakes(control)
    (job,) = await control.submit("train")
    await agents.register("a")
    stays = await agents.register("b")
    lease = control.lease(job)
    for _ in range(100):
        with pytest.raises(Followed):
            await agents.register("a")
        assert not (await agents.requests.heartbeat(stays.incarnation)).fenced
        control.clock.pass_by(agents.requests.terms().heartbeat / SECOND)
    assert control.lease(job) == lease
    # Neither when the one that has it connects anew, and the other one asks again at once.
    for _ in range(100):
        stays = await agents.register("b", lease)
        assert stays.keep == (lease,)
        with pytest.raises(Followed):
            await agents.register("a")


async def test_who_waits_for_a_name_has_it_when_the_other_one_is_gone(control: Inside) -> None:
    agents = Namesakes(control)
    await agents.register("a")
    await agents.register("b")
    with pytest.raises(Followed):
        await agents.register("a")
    control.clock.pass_by(2 * agents.requests.terms().heartbeat / SECOND)
    await agents.register("a")
    with pytest.raises(Followed):
        await agents.register("b")
