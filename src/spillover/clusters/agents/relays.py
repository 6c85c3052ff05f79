"""Connects clients to tasks: passes bytes between a request of a client and a call that the agent opens for it.

Agents may be behind NAT, so the server asks the agent for a call, over the stream that the agent keeps open. Both directions
hold a few pieces. Whoever fills them waits for the other side, and so does the program behind it.
"""

import asyncio
from collections.abc import Callable
from secrets import token_hex
from typing import Final

from spillover.ports.cluster import RelayGone
from spillover.wire.relay import failed

ANSWER: Final = 20.0
"""Seconds that an agent has to open its call."""
UNUSED: Final = 30.0
"""Seconds that a relay waits for its client to read it."""
PIECES: Final = 4
"""Pieces that may wait in each direction."""
MOST_PIECE: Final = 256 << 10
"""Most bytes of one piece."""
MOST: Final = 200
"""Most relays at a time, and so `MOST` times twice `PIECES` times `MOST_PIECE` bytes in the worst case."""


class Pipe:
    """One direction: a few pieces, until one side closes it."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._closed = False
        self._changed = asyncio.Condition()

    async def put(self, piece: bytes) -> bool:
        """Add a piece once there is room; return False if the pipe is closed."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._closed or len(self._pieces) < PIECES)
            if self._closed:
                return False
            self._pieces.append(piece)
            self._changed.notify_all()
            return True

    async def get(self) -> bytes | None:
        """Return the next piece; None once the pipe is closed and empty."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._closed or bool(self._pieces))
            if not self._pieces:
                return None
            piece = self._pieces.pop(0)
            self._changed.notify_all()
            return piece

    async def close(self, last: bytes = b"", *, drop: bool = False) -> None:
        """Close it, behind a last piece; with `drop`, without what is left in it. Only the first time counts."""
        async with self._changed:
            if not self._closed:
                self._closed = True
                if drop:
                    self._pieces.clear()
                if last:
                    self._pieces.append(last)
                self._changed.notify_all()


class AgentRelay:
    """One connection between a client and an agent."""

    def __init__(self, node: str, gone: Callable[[], None], left: Callable[[], None]) -> None:
        self.node = node
        self._gone = gone
        self._left = left
        """Tells the agent that the client is gone: its call cannot while pieces in it wait to be read."""
        self._agent_is_gone = False
        self._joined = asyncio.Event()
        self._to_agent, self._to_client = Pipe(), Pipe()

    # --- the client's side

    async def receive(self) -> bytes | None:
        """Return the next piece from the agent; None at the end."""
        return await self._to_client.get()

    async def send(self, piece: bytes) -> bool:
        """Send a piece to the agent once there is room; return False if the relay has ended."""
        return await self._to_agent.put(piece)

    async def close(self) -> None:
        """End it, because the client is gone."""
        self._gone()
        if not self._agent_is_gone:
            self._left()
        await self._to_agent.close(drop=True)
        await self._to_client.close(drop=True)

    async def joined(self) -> None:
        """Wait until the agent has opened its call; raise RelayGone."""
        try:
            async with asyncio.timeout(ANSWER):
                await self._joined.wait()
        except TimeoutError:
            raise RelayGone(f"agent {self.node} did not answer within {ANSWER:.0f} s; try again") from None

    # --- the agent's side

    def join(self) -> bool:
        """Begin the agent's call; return False if there was one already."""
        if self._joined.is_set():
            return False
        self._joined.set()
        return True

    async def heard(self, piece: bytes) -> bool:
        """Take a piece from the agent once there is room; return False if the client is gone."""
        return await self._to_client.put(piece)

    async def next(self) -> bytes | None:
        """Return the next piece for the agent; None when the client is gone."""
        return await self._to_agent.get()

    async def ended(self) -> None:
        """End it, because the agent's call has ended."""
        self._agent_is_gone = True
        self._gone()
        # After the last frame of a session, which says how it ended, the client reads no more.
        told = failed(f"the connection to agent {self.node.partition('/')[2]} was lost")
        await self._to_client.close(told.encoded())
        await self._to_agent.close(drop=True)


class Relays:
    """All relays of all agents."""

    def __init__(self) -> None:
        self._relays: dict[str, AgentRelay] = {}
        """By the id that the agent's call names."""

    def open(self, node: str, ask: Callable[[str], None], left: Callable[[str], None]) -> AgentRelay:
        """Ask an agent for a call with a new id, and return the relay; raise RelayGone if there are too many.

        `left` tells the agent that the client of an id is gone.
        """
        if len(self._relays) >= MOST:
            raise RelayGone(f"the server has {MOST} sessions, the maximum; end some, or try again later")
        number = token_hex(16)
        relay = self._relays[number] = AgentRelay(node, lambda: self._drop(number), lambda: left(number))
        ask(number)
        return relay

    def find(self, number: str, node: str) -> AgentRelay | None:
        """Return the relay that an agent's call names; None if it has none of this id."""
        relay = self._relays.get(number)
        return relay if relay is not None and relay.node == node else None

    def _drop(self, number: str) -> None:
        self._relays.pop(number, None)
