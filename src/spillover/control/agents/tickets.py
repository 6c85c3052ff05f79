"""Makes tickets, with which an agent fetches the task of a moved lease from the agent that had it."""

import hashlib
import hmac
import secrets

from spillover.core.events import Lease


class Tickets:
    """Derives tickets from a secret of this process; after a restart, the server asks agents for leases again."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)

    def ticket(self, lease: Lease) -> bytes:
        """Return the ticket for a lease, as the agent that gives it up holds it."""
        text = f"{lease.job} {lease.attempt} {lease.seq} {lease.task}"
        return hmac.digest(self._secret, text.encode(), hashlib.sha256)
