"""`spill up`: read the configuration, open the store, take the lead, serve, and stop when told to."""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
from pathlib import Path

import structlog
from msgspec import structs

from spillover.config.config import Address, Config
from spillover.config.read import read_address, read_config
from spillover.control.clock import SystemClock
from spillover.control.leader import Leader
from spillover.forms.problems import BadForm, Findings
from spillover.ports.journal import StoreError
from spillover.server.server import Server
from spillover.stores.open import open_store

DEFAULT_CONFIG = "spill.yaml"


class CannotStart(Exception):
    """A server that did not begin; the message says why and what to do."""


def run(
    *,
    config: str | None,
    data: str | None,
    http: str | None,
    grpc: str | None,
    slots: int | None,
    standby: bool,
) -> int:
    """Serve until told to stop; exit code 0 then, 2 if it could not begin or lost the lead."""
    try:
        settings = _settings(config, data, http, grpc, slots)
        _log_to_stderr()
        data_folder = Path(settings.data).absolute()
        data_folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return asyncio.run(_serve(settings, data_folder, standby=standby))
    except (CannotStart, StoreError, OSError) as error:
        print(f"spill: {_told(error)}", file=sys.stderr)  # noqa: T201 - the one line that a person sees
        return 2


def _told(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno and error.filename:
        return f"{error.filename}: {os.strerror(error.errno)}"
    return str(error)


def _settings(
    config: str | None, data: str | None, http: str | None, grpc: str | None, slots: int | None
) -> Config:
    """The configuration, with what the command line says instead."""
    text: bytes | None = None
    source = config or DEFAULT_CONFIG
    if config is not None or Path(DEFAULT_CONFIG).is_file():
        text = Path(source).read_bytes()
    settings = read_config(text, source, slots=slots)
    found = Findings()
    if http is not None:
        settings = structs.replace(settings, http=read_address(http, ("--http",), found) or settings.http)
    if grpc is not None:
        settings = structs.replace(settings, grpc=read_address(grpc, ("--grpc",), found) or settings.grpc)
    if problems := found.located():
        raise BadForm(problems)
    return settings if data is None else structs.replace(settings, data=data)


async def _serve(config: Config, data: Path, *, standby: bool) -> int:
    """Take the lead and serve."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    store = await open_store(config.store, data)
    leader = Leader(store.election, SystemClock(), f"{socket.gethostname()} (process {os.getpid()})")
    try:
        listener = _bind(config.http)
        url = f"http://{config.http.at(listener.getsockname()[1])}"
        with contextlib.closing(listener):
            taking = asyncio.create_task(leader.take(url, standby=standby))
            stopping = asyncio.create_task(stop.wait())
            await asyncio.wait({taking, stopping}, return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            if not taking.done():
                taking.cancel()
                return 0
            holder = taking.result()
            if holder is not None:
                raise CannotStart(
                    f"{data} is served by {holder.name} at {holder.url}; stop it first, or wait with --standby"
                )
            if not await Server(config, data, store).run(leader, listener, stop):
                raise CannotStart("another server leads now; this one stopped")
        return 0
    finally:
        await leader.resign()
        await store.close()


def _bind(address: Address) -> socket.socket:
    """A socket for people, so that a taken port is noticed before anything else happens."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((address.host, address.port))
    except OSError as error:
        listener.close()
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise CannotStart(f"cannot listen on {address}: {reason}; choose another with --http") from None
    return listener


def _log_to_stderr() -> None:
    """One line an event, on standard error."""
    logging.basicConfig(
        stream=sys.stderr, level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s"
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.format_exc_info,
            structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty()),
        ],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
