"""What nobody expected: it costs one request, is logged with all that is known of it, and is told under the name that it has in the log."""

import secrets

import structlog

log = structlog.get_logger()


def logged_fault(what: str, error: BaseException, **about: object) -> str:
    """Log a fault of ours; returns what the caller is told."""
    name = secrets.token_hex(4)
    log.error(what, fault=name, exc_info=error, **about)
    return f"this is a fault of the server, which has logged it as {name}"
