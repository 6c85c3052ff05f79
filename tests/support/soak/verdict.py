"""Checks the results of a soak; each check is a row of the report."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from msgspec import Struct

from spillover.core.events import AnyEvent, JobEnded, MembersDropped
from spillover.model import ranges
from spillover.model.ids import JobId, split_member
from tests.support.soak.kubernetes import SICKNESS
from tests.support.soak.samples import Rest

MIB: Final = 2**20
KNOWN: Final[tuple[tuple[str, str], ...]] = (
    (r"stream was cut .*which is not connected", "an agent went away whose output somebody followed"),
    (SICKNESS, "the played Kubernetes cluster does not answer for some seconds, once in each half"),
)
"""Log lines that the load causes, each with its cause."""


class Row(Struct, frozen=True):
    """One check."""

    what: str
    before: str
    """Idle after a third of the time; empty if nothing is compared."""
    after: str
    bound: str
    well: bool


def grown(before: Rest, after: Rest) -> Iterator[Row]:
    """Check that the idle server does not use more than before."""
    one, two = before.sample, after.sample
    memory = one.memory * 0.15 + 24 * MIB
    yield _row("memory (MiB)", one.memory / MIB, two.memory / MIB, memory / MIB)
    yield _row("open files", one.files, two.files, 8)
    yield _row("threads", one.threads, two.threads, 8)  # `to_thread` starts threads on demand and keeps them
    yield _row("asyncio tasks", one.tasks, two.tasks, 8)
    yield _row("Python objects", before.count, after.count, before.count * 0.1 + 2_000)


def _row(what: str, before: float, after: float, more: float) -> Row:
    return Row(what, f"{before:,.0f}", f"{after:,.0f}", f"at most {more:,.0f} more", after - before <= more)


def growing(before: Rest, after: Rest, most: int = 8) -> list[str]:
    """Return the types whose number of objects grew most."""
    more = Counter({name: count - before.objects[name] for name, count in after.objects.items()})
    return [f"{name}: {count:+,}" for name, count in more.most_common(most) if count > 0]


def unasked(log: str) -> list[str]:
    """Return warnings and errors of a log that the load does not explain."""
    return [
        line
        for line in log.splitlines()
        if re.search(r"\[(warning|error|critical) *\]|Traceback|^(WARNING|ERROR|CRITICAL) ", _plain(line))
        and not any(re.search(pattern, _plain(line)) for pattern, _ in KNOWN)
    ]


def _plain(line: str) -> str:
    """Remove colours from a line."""
    return re.sub(r"\x1b\[[\d;]*m", "", line)


def ended_otherwise(
    expected: Mapping[str, str], sizes: Mapping[str, int], events: Iterable[AnyEvent]
) -> list[str]:
    """Return jobs that did not end exactly once and as expected; count members of arrays."""
    ends: Counter[JobId] = Counter()
    states: dict[str, str] = {}
    members: Counter[str] = Counter()
    for event in events:
        if isinstance(event, JobEnded):
            ends[event.job] += 1
            states[event.job] = event.state.value
            if (member := split_member(event.job)) is not None:
                members[member[0]] += 1
        elif isinstance(event, MembersDropped):
            members[event.array] += ranges.size(event.members)
    wrong = [f"{job} ended {count} times" for job, count in ends.items() if count > 1]
    wrong += [
        f"{job} is {states.get(job, 'not ended')}, not {state}"
        for job, state in expected.items()
        if states.get(job) != state
    ]
    wrong += [
        f"{members[job]} of {size} members of {job} ended"
        for job, size in sizes.items()
        if members[job] != size
    ]
    wrong += [f"nobody submitted {job}" for job in ends if split_member(job) is None and job not in expected]
    return wrong


def table(rows: Iterable[Row]) -> Iterator[str]:
    """Yield the rows, aligned."""
    cells = [("check", "before", "after", "bound", "")]
    cells += [(row.what, row.before, row.after, row.bound, "ok" if row.well else "FAILED") for row in rows]
    widths = [max(len(row[at]) for row in cells) for at in range(5)]
    for what, before, after, bound, well in cells:
        yield (
            f"{what:{widths[0]}}  {before:>{widths[1]}}  {after:>{widths[2]}}  {bound:{widths[3]}}  {well}".rstrip()
        )
