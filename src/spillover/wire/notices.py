"""The JSON document that a receiver of a notification gets. New versions only add fields."""

from typing import Any

import msgspec
from msgspec import Struct


class NoticeReason(Struct, frozen=True, omit_defaults=True):
    """Why a job ended."""

    code: str
    message: str


class NoticeJob(Struct, frozen=True, omit_defaults=True):
    """The job that it is about."""

    id: str
    name: str
    user: str
    project: str
    queue: str
    state: str
    attempt: int = 1
    reason: NoticeReason | None = None
    cluster: str | None = None
    """Where the last attempt was; null if it never had a place, and for arrays."""
    node: str | None = None
    exit_code: int | None = None
    signal: int | None = None
    submitted_at: str | None = None
    started_at: str | None = None
    finished_at: str | None = None
    ran_s: float | None = None
    """Of the last attempt."""
    cost: float = 0.0
    """Of all attempts, and of all members of an array."""
    currency: str = ""
    members: dict[str, int] | None = None
    """Of an array, how many members ended in each state."""


class NoticeBudget(Struct, frozen=True, omit_defaults=True):
    """The budget that it is about."""

    of: str
    """`project`, `user` or `pool`."""
    name: str
    per: str
    period: str
    percent: int
    spent: float
    held: float
    limit: float
    currency: str = ""


class NoticeCluster(Struct, frozen=True, omit_defaults=True):
    """The cluster that it is about, or whose agents or pool."""

    name: str
    state: str | None = None
    why: str | None = None
    agents: list[str] | None = None
    """Agents that are lost."""


class Notice(Struct, frozen=True, omit_defaults=True):
    """One notification."""

    id: str
    """The same however often it is sent."""
    kind: str
    """What it tells, as rules name it; what tells most if several fit."""
    at: str
    text: str
    """One sentence for people."""
    version: int = msgspec.field(default=1)
    kinds: list[str] = msgspec.field(default_factory=list)
    """All that it tells, such as `fail` and `end`."""
    to: str = ""
    project: str | None = None
    job: NoticeJob | None = None
    budget: NoticeBudget | None = None
    cluster: NoticeCluster | None = None


def encode_notice(notice: Notice) -> bytes:
    """Return the document that is stored and sent."""
    fields: dict[str, Any] = msgspec.to_builtins(notice)
    return msgspec.json.encode({"version": notice.version} | fields)


def decode_notice(body: bytes) -> Notice:
    """Return a stored document."""
    return msgspec.json.decode(body, type=Notice)
