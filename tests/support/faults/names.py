"""Tracks agents that share a name, and which of them cannot know yet that another has it.

A registration takes away at once what an earlier process of the agent held. That process may still live, and run its
tasks until the server informs it. If nobody can, it runs them until its leases end by its own clock, and not longer.
"""

from collections.abc import Callable
from typing import Any

import grpc

from spillover.core.events import AgentRegistered
from spillover.wire import agents_pb2 as pb


class Names:
    """All durable registrations, and which replaced processes know of them."""

    def __init__(self, now: Callable[[], int], term: int, stops: int) -> None:
        self._now = now
        self._term = term
        """Nanoseconds after which an agent without answers has ended its tasks."""
        self._stops = stops
        """Nanoseconds within which an informed agent has ended them."""
        self._lives: dict[int, str] = {}
        """Process by incarnation."""
        self._had: dict[str, dict[str, None]] = {}
        """All processes that ever registered under a name."""
        self._taken: dict[str, dict[int, int]] = {}
        """By process: later registrations of others that it does not know of, and when they became durable."""
        self._told: dict[str, int] = {}
        """By process: when it was last informed."""

    def opened(self, incarnation: int, life: str) -> None:
        """Record that a process is about to register."""
        self._lives[incarnation] = life

    def registered(self, event: AgentRegistered) -> None:
        """Record a registration; every other process of that name has lost its leases."""
        life = self._lives[event.incarnation]
        had = self._had.setdefault(event.node, {})
        for other in had:
            if other != life:
                self._taken.setdefault(other, {})[event.incarnation] = self._now()
        had[life] = None

    def heard(self, life: str, path: str, answer: Any) -> None:
        """Record that a process received an answer to a call."""
        taken = self._taken.get(life)
        if not taken:
            return
        known = _known(path, answer)
        if known is None or known < min(taken):
            return
        self._taken[life] = {each: at for each, at in taken.items() if each > known}
        self._told[life] = self._now()

    def unaware(self, life: str) -> bool:
        """Tell whether a process may still run what it lost."""
        now, taken = self._now(), self._taken.get(life)
        if taken and now < min(taken.values()) + self._term:
            return True
        return life in self._told and now < self._told[life] + self._stops


def fences(path: str, answer: Any) -> bool:
    """Tell whether an answer refuses a registration because another agent has the name."""
    is_refused = isinstance(answer, grpc.aio.AioRpcError) and answer.code() is grpc.StatusCode.ABORTED
    return is_refused and path.endswith(("/Register", "/Join"))


def _known(path: str, answer: Any) -> int | None:
    """Return the last registration that an answer reveals; None if it reveals none."""
    every = 1 << 62
    if isinstance(answer, grpc.aio.AioRpcError):
        return every if fences(path, answer) else None
    match path.rpartition("/")[2]:
        case "Register":
            return pb.RegisterReply.FromString(answer).incarnation
        case "Heartbeat":
            return every if pb.HeartbeatReply.FromString(answer).fenced else None
        case "Session" | "Join" if answer is not None:
            said = pb.FromServer.FromString(answer)
            if said.HasField("welcome"):
                return said.welcome.incarnation
            return every if said.renewed.fenced else None
        case "Report":
            return every if pb.ReportReply.FromString(answer).fenced else None
        case _:
            return None
