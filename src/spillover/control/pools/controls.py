"""Answers questions about the providers of all open pools."""

from collections.abc import Iterator

from spillover.control.controllers.pools import PoolControl
from spillover.control.pools.comparing import Compared
from spillover.model.ids import ClusterName


class PoolControls:
    """The controllers of open pools, by cluster."""

    def __init__(self) -> None:
        self._controls: dict[ClusterName, PoolControl] = {}

    def __iter__(self) -> Iterator[PoolControl]:
        return iter(self._controls.values())

    def get(self, cluster: str) -> PoolControl | None:
        """Return the controller of a pool; None if it is not open."""
        return self._controls.get(ClusterName(cluster))

    def add(self, control: PoolControl) -> None:
        """Add a pool."""
        self._controls[control.cluster] = control

    def remove(self, cluster: ClusterName) -> None:
        """Remove a pool."""
        del self._controls[cluster]

    def problem(self, cluster: str) -> str | None:
        """Return why the provider of an open pool does not work at present; None if it does."""
        control = self.get(cluster)
        failure = None if control is None else control.failure
        return None if failure is None else f"its provider fails, and the server retries: {failure}"

    async def sweep(self, cluster: str, *, dry_run: bool) -> Compared | None:
        """Return what a listing shows now, and end what is unwanted unless it is a dry run; None if it is not open.

        Raises ProviderError if nothing can be listed.
        """
        control = self.get(cluster)
        if control is None:
            return None
        found = await control.sweep()
        if not dry_run:
            control.list_now()
        return found
