"""Defines the rows that SQLite and PostgreSQL share, so that one decoder reads both.

A batch of events is one row. An ended job has columns for lookups, and one body for the rest. The body is a list, so a
new field goes at its end with a default, and old rows stay readable.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import astuple

from spillover.core.events import Evidence
from spillover.model.budget import CostBy, Per, UsageBy, period_of
from spillover.model.ids import JobId
from spillover.model.job import Shape, Terms
from spillover.model.units import DAY
from spillover.ports.archive import (
    Amounts,
    Earlier,
    Finished,
    Payment,
    Spell,
    Spent,
    Used,
    payments,
    spells,
)
from spillover.ports.journal import Fenced, Moved
from spillover.ports.outbox import Message

SCHEMA_VERSION: Final = 7
"""Version of the tables, the same for all stores."""

STEP_ROWS: Final = 2_000
"""Most rows to delete or move in one step, so that an append or a renewal of the lead need not wait for a million of
them.
"""
STEP_EVENTS: Final = 20_000
"""Most events to delete in one step. Several share a row."""

DIGEST_RANGES: Final = [
    (bytes([first]), bytes([first + 4]) if first < 252 else b"\xff" * 64) for first in range(0, 256, 4)
]
"""Ranges that cover all digests. A query over a million digests at once would block other work."""

BatchRow: TypeAlias = tuple[int, int, int, int, bytes]
"""First revision, last revision, at, epoch, body."""

FinishedRow: TypeAlias = tuple[str, int, bool, str, str, str, str, int, int, str | None, bytes, bytes, str]
"""The values of FINISHED_COLUMNS, in that order."""

FINISHED_COLUMNS: Final = (
    "job",
    "number",
    "member",
    "state",
    "project",
    "owner",  # `user` is a reserved word of SQL
    "name",
    "submitted",
    "finished",
    "key",
    "spec",
    "body",
    "queue",
)


class Rest(Struct, frozen=True, array_like=True):
    """The fields of an ended job that have no column. See `Finished` for their meaning."""

    queue: str
    priority: int
    started: int | None
    cluster: str | None
    node: str | None
    attempt: int
    exit_code: int | None
    signal: int | None
    cost: int
    shape: Shape
    terms: Terms
    why: bytes | None
    placed_why: bytes | None
    usage: tuple[int, int, int]
    body: bytes
    deadline: int | None
    not_before: int | None
    array: bytes | None
    predicted: int | None = None
    paid: tuple[Payment, ...] = ()
    ready: int | None = None
    value: bytes = b""
    value_digest: str = ""
    outputs: tuple[tuple[int, str], ...] = ()
    tasks: bytes | None = None
    tried: tuple[Earlier, ...] = ()
    evidence: Evidence | None = None
    gpu: tuple[int, int, int] = (0, 0, 0)


COST_COLUMNS: Final = ("job", "at", "project", "owner", "cluster", "amount")
CostRow: TypeAlias = tuple[str, int, str, str, str, int]
"""The values of COST_COLUMNS, in that order."""
_MONDAY: Final = 3
"""Days from a Monday to 1 January 1970, a Thursday."""
COST_KEYS: Final[dict[UsageBy, str]] = {
    "project": "project",
    "user": "owner",
    "cluster": "cluster",
    "day": f"at / {DAY}",
    "week": f"(at / {DAY} + {_MONDAY}) / 7",
}
"""SQL expressions to group costs by. Each store has its own for months."""
COST_BY_ROW: Final[dict[CostBy, Callable[[CostRow], str | int]]] = {
    "project": itemgetter(2),
    "user": itemgetter(3),
    "cluster": itemgetter(4),
    "day": lambda row: row[1] // DAY,
    "week": lambda row: (row[1] // DAY + _MONDAY) // 7,
    "month": lambda row: period_of(Per.MONTH, row[1]).label,
}
"""The same for a row."""


USAGE_KEYS: Final = ("job", "at", "project", "owner", "queue", "cluster", "last")
USAGE_SUMS: Final = ("last", *Amounts.__struct_fields__, "cost")
USAGE_COLUMNS: Final = (*USAGE_KEYS, *Amounts.__struct_fields__, "peak", "cost")


AUDIT_COLUMNS: Final = ("revision", "at", "who", "type", "job", "project", "text")
"""Those of `AuditEntry`, in its order; `user` is a reserved word of SQL."""


class QueueOf(Struct, frozen=True, array_like=True):
    """The first field of `Rest`, for upgrades."""

    queue: str


_encoder: Final = msgspec.msgpack.Encoder()
_events: Final = msgspec.msgpack.Decoder(list[bytes])
_rest: Final = msgspec.msgpack.Decoder(Rest)
_queue: Final = msgspec.msgpack.Decoder(QueueOf)


def encode_events(events: Sequence[bytes]) -> bytes:
    """Encode the body of a batch."""
    return _encoder.encode(events)


def decode_events(body: bytes) -> list[bytes]:
    """Decode the events of a batch."""
    return _events.decode(body)


def check_epoch(stored: int, epoch: int) -> None:
    """Raise Fenced unless the store has the writer's epoch. A lower one, as in a restored backup, fails too."""
    if stored != epoch:
        raise Fenced(f"the store is in epoch {stored}, this server in {epoch}; another server leads")


def check_tip(last: int, after: int) -> None:
    """Raise Moved unless the journal ends where its writer expects."""
    if last != after:
        raise Moved(f"the journal ends at revision {last}, not at {after}")


def check_checkpoint(revision: int, checkpoint: int, last: int) -> None:
    """Raise Moved for a checkpoint older than the last one, or newer than the journal."""
    if not checkpoint <= revision <= last:
        raise Moved(
            f"a checkpoint at revision {revision} is not between {checkpoint} (the last) and {last} (the end)"
        )


def check_audited(audited: int, after: int, upto: int, last: int) -> None:
    """Raise Moved for a span that does not start where the audit ends, or that is not in the journal."""
    if not audited == after <= upto <= last:
        raise Moved(
            f"the audit goes up to revision {audited}, the journal up to {last}; not {after} to {upto}"
        )


def check_noted(noted: int, after: int, upto: int, last: int) -> None:
    """Raise Moved for a span that does not start where the outbox ends, or that is not in the journal."""
    if not noted == after <= upto <= last:
        raise Moved(
            f"the outbox goes up to revision {noted}, the journal up to {last}; not {after} to {upto}"
        )


def message_row(message: Message) -> tuple[object, ...]:
    """Return a message as columns."""
    return (*astuple(message)[:8], int(message.failed), message.error)


def message_of(row: Sequence[Any]) -> Message:
    """Return a message from its columns."""
    identity, channel, to, project, at, body, due, tries, failed, error = row
    return Message(identity, channel, to, project, at, body, due, tries, bool(failed), error)


def finished_row(job: Finished) -> FinishedRow:
    """Return an ended job as columns."""
    rest = Rest(**{field: getattr(job, field) for field in Rest.__struct_fields__})
    return (
        job.job,
        job.number,
        "." in job.job,
        job.state,
        job.project,
        job.user,
        job.name,
        job.submitted,
        job.finished,
        job.key,
        job.spec,
        _encoder.encode(rest),
        job.queue,
    )


def finished_from(row: Sequence[Any]) -> Finished:
    """Return an ended job from its columns."""
    job, number, _, state, project, user, name, submitted, finished, key, spec, body, _ = row
    rest = _rest.decode(body)
    return Finished(
        job=JobId(job),
        number=number,
        state=state,
        project=project,
        user=user,
        name=name,
        submitted=submitted,
        finished=finished,
        key=key,
        spec=spec,
        **{field: getattr(rest, field) for field in Rest.__struct_fields__},
    )


def queue_of(body: bytes) -> str:
    """Return the queue of an ended job from its body."""
    return _queue.decode(body).queue


def cost_rows(jobs: Iterable[Finished]) -> list[CostRow]:
    """Return the cost of each attempt of ended jobs, as columns."""
    return [
        (job.job, at, job.project, job.user, cluster, amount)
        for job in jobs
        for at, cluster, amount in payments(job)
    ]


def spent_from(by: CostBy, key: str | int, amount: int, jobs: int) -> Spent:
    """Return a sum of costs from its columns. Days and weeks count from 1970."""
    return Spent(_label(by, key), int(amount), int(jobs))


def _label(by: UsageBy, key: str | int) -> str:
    """Return the name of a group: a date for days and weeks, which count from 1970."""
    match by:
        case "day":
            return period_of(Per.DAY, int(key) * DAY).label
        case "week":
            return period_of(Per.WEEK, (int(key) * 7 + 6 - _MONDAY) * DAY).label
    return str(key)


def usage_rows(jobs: Iterable[Finished]) -> list[tuple[Any, ...]]:
    """Return the attempts of ended jobs as columns."""
    return [usage_row(spell) for job in jobs for spell in spells(job)]


def usage_row(spell: Spell) -> tuple[Any, ...]:
    """Return the values of USAGE_COLUMNS, in that order."""
    keys = (spell.job, spell.at, spell.project, spell.user, spell.queue, spell.cluster, int(spell.last))
    return (*keys, *astuple(spell.amounts), spell.peak, spell.cost)


def used_from(by: Sequence[UsageBy], row: Sequence[Any]) -> Used:
    """Return sums of usage from their columns: the keys, the cluster, USAGE_SUMS and the peak."""
    keys, (cluster, jobs, *amounts, cost, peak) = row[: len(by)], row[len(by) :]
    labels = tuple(_label(each, key) for each, key in zip(by, keys, strict=True))
    return Used(labels, str(cluster), int(jobs), Amounts(*map(int, amounts)), int(peak), int(cost))


def usage_select(by: Sequence[UsageBy], keys: Mapping[UsageBy, str], where: str) -> str:
    """Return the statement that sums usage; `keys` are the expressions to group by."""
    groups = [*(keys[each] for each in by), "cluster"]
    places = ", ".join(str(at) for at in range(1, len(groups) + 1))
    sums = ", ".join(f"sum({name})" for name in USAGE_SUMS)
    return (
        f"SELECT {', '.join(groups)}, {sums}, max(peak) FROM usage "  # noqa: S608 - constants
        f"WHERE {where} GROUP BY {places} ORDER BY {places}"
    )
