"""Pools whose servers die and whose provider fails in every way: nothing is rented twice, and nothing is left behind."""

import pytest

from spillover.policies.loading import load
from tests.support.pools.clusters import ClustersStory
from tests.support.pools.jobs import JobsStory
from tests.support.pools.story import Story
from tests.support.tiers import few_of

SEEDS = range(1, 201)


@pytest.mark.parametrize("seed", few_of(12, SEEDS))
def test_each_wish_is_one_machine_and_none_is_left(seed: int) -> None:
    Story(seed, load).play()


@pytest.mark.parametrize("seed", few_of(18, SEEDS))
def test_no_job_is_lost_or_runs_twice_and_what_is_paid_was_held(seed: int) -> None:
    JobsStory(seed, load).play()


@pytest.mark.parametrize("seed", few_of(10, SEEDS))
def test_the_same_holds_for_whole_clusters_and_no_node_with_a_task_is_dropped(seed: int) -> None:
    ClustersStory(seed, load).play()


@pytest.mark.parametrize("seed", [70010, 70376, 80199, 80377])
def test_whole_clusters_whose_stories_once_found_bugs(seed: int) -> None:
    """One failed and was kept again and again, one had few empty nodes for a gang, and two grew while they shrank."""
    ClustersStory(seed, load).play()
