"""Implements `spill up`: reads the configuration, opens the store, takes the lead and serves until stopped."""

import asyncio
import contextlib
import gc
import logging
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import structlog
from msgspec import structs

from spillover.clusters.kinds import load_kinds
from spillover.config.clusteroption import read_options
from spillover.config.config import Address, ClusterSource, Config
from spillover.config.read import check_reach, read_address, read_config
from spillover.control.live.clock import SystemClock
from spillover.control.live.leader import Leader
from spillover.forms.documents import read_documents
from spillover.forms.problems import BadForm, Findings, FormProblem, line_of
from spillover.ports.commands import CommandError
from spillover.ports.election import Holder
from spillover.ports.journal import StoreError, Unwritable
from spillover.providers.registry import load_providers
from spillover.server.clusters import Unusable, check_access
from spillover.server.files import read_whereabouts
from spillover.server.local_files import refused_files
from spillover.server.server import Server
from spillover.server.tls import BadCertificate, load_identity
from spillover.stores.open import open_store
from spillover.wire.api import ConfigRequest

DEFAULT_CONFIG = "spill.yaml"
COLLECT_AFTER = 20_000
"""New objects between two searches for cycles. The state has no cycles. With Python's default of 700, the collector
scans jobs again and again, which takes an eighth of the time for a job with many agents."""


FEW_FILES = 4096
"""Limit of open files below which to warn that few agents can connect."""
SPARE_FILES = 256
"""Open files for everything else: the store, blobs, requests of users."""


class CannotStart(Exception):
    """A server could not start; the message says why and what to do."""


def run(
    *,
    config: str | None,
    data: str | None,
    http: str | None,
    grpc: str | None,
    slots: int | None,
    clusters: Sequence[str] = (),
    standby: bool,
    restored: bool = False,
) -> int:
    """Serve until stopped; return exit code 0, or 2 if the server could not start or lost the lead."""
    try:
        settings = settings_of(config, data, http, grpc, slots, clusters)
        if wrong := refused_files(settings, config or DEFAULT_CONFIG):
            raise BadForm(wrong)
        _log_to_stderr()
        # Loading providers takes a tenth of a second, which a server without pools does not need.
        providers = load_providers().unusable if settings.providers else {}
        for line in (*load_kinds().unusable.values(), *providers.values()):
            structlog.get_logger().warning(line)
        files = _open_many_files()
        gc.freeze()  # loaded modules stay
        gc.set_threshold(COLLECT_AFTER, *gc.get_threshold()[1:])
        umask = os.umask(0o077)  # jobs and their environment are private
        reload = partial(settings_of, config, data, http, grpc, slots, clusters)
        folder = Path(settings.data).absolute()
        return asyncio.run(
            _serve(settings, folder, umask, files, standby=standby, restored=restored, reload=reload)
        )
    except BadCertificate as error:
        print(f"spill: {_placed(error, config or DEFAULT_CONFIG)}", file=sys.stderr)  # noqa: T201 - for the user
        return 2
    except Unusable as error:
        for line in str(error).splitlines():
            print(f"spill: {line}", file=sys.stderr)  # noqa: T201 - for the user
        return 2
    except (CannotStart, StoreError, CommandError, OSError) as error:
        print(f"spill: {_told(error)}", file=sys.stderr)  # noqa: T201 - for the user
        return 2


def _open_many_files() -> int:
    """Raise the limit of open files to its maximum, as each agent needs a connection; return the limit before.

    Most shells set it to 1,024.
    """
    before, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    except (OSError, ValueError):  # keep the current limit
        most = before
    if 0 <= most < FEW_FILES:
        structlog.get_logger().warning(
            "the limit of open files allows few connections; raise it (ulimit -Hn, or LimitNOFILE= of the service)",
            open_files=most,
            agents_at_most=max(0, most - SPARE_FILES),
        )
    return before


def _placed(error: BadCertificate, source: str) -> FormProblem:
    """Return a TLS problem with the line of the configuration that causes it."""
    lines = read_documents(Path(source).read_bytes(), source)[0].lines
    line = line_of(tuple(error.setting.split(".")), lines)
    return FormProblem(source, line, error.setting, error.message)


def _told(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno and error.filename:
        return f"{error.filename}: {os.strerror(error.errno)}"
    return str(error)


def settings_of(
    config: str | None,
    data: str | None,
    http: str | None = None,
    grpc: str | None = None,
    slots: int | None = None,
    clusters: Sequence[str] = (),
) -> Config:
    """Return the configuration, overridden by command-line options."""
    text: bytes | None = None
    source = config or DEFAULT_CONFIG
    if config is not None or Path(DEFAULT_CONFIG).is_file():
        text = Path(source).read_bytes()
    settings = read_config(text, source, slots=slots)
    found = Findings()
    if clusters:
        if slots is not None:
            found.add(("--slots",), "applies to the default cluster only; leave it out with --cluster")
        named = read_options(clusters)
        settings = structs.replace(
            settings,
            clusters=named.specs,
            forms=named.forms,
            entries=named.entries,
            providers=named.providers,
            clusters_from=ClusterSource.OPTIONS,
        )
    if http is not None:
        settings = structs.replace(settings, http=read_address(http, ("--http",), found) or settings.http)
    if grpc is not None:
        settings = structs.replace(settings, grpc=read_address(grpc, ("--grpc",), found) or settings.grpc)
    for address, option in ((settings.http, "--http"), (settings.grpc, "--grpc")):
        check_reach(address, (option,), found, tls=settings.tls is not None)
    if problems := found.located():
        raise BadForm(problems)
    return settings if data is None else structs.replace(settings, data=data)


async def _serve(
    config: Config,
    data: Path,
    umask: int,
    files: int | None = None,
    *,
    standby: bool,
    restored: bool = False,
    reload: Callable[[], Config] | None = None,
) -> int:
    """Take the lead and serve; return the exit code."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    # Ignore the signal until there is a server to handle it.
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, lambda: None)
    check_access(config)
    identity = load_identity(config.tls, time.time()) if config.tls is not None else None
    listener = _listener(config, data)  # first, so that a taken port changes nothing
    with contextlib.closing(listener):
        _make(data)
        store = await open_store(config.store, data)
        leader = Leader(store.election, SystemClock(), _name(os.getpid()), restored=restored)
        try:
            server = Server(config, data, store, umask=umask, files=files, identity=identity, reload=reload)
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, _apply_again, server)
            url = server.url(listener)
            taking = asyncio.create_task(_take(server, listener, leader, url, standby=standby))
            stopping = asyncio.create_task(stop.wait())
            await asyncio.wait({taking, stopping}, return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            if not taking.done():
                taking.cancel()
                await asyncio.gather(taking, return_exceptions=True)
                return 0
            holder = taking.result()
            if holder is not None:
                raise _served(data, holder.name, holder.url)
            if not await server.run(leader, listener, stop):
                raise CannotStart("another server took over; this one stopped")
            return 0
        finally:
            await leader.resign()
            await store.close()


def _apply_again(server: Server) -> None:
    """Apply the configuration again after a signal."""
    task = asyncio.create_task(_applied(server), name="configuration")
    _APPLYING.add(task)
    task.add_done_callback(_APPLYING.discard)


_APPLYING: Final[set[asyncio.Task[None]]] = set()
"""Holds references until the tasks are done."""


async def _applied(server: Server) -> None:
    log = structlog.get_logger()
    if not server.loop.epoch:
        log.warning("did not apply the configuration: this server is not the leader")
        return
    try:
        outcome = await server.administration.configure(ConfigRequest(), "spillover")
    except CommandError as error:
        found = [FormProblem(each.source, each.line, each.path, each.message) for each in error.problems]
        lines = [*map(str, found)] or [error.message]
        log.error("did not apply the configuration", problems=lines)  # noqa: TRY400 - one line
        return
    for each in outcome.changes:
        log.info("configuration", what=each.what, change=each.change, text=each.text)
    log.info("applied the configuration", changes=len(outcome.changes))


async def _take(
    server: Server, listener: socket.socket, leader: Leader, url: str, *, standby: bool
) -> Holder | None:
    """Take the lead and return None, or return its holder; serve read-only while the store cannot be written."""
    try:
        return await leader.take(url, standby=standby)
    except Unwritable as error:
        shown = _beside(listener) if standby else listener.dup()
        holder = await server.show(shown, str(error), partial(leader.take, url, standby=False))
    if holder is None:
        listener.listen()  # queue connections instead of refusing them
    elif standby:
        await leader.stand_by(url, holder)
        return None
    return holder


def _beside(listener: socket.socket) -> socket.socket:
    """Return another socket on the same address; unlike a duplicate, it stops listening when it is closed."""
    other = socket.socket(listener.family, socket.SOCK_STREAM)
    other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        other.bind(listener.getsockname())
    except BaseException:
        other.close()
        raise
    return other


def _make(data: Path) -> None:
    """Create the data folder, for its owner only."""
    data.mkdir(parents=True, exist_ok=True, mode=0o700)


def _name(pid: int) -> str:
    """Return the name of a server on this machine for other servers."""
    return f"{socket.gethostname()} (process {pid})"


def _served(data: Path, name: str, url: str) -> CannotStart:
    return CannotStart(f"{data} is served by {name} at {url}; stop it first, or wait with --standby")


def _listener(config: Config, data: Path) -> socket.socket:
    """Return the HTTP socket; raise CannotStart if its address or that for agents is taken."""
    try:
        listener = _bind(config.http, "--http")
        try:
            _bind(config.grpc, "--grpc").close()  # only a check: gRPC binds it again
        except BaseException:
            listener.close()
            raise
    except CannotStart:
        where = read_whereabouts(data)
        # If a server is started twice, name the running server instead of the port.
        if where is not None and where.http.endswith(f":{config.http.port}") and _lives(where.pid):
            raise _served(data, _name(where.pid), where.http) from None
        raise
    return listener


def _lives(pid: int) -> bool:
    """Return whether a process exists."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (ProcessLookupError, OverflowError):
        return False
    return True


def _bind(address: Address, option: str) -> socket.socket:
    """Return a socket bound to an address; raise CannotStart."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((address.host, address.port))
    except OSError as error:
        listener.close()
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise CannotStart(f"cannot listen on {address}: {reason}; choose another with {option}") from None
    return listener


def _log_to_stderr() -> None:
    """Log to standard error, one line for each event."""
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
