"""What an agent answers when another one wants its leases.

An answer is given once and told until the server has it. Whatever was given up, or was not there, is refused should it come after
all: the server may have given it to somebody else on our word.
"""

from collections.abc import Iterable
from typing import Final

from spillover.agent.values import HandOver, Instruction
from spillover.core.events import Lease
from spillover.core.proposals import Yield

MOST: Final = 10_000
"""Leases that are remembered as given up: far more than can be on their way."""


class Yielding:
    """Answers of one registration."""

    def __init__(self) -> None:
        self.answers: dict[Lease, Yield] = {}
        """Not acknowledged yet, in the order in which they were given."""
        self._refused: dict[Lease, None] = {}

    def answer(self, lease: Lease, ticket: bytes, *, started: bool, held: bool) -> list[Instruction]:
        """Say what becomes of a lease: given up if it is held and not started. It is taken away before this is told."""
        if lease in self.answers:
            return []  # asked again before the answer came
        if started:
            self.answers[lease] = Yield.STARTED
            return []
        self.answers[lease] = Yield.RELEASED if held else Yield.UNKNOWN
        self._refused[lease] = None
        if len(self._refused) > MOST:
            del self._refused[next(iter(self._refused))]
        return [HandOver(lease, ticket)] if held else []

    def refuses(self, lease: Lease) -> bool:
        """Whether a lease must not be run here, whoever sends it."""
        return lease in self._refused

    def acknowledged(self, leases: Iterable[Lease]) -> None:
        """The server has these answers."""
        for lease in leases:
            self.answers.pop(lease, None)

    def forget(self) -> None:
        """A new registration begins: the server takes what it does not name for given up."""
        self.answers.clear()
        self._refused.clear()
