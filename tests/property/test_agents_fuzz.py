"""The server and its agents under faults: the stories of 300 seeds, stories that once went wrong, and bugs that must be found."""

from pathlib import Path

import msgspec
import pytest

from spillover.testing.faults.bugs import BUGS
from spillover.testing.faults.plans import Story, draw
from spillover.testing.faults.shrinking import shrink
from spillover.testing.faults.stories import play
from spillover.testing.fuzz import main, planted, play_seed, report

SEEDS = 300
CHUNK = 25
WITHIN = 1_000
"""Seeds among which a planted bug must be found."""
STORIES = sorted((Path(__file__).parents[1] / "fixtures" / "stories").glob("*.json"))


@pytest.mark.parametrize("first", range(1, SEEDS + 1, CHUNK))
def test_what_must_hold_of_agents_holds_whatever_happens(first: int) -> None:
    for seed in range(first, first + CHUNK):
        outcome = play_seed(seed)
        assert not outcome.breaches, "\n".join(report(play(shrink(outcome).story, tell=True)))


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_a_story_that_once_went_wrong_goes_well(path: Path) -> None:
    outcome = play(msgspec.json.decode(path.read_bytes(), type=Story), tell=True)
    assert not outcome.breaches, "\n".join(report(outcome))


@pytest.mark.parametrize("bug", sorted(BUGS))
def test_a_planted_bug_is_found(bug: str) -> None:
    found = next((seed for seed in range(1, WITHIN + 1) if play_seed(seed, bug).breaches), None)
    assert found is not None, f"no story within {WITHIN} seeds tells of {bug}"
    assert not play_seed(found).breaches, "the story goes wrong without the bug too"


def test_the_same_seed_tells_the_same_story() -> None:
    stories = [draw(seed) for seed in range(1, 11)]
    first = [play(story, tell=True).told for story in stories]
    assert [play(story, tell=True).told for story in stories] == first


def test_the_shortest_story_of_a_bug_is_shorter_and_goes_wrong_in_the_same_way() -> None:
    bug = "accepted-after-reclaim"
    with planted(bug):
        outcome = next(each for seed in range(1, WITHIN) if (each := play(draw(seed))).breaches)
        shortest = shrink(outcome)
    whole, rest = outcome.story, shortest.story
    assert len(rest.jobs) + len(rest.faults) < len(whole.jobs) + len(whole.faults)
    assert shortest.breaches[0].partition(":")[0] == outcome.breaches[0].partition(":")[0]


def test_the_program_tells_a_story_that_goes_wrong_and_keeps_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "story.json"
    words = ["--seeds", "1000", "--processes", "1", "--bug", "accepted-after-reclaim", "--save", str(kept)]
    assert main(words) == 1
    said = capsys.readouterr().out
    story = msgspec.json.decode(kept.read_bytes(), type=Story)
    assert f"--first {story.seed} --seeds 1 --bug accepted-after-reclaim" in said
    assert "BROKEN" in said


def test_the_program_says_that_all_is_well(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "2", "--processes", "2"]) == 0
    assert capsys.readouterr().out == "2 stories, seeds 1 to 2: all is well\n"
