"""Sends one message to its receiver, however that is done."""

from typing import Protocol

from spillover.ports.outbox import Message


class Unsent(Exception):
    """A message was not taken, or it is not known whether it was; the text says why, in one line."""

    def __init__(self, why: str, *, final: bool = False, alone: bool = False, after: float = 0.0) -> None:
        super().__init__(why)
        self.final = final
        """Whether the receiver will never take this message."""
        self.alone = alone
        """Whether only this message is affected: others of the channel need not wait."""
        self.after = after
        """Seconds that the receiver asks to wait; 0 if it does not say."""


class Sender(Protocol):
    """One way to send messages. The receiver may get a message twice, and can tell that by its id."""

    async def send(self, message: Message) -> None:
        """Send a message; raise Unsent if it was not taken. Takes no longer than its own time-out."""
        ...
