"""Encodes spans in OTLP, the protocol of OpenTelemetry, as JSON for HTTP: the few parts of it that traces need.

https://opentelemetry.io/docs/specs/otlp/ describes it. Ids are hexadecimal, and 64-bit numbers are strings. The
OpenTelemetry SDK would bring seven packages and threads, and draws the ids of spans, which here follow from jobs.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from spillover import __version__
from spillover.control.telemetry.spans import Span, SpanStatus, Value

_INTERNAL: Final = 1
_CONSUMER: Final = 5
"""Kinds of spans: a part of something, and work that was taken from a queue."""
_SAMPLED: Final = 1
MOST_TEXT: Final = 1_000
"""Most characters of an attribute or a message."""


class Partial(msgspec.Struct):
    """What a receiver took of a request."""

    rejectedSpans: int | str = 0  # noqa: N815 - as OTLP spells it, likewise below
    errorMessage: str = ""  # noqa: N815


class _Answer(msgspec.Struct):
    partialSuccess: Partial | None = None  # noqa: N815


NOTHING: Final = b'{"resourceSpans":[]}'
"""The body of a request without spans, which a receiver takes as a success."""


def request(spans: Iterable[Span], resource: Mapping[str, Value]) -> bytes:
    """Return the body of a request that delivers spans of one source."""
    scope = {"name": "spillover", "version": __version__}
    return msgspec.json.encode(
        {
            "resourceSpans": [
                {
                    "resource": {"attributes": _attributes(resource)},
                    "scopeSpans": [{"scope": scope, "spans": [_span(each) for each in spans]}],
                }
            ]
        }
    )


def rejected(body: bytes) -> tuple[int, str]:
    """Return how many spans a receiver refused of a request that it took, and why; 0 if it does not say."""
    try:
        partial = msgspec.json.decode(body, type=_Answer).partialSuccess
        return (0, "") if partial is None else (int(partial.rejectedSpans), partial.errorMessage[:MOST_TEXT])
    except (msgspec.DecodeError, ValueError):
        return 0, ""


def _span(span: Span) -> dict[str, Any]:
    encoded: dict[str, Any] = {
        "traceId": span.trace,
        "spanId": span.span,
        "flags": _SAMPLED,
        "name": span.name[:MOST_TEXT],
        "kind": _CONSUMER if span.whole else _INTERNAL,
        "startTimeUnixNano": str(span.start),
        "endTimeUnixNano": str(span.end),
        "attributes": _attributes(span.attributes),
    }
    if span.parent:
        encoded["parentSpanId"] = span.parent
    if span.events:
        encoded["events"] = [
            {"timeUnixNano": str(each.at), "name": each.name[:MOST_TEXT]} for each in span.events
        ]
    if span.links:
        encoded["links"] = [{"traceId": trace, "spanId": other} for trace, other in span.links]
    if span.status is not SpanStatus.UNSET:
        encoded["status"] = {"code": int(span.status)}
        if span.message:
            encoded["status"]["message"] = span.message[:MOST_TEXT]
    return encoded


def _attributes(values: Mapping[str, Value]) -> list[dict[str, Any]]:
    return [{"key": key, "value": _value(value)} for key, value in values.items()]


def _value(value: Value) -> dict[str, Any]:
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
        case str():
            return {"stringValue": value[:MOST_TEXT]}
