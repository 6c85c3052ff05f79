"""Spillover: one queue over the machines you own and the ones you can rent."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spillover.checkpoints import checkpoint
    from spillover.client import Client

__version__ = "0.4.0"

__all__ = ["Client", "__version__", "checkpoint"]


def __getattr__(name: str) -> object:
    """Load the client when it is first asked for, so that the command line starts fast."""
    if name == "Client":
        from spillover.client import Client  # noqa: PLC0415 - heavy, and not every import needs it

        return Client
    if name == "checkpoint":
        from spillover.checkpoints import checkpoint  # noqa: PLC0415 - tasks that do not ask need none

        return checkpoint
    raise AttributeError(f"module 'spillover' has no attribute {name!r}")
