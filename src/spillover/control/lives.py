"""Registrations in their order: one that was late on its way must not undo the one that overtook it.

It would fence the later one, and give away leases that it does not name and that are being run under that. Only a server that has
heard the later one can hear the late one, as a connection does not outlive its server: so this is kept in memory.

Of two agents that live under one name, the one that is there keeps it, or each would take it from the other for ever. The other one
is told so: all that it had was given away when its name was.
"""

from typing import Final

from spillover.ports.commands import CommandError, ErrorKind

KEPT: Final = 10_000
"""Earlier lives of agents that are remembered."""
AGENTS: Final = 100_000
"""Agents whose last registration is remembered, those that registered last: many more than there are at a time."""


class Followed(CommandError):
    """Another life of an agent is registered and there: what this one runs, it runs without a lease."""

    def __init__(self, agent: str) -> None:
        name = agent.partition("/")[2]
        told = f"another agent has the name {name!r}, so the tasks of this one are ended: stop one of the two, or give it another name"
        super().__init__(ErrorKind.CONFLICT, told)


class Lives:
    """The life of each agent, and the last registration of it."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[str, int]] = {}
        """By agent, the one that registered last at the end: life and number."""
        self._over: dict[tuple[str, str], int] = {}
        """Agents with lives that another one has followed, the oldest first: the last number of each."""

    def check(self, agent: str, life: str, number: int, *, present: str | None) -> None:
        """Take note of a registration; raises CommandError if a later one came before it, and Followed if that is of another life.

        `present` is the life whose registration is durable and that is there, None if there is none. A life that another one has
        followed is let in again once that one is not present any more: it may live after all, as two agents of one name do, or a
        first message of a life that has long ended may have come last.
        """
        if not number:
            return  # an agent that does not count them
        known, last = self._last.get(agent, ("", 0))
        before = last if life == known else self._over.get((agent, life), 0)
        late = CommandError(ErrorKind.UNAVAILABLE, f"a later registration of {agent} has overtaken this one")
        if number <= before:
            raise late
        if life != known and before and present is not None:
            self._over[agent, life] = number  # should it come once more, it is late
            # Until the later life is registered for good, what this one has is still its own.
            raise late if present == life else Followed(agent)
        self._over.pop((agent, life), None)
        if known and life != known:
            self._over[agent, known] = last
            if len(self._over) > KEPT:
                del self._over[next(iter(self._over))]
        self._last.pop(agent, None)
        self._last[agent] = (life, number)
        if len(self._last) > AGENTS:
            del self._last[next(iter(self._last))]
