"""Identities of traces and spans, as W3C Trace Context writes them.

A trace follows from the id of its job, and a span from what it is about. So the server, restarted or not, names the
same span in the variables of a task and in what it exports, without a record of either.
"""

import re
from hashlib import sha256
from typing import Final

from msgspec import Struct

from spillover.model.ids import JobId

_FORM: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.ASCII)
_SAMPLED: Final = 1
_BITS: Final = 56
"""Bits of a trace id that decide whether it is sampled."""
VARIABLE: Final = "TRACEPARENT"
"""The variable in which programs find the span to continue."""
HEADER: Final = "traceparent"


class TraceContext(Struct, frozen=True):
    """A span that others continue."""

    trace: str
    """32 hexadecimal digits."""
    span: str
    """16 hexadecimal digits."""
    sampled: bool = True
    """Whether whoever continues it should record what it does."""

    def __str__(self) -> str:
        return f"00-{self.trace}-{self.span}-{int(self.sampled):02x}"


def read_traceparent(text: str) -> TraceContext | None:
    """Read a `traceparent`; None if it is not valid."""
    match = _FORM.fullmatch(text.strip())
    if match is None:
        return None
    version, trace, span, flags, rest = match.groups()
    if version == "ff" or (version == "00" and rest) or not int(trace, 16) or not int(span, 16):
        return None
    return TraceContext(trace, span, bool(int(flags, 16) & _SAMPLED))


def trace_of(job: JobId) -> str:
    """Return the trace of a job that nobody gave one."""
    return sha256(f"spillover trace {job}".encode()).hexdigest()[:32]


def span_of(job: JobId, what: str = "job") -> str:
    """Return the span of a part of a job's life; by default, that of the whole."""
    return sha256(f"spillover span {job} {what}".encode()).hexdigest()[:16]


def attempt_span(job: JobId, attempt: int) -> str:
    """Return the span of an attempt whose process runs, which its tasks continue."""
    return span_of(job, f"attempt {attempt}")


def is_sampled(trace: str, share: float) -> bool:
    """Return whether a trace belongs to this share of all: the same answer for everybody who asks."""
    return int(trace[-_BITS // 4 :], 16) < share * (1 << _BITS)
