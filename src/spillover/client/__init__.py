"""The Python client: `Client`, the same for asyncio as `AsyncClient`, and the errors that both raise."""

from spillover.client.asynchronous import AsyncClient
from spillover.client.errors import Refused, SpillError, Unavailable, Unreachable, WaitTimeout
from spillover.client.synchronous import Client

__all__ = ["AsyncClient", "Client", "Refused", "SpillError", "Unavailable", "Unreachable", "WaitTimeout"]
