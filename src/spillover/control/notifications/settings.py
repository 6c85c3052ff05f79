"""Holds who is told of what, which an operator changes while the server runs."""

from spillover.model.notifications import Notifications


class Settings:
    """Who is told of what, as configured now."""

    def __init__(self, now: Notifications | None = None, currency: str = "") -> None:
        self.now = now or Notifications()
        self.currency = currency
        """Of costs in messages."""
