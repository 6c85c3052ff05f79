"""What tasks of a gang need on their machine: an address, ports, and files about the others of the gang."""

import errno
import os
import secrets
import shlex
import shutil
import socket
import sys
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from spillover.agent.leases.values import GangStart, Readiness
from spillover.core.events import Lease

RSH: Final = "rsh"
"""Name of the program that launchers start in place of ssh. They take a path, without arguments."""

RECENT: Final = 1000
TRIES: Final = 100
"""Ports to try before there is none."""


class GangFiles:
    """The files about gangs, a folder for each task that runs here."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._folders: dict[Lease, Path] = {}
        self._given: deque[int] = deque(maxlen=RECENT)
        """Ports that tasks got recently, and may not have opened yet."""

    def open(self) -> None:
        """Delete what an earlier run left."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def write(self, lease: Lease, start: GangStart) -> Mapping[str, str]:
        """Write the files for one task; return variables with their paths. Raises OSError."""
        self._folder.mkdir(mode=0o700, exist_ok=True)
        rsh = self._folder / RSH
        if not rsh.exists():
            rsh.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m spillover.cli rsh "$@"\n')
            rsh.chmod(0o700)
        own = self._folder / f"{lease.job}.{lease.attempt}.{lease.task}.{lease.seq}"
        own.mkdir(mode=0o700, exist_ok=True)
        self._folders[lease] = own
        slots = Counter(start.nodes)
        paths = {name: str(own / name) for name in ("hosts", "peers", "openmpi", "hydra")}
        _write(paths["hosts"], start.hosts)
        _write(paths["peers"], _peers(start))
        _write(paths["openmpi"], [f"{node} slots={count}" for node, count in slots.items()])
        _write(paths["hydra"], [f"{node}:{count}" for node, count in slots.items()])
        return {
            "SPILL_HOSTS": paths["hosts"],
            "SPILL_PEERS": paths["peers"],
            "SPILL_RSH": str(rsh),
            # Open MPI would take the variables of Slurm for a real one, and start its daemons by srun.
            "OMPI_MCA_plm": "rsh",
            "OMPI_MCA_ras": "^slurm",
            "OMPI_MCA_plm_rsh_agent": str(rsh),
            "OMPI_MCA_orte_default_hostfile": paths["openmpi"],
            "PRTE_MCA_plm_ssh_agent": str(rsh),
            "PRTE_MCA_prte_default_hostfile": paths["openmpi"],
            "HYDRA_LAUNCHER": "rsh",
            "HYDRA_LAUNCHER_EXEC": str(rsh),
            "HYDRA_HOST_FILE": paths["hydra"],
            # Else every process would get the variables of the first task, such as its node and its GPUs.
            "HYDRA_ENV": "none",
        }

    def readiness(self, *, leads: bool) -> Readiness:
        """Return free ports for a task and, if it leads its gang, a secret; raises OSError if there are none."""
        shell = self._free_port()
        return Readiness(shell, self._free_port(), secrets.token_bytes(32)) if leads else Readiness(shell)

    def _free_port(self) -> int:
        """Return a port that nothing listens on, and that no other task got recently."""
        for _ in range(TRIES):
            with socket.socket() as probe:
                probe.bind(("", 0))
                port = int(probe.getsockname()[1])
            if port not in self._given:
                self._given.append(port)
                return port
        raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))

    def forget(self, leases: Iterable[Lease]) -> None:
        """Delete the files of tasks that ended."""
        if not self._folders:
            return
        for lease in leases:
            if (folder := self._folders.pop(lease, None)) is not None:
                shutil.rmtree(folder, ignore_errors=True)


def _peers(start: GangStart) -> list[str]:
    """Return a line for each task: its rank, node, host, and port for remote shells."""
    shells = start.shells or (0,) * len(start.nodes)
    tasks = zip(start.nodes, start.hosts, shells, strict=True)
    return [f"{rank} {node} {host} {port}" for rank, (node, host, port) in enumerate(tasks)]


def _write(path: str, lines: Iterable[str]) -> None:
    Path(path).write_text("".join(f"{line}\n" for line in lines))


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
