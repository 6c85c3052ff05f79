"""Connections that may be silent for long, as a watch or output that is followed: when they count as broken.

The system asks a silent peer whether it is there. While something was sent and not acknowledged it does not ask: it sends that again,
for a quarter of an hour unless it is told for how long. So both times are set, and are the same.
"""

import socket
from collections.abc import Iterable
from typing import Final

KEPT_ALIVE: Final = (
    ("TCP_KEEPIDLE", 30),
    ("TCP_KEEPINTVL", 10),
    ("TCP_KEEPCNT", 3),
    ("TCP_USER_TIMEOUT", 60_000),
)
"""Seconds of silence until the other side is asked, seconds between two questions, and how many are not answered; and
milliseconds for which something sent may stay unacknowledged."""
GRPC_ASKING: Final = (("grpc.keepalive_time_ms", 60_000), ("grpc.keepalive_timeout_ms", 30_000))
"""The same for gRPC, which has its own way to ask and takes the second time for what is not acknowledged, too. For both sides: clients
set no such time on their sockets unless they may ask."""
GRPC_AGENT: Final = (
    *GRPC_ASKING,
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", 8 << 20),
)
"""For agents, which have thousands of connections to one server between them. gRPC would ask with every message that comes how far
away the other side is, to choose how much may be under way: an eighth of what heartbeats cost the server. It is 8 MiB instead:
a gigabit a second at 50 ms, for each file."""
GRPC_SERVING: Final = (
    *GRPC_ASKING,
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 10_000),
)
"""For servers, which take whoever asks more often than every five minutes for hostile unless they are told to bear it."""


def kept_alive(times: Iterable[tuple[str, int]] = KEPT_ALIVE) -> list[tuple[int, int, int]]:
    """Options of a socket that notices when the other side's machine is gone, as far as this system has them."""
    having = ((getattr(socket, name, None), value) for name, value in times)
    timed = [(socket.IPPROTO_TCP, option, value) for option, value in having if option is not None]
    return [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1), *timed]
