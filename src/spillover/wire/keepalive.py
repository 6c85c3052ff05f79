"""Keep-alive settings for connections that may be silent for long, such as watches and followed output.

The operating system probes a silent peer. While sent data is not acknowledged, it sends the data again instead of
probing, by default for a quarter of an hour. So both timeouts are set, to the same total.
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
"""Seconds of silence before the first probe, seconds between probes, and failed probes before the connection is dead.
Then milliseconds that sent data may stay unacknowledged.
"""
GRPC_ASKING: Final = (("grpc.keepalive_time_ms", 60_000), ("grpc.keepalive_timeout_ms", 30_000))
"""The same for gRPC, which sends its own probes, and uses the second time for unacknowledged data too. For clients and
servers: a gRPC client sets no socket timeout unless it may probe.
"""
GRPC_AGENT: Final = (
    *GRPC_ASKING,
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", 8 << 20),
)
"""For agents, of which thousands connect to one server. By default, gRPC measures the round trip with every message to
size its window, which costs an eighth of the server's work for heartbeats. A fixed window of 8 MiB allows a gigabit
per second at 50 ms for each file.
"""
GRPC_SERVING: Final = (
    *GRPC_ASKING,
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 10_000),
)
"""For servers. By default, a gRPC server disconnects clients that probe more often than every five minutes."""


def kept_alive(times: Iterable[tuple[str, int]] = KEPT_ALIVE) -> list[tuple[int, int, int]]:
    """Return socket options that detect a dead peer, as far as this system has them."""
    having = ((getattr(socket, name, None), value) for name, value in times)
    timed = [(socket.IPPROTO_TCP, option, value) for option, value in having if option is not None]
    return [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1), *timed]
