"""Reads the trace that a request belongs to."""

from spillover.forms.problems import shown
from spillover.model.tracing import HEADER, read_traceparent


def trace_of_request(text: str) -> tuple[str, list[str]]:
    """Return the W3C trace context of a submission, empty if there is none, and a warning if it cannot be used."""
    if not text:
        return "", []
    context = read_traceparent(text)
    if context is None:  # the standard asks to go on without it
        return "", [f"{HEADER} {shown(text)} is not a W3C trace context, and is ignored"]
    return str(context), []
