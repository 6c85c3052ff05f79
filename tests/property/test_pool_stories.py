"""Pools whose servers die and whose provider fails in every way: nothing is rented twice, and nothing is left behind.

Bugs that are planted must be found.
"""

import pytest

from spillover.policies.loading import load
from tests.support.fuzz import main, play_pool
from tests.support.pools.bugs import BUGS
from tests.support.pools.clusters import ClustersStory
from tests.support.pools.jobs import JobsStory
from tests.support.pools.story import Story, Wrong
from tests.support.tiers import few_of

SEEDS = range(1, 201)
WITHIN = 40
"""Seeds among which a planted bug must be found."""


@pytest.mark.parametrize("seed", few_of(6, SEEDS))
def test_each_wish_is_one_machine_and_none_is_left(seed: int) -> None:
    Story(seed, load).play()


@pytest.mark.parametrize("seed", few_of(6, SEEDS))
def test_no_job_is_lost_or_runs_twice_and_what_is_paid_was_held(seed: int) -> None:
    JobsStory(seed, load).play()


@pytest.mark.parametrize("seed", few_of(4, SEEDS))
def test_the_same_holds_for_whole_clusters_and_no_node_with_a_task_is_dropped(seed: int) -> None:
    ClustersStory(seed, load).play()


@pytest.mark.parametrize("seed", [70010, 70376, 80199, 80377])
def test_whole_clusters_whose_stories_once_found_bugs(seed: int) -> None:
    """One failed and was kept again and again, one had few empty nodes for a gang, and two grew while they shrank."""
    ClustersStory(seed, load).play()


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug: str) -> None:
    found_by = BUGS[bug].found_by
    for seed in range(1, WITHIN + 1):
        try:
            play_pool(found_by, seed, bug)
        except Wrong:
            play_pool(found_by, seed)  # it goes well without the bug
            return
    pytest.fail(f"no story within {WITHIN} seeds tells of {bug}")


def test_the_program_tells_which_story_of_pools_goes_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "5", "--processes", "1", "--bug", "random-token"]) == 1
    said = capsys.readouterr().out
    assert "BROKEN  seed 1: Wrong" in said
    assert "--pool 1 --bug random-token" in said
    assert main(["--pool", "1"]) == 0
