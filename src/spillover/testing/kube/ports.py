"""Ports of programs that are killed and started again on the same port."""

import contextlib
import random
import socket
from pathlib import Path
from typing import Final

_RANGE: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_WIDTH: Final = 12_000
"""How many ports are drawn from."""


class Ports:
    """Loopback ports that stay ours until they are given back, also while nobody listens on them.

    They are below those that the system gives to outgoing connections, any of which could take a port in the moment
    that its program is not there. Other processes that draw ports here see by a name that one is taken.
    """

    def __init__(self) -> None:
        self._marks: list[socket.socket] = []

    def take(self) -> int:
        """One more port."""
        end = int(_RANGE.read_text().split()[0])
        while True:
            port = random.randrange(end - _WIDTH, end)  # noqa: S311 - any will do
            mark = socket.socket(socket.AF_UNIX)
            try:
                mark.bind(f"\0spill-kube-port-{port}")
                with contextlib.closing(socket.socket()) as probe:
                    probe.bind(("127.0.0.1", port))
            except OSError:
                mark.close()
                continue
            self._marks.append(mark)
            return port

    def give_back(self) -> None:
        """Let others have them."""
        for mark in self._marks:
            mark.close()
        self._marks.clear()
