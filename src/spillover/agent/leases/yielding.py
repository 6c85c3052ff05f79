"""Answers the server when another agent wants leases of this one.

The agent gives one answer for each lease and repeats it until the server has it. It refuses a lease that it gave up or
did not have if that lease arrives later, because the server may have given it to another agent since.
"""

from collections.abc import Iterable
from typing import Final

from spillover.agent.leases.values import HandOver, Instruction
from spillover.core.events import Lease
from spillover.core.proposals import Yield

MOST: Final = 10_000
"""Most refused leases to remember, far more than can be in flight."""


class Yielding:
    """The answers of one registration."""

    def __init__(self) -> None:
        self.answers: dict[Lease, Yield] = {}
        """Answers without an acknowledgement, in order."""
        self._refused: dict[Lease, None] = {}

    def answer(self, lease: Lease, ticket: bytes, *, started: bool, held: bool) -> list[Instruction]:
        """Answer for a lease, released if it is held and unstarted. The caller removes it before the report."""
        if lease in self.answers:
            return []  # the server asked again before the answer came
        if started:
            self.answers[lease] = Yield.STARTED
            return []
        self.answers[lease] = Yield.RELEASED if held else Yield.UNKNOWN
        self._refused[lease] = None
        if len(self._refused) > MOST:
            del self._refused[next(iter(self._refused))]
        return [HandOver(lease, ticket)] if held else []

    def refuses(self, lease: Lease) -> bool:
        """Return whether a lease must not run here."""
        return lease in self._refused

    def acknowledged(self, leases: Iterable[Lease]) -> None:
        """Drop answers that the server has."""
        for lease in leases:
            self.answers.pop(lease, None)

    def forget(self) -> None:
        """Drop everything for a new registration, because the server takes unlisted leases as given up."""
        self.answers.clear()
        self._refused.clear()
