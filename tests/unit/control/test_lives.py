"""A registration that was late on its way does not undo the one that overtook it."""

import pytest

from spillover.control.lives import Lives
from spillover.ports.commands import CommandError


def test_registrations_of_a_life_count_in_their_order() -> None:
    lives = Lives()
    lives.check("onprem/n1", "a", 1, present=True)
    lives.check("onprem/n1", "a", 3, present=True)
    for late in (1, 2, 3):
        with pytest.raises(CommandError, match="overtaken"):
            lives.check("onprem/n1", "a", late, present=True)
    lives.check("onprem/n2", "a", 1, present=True)
    lives.check("onprem/n1", "a", 4, present=True)


def test_an_earlier_life_is_over_when_a_later_one_has_registered() -> None:
    lives = Lives()
    lives.check("onprem/n1", "a", 7, present=True)
    lives.check("onprem/n1", "b", 1, present=True)
    with pytest.raises(CommandError, match="overtaken"):
        lives.check("onprem/n1", "a", 8, present=True)
    lives.check("onprem/n1", "b", 2, present=True)


def test_an_earlier_life_is_let_in_again_when_the_later_one_is_gone() -> None:
    lives = Lives()
    lives.check("onprem/n1", "a", 7, present=True)
    lives.check("onprem/n1", "b", 1, present=True)
    with pytest.raises(CommandError, match="overtaken"):
        lives.check("onprem/n1", "a", 7, present=False)
    lives.check("onprem/n1", "a", 8, present=False)
    with pytest.raises(CommandError, match="overtaken"):
        lives.check("onprem/n1", "b", 2, present=True)


def test_an_agent_that_does_not_count_is_let_in() -> None:
    lives = Lives()
    lives.check("onprem/n1", "a", 2, present=True)
    lives.check("onprem/n1", "a", 0, present=True)
