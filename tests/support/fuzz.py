"""Runs many fault stories, one for each seed, and prints the shortest form of the first that fails.

After the stories of agents, those of pools are run: machines that are wanted at random, machines for jobs, and whole clusters.
"""

import argparse
import contextlib
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TextIO, TypeVar

import msgspec
from msgspec import structs

from spillover.model.units import SECOND
from spillover.policies.loading import load
from tests.support.faults import bugs as agent_bugs
from tests.support.faults.drawing import draw
from tests.support.faults.plans import Story
from tests.support.faults.shrinking import shrink
from tests.support.faults.situations import Counts
from tests.support.faults.stories import Outcome, describe, play
from tests.support.pools import bugs as pool_bugs
from tests.support.pools.clusters import ClustersStory
from tests.support.pools.jobs import JobsStory
from tests.support.pools.story import Story as PoolStory
from tests.support.pools.story import Told

A = TypeVar("A")
B = TypeVar("B")

POOL_STORIES = (PoolStory, JobsStory, ClustersStory)
SHOWN = 1.0
"""Seconds between two lines of progress."""


def main(words: Sequence[str] | None = None) -> int:
    """Run seeds until one fails or all are done; return 1 if one failed."""
    options = _options().parse_args(words)
    if options.pool is not None:
        return pools(range(options.pool, options.pool + 1), 1, options.bug)
    seeds = range(options.first, options.first + options.seeds)
    if options.bug in pool_bugs.BUGS:
        return pools(seeds, options.processes, options.bug)
    failed, counts = None, Counts()
    for outcome in _progress(_outcomes(seeds, options.processes, options.bug), len(seeds), sys.stderr):
        if outcome.breaches:
            failed = outcome
            break
        counts.add(outcome.met)
    if failed is None:
        print(f"{len(seeds)} stories, seeds {seeds.start} to {seeds.stop - 1}: all is well")  # noqa: T201
        for line in counts.table():
            print(line)  # noqa: T201
        return 0 if options.bug else pools(seeds, options.processes)
    print(f"seed {failed.story.seed} goes wrong; looking for its shortest story", file=sys.stderr)  # noqa: T201
    with planted(options.bug):
        told = play(shrink(failed).story, tell=True)
    for line in report(told, options.bug):
        print(line)  # noqa: T201
    if options.save is not None:
        options.save.write_bytes(msgspec.json.format(msgspec.json.encode(told.story)))
    return 1


def pools(seeds: range, processes: int, bug: str = "") -> int:
    """Play the stories of pools, and print what they met; return 1 if one failed."""
    met: Counter[str] = Counter()
    for told in _spread(_play_pool, [(seed, bug) for seed in seeds], processes):
        if isinstance(told, str):
            again = f"python -m tests.support.fuzz --pool {told.split()[1].rstrip(':')}{_planting(bug)}"
            print(f"BROKEN  {told}\nagain:  {again}")  # noqa: T201
            return 1
        met.update(told)
    kinds = len(_pool_stories(bug))
    print(f"{kinds * len(seeds)} stories of pools: all is well")  # noqa: T201
    for name, times in met.items():
        print(f"{name:12} {times:>11,}")  # noqa: T201
    return 0


def _pool_stories(bug: str) -> tuple[type[PoolStory], ...]:
    """Return the kinds of stories to play: those that find a bug, or all."""
    return (pool_bugs.BUGS[bug].found_by,) if bug else POOL_STORIES


def _play_pool(seed_and_bug: tuple[int, str]) -> dict[str, int] | str:
    """Play the stories of a seed; return what they met, or what went wrong."""
    seed, bug = seed_and_bug
    met: Counter[str] = Counter()
    try:
        for kind in _pool_stories(bug):
            met.update(structs.asdict(play_pool(kind, seed, bug)))
    except Exception as error:  # noqa: BLE001 - whatever a seed meets is its finding
        return f"seed {seed}: {type(error).__name__}: {error}"
    return dict(met)


def play_pool(kind: type[PoolStory], seed: int, bug: str = "") -> Told:
    """Play a story of pools; raise Wrong."""
    with pool_bugs.BUGS[bug].plant() if bug else contextlib.nullcontext():
        return kind(seed, load).play()


def report(told: Outcome, bug: str = "") -> Iterator[str]:
    """Yield what went wrong in a story, and how to reproduce it."""
    yield from tell_story(told.story)
    yield ""
    yield "What happened, in seconds:"
    yield from (f"{at / SECOND:10.3f}  {what}" for at, what in told.told)
    yield ""
    yield from (f"BROKEN  {breach}" for breach in told.breaches)
    again = f"python -m tests.support.fuzz --first {told.story.seed} --seeds 1"
    yield f"again:  {again}{_planting(bug)}"


def _planting(bug: str) -> str:
    """Return the option that plants a bug."""
    return f" --bug {bug}" if bug else ""


def tell_story(story: Story) -> Iterator[str]:
    """Yield the setting, the jobs and the faults of a story."""
    setting = story.setting
    yield (
        f"Story of seed {story.seed}: heartbeat {setting.heartbeat / SECOND:g} s, lost after "
        f"{setting.lost_after / SECOND:g} s, server's clock x{setting.server_rate:.4f}, route {setting.route}"
    )
    for agent in setting.agents:
        yield f"  agent {agent.name}: {agent.cpus} CPUs, queue {agent.queue}, clock x{agent.rate:.4f}"
    for job in story.jobs:
        parts = [f"{job.name} at {job.at / SECOND:.2f} s runs {job.runs / SECOND:.3f} s"]
        parts += [f"{job.members} members"] if job.members else []
        parts += [f"walltime {job.walltime / SECOND:.2f} s"] if job.walltime else []
        parts += [f"fails {job.failures} times"] if job.failures else []
        parts += [f"cancelled at {job.cancel / SECOND:.2f} s"] if job.cancel is not None else []
        yield f"  job {', '.join(parts)}"
    for fault in story.faults:
        yield f"  fault at {fault.at / SECOND:.2f} s: {describe(fault)}"


@contextlib.contextmanager
def planted(bug: str) -> Iterator[None]:
    """Plant the bug with this name; none if it is empty."""
    with agent_bugs.BUGS[bug]() if bug else contextlib.nullcontext():
        yield


def play_seed(seed: int, bug: str = "") -> Outcome:
    """Play the story of a seed."""
    with planted(bug):
        return play(draw(seed))


def _play(seed_and_bug: tuple[int, str]) -> Outcome:
    return play_seed(*seed_and_bug)


def _outcomes(seeds: range, processes: int, bug: str) -> Iterator[Outcome]:
    """Yield the outcomes of all seeds, in no order."""
    yield from _spread(_play, [(seed, bug) for seed in seeds], processes)


def _spread(play_one: Callable[[A], B], asked: Sequence[A], processes: int) -> Iterator[B]:
    """Yield what each call returns, in no order."""
    if processes == 1:
        yield from map(play_one, asked)
        return
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        yield from pool.imap_unordered(play_one, asked, chunksize=8)


def _progress(outcomes: Iterator[Outcome], total: int, to: TextIO) -> Iterator[Outcome]:
    """Print the progress from time to time."""
    begun = shown = time.monotonic()
    for done, outcome in enumerate(outcomes, 1):
        yield outcome
        now = time.monotonic()
        if now - shown >= SHOWN or done == total:
            shown = now
            left = (now - begun) / done * (total - done)
            print(f"\r{done} of {total} stories, {left:.0f} s to go ", end="", file=to, flush=True)
    print(file=to)


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many stories")
    parser.add_argument("--first", type=int, default=1, help="the number of the first")
    parser.add_argument("--pool", type=int, help="play only the stories of pools of this seed")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--save", type=Path, help="a file for the shortest story, to be kept as a test")
    parser.add_argument(
        "--bug",
        choices=sorted([*agent_bugs.BUGS, *pool_bugs.BUGS]),
        default="",
        help="plant a known bug, to see it found",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
