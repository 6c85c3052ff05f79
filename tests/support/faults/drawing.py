"""Draws a story from a seed: few kinds of faults at a time, with a load that they affect."""

import random
from collections.abc import Sequence
from typing import Any, Final

from msgspec.structs import replace

from spillover.model.units import SECOND
from tests.support.faults.plans import (
    FAULTS_END,
    MOST_DRIFT,
    STEADY,
    AgentPlan,
    BadDisk,
    Cut,
    Fault,
    JobPlan,
    KillAgent,
    KillServer,
    PauseAgent,
    PauseServer,
    ReplaceAgent,
    Setting,
    StopAgent,
    Storm,
    Story,
    drift_bound,
)

THEMES: Final = (
    ("storm", "cut"),
    ("tempest", "tempest", "tempest", "pause"),
    ("storm", "cut", "kill", "pause"),
    ("pause", "kill", "stop", "server"),
    ("replace", "replace", "storm", "pause", "kill"),
    ("disk", "disk", "disk", "server", "stand", "storm"),
    ("storm", "storm", "cut", "cut", "kill", "stop", "pause", "pause", "server", "server", "stand", "disk"),
)
"""Kinds of faults that occur together in a story."""
SHAPES: Final = (
    *("mixed", "mixed", "mixed", "mixed", "mixed", "mixed"),
    *("skewed", "skewed", "skewed", "long", "long", "asleep", "replaced", "blackout"),
    *("gangs", "gangs", "gangs"),
)
"""Layouts of a story, each as often as it should occur."""
MANY: Final = 4
"""Number of agents whose leases the server does not reclaim yet if all expire at once."""
FENCED_WITHIN: Final = 8 * SECOND
"""Time within which a replaced agent learns of it if no other fault interferes; longer than a call may take."""


def draw(seed: int) -> Story:
    """Draw the story of a seed."""
    dice = random.Random(seed)
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
    match dice.choice(SHAPES):
        case "skewed":
            return _skewed(seed, dice, setting)
        case "asleep":
            return _asleep(seed, dice, setting)
        case "replaced":
            return _replaced(seed, dice, setting)
        case "blackout":
            return _blackout(seed, dice, setting)
        case "gangs":
            return _gangs(seed, dice, setting)
        case "long":
            jobs, last = tuple(_long(dice, number) for number in range(1, dice.randint(3, 7))), 25.0
        case _:
            widest = max(agent.cpus for agent in agents)
            jobs, last = tuple(_job(dice, number, widest) for number in range(1, dice.randint(4, 14))), 32.0
    return Story(seed, setting, jobs, _faults(dice, setting, last))


def _skewed(seed: int, dice: random.Random, setting: Setting) -> Story:
    """Draw a story with much prefetched and some long work, so that leases move before a fault occurs."""
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


def _kind_of_gang(dice: random.Random, most: int) -> dict[str, Any]:
    """Draw what a gang has besides equal tasks that fail together."""
    restarts = dice.choice((0, 0, 1, 2))
    kind: dict[str, Any] = {"restarts": restarts, "exit_retries": 500 if restarts else 0}
    which = dice.random()
    if which < 0.25:
        return kind | {"grouped": True}
    return kind | ({"most": most + 2} if which < 0.5 else {})


def _gangs(seed: int, dice: random.Random, setting: Setting) -> Story:
    """Draw gangs that need most of the machines, some of which take long to prepare, beside single tasks."""
    setting = _several(setting)
    room = sum(agent.cpus for agent in setting.agents)
    gangs = tuple(
        JobPlan(
            f"g{number}",
            int(dice.uniform(0.2, 12) * SECOND),
            int(dice.choice((dice.uniform(0.01, 0.5), dice.uniform(1, 10))) * SECOND),
            tasks=dice.randint(2, room),
            preparing=dice.choice((0.0, 0.0, 0.05, 2.0)),
            unprepared=dice.choice((0, 0, 0, 1, 2)),
            stubborn=dice.random() < 0.2,
            grace=dice.choice((0, SECOND // 2)),
            cancel=int(dice.uniform(1, 15) * SECOND) if dice.random() < 0.1 else None,
            **_kind_of_gang(dice, room),
        )
        for number in range(1, dice.randint(3, 8))
    )
    widest = max(agent.cpus for agent in setting.agents)
    others = tuple(_job(dice, number, widest) for number in range(1, dice.randint(1, 5)))
    return Story(seed, setting, (*gangs, *others), _faults(dice, setting, 25.0))


def _asleep(seed: int, dice: random.Random, setting: Setting) -> Story:
    """Pause an agent beyond its leases while others have room: its tasks run twice until it wakes."""
    setting = _several(setting)
    term = setting.lost_after + 2 * setting.heartbeat
    at = int(dice.uniform(4, 6) * SECOND)
    pause = PauseAgent(at, int(dice.uniform(1.2, 1.8) * term), dice.choice(setting.agents).name)
    room = sum(agent.cpus for agent in setting.agents)
    jobs = _lasting(dice, dice.randint(len(setting.agents), room - 1), at + term)
    return _with_others(seed, dice, setting, jobs, (pause,))


def _replaced(seed: int, dice: random.Random, setting: Setting) -> Story:
    """Pause and replace an agent while it has running and waiting tasks."""
    setting = replace(_several(setting), ahead=20 * SECOND)
    at = int(dice.uniform(4, 6) * SECOND)
    sleeps = int(dice.uniform(0.2, 1.2) * (setting.lost_after + 2 * setting.heartbeat))
    agent = dice.choice(setting.agents).name
    room = sum(agent.cpus for agent in setting.agents)
    jobs = _lasting(dice, room + dice.randint(0, room), at + sleeps)
    return _with_others(seed, dice, setting, jobs, (ReplaceAgent(at, sleeps + FENCED_WITHIN, agent, sleeps),))


def _several(setting: Setting) -> Setting:
    """Add an agent if there is only one, and give each room for two tasks and some prefetched leases."""
    agents = tuple(
        replace(agent, cpus=max(2, agent.cpus), queue=max(3, agent.queue)) for agent in setting.agents
    )
    return replace(setting, agents=agents if len(agents) > 1 else (*agents, AgentPlan("n2", 2, 3, 1.0)))


def _lasting(dice: random.Random, count: int, until: int) -> tuple[JobPlan, ...]:
    """Draw jobs that start before any fault, and of which most run for longer than `until`."""
    return tuple(
        JobPlan(
            f"j{number}",
            int(dice.uniform(0.2, 3) * SECOND),
            int(dice.uniform(0.9, 2) * until),
            stubborn=dice.random() < 0.5,
        )
        for number in range(1, count + 1)
    )


def _with_others(
    seed: int, dice: random.Random, setting: Setting, jobs: tuple[JobPlan, ...], faults: Sequence[Fault]
) -> Story:
    """Return a story of these faults, often without others."""
    others = _faults(dice, setting, 25.0)[: dice.choice((0, 0, 1, 3))]
    return Story(seed, setting, jobs, tuple(sorted((*faults, *others), key=_when)))


def _blackout(seed: int, dice: random.Random, setting: Setting) -> Story:
    """Disconnect many agents at the same time, for longer than their leases last."""
    agents = tuple(
        AgentPlan(f"n{number}", dice.choice((1, 2)), dice.choice((0, 3)), setting.agents[0].rate)
        for number in range(1, 1 + dice.randint(MANY, MANY + 2))
    )
    setting = replace(setting, agents=agents)
    jobs = tuple(_long(dice, number) for number in range(1, 1 + dice.randint(2 * MANY, 3 * MANY)))
    term = setting.lost_after + 2 * setting.heartbeat
    at = int(dice.uniform(6, 10) * SECOND)
    lasts = int(dice.uniform(0.9, 1.8) * term)
    cuts = [Cut(at, lasts, agent.name, *_ways(dice), dice.random() < 0.5) for agent in agents]
    return _with_others(seed, dice, setting, jobs, cuts)


def _ways(dice: random.Random) -> tuple[bool, bool]:
    """Draw whether outgoing and incoming messages are cut."""
    return dice.choice(((True, True), (True, False), (False, True)))


def _long(dice: random.Random, number: int) -> JobPlan:
    """Draw a job that probably runs when a fault occurs."""
    return JobPlan(
        f"j{number}",
        int(dice.uniform(0.2, 6) * SECOND),
        int(dice.uniform(5, 30) * SECOND),
        stubborn=dice.random() < 0.5,
    )


def _faults(dice: random.Random, setting: Setting, last: float) -> tuple[Fault, ...]:
    """Draw faults that begin within some seconds."""
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
        case "tempest":  # longer than a call may take, so that a message arrives after its repetition
            return Storm(at, min(15 * SECOND, FAULTS_END - at), agent, 0.1, 0.6, 8 * SECOND)
        case "cut":
            return Cut(at, lasts, agent, *_ways(dice), dice.random() < 0.5)
        case "kill":
            return KillAgent(at, lasts, agent, dice.random() < 0.3, dice.choice((0, dice.randint(1, 40))))
        case "stop":
            return StopAgent(at, lasts, agent)
        case "pause":
            return PauseAgent(at, lasts, agent)
        case "replace":
            sleeps = min(int(dice.uniform(1, term) * SECOND), FAULTS_END - at - FENCED_WITHIN)
            return ReplaceAgent(at, sleeps + FENCED_WITHIN, agent, sleeps)
        case "server":
            moment, turns = dice.choice(("now", "before", "after")), dice.choice((0, dice.randint(1, 60)))
            return KillServer(at, min(lasts, 10 * SECOND), moment, turns)
        case "stand":
            return PauseServer(at, lasts)
        case _:
            return BadDisk(at, min(lasts, 5 * SECOND), dice.choice(("before", "after", "slow")))
