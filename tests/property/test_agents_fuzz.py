"""The server and its agents under faults: the stories of 300 seeds, stories that once went wrong, and bugs that must be found."""

import functools
import string
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from spillover.agent.connection.link import SLOW_DELAY
from spillover.agent.leases.state import AgentState
from spillover.model.units import SECOND
from tests.support.faults import agents
from tests.support.faults.bugs import BUGS
from tests.support.faults.drawing import draw
from tests.support.faults.plans import AgentPlan, JobPlan, ReplaceAgent, Story
from tests.support.faults.shrinking import shrink
from tests.support.faults.situations import Counts, Situation
from tests.support.faults.stories import Outcome, play
from tests.support.fuzz import main, planted, play_seed, report
from tests.support.tiers import few_of

SEEDS = 300
FEW = 25
"""Seeds that every change is tried with."""
CHUNK = 25
FOUND = {"a restart that came after the end of its lease was given back": 50_697}
"""Seeds that once went wrong, by what they found."""
WITHIN = 1_000
"""Seeds among which a planted bug must be found."""
STORIES = sorted((Path(__file__).parents[1] / "fixtures" / "stories").glob("*.json"))
"""Each has the name of the bug that it was kept for."""


@functools.cache
def played(seed: int) -> Outcome:
    return play_seed(seed)


def read(path: Path) -> Story:
    return msgspec.json.decode(path.read_bytes(), type=Story)


@pytest.mark.parametrize(
    "first",
    few_of(FEW // CHUNK, range(1, SEEDS + 1, CHUNK)),
)
def test_what_must_hold_of_agents_holds_whatever_happens(first: int) -> None:
    for seed in range(first, first + CHUNK):
        outcome = played(seed)
        assert not outcome.breaches, "\n".join(report(play(shrink(outcome).story, tell=True)))


@pytest.mark.parametrize("seed", FOUND.values(), ids=FOUND.keys())
def test_a_seed_that_once_went_wrong_goes_well(seed: int) -> None:
    outcome = played(seed)
    assert not outcome.breaches, "\n".join(report(play(outcome.story, tell=True)))


@pytest.mark.slow
def test_stories_meet_every_situation() -> None:
    counts = Counts()
    for seed in range(1, SEEDS + 1):
        counts.add(played(seed).met)
        if not counts.never():
            return
    pytest.fail(f"no story of {SEEDS} has {', '.join(map(repr, counts.never()))}")


@pytest.mark.slow
def test_tasks_run_twice_in_many_stories() -> None:
    twice = [seed for seed in range(1, SEEDS + 1) if played(seed).met[Situation.OVERLAP]]
    assert len(twice) >= SEEDS // 20


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_a_story_that_once_went_wrong_goes_well(path: Path) -> None:
    outcome = play(read(path), tell=True)
    assert not outcome.breaches, "\n".join(report(outcome))


@pytest.mark.slow
@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_a_story_goes_wrong_with_the_bug_that_it_was_kept_for(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agents, "OLD", string.hexdigits)  # all that were kept are of the time before streams
    with planted(path.stem):
        outcome = play(read(path))
    again = f"python -m tests.support.fuzz --seeds 10000 --bug {path.stem} --save {path.name}"
    assert outcome.breaches, f"it shows nothing any more; this finds another one: {again}"


@pytest.mark.slow
@pytest.mark.parametrize("bug", sorted(BUGS.keys() - {path.stem for path in STORIES}))
def test_a_planted_bug_is_found(bug: str) -> None:
    found = next((seed for seed in range(1, WITHIN + 1) if play_seed(seed, bug).breaches), None)
    assert found is not None, f"no story within {WITHIN} seeds tells of {bug}"
    assert not played(found).breaches, "the story goes wrong without the bug too"


def test_two_agents_that_live_under_one_name_do_not_fight_over_it() -> None:
    story = read(STORIES[0])
    plan = AgentPlan("n1", cpus=1, queue=1, rate=1.0)
    setting = replace(story.setting, agents=(plan,), heartbeat=SECOND, lost_after=10 * SECOND)
    jobs = (JobPlan("j1", at=SECOND, runs=5 * SECOND, members=40),)
    both = ReplaceAgent(at=4 * SECOND, lasts=120 * SECOND, agent="n1", sleeps=2 * SECOND)
    outcome = play(replace(story, setting=setting, jobs=jobs, faults=(both,)), tell=True)
    assert not outcome.breaches, "\n".join(report(outcome))
    assert outcome.met[Situation.FENCED] == 1, "the first one, when it wakes up"
    assert 120 / SLOW_DELAY - 2 <= outcome.met[Situation.NAMESAKE] <= 2 * 120 / SLOW_DELAY
    assert outcome.lasted < (4 + 40 * 5 + 10) * SECOND, "the other one works without a pause"


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
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "2 stories, seeds 1 to 2: all is well"
    assert [line for line in said if line.startswith(Situation.STORM)]
    pools = said.index("6 stories of pools: all is well")
    for table in (said[1:pools], said[pools + 1 :]):
        assert len({len(line) for line in table}) == 1, "numbers stand below each other"


def test_a_story_that_goes_round_in_circles_is_noticed_and_told() -> None:
    def never_ends() -> bool:
        while True:
            pass

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AgentState, "wake", lambda _: never_ends())
        outcome = play(draw(1), limit=0.2)
    assert [breach.partition(":")[0] for breach in outcome.breaches] == ["time goes on"]
