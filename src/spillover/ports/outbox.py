"""The outbox: messages to people that must be sent, and those that could not be.

Messages follow the journal in order, and none is missing up to `noted`. A message stays until its receiver has taken it,
or until somebody drops it. One that could not be sent for long is *failed*: it is not tried any more, but stays for people
to look at.
"""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct


class Message(Struct, frozen=True):
    """One message to one receiver."""

    id: str
    """The same however often it is sent, so that receivers can tell a repetition."""
    channel: str
    """What it is sent through: `mail`, or `webhook/NAME`."""
    to: str
    """A mail address, or the name of the webhook."""
    project: str
    """Empty if it is not about a project."""
    at: int
    """When it was written, nanoseconds UTC."""
    body: bytes
    """A JSON document."""
    due: int
    """When it is sent next, nanoseconds UTC; of a failed one, when it failed."""
    tries: int = 0
    failed: bool = False
    error: str = ""
    """Why the last try failed; empty if there was none."""


class Waiting(Struct, frozen=True):
    """How many messages a channel has."""

    channel: str
    waiting: int
    failed: int


class OutboxQuery(Struct, frozen=True):
    """Selects messages, newest first."""

    failed: bool | None = None
    """Only failed ones, or only others; None for all."""
    before: tuple[int, str] | None = None
    """Only those that come after this one in the list, by time and id; None for all."""
    limit: int = 100


class Outbox(Protocol):
    """Stores messages until they are sent or dropped."""

    async def noted(self) -> int:
        """Return the last revision whose event was looked at."""
        ...

    async def put(self, after: int, upto: int, messages: Sequence[Message], epoch: int) -> None:
        """Add the messages of a span of revisions; raise Moved unless it starts where the last one ended.

        A message whose id is there already is left as it is. The span must be in the journal.
        """
        ...

    async def add(self, messages: Sequence[Message], epoch: int) -> None:
        """Add messages that no event causes."""
        ...

    async def next(self, channel: str, limit: int, after: tuple[int, str] = (-1, "")) -> list[Message]:
        """Return messages of a channel that have not failed, oldest first, by time and id.

        Also those that are not due, so that no later one passes them. `after` is the time and id of a message.
        """
        ...

    async def page(self, query: OutboxQuery) -> list[Message]:
        """Return selected messages, newest first."""
        ...

    async def some(self, ids: Sequence[str]) -> list[Message]:
        """Return the messages with these ids that there are, in any order."""
        ...

    async def change(self, messages: Sequence[Message], epoch: int) -> None:
        """Replace when messages are due, their tries, whether they failed, and why; those that are gone stay gone."""
        ...

    async def remove(self, ids: Sequence[str], epoch: int) -> None:
        """Delete messages."""
        ...

    async def counts(self) -> list[Waiting]:
        """Return how many messages each channel has, by its name."""
        ...

    async def forget(self, before: int, most: int, epoch: int) -> int:
        """Delete failed messages from before a time, and the oldest beyond so many; return how many."""
        ...
