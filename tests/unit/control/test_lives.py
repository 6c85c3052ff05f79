"""A registration that was late on its way does not undo the one that overtook it."""

import pytest

from spillover.control.lives import Lives
from spillover.ports.commands import CommandError


def test_registrations_of_a_life_count_in_their_order() -> None:
    lives = Lives()
    lives.check("onprem/n1", "a", 1)
    lives.check("onprem/n1", "a", 3)
    for late in (1, 2, 3):
        with pytest.raises(CommandError, match="overtaken"):
            lives.check("onprem/n1", "a", late)
    lives.check("onprem/n2", "a", 1)
    lives.check("onprem/n1", "a", 4)


def test_an_earlier_life_is_over_when_a_later_one_has_registered() -> None:
    lives = Lives()
    lives.check("onprem/n1", "a", 7)
    lives.check("onprem/n1", "b", 1)
    with pytest.raises(CommandError, match="overtaken"):
        lives.check("onprem/n1", "a", 8)
    lives.check("onprem/n1", "b", 2)


def test_an_agent_that_does_not_count_is_let_in() -> None:
    lives = Lives()
    lives.check("onprem/n1", "a", 2)
    lives.check("onprem/n1", "a", 0)
