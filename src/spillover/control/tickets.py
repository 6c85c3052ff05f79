"""Tickets: whoever shows the one of a lease may have its task from the agent that gave it up."""

import hashlib
import hmac
import secrets

from spillover.core.events import Lease


class Tickets:
    """Made from a secret of this process: a server that starts anew asks its agents anew."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)

    def ticket(self, lease: Lease) -> bytes:
        """Of a lease as the agent that gives it up has it."""
        told = f"{lease.job} {lease.attempt} {lease.seq} {lease.task}"
        return hmac.digest(self._secret, told.encode(), hashlib.sha256)
