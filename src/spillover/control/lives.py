"""Registrations in their order: one that was late on its way must not undo the one that overtook it.

It would fence the later one, and give away leases that it does not name and that are being run under that. Only a server that has
heard the later one can hear the late one, as a connection does not outlive its server: so this is kept in memory.
"""

from typing import Final

from spillover.ports.commands import CommandError, Kind

KEPT: Final = 10_000
"""Earlier lives of agents that are remembered."""


class Lives:
    """The life of each agent, and the last registration of it."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[str, int]] = {}
        """By agent: life and number."""
        self._over: dict[tuple[str, str], int] = {}
        """Agents with lives that another one has followed, the oldest first: the last number of each."""

    def check(self, agent: str, life: str, number: int, *, present: bool) -> None:
        """Take note of a registration; raises CommandError if a later one came before it.

        A life that another one has followed is let in again once that one is not present any more: it may live after all, as two
        agents of one name do, or a first message of a life that has long ended may have come last.
        """
        if not number:
            return  # an agent that does not count them
        known, last = self._last.get(agent, ("", 0))
        before = last if life == known else self._over.get((agent, life), 0)
        if number <= before or (life != known and before and present):
            raise CommandError(Kind.UNAVAILABLE, f"a later registration of {agent} has overtaken this one")
        self._over.pop((agent, life), None)
        if known and life != known:
            self._over[agent, known] = last
            if len(self._over) > KEPT:
                del self._over[next(iter(self._over))]
        self._last[agent] = (life, number)
