"""What a story is made of: the setting, jobs, and faults, all of them plain values, so that any can be left out."""

from typing import Final, TypeAlias

from msgspec import Struct

from spillover.model.units import SECOND
from tests.support.faults.hosts import MILLISECOND

STEADY: Final = 3 * SECOND
"""Every story begins with this time without faults, so that agents have registered."""
FAULTS_END: Final = 45 * SECOND
"""By then all faults are over."""
MOST_DRIFT: Final = 0.05
KILL_TIME: Final = 100 * MILLISECOND
"""What killed processes may take to be gone."""


class AgentPlan(Struct, frozen=True):
    """One agent, for all its lives."""

    name: str
    cpus: int
    queue: int
    rate: float
    """Seconds of its clock in one true second."""


class Setting(Struct, frozen=True):
    """What holds throughout a story."""

    heartbeat: int
    lost_after: int
    server_rate: float
    agents: tuple[AgentPlan, ...]
    ahead: int
    """Nanoseconds of work that agents prefetch."""
    route: str
    checkpoints: bool
    """Whether the server writes checkpoints, so that a restart does not begin at the beginning."""


class JobPlan(Struct, frozen=True):
    """One job or array."""

    name: str
    at: int
    runs: int
    """Nanoseconds of true time."""
    failures: int = 0
    """How many of its attempts end with an exit code."""
    exit_retries: int = 0
    lost_retries: int = 30
    cpus: int = 1
    members: int = 0
    """0 is a job that is no array."""
    walltime: int = 0
    """0 is none."""
    grace: int = SECOND
    stubborn: bool = False
    """Whether it ignores TERM."""
    tail: int = 0
    """Nanoseconds that every fourth member runs instead, if it is not 0."""
    cancel: int | None = None
    """When somebody cancels it; None if nobody does."""


class Storm(Struct, frozen=True, tag=True):
    """Messages of an agent are lost, repeated and late."""

    at: int
    lasts: int
    agent: str
    drop: float
    repeat: float
    delay: int


class Cut(Struct, frozen=True, tag=True):
    """Nothing passes between an agent and others, on one way or both."""

    at: int
    lasts: int
    agent: str
    outwards: bool
    inwards: bool
    holds: bool


class KillAgent(Struct, frozen=True, tag=True):
    """`kill -9` of an agent, and its next life a while later."""

    at: int
    lasts: int
    agent: str
    orphans: bool
    """Whether its tasks live on until the next life ends them; else they are ended with it."""
    turns: int = 0
    """How many turns of its event loop it still makes."""


class StopAgent(Struct, frozen=True, tag=True):
    """An agent is told to stop: it ends its tasks, says so if it can, and is gone; its next life comes a while later."""

    at: int
    lasts: int
    agent: str


class PauseAgent(Struct, frozen=True, tag=True):
    """An agent is stopped where it stands; its tasks go on."""

    at: int
    lasts: int
    agent: str


class ReplaceAgent(Struct, frozen=True, tag=True):
    """An agent is stopped where it stands, and another one of its name begins on another machine, as whoever missed it would have it.

    The first one wakes up after a while, finds itself fenced, and is gone for good when the fault is over.
    """

    at: int
    lasts: int
    agent: str
    sleeps: int
    """Nanoseconds until it wakes up."""


class KillServer(Struct, frozen=True, tag=True):
    """`kill -9` of the server, now or around its next write, and a new one a while later."""

    at: int
    lasts: int
    moment: str
    """`now`, `before` the next write, or `after` it and before anybody learns of it."""
    turns: int = 0
    """How many turns of its event loop it still makes, if it is killed now."""


class PauseServer(Struct, frozen=True, tag=True):
    """The server is stopped where it stands."""

    at: int
    lasts: int


class BadDisk(Struct, frozen=True, tag=True):
    """Writes fail, before they took effect or after, or take long."""

    at: int
    lasts: int
    fault: str
    """`before`, `after` or `slow`."""


Fault: TypeAlias = (
    Storm | Cut | KillAgent | StopAgent | PauseAgent | ReplaceAgent | KillServer | PauseServer | BadDisk
)


class Story(Struct, frozen=True):
    """Everything that is to happen."""

    seed: int
    setting: Setting
    jobs: tuple[JobPlan, ...]
    faults: tuple[Fault, ...]


def drift_bound(heartbeat: int, term: int) -> float:
    """By how much the rate of any clock may differ from true, for the terms of agents and server not to cross.

    The agent ends a task at term - heartbeat on its clock, the server gives it away at term + heartbeat on its own. With the
    one as slow and the other as fast as can be, (term - heartbeat) / (1 - d) + kill < (term + heartbeat) / (1 + d).
    """
    return (heartbeat - KILL_TIME) / term
