"""What a server remembers beside its book only spares it work: one that starts from a checkpoint decides the same, and so does a replay."""

import pytest

from spillover.deciding.budgets import check as budget_check
from spillover.deciding.cycle import cycle, placing
from spillover.deciding.engine import Engine
from spillover.deciding.queue import turns
from spillover.deciding.replay import Replay
from spillover.policies.loading import load, load_surely
from tests.support.sameness import Checkpoints, said_by
from tests.support.scheduling_stories import ClustersStory, SharingStory, Story, TightStory, WilderStory
from tests.support.tiers import few_of

STEPS = 150


def tell(story: Story) -> None:
    """Before every step a server starts anew from a checkpoint, and must decide as the one that went on; then replay it all."""
    world, checkpoints = story.world, Checkpoints()
    for _ in range(STEPS):
        proposals = story.next()
        checkpoints.write(world.state)
        twin = Engine(checkpoints.load(), load, now=world.engine.now)
        assert twin.step(world.now, proposals).events == world.step(*proposals).events
    assert said_by(twin.state) == said_by(world.state)
    replay = Replay(load_surely)
    for revision, event in enumerate(world.events, 1):
        if not replay.take(revision, event):
            break
    replay.end(len(world.events))
    assert replay.difference is None


@pytest.mark.parametrize("seed", [*few_of(1, range(8)), 34, 71, 98, 170, 231])
def test_a_server_that_starts_anew_decides_the_same(seed: int) -> None:
    tell(Story(seed))


@pytest.mark.parametrize("seed", [*few_of(1, range(12)), 50, 127, 191])
def test_so_it_does_when_policies_agents_and_the_configuration_change(seed: int) -> None:
    tell(WilderStory(seed))


@pytest.mark.parametrize("seed", few_of(2, range(24)))
def test_so_it_does_when_elastic_gangs_share_what_is_free(seed: int) -> None:
    tell(SharingStory(seed))


@pytest.mark.parametrize("seed", few_of(2, range(24)))
def test_so_it_does_when_clusters_come_and_go(seed: int) -> None:
    tell(ClustersStory(seed))


@pytest.mark.parametrize("seed", [*few_of(1, range(8)), 11, 17, 170])
def test_so_it_does_when_looks_and_plans_are_bounded_so_tightly_that_most_have_to_wait_for_their_turn(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placing, "LOOKS", 1 + seed % 3)
    monkeypatch.setattr(budget_check, "REFUSALS", 1)
    monkeypatch.setattr(budget_check, "ALL_REFUSALS", 1 + seed % 2)
    monkeypatch.setattr(turns, "MOST", 1 + seed % 5)
    monkeypatch.setattr(placing, "MOST_PLACED", 1 + seed % 2)
    monkeypatch.setattr(cycle, "MOST_WAITS", 1 + seed % 4)
    tell((Story, WilderStory, TightStory)[seed % 3](seed))


@pytest.mark.parametrize("seed", [47, 137, 142, 245])
def test_alarms_that_fall_due_together_ring_in_one_order(seed: int) -> None:
    tell(Story(seed))
