"""Spans as values, and which trace a job belongs to."""

from enum import IntEnum
from typing import TypeAlias

from msgspec import Struct

from spillover.core.state import State
from spillover.model.ids import JobId, split_member
from spillover.model.tracing import (
    TraceContext,
    attempt_span,
    is_sampled,
    read_traceparent,
    span_of,
    trace_of,
)

Value: TypeAlias = str | int | float | bool
"""The value of an attribute."""


class SpanStatus(IntEnum):
    """How the part of a life ended, with the numbers of OTLP."""

    UNSET = 0
    OK = 1
    ERROR = 2


class SpanEvent(Struct, frozen=True):
    """Something that happened during a span."""

    at: int
    """Nanoseconds UTC."""
    name: str


class Span(Struct, frozen=True):
    """A part of the life of a job."""

    trace: str
    span: str
    parent: str
    """Empty for a root."""
    name: str
    start: int
    """Nanoseconds UTC."""
    end: int
    attributes: dict[str, Value]
    status: SpanStatus = SpanStatus.UNSET
    message: str = ""
    """Why it failed; empty unless the status is an error."""
    events: tuple[SpanEvent, ...] = ()
    links: tuple[tuple[str, str], ...] = ()
    """Trace and span of others that it belongs to."""
    whole: bool = False
    """Whether it is the whole life of a job."""


class Place(Struct, frozen=True):
    """Where the spans of one job belong."""

    trace: str
    parent: str
    """Span above that of the whole job; empty if that is the root of its trace."""
    sampled: bool
    array: JobId | None = None
    """The array of a member."""


class Tracer(Struct, frozen=True):
    """Gives jobs their traces."""

    share: float | None = None
    """The share of traces to export, of those that no submitter began; None if none are exported."""

    def place(self, state: State, job: JobId) -> Place:
        """Return where the spans of a job belong."""
        member = split_member(job)
        array = None if member is None else member[0]
        given = given_to(state, job)
        if given is None:
            trace = trace_of(job)
            return Place(trace, "", self.share is not None and is_sampled(trace, self.share), array)
        parent = given.span if array is None else span_of(array)
        return Place(given.trace, parent, given.sampled and self.share is not None, array)

    def traceparent(self, state: State, job: JobId, attempt: int) -> str:
        """Return what the tasks of an attempt continue; empty if there is no trace."""
        if self.share is None:  # what the submitter gave passes through, as nothing of ours is in that trace
            given = given_to(state, job)
            return "" if given is None else str(given)
        place = self.place(state, job)
        return str(TraceContext(place.trace, attempt_span(job, attempt), place.sampled))


def given_to(state: State, job: JobId) -> TraceContext | None:
    """Return the context in which a job was submitted; None if it had none."""
    member = split_member(job)
    found = state.jobs.get(job if member is None else member[0])
    return None if found is None or not found.extra.traceparent else read_traceparent(found.extra.traceparent)
