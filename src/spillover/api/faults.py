"""Says what is wrong with requests, and handles unexpected errors.

An unexpected error costs a single request, and the caller gets the id under which it was logged.
"""

import re
import secrets
from typing import Final

import msgspec
import structlog

from spillover.wire.api import FieldProblem

_LONGEST: Final = 300
"""Most characters of the message about one field."""
_AT = re.compile(r"^(?P<message>.*?)(?: - at `\$\.?(?P<path>.*)`)?$", re.DOTALL)

log = structlog.get_logger()


def logged_fault(what: str, error: BaseException, **about: object) -> str:
    """Log an internal error; return the message for the caller."""
    name = secrets.token_hex(4)
    log.error(what, fault=name, exc_info=error, **about)
    return f"internal server error; the server logged it as {name}"


def misfit(error: msgspec.ValidationError) -> FieldProblem:
    """Return the problem with a JSON value of the wrong type."""
    match = _AT.match(str(error))
    if match is None:  # cannot happen, because the pattern matches any text
        return FieldProblem("", _short(str(error)))
    message = match["message"]
    return FieldProblem(_short((match["path"] or "").lstrip(".")), _short(message[:1].lower() + message[1:]))


def _short(text: str) -> str:
    """Shorten a text that may repeat long input."""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]} ... {text[-_LONGEST // 2 :]}"
