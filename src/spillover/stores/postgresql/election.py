"""Elects the leader on PostgreSQL, with a row whose counter increases while the holder is alive."""

from collections.abc import Callable

from spillover.ports.election import Holder
from spillover.stores.postgresql.connection import PostgresDatabase
from spillover.stores.watch import Watch


class PostgresqlElection:
    """One contender for the lead."""

    def __init__(self, database: PostgresDatabase, term: float, monotonic: Callable[[], float]) -> None:
        self.term = term
        self._database = database
        self._watch = Watch(term, monotonic)
        self._epoch = 0
        """The last epoch that this contender took; 0 if none."""

    async def campaign(self, name: str, url: str, least: int = 0) -> int | Holder:
        """See Election."""
        async with self._database.write() as connection:
            [row] = await connection.fetch("SELECT epoch, holder, url, renewal FROM leader FOR UPDATE")
            epoch, holder, its_url, renewal = row
            if holder is not None and epoch != self._epoch and not self._watch.expired(epoch, renewal):
                return Holder(name=holder, url=its_url, epoch=epoch)
            taken = max(int(epoch) + 1, least)
            await connection.execute(
                "UPDATE leader SET epoch = $1, holder = $2, url = $3, renewal = 0", taken, name, url
            )
        self._epoch = taken
        return taken

    async def renew(self, epoch: int) -> bool:
        """See Election."""
        async with self._database.write() as connection:
            ours = await connection.fetchval(
                "UPDATE leader SET renewal = renewal + 1 WHERE epoch = $1 AND holder IS NOT NULL RETURNING 1",
                epoch,
            )
        return ours is not None

    async def resign(self, epoch: int) -> None:
        """See Election."""
        async with self._database.write() as connection:
            await connection.execute("UPDATE leader SET holder = NULL WHERE epoch = $1", epoch)

    async def holder(self) -> Holder | None:
        """See Election."""
        async with self._database.read() as connection:
            [row] = await connection.fetch("SELECT epoch, holder, url FROM leader")
        epoch, holder, url = row
        return None if holder is None else Holder(name=holder, url=url, epoch=epoch)
