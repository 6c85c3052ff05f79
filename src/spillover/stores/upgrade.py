"""Converts data of older versions, for all stores.

Version 0 (before the first release):

* `meta(name, value)` holds version, epoch and checkpoint, all as text;
* `events(revision, at, epoch, event)` has one row for each event, which made bulk submissions slow;
* `blobs(digest, body)` does not record when a blob was last named;
* `records(kind, key, body)` is as today;
* `archive(job, number, body)` has no columns to filter by. The body is a map of all fields, without `usage` and
  `placed_why`.

Version 1 puts events into `batches`, the epoch with its holder into `leader`, and gives the archive its columns.

Version 2 adds `costs(job, at, project, owner, cluster, amount)`, the cost of each attempt of an ended job, for sums.
For older jobs, the last attempt stands for all.

Version 3 adds `staged(kind, key, body)`, the records of a checkpoint that is being written. They count once `staged` of
`meta` is 1. It also adds `mentions(bucket, first, last, body)`, the index of events by job, up to `indexed` of `meta`.
The running server indexes older events.

Version 4 adds the column `queue` to `archive`.

Version 5 adds `usage`, what each attempt of an ended job asked for and used. For older jobs, the last attempt stands for
all. It also adds `audit(revision, at, who, type, job, project, text)`, what people did, up to `audited` of `meta`. The
running server adds what the kept events say. It adds `secrets(project, name, version, key, body)`, encrypted values. And it adds `outbox`,
messages to people, up to `noted` of `meta`: nobody is told of what happened before the upgrade.

Version 6 finds the messages of a channel by their age. Servers between releases wrote data of version 5 before it had
`audit`, `secrets` and `outbox`; they get these tables.

Version 7 adds `gpu_measured` and `gpu_unused` to `usage`. The use of GPUs was not measured before.
"""

from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import Final

import msgspec
from msgspec import Struct

from spillover.model.ids import JobId
from spillover.model.job import Shape, Terms
from spillover.ports.archive import Finished
from spillover.ports.journal import TooNew, Unreadable
from spillover.stores.rows import SCHEMA_VERSION, BatchRow, FinishedRow, encode_events, finished_row

GROUP: Final = 10_000
"""Most events that an upgrade puts into one batch."""


class FinishedV0(Struct, frozen=True):
    """The body of an ended job in version 0. See `Finished` for the meaning of the fields."""

    job: JobId
    number: int
    name: str
    user: str
    project: str
    queue: str
    priority: int
    state: str
    submitted: int
    started: int | None
    finished: int
    cluster: str | None
    node: str | None
    attempt: int
    exit_code: int | None
    signal: int | None
    cost: int
    spec: bytes
    shape: Shape
    terms: Terms
    why: bytes | None
    key: str | None = None
    body: bytes = b""
    deadline: int | None = None
    not_before: int | None = None
    array: bytes | None = None


_v0: Final = msgspec.msgpack.Decoder(FinishedV0)


def refuse_newer(version: int, where: object) -> None:
    """Raise TooNew for data of a later version."""
    if version > SCHEMA_VERSION:
        raise TooNew(
            f"the data in {where} have version {version}; this Spillover supports up to {SCHEMA_VERSION}; use a newer one"
        )


def batches_from_v0(events: Iterable[tuple[int, int, int, bytes]]) -> Iterator[BatchRow]:
    """Group events of the same time and epoch into batches, from rows of revision, at, epoch and event in order."""
    for (at, epoch), group in groupby(events, key=itemgetter(1, 2)):
        rows = list(group)
        for start in range(0, len(rows), GROUP):
            part = rows[start : start + GROUP]
            yield part[0][0], part[-1][0], at, epoch, encode_events([event for _, _, _, event in part])


def finished_from_v0(body: bytes) -> FinishedRow:
    """Return the columns of an ended job. Its usage and the reason of its placement were not recorded."""
    try:
        old = _v0.decode(body)
    except msgspec.MsgspecError as error:
        raise Unreadable(f"a job in the archive of version 0 cannot be read: {error}") from error
    kept = {field: getattr(old, field) for field in FinishedV0.__struct_fields__}
    ran = old.finished - old.started if old.started is not None else 0
    return finished_row(Finished(**kept, placed_why=None, usage=(ran, 0, 0)))
