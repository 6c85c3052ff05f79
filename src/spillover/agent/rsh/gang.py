"""What a task knows about its gang, read from its environment."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

LEAST_SECRET: Final = 16
"""Least bytes of the secret of a gang: an empty one would let anybody in."""


class NotInGang(Exception):
    """This process is not a task of a gang; the message says what is missing."""


class UnknownHost(Exception):
    """The host is not one of the job's own; the message lists those."""


class ShellPeer(NamedTuple):
    """A task of the gang, and where its service listens."""

    rank: int
    node: str
    host: str
    port: int


class OwnGang(NamedTuple):
    """The gang of this task."""

    rank: int
    peers: tuple[ShellPeer, ...]
    """By rank."""
    token: bytes
    """The secret of this attempt, which all tasks of the gang know."""

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> "OwnGang":
        """Read the gang of a task; raise NotInGang."""
        try:
            rank, peers = int(environment["SPILL_TASK"]), environment["SPILL_PEERS"]
            token = bytes.fromhex(environment["SPILL_GANG_TOKEN"])
        except KeyError as error:
            raise NotInGang(
                f"{error.args[0]} is not set; remote shells work only inside a job with several tasks"
            ) from None
        except ValueError as error:
            raise NotInGang(f"the environment of the task was changed: {error}") from None
        try:
            lines = Path(peers).read_text().splitlines()
        except OSError as error:
            raise NotInGang(f"{peers}: {error.strerror or error}") from None
        if len(token) < LEAST_SECRET:
            raise NotInGang("SPILL_GANG_TOKEN is too short; the agent of another task may be too old")
        found = [line.split() for line in lines]
        return cls(
            rank,
            tuple([ShellPeer(int(each[0]), each[1], each[2], int(each[3])) for each in found]),
            token,
        )

    def find(self, name: str) -> ShellPeer:
        """Return the first task on a node, named by its agent or its address; raise UnknownHost."""
        for peer in self.peers:
            if name in {peer.node, peer.host}:
                return peer
        nodes = ", ".join(dict.fromkeys(peer.node for peer in self.peers))
        raise UnknownHost(f"{name!r} is not a node of this job; its nodes are {nodes}")
