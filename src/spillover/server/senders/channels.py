"""Finds what sends through a channel, as configured at that moment."""

from spillover.control.notifications.settings import Settings
from spillover.model.notifications import MAIL, hook_of
from spillover.ports.sender import Sender
from spillover.server.senders.mail import MailSender
from spillover.server.senders.webhooks import WebhookSender


class Channels:
    """What sends messages now."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def __call__(self, channel: str) -> Sender | None:
        """Return what sends through a channel; None if it is not configured."""
        now = self._settings.now
        if channel == MAIL:
            return None if now.mail is None else MailSender(now.mail)
        hook = now.webhook(hook_of(channel))
        return None if hook is None else WebhookSender(hook)
