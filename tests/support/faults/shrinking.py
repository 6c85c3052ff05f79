"""Shrinks a failing story: leaves out faults, jobs and agents one by one while it still fails."""

from collections.abc import Callable, Iterator

from msgspec.structs import replace

from tests.support.faults.plans import Story
from tests.support.faults.stories import Outcome, play


def shrink(outcome: Outcome, played: Callable[[Story], Outcome] = play, tries: int = 300) -> Outcome:
    """Return a shorter story that breaks the same invariant, or the given one if there is none."""
    best, left = outcome, tries
    wanted = _invariant(outcome)
    shorter = True
    while shorter and left > 0:
        shorter = False
        for story in _shorter(best.story):
            left -= 1
            tried = played(story)
            if tried.breaches and _invariant(tried) == wanted:
                best, shorter = tried, True
                break
            if left <= 0:
                break
    return best


def _invariant(outcome: Outcome) -> str:
    """Return the invariant that was broken first."""
    return outcome.breaches[0].partition(":")[0]


def _shorter(story: Story) -> Iterator[Story]:
    """Yield stories with one part less, the largest parts first."""
    for size in (len(story.jobs) // 2, 1):
        if size:
            for at in range(0, len(story.jobs), size):
                yield replace(story, jobs=story.jobs[:at] + story.jobs[at + size :])
    for at in range(len(story.faults)):
        yield replace(story, faults=story.faults[:at] + story.faults[at + 1 :])
    agents = story.setting.agents
    for at in range(len(agents)) if len(agents) > 1 else ():
        gone = agents[at].name
        setting = replace(story.setting, agents=agents[:at] + agents[at + 1 :])
        faults = tuple(fault for fault in story.faults if getattr(fault, "agent", "") != gone)
        yield replace(story, setting=setting, faults=faults)
    for at, job in enumerate(story.jobs):
        if job.members > 1:
            fewer = replace(job, members=job.members // 2)
            yield replace(story, jobs=(*story.jobs[:at], fewer, *story.jobs[at + 1 :]))
