"""Requests and answers about notifications that were not sent yet."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from spillover.wire.api.jobs import Time

NoticeId = Annotated[str, Meta(pattern="^[0-9a-z]{1,64}$")]


class NotificationView(Struct, frozen=True):
    """A notification that waits, or that could not be sent."""

    id: str
    to: str
    """A mail address, or the name of a webhook."""
    channel: str
    """`mail`, or `webhook/NAME`."""
    kind: str
    """What it tells, such as `end`."""
    text: str
    project: str | None
    at: Time
    state: Literal["waiting", "failed"]
    """`failed` if it is not tried any more."""
    tries: int
    due: Time
    """When it is tried next; of a failed one, when it failed."""
    error: str | None
    """Why the last try failed; null if there was none."""


class ChannelView(Struct, frozen=True):
    """How many notifications a channel has."""

    channel: str
    waiting: int
    failed: int


class NotificationPage(Struct, frozen=True):
    """A page of notifications that were not sent, newest first."""

    notifications: list[NotificationView]
    next: str | None
    """Cursor of the next page; null on the last page."""
    channels: list[ChannelView]
    """All channels that have some."""


class NotificationAction(Struct, frozen=True, forbid_unknown_fields=True):
    """What to do with notifications."""

    act: Literal["retry", "drop"]
    """Send them at once, once more if they failed; or delete them."""
    ids: Annotated[list[NoticeId], Meta(max_length=10_000)] = []
    """Which ones. Either this or `failed`."""
    failed: bool = False
    """Whether all failed ones."""


class NotificationTest(Struct, frozen=True, forbid_unknown_fields=True):
    """A message that tries whether notifications arrive."""

    to: Annotated[str, Meta(min_length=1, max_length=254)]
    """A mail address, or the name of a webhook."""


class NotificationIds(Struct, frozen=True):
    """Notifications by their ids."""

    ids: list[str]
