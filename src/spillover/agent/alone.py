"""Notices that an agent has been left alone, so that its rented machine is turned off and stops to cost money.

The server ends the machines that it knows. This is for the others: its address or its state is lost, or nobody runs it any
more.
"""

import asyncio
import logging
import os
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from spillover.model.units import SECOND, format_duration

LEAST_TRY: Final = 60 * SECOND
"""Nanoseconds for which an agent tries to join in any case, because the clock of a new machine may be wrong."""
LONGEST_LOOK: Final = 5.0
"""Most seconds between two looks."""
EXIT: Final = "exit"
"""Turns nothing off: the agent only exits."""
AUTO: Final = "auto"

log = logging.getLogger("spillover.agent")


class Company(NamedTuple):
    """Who needs this agent now, and the clocks of its machine, in nanoseconds."""

    connected: Callable[[], bool]
    busy: Callable[[], bool]
    """Returns whether it has tasks."""
    monotonic: Callable[[], int]
    wall: Callable[[], int]


async def wait_alone(company: Company, alone_for: int, join_by: int) -> str:
    """Return once the agent is without server and tasks for `alone_for`, or did not join by a time; return which.

    `alone_for` of 0 is never, and so is `join_by`, in nanoseconds UTC.
    """
    begun = company.monotonic()
    since: int | None = None
    """When it was first seen alone; None if it is not."""
    joined = False
    pause = min([LONGEST_LOOK, *([alone_for / SECOND / 4] if alone_for else [])])
    while True:
        now = company.monotonic()
        if company.connected():
            joined = True
        since = None if company.connected() or company.busy() else since if since is not None else now
        if alone_for and since is not None and now - since >= alone_for:
            return f"no server and no tasks for {format_duration(alone_for)}"
        if not joined and join_by and company.wall() >= join_by and now - begun >= LEAST_TRY:
            return "no server let it join in time"
        await asyncio.sleep(pause)


def off_command(wanted: str, *, root: bool | None = None, run: Path = Path("/run")) -> list[str]:
    """Return the program that turns this machine off; empty if the agent only exits.

    `auto` turns off a machine whose init system this agent may tell so: it runs as root, and not in a container.
    """
    if wanted == EXIT:
        return []
    if wanted != AUTO:
        return shlex.split(wanted)
    if not (os.geteuid() == 0 if root is None else root):
        return []
    if (run / "systemd" / "system").is_dir() and shutil.which("systemctl"):
        return ["systemctl", "poweroff"]
    if (run / "openrc").is_dir() and shutil.which("poweroff"):
        return ["poweroff"]
    return []


def turn_off(command: list[str]) -> bool:
    """Turn the machine off; return whether that worked."""
    if not command:
        return True
    log.warning("turning this machine off: %s", shlex.join(command))
    try:
        done = subprocess.run(command, check=False, stdin=subprocess.DEVNULL)
    except OSError as error:
        log.error("cannot turn this machine off: %s", error)  # noqa: TRY400 - one line, no traceback
        return False
    if done.returncode:
        log.error("cannot turn this machine off: %s ended with code %d", command[0], done.returncode)
    return done.returncode == 0
