"""Agents whose tasks are over at once, or after a stated time: what is left is what the server and the protocol cost.

`python -m bench.fake_agents DATA CLUSTER COUNT SLOTS` keeps COUNT agents until it is told to stop. They are real but for the tasks: state, link
and messages are those of every agent, and each has a connection of its own; nothing is started and nothing is kept on disk.
With `--status FILE` it tells every moment how they are.
"""

import argparse
import asyncio
import logging
import secrets
import time
from collections import Counter
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from spillover.agent import convert
from spillover.agent.finding import InFolder
from spillover.agent.link import Link
from spillover.agent.output import Key, Outputs
from spillover.agent.state import AgentState
from spillover.agent.values import Exit, Instruction, Reconnect, StartTask
from spillover.core.events import Lease, Usage
from spillover.model.resources import Resources
from spillover.wire import agents_pb2 as pb

TOLD: Final = 0.25
"""Seconds between two looks at how agents are."""


class Status(Struct, frozen=True):
    """How all agents of a process are."""

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
    """Counts why connections end, which agents tell their log."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.whys: Counter[str] = Counter()

    def emit(self, record: logging.LogRecord) -> None:
        """One that is told."""
        self.whys[record.getMessage()[:100]] += 1


class FakeAgent:
    """One agent without tasks."""

    def __init__(self, data: Path, cluster: str, name: str, slots: int, *, stream: bool = True) -> None:
        capacity = Resources(slots * 1000, 1 << 40, 0)
        self.state = AgentState(capacity)
        self.outputs = Outputs(data / "none", _nothing, _named)
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
        )
        self.link = Link(self, introduction, InFolder(data / "server.json", data / "token"))

    def act(self, instructions: list[Instruction]) -> Reconnect | None:
        """Note which tasks are to be run; all else needs no doing."""
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
        """What was begun is over, and so is all that begins because of that."""
        now = time.monotonic_ns()
        out: list[Instruction] = []
        for lease in self._over:  # grows meanwhile
            self.ended += 1
            more = self.state.ended(now, lease, Exit(now, True, 0, None, Usage(ran=1_000_000), ""))
            out += more
            self._over += [each.lease for each in more if isinstance(each, StartTask)]
        self._over = []
        self.act([each for each in out if not isinstance(each, StartTask)])

    def flush(self) -> None:
        """Nothing is kept."""

    async def wait_stopped(self) -> None:
        """Nothing runs."""


def _nothing(_: Key) -> Lease | None:
    return None


async def _named(_: Lease) -> None:
    pass


async def tell(agents: list[FakeAgent], broken: Broken, path: Path) -> None:
    """Write every moment how agents are."""
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
    """Start an agent in its turn: this process would not be through with its own part of all of them in time."""
    await asyncio.sleep(after)
    await agent.link.run()


async def main() -> None:
    """Keep agents until told to stop."""
    parser = argparse.ArgumentParser(description="Agents whose tasks take no time.")
    parser.add_argument("data", type=Path)
    parser.add_argument("cluster")
    parser.add_argument("count", type=int)
    parser.add_argument("slots", type=int)
    parser.add_argument("--first", type=int, default=0, help="the number of the first, which is in its name")
    parser.add_argument(
        "--calls", action="store_true", help="renew with calls, as agents did before they had a stream"
    )
    parser.add_argument("--rate", type=float, default=1e6, help="agents that are started in a second")
    parser.add_argument("--status", type=Path, help="file to tell how they are")
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
