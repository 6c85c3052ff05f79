"""Decides how long a gang on an external cluster may run in part. Pure.

The scheduler of such a cluster binds pods one by one. So some pods of a gang may hold their room and wait for the others,
while another gang, or somebody else, holds the room that those need. A gang that is not whole in time is stopped and
returns to the queue, so that no two gangs wait for each other for ever.
"""

import zlib
from typing import Final

from msgspec import Struct

from spillover.core.deciders.gangs import starts_still
from spillover.core.events import Lease
from spillover.core.records.jobs import Job
from spillover.model.units import format_duration
from spillover.ports.driver import Gap, Hindrance, Patience, Pending

PASSING: Final = frozenset({Hindrance.UNSCHEDULABLE, Hindrance.REFUSED})
"""What may be over soon, as it depends on what else is on the cluster."""


class Limit(Struct, frozen=True):
    """When to stop a gang that is still not whole."""

    at: int
    """Nanoseconds UTC."""
    because: str


def limit_of(job: Job, gap: Gap, pending: Pending | None, patience: Patience, first: int) -> Limit:
    """Return when to stop a gang of which tasks are missing, and were when this server `first` saw it.

    A gang that never ran as a whole has `bind` from when a task found no node, and in any case `prepare` from its
    creation. One that did has `prepare` from when it lost a task. The cluster knows these times, so they outlast the
    server. Its clock may be ahead of the server's, but not by more than what is seen now.
    """
    starts = starts_still(job)
    since = min(gap.made, first) if starts else gap.since
    whole = Limit(since + patience.prepare, words_of(gap, pending, patience.prepare))
    if not starts or pending is None or pending.why not in PASSING:
        return whole
    bound = Limit(pending.since + patience.bind, words_of(gap, pending, patience.bind))
    return min(bound, whole, key=lambda limit: limit.at)


def words_of(gap: Gap, pending: Pending | None, within: int | None = None) -> str:
    """Return what is missing of a gang, or was missing after so many nanoseconds."""
    if gap.bound < gap.size:
        count, what = gap.bound, "have a node" if within is None else "had a node"
    else:
        count, what = gap.running, "run" if within is None else "ran"
    in_time = "" if within is None else f" within {format_duration(within)}"
    words = f"only {count} of its {gap.size} pods {what}{in_time}"
    return f"{words}: {pending.message}" if pending is not None and pending.message else words


def spread_out(lease: Lease, backoff: int) -> int:
    """Return a backoff of one to two times this one, which differs from job to job.

    Two gangs that took each other's room would do so again if both came back at the same time.
    """
    part = zlib.crc32(f"{lease.job}/{lease.seq}".encode()) % 1024
    return backoff + backoff * part // 1024
