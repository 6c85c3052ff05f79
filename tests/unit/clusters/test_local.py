"""Agents on this machine: those that do not live are tried again, soon at first and never too rarely."""

from itertools import pairwise

from spillover.clusters.agents.local import LONGEST_PAUSE, LOOK, is_time


def test_an_agent_that_does_not_live_is_started_at_once_then_more_rarely_but_never_given_up() -> None:
    tries = [look for look in range(1, 100_000) if is_time(look)]
    pauses = [(later - sooner) * LOOK for sooner, later in pairwise(tries)]
    assert tries[0] == 1
    assert pauses[:4] == [LOOK, 2 * LOOK, 4 * LOOK, 8 * LOOK]
    assert max(pauses) == pauses[-1] == LONGEST_PAUSE == 30
