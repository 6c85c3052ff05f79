"""Handles unexpected errors. One costs a single request, and the caller gets the id under which it was logged."""

import secrets

import structlog

log = structlog.get_logger()


def logged_fault(what: str, error: BaseException, **about: object) -> str:
    """Log an internal error; return the message for the caller."""
    name = secrets.token_hex(4)
    log.error(what, fault=name, exc_info=error, **about)
    return f"internal server error; the server logged it as {name}"
