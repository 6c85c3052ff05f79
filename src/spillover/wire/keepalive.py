"""Connections that may be silent for long, as a watch or output that is followed: when they count as broken."""

import socket
from collections.abc import Iterable
from typing import Final

KEPT_ALIVE: Final = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))
"""Seconds of silence until the other side is asked, seconds between two questions, and how many are not answered."""


def kept_alive(times: Iterable[tuple[str, int]] = KEPT_ALIVE) -> list[tuple[int, int, int]]:
    """Options of a socket that notices when the other side's machine is gone, as far as this system has them."""
    having = ((getattr(socket, name, None), value) for name, value in times)
    timed = [(socket.IPPROTO_TCP, option, value) for option, value in having if option is not None]
    return [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1), *timed]
