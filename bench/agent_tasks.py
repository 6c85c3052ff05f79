"""Measures what a short task costs an agent: its state, spool and nursery, without a server.

Alternates with the floor, a C program that only starts the same processes. The agent is real except for its link: the
benchmark hands leases to its state, and answers its reports at once.
"""

import asyncio
import os
import time
from pathlib import Path
from typing import Final

from bench.reporting import Goal, Options, Report, Table, main, tell
from bench.servers import Cpu, cpu_below, folder
from bench.throughput import SLOTS, Round, floor
from spillover.agent.connection.finding import InFolder
from spillover.agent.leases.values import Answered, Grant, Task, Welcome
from spillover.agent.options import AgentOptions
from spillover.agent.run import Agent
from spillover.core.events import Lease
from spillover.core.proposals import Verdict
from spillover.model.ids import JobId
from spillover.model.job import Argv
from spillover.model.resources import Resources
from spillover.model.units import SECOND

AHEAD: Final = 256
"""Leases that the agent holds beyond those that run."""
WARMING: Final = 100
"""Tasks before the clock runs: what a start costs is not what a task costs."""
EVERY: Final = 0.01
"""Seconds between two reports, as the link has it."""
GOAL: Final = 200.0
"""CPU microseconds of agent and nursery for one task."""


def agent_alone(path: Path, count: int, isolation: str) -> Round:
    """Run tasks until all results are answered."""
    finder = InFolder(path / "server.json", path / "token")
    capacity = Resources(SLOTS * 1000, 1 << 30, 0)
    options = AgentOptions(path, finder, "n1", "lab", capacity, AHEAD, isolation=isolation)
    return asyncio.run(_agent_alone(options, count))


async def _agent_alone(options: AgentOptions, count: int) -> Round:
    agent = Agent(options)
    life = agent.runtime  # its parts without its link
    await agent.recover()
    await agent.task_runners.open_processes()
    task = Task(Argv(("/bin/true",)), Resources(1000, 0, 0))
    state, issued, answered, warm = life.state, 0, 0, False

    def now() -> int:
        return time.monotonic_ns()

    def top_up() -> None:
        nonlocal issued
        room = min(AHEAD - len(state.waiting), count - issued)
        if room > AHEAD // 2 or room == count - issued:
            leases = [
                Lease(JobId(f"{number:08x}abcdefgh"), 1, number) for number in range(issued, issued + room)
            ]
            issued += room
            life.act(state.granted(now(), 1, 1, [Grant(lease, task) for lease in leases]))

    life.act(state.register(now())[1])
    life.act(state.registered(now(), now(), Welcome(1, 1, frozenset(), 2 * SECOND, 3600 * SECOND)))
    before, begin = cpu_below(os.getpid()), time.monotonic()
    count += WARMING
    try:
        while answered < count:
            if not warm and answered >= WARMING:
                before, begin, warm = cpu_below(os.getpid()), time.monotonic(), True
            top_up()
            await asyncio.sleep(EVERY)
            report, instructions = state.report(now())
            life.act(instructions)
            if report is not None:
                verdicts = tuple((result.lease, Verdict.ACCEPTED) for result in report.results)
                answered += len(verdicts)
                life.act(state.reported(now(), Answered(1, False, verdicts, ())))
        count -= WARMING
        seconds = time.monotonic() - begin
        after = cpu_below(os.getpid())
    finally:
        await agent.task_runners.close()
    return Round(count / seconds, _split(before, after, count))


def _split(before: Cpu, after: Cpu, count: int) -> dict[str, float]:
    used = after - before
    return {"agent": used.own / count * 1e6, "children": used.children / count * 1e6}


def measure(options: Options) -> Report:
    """Alternate the agent and the floor, and compare the best round of each."""
    count, rounds = (2_000, 1) if options.quick else (10_000, 3)
    report = Report("Tasks of an agent alone")
    found: dict[str, list[Round]] = {"floor (C)": [], "agent": [], "agent, --isolation none": []}
    with folder("agent-tasks") as path:
        for number in range(rounds):
            for name, rounds_of in found.items():
                place = path / f"{number}-{name.replace(' ', '')}"
                place.mkdir()
                isolation = "none" if "none" in name else "auto"
                one = floor(place, count) if "floor" in name else agent_alone(place, count, isolation)
                rounds_of.append(one)
                tell(f"round {number + 1}: {name}: {one.rate:,.0f} a second")
    best = {name: max(each, key=lambda one: one.rate) for name, each in found.items()}
    table = Table(
        f"{count:,} tasks `/bin/true`, {SLOTS} at a time; best of {rounds} alternating rounds",
        ("", "tasks/s", "of the floor", "CPU µs a task"),
    )
    for name, one in best.items():
        parts = ", ".join(f"{part} {used:,.0f}" for part, used in one.cpu.items())
        table.add(name, one.rate, one.rate / best["floor (C)"].rate, parts)
        report.figures[f"{name} tasks/s"] = one.rate
    report.tables.append(table)
    report.goals.append(
        Goal("CPU µs of agent and nursery a task", best["agent"].cpu["agent"], GOAL, at_most=True)
    )
    return report


if __name__ == "__main__":
    main(measure, "Short tasks a second of an agent without a server, and the floor.")
