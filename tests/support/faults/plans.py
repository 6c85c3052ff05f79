"""Defines the parts of a story (setting, jobs, faults) as plain values, so that any can be left out."""

from typing import Final, TypeAlias

from msgspec import Struct

from spillover.model.units import SECOND
from tests.support.faults.hosts import MILLISECOND

STEADY: Final = 3 * SECOND
"""Time without faults at the beginning of every story, in which agents register."""
FAULTS_END: Final = 45 * SECOND
"""Time by which all faults are over."""
MOST_DRIFT: Final = 0.05
KILL_TIME: Final = 100 * MILLISECOND
"""Longest time that killed processes take to disappear."""


class AgentPlan(Struct, frozen=True):
    """One agent, through all its processes."""

    name: str
    cpus: int
    queue: int
    rate: float
    """Seconds on its clock per true second."""


class Setting(Struct, frozen=True):
    """What stays constant in a story."""

    heartbeat: int
    lost_after: int
    server_rate: float
    agents: tuple[AgentPlan, ...]
    ahead: int
    """Nanoseconds of work that agents prefetch."""
    route: str
    checkpoints: bool
    """Whether the server writes checkpoints, so that a restart need not replay everything."""


class JobPlan(Struct, frozen=True):
    """One job or array."""

    name: str
    at: int
    runs: int
    """Runtime in nanoseconds of true time."""
    failures: int = 0
    """Number of attempts that fail with an exit code."""
    exit_retries: int = 0
    lost_retries: int = 30
    cpus: int = 1
    members: int = 0
    """0 means that it is not an array."""
    walltime: int = 0
    """0 means none."""
    grace: int = SECOND
    stubborn: bool = False
    """Whether it ignores TERM."""
    tail: int = 0
    """Runtime in nanoseconds of every fourth member; 0 means the same as the others."""
    cancel: int | None = None
    """When a user cancels it; None means never."""
    tasks: int = 1
    """More than one is a gang."""
    preparing: float = 0.0
    """Seconds that an agent takes to prepare a task of a gang."""
    unprepared: int = 0
    """Number of attempts in which the last task of a gang cannot be prepared."""
    restarts: int = 0
    """Number of runs of each odd task of a gang that fail before one succeeds; its tasks are started again."""
    most: int = 0
    """The most tasks of a gang of elastic size; 0 means a fixed size."""
    grouped: bool = False
    """Whether a gang has a group for its first task, and one for the others."""


class Storm(Struct, frozen=True, tag=True):
    """Messages of an agent are lost, repeated and delayed."""

    at: int
    lasts: int
    agent: str
    drop: float
    repeat: float
    delay: int


class Cut(Struct, frozen=True, tag=True):
    """Nothing passes between an agent and others, in one direction or both."""

    at: int
    lasts: int
    agent: str
    outwards: bool
    inwards: bool
    holds: bool


class KillAgent(Struct, frozen=True, tag=True):
    """An agent is killed with SIGKILL and restarts after a while."""

    at: int
    lasts: int
    agent: str
    orphans: bool
    """Whether its tasks live on until the restarted agent ends them; else they die with it."""
    turns: int = 0
    """Turns that its event loop still makes."""


class StopAgent(Struct, frozen=True, tag=True):
    """An agent is asked to stop: it ends and reports its tasks if it can, exits, and restarts after a while."""

    at: int
    lasts: int
    agent: str


class PauseAgent(Struct, frozen=True, tag=True):
    """An agent is paused; its tasks continue."""

    at: int
    lasts: int
    agent: str


class ReplaceAgent(Struct, frozen=True, tag=True):
    """An agent is paused, and another with its name starts on another machine, as its owner might do.

    The first wakes up after a while, finds itself fenced, and is gone for good when the fault is over.
    """

    at: int
    lasts: int
    agent: str
    sleeps: int
    """Nanoseconds until it wakes up."""


class KillServer(Struct, frozen=True, tag=True):
    """The server is killed with SIGKILL, now or around its next write, and another starts after a while."""

    at: int
    lasts: int
    moment: str
    """`now`, `before` the next write, or `after` it but before anybody learns of it."""
    turns: int = 0
    """Turns that its event loop still makes, if it is killed now."""


class PauseServer(Struct, frozen=True, tag=True):
    """The server is paused."""

    at: int
    lasts: int


class BadDisk(Struct, frozen=True, tag=True):
    """Writes fail, before or after they take effect, or are slow."""

    at: int
    lasts: int
    fault: str
    """`before`, `after` or `slow`."""


Fault: TypeAlias = (
    Storm | Cut | KillAgent | StopAgent | PauseAgent | ReplaceAgent | KillServer | PauseServer | BadDisk
)


class Story(Struct, frozen=True):
    """Everything that will happen."""

    seed: int
    setting: Setting
    jobs: tuple[JobPlan, ...]
    faults: tuple[Fault, ...]


def drift_bound(heartbeat: int, term: int) -> float:
    """Return by how much clock rates may differ from true without making the terms of agents and server overlap.

    The agent ends a task at term - heartbeat on its clock, and the server reclaims it at term + heartbeat on its own.
    With the slowest agent and the fastest server, (term - heartbeat) / (1 - d) + kill < (term + heartbeat) / (1 + d).
    """
    return (heartbeat - KILL_TIME) / term
