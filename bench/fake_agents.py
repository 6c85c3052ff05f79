"""Runs agents whose tasks end at once or after a given time, to measure only the server and the protocol.

`python -m bench.fake_agents DATA CLUSTER COUNT SLOTS` runs COUNT agents until it is stopped. They are real except for
the tasks: state, link and messages are those of every agent, and each has its own connection. They start no processes
and store nothing. With `--status FILE`, it regularly writes their status.
"""

import argparse
import asyncio
import logging
import secrets
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from spillover.agent.connection import convert
from spillover.agent.connection.finding import InFolder
from spillover.agent.connection.link import Link
from spillover.agent.files.output import Key, Outputs
from spillover.agent.leases.state import AgentState
from spillover.agent.leases.values import Exit, GangStart, Instruction, Reconnect, StartTask
from spillover.agent.sessions.serving import Sessions
from spillover.core.events import Lease, Usage
from spillover.model.resources import Resources
from spillover.wire import agents_pb2 as pb

TOLD: Final = 0.25
"""Seconds between two looks at how agents are."""


class Status(Struct, frozen=True):
    """The status of all agents of a process."""

    connected: int
    """Agents that are registered, as far as they know."""
    registrations: int
    """Of all agents, so far."""
    ended: int
    """Tasks that ended, so far."""
    unanswered: int
    """Results that the server has not answered yet."""
    broken: dict[str, int]
    """Why connections ended or did not come about, each with how often."""


class Broken(logging.Handler):
    """Counts why connections end, from the log of the agents."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.whys: Counter[str] = Counter()

    def emit(self, record: logging.LogRecord) -> None:
        """Count a log record."""
        self.whys[record.getMessage()[:100]] += 1


class FakeAgent:
    """One agent without tasks."""

    def __init__(self, data: Path, cluster: str, name: str, slots: int, *, stream: bool = True) -> None:
        capacity = Resources(slots * 1000, 1 << 40, 0)
        self.state = AgentState(capacity)
        self.outputs = Outputs(data / "none", _nothing, _named)
        self.sessions = Sessions(data / "none", lambda _: None, lambda _, __: None)
        self.log_retention = 0
        self.server_time = (0, 0)
        self.ended = 0
        """Tasks."""
        self._over: list[Lease] = []
        introduction = pb.RegisterRequest(
            protocol=1,
            cluster=cluster,
            name=name,
            life=secrets.token_hex(8),
            capacity=convert.resources_out(capacity),
            queue=64,
            stream=stream,
            gangs=True,
        )
        self.link = Link(self, introduction, InFolder(data / "server.json", data / "token"))

    def act(self, instructions: list[Instruction]) -> Reconnect | None:
        """Record which tasks to run, and ignore all other instructions."""
        reconnect = None
        for each in instructions:
            if isinstance(each, StartTask):
                if not self._over:
                    asyncio.get_running_loop().call_soon(self._end)
                self._over.append(each.lease)
            elif isinstance(each, Reconnect):
                reconnect = each
        if self.state.news():
            self.link.ready()
        return reconnect

    def _end(self) -> None:
        """End all tasks that have begun, and those that begin as a result."""
        now = time.monotonic_ns()
        out: list[Instruction] = []
        for lease in self._over:  # grows meanwhile
            self.ended += 1
            more = self.state.ended(now, lease, Exit(now, True, 0, None, Usage(ran=1_000_000), ""))
            out += more
            self._over += [each.lease for each in more if isinstance(each, StartTask)]
        self._over = []
        self.act([each for each in out if not isinstance(each, StartTask)])

    def start_gangs(self, incarnation: int, epoch: int, starts: Sequence[GangStart]) -> Reconnect | None:
        """Do nothing: no benchmark submits a gang to it."""

    def flush(self) -> None:
        """Do nothing: nothing is stored."""

    async def wait_stopped(self) -> None:
        """Do nothing: no task runs."""


def _nothing(_: Key) -> Lease | None:
    return None


async def _named(_: Lease) -> None:
    pass


async def tell(agents: list[FakeAgent], broken: Broken, path: Path) -> None:
    """Write the status of the agents regularly."""
    while True:
        status = Status(
            sum(agent.link.connected for agent in agents),
            sum(agent.link.registrations for agent in agents),
            sum(agent.ended for agent in agents),
            sum(len(agent.state.results) for agent in agents),
            dict(broken.whys),
        )
        new = path.with_suffix(".new")
        new.write_bytes(msgspec.json.encode(status))
        new.replace(path)
        await asyncio.sleep(TOLD)


async def _join(agent: FakeAgent, after: float) -> None:
    """Start an agent in its turn, because this process cannot start all of them at once in time."""
    await asyncio.sleep(after)
    await agent.link.run()


async def main() -> None:
    """Run agents until stopped."""
    parser = argparse.ArgumentParser(description="Run agents whose tasks take no time.")
    parser.add_argument("data", type=Path)
    parser.add_argument("cluster")
    parser.add_argument("count", type=int)
    parser.add_argument("slots", type=int)
    parser.add_argument("--first", type=int, default=0, help="number of the first agent, part of its name")
    parser.add_argument(
        "--calls", action="store_true", help="renew leases with unary calls, as old agents do"
    )
    parser.add_argument("--rate", type=float, default=1e6, help="agents to start per second")
    parser.add_argument("--status", type=Path, help="file for their status")
    given = parser.parse_args()
    broken = Broken()
    logging.getLogger("spillover.agent").addHandler(broken)
    agents = [
        FakeAgent(
            given.data, given.cluster, f"fake{given.first + number}", given.slots, stream=not given.calls
        )
        for number in range(given.count)
    ]
    works = [_join(agent, number / given.rate) for number, agent in enumerate(agents)]
    if given.status is not None:
        works.append(tell(agents, broken, given.status))
    await asyncio.gather(*works)


if __name__ == "__main__":
    asyncio.run(main())
