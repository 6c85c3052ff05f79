"""Agents whose tasks are over at once, or after a stated time: what is left is what the server and the protocol cost.

`python -m bench.fake_agents DATA CLUSTER COUNT SLOTS` keeps COUNT agents until it is told to stop. They are real but for the tasks: state, link
and messages are those of every agent; nothing is started and nothing is kept on disk.
"""

import asyncio
import secrets
import sys
import time
from pathlib import Path

from spillover.agent import convert
from spillover.agent.finding import InFolder
from spillover.agent.link import Link
from spillover.agent.output import Key, Outputs
from spillover.agent.state import AgentState
from spillover.agent.values import Exit, Instruction, Reconnect, Start
from spillover.core.events import Lease, Usage
from spillover.model.resources import Resources
from spillover.wire import agents_pb2 as pb


class FakeAgent:
    """One agent without tasks."""

    def __init__(self, data: Path, cluster: str, name: str, slots: int) -> None:
        capacity = Resources(slots * 1000, 1 << 40, 0)
        self.state = AgentState(capacity)
        self.outputs = Outputs(data / "none", _nothing, _named)
        self.log_retention = 0
        self.server_time = (0, 0)
        self._over: list[Lease] = []
        introduction = pb.RegisterRequest(
            protocol=1,
            cluster=cluster,
            name=name,
            life=secrets.token_hex(8),
            capacity=convert.resources_out(capacity),
            queue=64,
        )
        self.link = Link(self, introduction, InFolder(data / "server.json", data / "token"))

    def act(self, instructions: list[Instruction]) -> Reconnect | None:
        """Note which tasks are to be run; all else needs no doing."""
        reconnect = None
        for each in instructions:
            if isinstance(each, Start):
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
            more = self.state.ended(now, lease, Exit(now, True, 0, None, Usage(ran=1_000_000), ""))
            out += more
            self._over += [each.lease for each in more if isinstance(each, Start)]
        self._over = []
        self.act([each for each in out if not isinstance(each, Start)])

    def flush(self) -> None:
        """Nothing is kept."""

    async def wait_stopped(self) -> None:
        """Nothing runs."""


def _nothing(_: Key) -> Lease | None:
    return None


async def _named(_: Lease) -> None:
    pass


async def main() -> None:
    """Keep agents until told to stop."""
    data, cluster, count, slots = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    agents = [FakeAgent(data, cluster, f"fake{number}", slots) for number in range(count)]
    await asyncio.gather(*(agent.link.run() for agent in agents))


if __name__ == "__main__":
    asyncio.run(main())
