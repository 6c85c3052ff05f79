"""Spillover: one queue over the machines you own and the ones you can rent."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spillover.checkpoints import checkpoint
    from spillover.client import AsyncClient, AsyncExecutor, Client, Executor

__version__ = "0.5.0.dev0"

__all__ = ["AsyncClient", "AsyncExecutor", "Client", "Executor", "__version__", "checkpoint"]


def __getattr__(name: str) -> object:
    """Load the client when it is first asked for, so that the command line starts fast."""
    if name == "checkpoint":
        from spillover.checkpoints import checkpoint  # noqa: PLC0415 - tasks that do not ask need none

        return checkpoint
    if name in __all__:
        from spillover import client  # noqa: PLC0415 - heavy, and not every import needs it

        found: object = getattr(client, name)
        return found
    raise AttributeError(f"module 'spillover' has no attribute {name!r}")
