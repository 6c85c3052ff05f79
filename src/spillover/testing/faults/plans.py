"""What a story is made of: the setting, jobs, and faults, all drawn from one number and all plain values, so that any can be left out."""

import random
from collections.abc import Sequence
from typing import Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from spillover.model.units import SECOND
from spillover.testing.faults.hosts import MILLISECOND

STEADY: Final = 3 * SECOND
"""Every story begins with this time without faults, so that agents have registered."""
FAULTS_END: Final = 45 * SECOND
"""By then all faults are over."""
MOST_DRIFT: Final = 0.05
KILL_TIME: Final = 100 * MILLISECOND
"""What killed processes may take to be gone."""


THEMES: Final = (
    ("storm", "cut"),
    ("tempest", "tempest", "tempest", "pause"),
    ("storm", "cut", "kill", "pause"),
    ("pause", "kill", "stop", "server"),
    ("storm", "storm", "cut", "cut", "kill", "stop", "pause", "pause", "server", "server", "stand", "disk"),
)
"""Which kinds of faults come together in a story."""


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
    """Nanoseconds of work that agents are given ahead of room."""
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


Fault: TypeAlias = Storm | Cut | KillAgent | StopAgent | PauseAgent | KillServer | PauseServer | BadDisk


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


def draw(seed: int) -> Story:
    """The story of a number."""
    dice = random.Random(seed)  # noqa: S311 - it is to be foreseen
    heartbeat = dice.choice((SECOND, 2 * SECOND))
    lost_after = heartbeat * dice.randint(3, 8)
    drift = min(MOST_DRIFT, 0.9 * drift_bound(heartbeat, max(lost_after, 4 * heartbeat)))
    agents = tuple(
        AgentPlan(
            f"n{number}",
            cpus=dice.choice((1, 1, 2, 3)),
            queue=dice.choice((0, 3, 8, 20)),
            rate=1 + dice.choice((-drift, 0.0, drift, dice.uniform(-drift, drift))),
        )
        for number in range(1, dice.choice((2, 2, 3, 3, 4, 5)))
    )
    setting = Setting(
        heartbeat,
        lost_after,
        server_rate=1 + dice.choice((-drift, 0.0, drift)),
        agents=agents,
        ahead=int(dice.choice((0.1, 2, 20)) * SECOND),
        route=dice.choice(("least_loaded", "round_robin", "power_of_two", "biased")),
        checkpoints=dice.random() < 0.5,
    )
    match dice.choice(("mixed", "mixed", "skewed", "long")):
        case "skewed":
            return _skewed(seed, dice, setting)
        case "long":
            jobs, last = tuple(_long(dice, number) for number in range(1, dice.randint(3, 7))), 25.0
        case _:
            widest = max(agent.cpus for agent in agents)
            jobs, last = tuple(_job(dice, number, widest) for number in range(1, dice.randint(4, 14))), 32.0
    return Story(seed, setting, jobs, _faults(dice, setting, last))


def _skewed(seed: int, dice: random.Random, setting: Setting) -> Story:
    """Much is handed out ahead of room and some of it takes long, so that leases move; and then something happens."""
    agents = tuple(replace(agent, queue=dice.choice((8, 20))) for agent in setting.agents)
    if len(agents) == 1:
        agents += (AgentPlan("n2", 2, 20, 1.0),)
    setting = replace(setting, agents=agents, ahead=20 * SECOND)
    jobs = tuple(
        JobPlan(
            f"j{number}",
            int(dice.uniform(2, 5) * SECOND),
            int(dice.uniform(0.01, 0.1) * SECOND),
            members=dice.randint(10, 30),
            tail=int(dice.uniform(0.5, 5) * SECOND),
        )
        for number in range(1, dice.randint(2, 4))
    )
    return Story(seed, setting, jobs, _faults(dice, setting, 10.0))


def _long(dice: random.Random, number: int) -> JobPlan:
    """A job that is likely to run when something happens."""
    return JobPlan(
        f"j{number}",
        int(dice.uniform(0.2, 6) * SECOND),
        int(dice.uniform(5, 30) * SECOND),
        stubborn=dice.random() < 0.5,
    )


def _faults(dice: random.Random, setting: Setting, last: float) -> tuple[Fault, ...]:
    """Faults that begin within so many seconds."""
    kinds = dice.choice(THEMES)
    drawn = [_fault(dice, setting, kinds, last) for _ in range(dice.randint(1, 10))]
    return tuple(sorted(drawn, key=_when))


def _when(fault: Fault) -> int:
    return fault.at


def _job(dice: random.Random, number: int, widest: int) -> JobPlan:
    runs = dice.choice(
        (
            dice.uniform(0.005, 0.05),
            dice.uniform(0.005, 0.05),
            dice.uniform(0.2, 3),
            dice.uniform(0.2, 3),
            dice.uniform(3, 15),
            dice.uniform(15, 40),
        )
    )
    at = int(dice.uniform(0.2, 30) * SECOND)
    failures = dice.choice((0, 0, 0, 0, 1, 2))
    members = dice.choice((0, 0, 0, 3, 8, 20)) if runs < 0.5 else 0
    return JobPlan(
        f"j{number}",
        at,
        int(runs * SECOND),
        failures=failures,
        exit_retries=dice.choice((0, failures, failures + 1)),
        lost_retries=dice.choice((0, 1, 30, 30)),
        cpus=dice.choice((1, 1, 1, min(2, widest))),
        members=members,
        walltime=int(dice.uniform(0.1, 10) * SECOND) if dice.random() < 0.15 else 0,
        grace=dice.choice((0, SECOND // 2, 2 * SECOND)),
        stubborn=dice.random() < 0.2,
        tail=int(dice.choice((0, 0.5, 3)) * SECOND) if members else 0,
        cancel=at + int(dice.uniform(0, 15) * SECOND) if dice.random() < 0.2 else None,
    )


def _fault(dice: random.Random, setting: Setting, kinds: Sequence[str], last: float) -> Fault:
    at = int(dice.uniform(STEADY / SECOND, last) * SECOND)
    term = (setting.lost_after + 2 * setting.heartbeat) / SECOND
    least, most = dice.choice(((0.05, 1.0), (0.05, 4.0), (0.05, term), (term, 2 * term)))
    lasts = min(int(dice.uniform(least, most) * SECOND), FAULTS_END - at)
    agent = dice.choice(setting.agents).name
    match dice.choice(kinds):
        case "storm":
            delay = int(dice.choice((0.1, 1, 8)) * SECOND)
            return Storm(at, lasts, agent, dice.choice((0.0, 0.2, 0.6)), dice.choice((0.0, 0.3, 0.9)), delay)
        case (
            "tempest"
        ):  # longer than a call may take, so that a message arrives after the one that repeats it
            return Storm(at, min(15 * SECOND, FAULTS_END - at), agent, 0.1, 0.6, 8 * SECOND)
        case "cut":
            out, inwards = dice.choice(((True, True), (True, False), (False, True)))
            return Cut(at, lasts, agent, out, inwards, dice.random() < 0.5)
        case "kill":
            return KillAgent(at, lasts, agent, dice.random() < 0.3, dice.choice((0, dice.randint(1, 40))))
        case "stop":
            return StopAgent(at, lasts, agent)
        case "pause":
            return PauseAgent(at, lasts, agent)
        case "server":
            moment, turns = dice.choice(("now", "before", "after")), dice.choice((0, dice.randint(1, 60)))
            return KillServer(at, min(lasts, 10 * SECOND), moment, turns)
        case "stand":
            return PauseServer(at, lasts)
        case _:
            return BadDisk(at, min(lasts, 5 * SECOND), dice.choice(("before", "after", "slow")))
