"""How a story is drawn from a number: few kinds of faults at a time, and loads that they hurt."""

import random
from collections.abc import Sequence
from typing import Final

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
"""Which kinds of faults come together in a story."""
SHAPES: Final = (
    *("mixed", "mixed", "mixed", "mixed", "mixed", "mixed"),
    *("skewed", "skewed", "skewed", "long", "long", "asleep", "replaced", "blackout"),
)
"""How a story may be laid out, each as often as it comes up."""
MANY: Final = 4
"""Agents whose leases are not taken back yet if all of them run out at once."""
FENCED_WITHIN: Final = 8 * SECOND
"""After this time an agent that was replaced has learned of it, unless something else is the matter too: longer than a call may take."""


def draw(seed: int) -> Story:
    """The story of a number."""
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
        case "long":
            jobs, last = tuple(_long(dice, number) for number in range(1, dice.randint(3, 7))), 25.0
        case _:
            widest = max(agent.cpus for agent in agents)
            jobs, last = tuple(_job(dice, number, widest) for number in range(1, dice.randint(4, 14))), 32.0
    return Story(seed, setting, jobs, _faults(dice, setting, last))


def _skewed(seed: int, dice: random.Random, setting: Setting) -> Story:
    """Much is prefetched and some of it takes long, so that leases move; and then something happens."""
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


def _asleep(seed: int, dice: random.Random, setting: Setting) -> Story:
    """An agent is stopped past its leases while others have room for its tasks, which run on: they run twice until it wakes."""
    setting = _several(setting)
    term = setting.lost_after + 2 * setting.heartbeat
    at = int(dice.uniform(4, 6) * SECOND)
    pause = PauseAgent(at, int(dice.uniform(1.2, 1.8) * term), dice.choice(setting.agents).name)
    room = sum(agent.cpus for agent in setting.agents)
    jobs = _lasting(dice, dice.randint(len(setting.agents), room - 1), at + term)
    return _with_others(seed, dice, setting, jobs, (pause,))


def _replaced(seed: int, dice: random.Random, setting: Setting) -> Story:
    """An agent is stopped and replaced while it has tasks, and others that wait for their turn."""
    setting = replace(_several(setting), ahead=20 * SECOND)
    at = int(dice.uniform(4, 6) * SECOND)
    sleeps = int(dice.uniform(0.2, 1.2) * (setting.lost_after + 2 * setting.heartbeat))
    agent = dice.choice(setting.agents).name
    room = sum(agent.cpus for agent in setting.agents)
    jobs = _lasting(dice, room + dice.randint(0, room), at + sleeps)
    return _with_others(seed, dice, setting, jobs, (ReplaceAgent(at, sleeps + FENCED_WITHIN, agent, sleeps),))


def _several(setting: Setting) -> Setting:
    """With an agent more if there is only one, and room for two tasks on each, and for some more to wait."""
    agents = tuple(
        replace(agent, cpus=max(2, agent.cpus), queue=max(3, agent.queue)) for agent in setting.agents
    )
    return replace(setting, agents=agents if len(agents) > 1 else (*agents, AgentPlan("n2", 2, 3, 1.0)))


def _lasting(dice: random.Random, count: int, until: int) -> tuple[JobPlan, ...]:
    """Jobs that begin before anything happens, and most of which run for longer than `until`."""
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
    """A story of some faults, often by themselves."""
    others = _faults(dice, setting, 25.0)[: dice.choice((0, 0, 1, 3))]
    return Story(seed, setting, jobs, tuple(sorted((*faults, *others), key=_when)))


def _blackout(seed: int, dice: random.Random, setting: Setting) -> Story:
    """Many agents are cut off at one time and for longer than their leases last."""
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
    """Whether nothing leaves, and whether nothing arrives."""
    return dice.choice(((True, True), (True, False), (False, True)))


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
