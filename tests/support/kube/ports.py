"""Reserves ports for programs that restart on the same port."""

import contextlib
import random
import socket
from pathlib import Path
from typing import Final

_RANGE: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_WIDTH: Final = 12_000
"""Number of ports to draw from."""
_PRIVILEGED: Final = 1024


class Ports:
    """Loopback ports that stay reserved until `give_back`, even while nobody listens on them.

    They are below the range of outgoing connections if possible, because such a connection could take a port while its
    program restarts. An abstract socket name shows other processes that a port is taken.
    """

    def __init__(self) -> None:
        self._marks: list[socket.socket] = []

    def take(self) -> int:
        """Reserve one more port."""
        first, last = (int(word) for word in _RANGE.read_text().split())
        below = first > _WIDTH + _PRIVILEGED
        while True:
            port = random.randrange(*((first - _WIDTH, first) if below else (first, last)))
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
        """Release all ports."""
        for mark in self._marks:
            mark.close()
        self._marks.clear()
