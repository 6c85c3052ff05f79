"""What tasks of a gang need on their machine: an address, a port, and a file with the hosts of all tasks."""

import shutil
import socket
from collections.abc import Iterable, Sequence
from pathlib import Path

from spillover.core.events import Lease


class HostFiles:
    """The files with the hosts of gangs, one for each task that runs here."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[Lease, Path] = {}

    def open(self) -> None:
        """Delete what an earlier run left."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def write(self, lease: Lease, hosts: Sequence[str]) -> str:
        """Write one host a line, by rank; return the path. Raises OSError."""
        self._folder.mkdir(mode=0o700, exist_ok=True)
        path = self._folder / f"{lease.job}.{lease.attempt}.{lease.task}.{lease.seq}"
        path.write_text("".join(f"{host}\n" for host in hosts))
        self._files[lease] = path
        return str(path)

    def forget(self, leases: Iterable[Lease]) -> None:
        """Delete the files of tasks that ended."""
        if not self._files:
            return
        for lease in leases:
            if (path := self._files.pop(lease, None)) is not None:
                path.unlink(missing_ok=True)


def free_port() -> int:
    """Return a port that nothing listens on now; raises OSError if there is none."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def address_towards(server: str) -> str:
    """Return the address from which this machine reaches a server at HOST:PORT; empty if it cannot be found."""
    host, _, port = server.rpartition(":")
    try:
        family, _, _, _, target = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(target)  # of a datagram socket this sends nothing
            return str(probe.getsockname()[0])
    except (OSError, ValueError):
        return ""
