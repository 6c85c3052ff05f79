"""The Python client: `Client`, `AsyncClient` for asyncio, and the errors that both raise."""

from typing import TYPE_CHECKING

from spillover.client.errors import (
    CallCancelled,
    CallFailed,
    NoEffect,
    Refused,
    RemoteError,
    SpillError,
    Unavailable,
    Unreachable,
    WaitTimeout,
)

if TYPE_CHECKING:
    from spillover.client.asynchronous.client import AsyncClient
    from spillover.client.executors import AsyncExecutor, Executor
    from spillover.client.synchronous.client import Client

__all__ = [
    "AsyncClient",
    "AsyncExecutor",
    "CallCancelled",
    "CallFailed",
    "Client",
    "Executor",
    "NoEffect",
    "Refused",
    "RemoteError",
    "SpillError",
    "Unavailable",
    "Unreachable",
    "WaitTimeout",
]


def __getattr__(name: str) -> object:
    """Load only the client that is used: the blocking one does not need asyncio."""
    if name == "Client":
        from spillover.client.synchronous.client import Client  # noqa: PLC0415 - see above

        return Client
    if name == "AsyncClient":
        from spillover.client.asynchronous.client import AsyncClient  # noqa: PLC0415 - see above

        return AsyncClient
    if name in {"Executor", "AsyncExecutor"}:
        from spillover.client import executors  # noqa: PLC0415 - few programs need it

        return getattr(executors, name)
    raise AttributeError(f"module 'spillover.client' has no attribute {name!r}")
