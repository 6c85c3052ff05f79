"""Keeps registrations of agents in order, so that a delayed one does not replace a later one.

A delayed registration would fence the later one, and give away leases that run under it. Connections end with their
server, so only a server that received the later registration can receive the delayed one. Memory is therefore enough.

If two agents use one name, the connected one keeps it. Otherwise each would take it from the other forever. The other
one gets an error, as its leases were given away together with the name.
"""

from typing import Final

from spillover.ports.commands import CommandError, ErrorKind

KEPT: Final = 10_000
"""Replaced agent processes to remember."""
AGENTS: Final = 100_000
"""Most agents to remember, those that registered last; far more than exist at a time."""


class Followed(CommandError):
    """Another process of an agent is registered and connected; tasks of this one have no lease."""

    def __init__(self, agent: str) -> None:
        name = agent.partition("/")[2]
        message = f"another agent took the name {name!r}, and the tasks of this one were stopped; stop one of the two, or rename it"
        super().__init__(ErrorKind.CONFLICT, message)


class Registrations:
    """Remembers the process and the last registration of each agent."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[str, int]] = {}
        """Process and registration number of each agent, in the order of registration."""
        self._over: dict[tuple[str, str], int] = {}
        """Last number of each agent process that another one replaced, the oldest first."""

    def check(self, agent: str, life: str, number: int, *, present: str | None) -> None:
        """Record a registration; raise CommandError if a later one came first, Followed if that is of another process.

        `present` is the process with a durable registration that still answers; None if there is none. A replaced
        process may register again once its successor no longer answers. Either two agents share the name and this one
        still runs, or the successor had ended long ago and its first message arrived late.
        """
        if not number:
            return  # the agent does not number its registrations
        known, last = self._last.get(agent, ("", 0))
        before = last if life == known else self._over.get((agent, life), 0)
        late = CommandError(ErrorKind.UNAVAILABLE, f"a later registration of {agent} replaced this one")
        if number <= before:
            raise late
        if life != known and before and present is not None:
            self._over[agent, life] = number  # a duplicate of this registration is late
            # Until the registration of the later process is durable, this one keeps its leases.
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
