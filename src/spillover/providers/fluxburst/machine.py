"""Starts the agent on a machine that a plugin made: `python3 -m spillover.providers.fluxburst.machine TEXT`.

Plugins pass the command of a job through shells and templates, so the whole order is one word of letters, digits, `-` and
`_`. The token in it works once. The agent reads it from a file, so that its own command line does not have it.
"""

import base64
import contextlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from spillover.ports.provider import Join, Order
from spillover.providers.userdata import FOLDER, offer_options

MODULE: Final = "spillover.providers.fluxburst.machine"


class Told(Struct, frozen=True):
    """What a machine is told."""

    join: Join
    options: tuple[str, ...]
    """Of `spill agent`."""


def command(order: Order, python: str) -> list[str]:
    """Return the command that starts the agent of an order."""
    told = msgspec.json.encode(Told(order.join, tuple(offer_options(order.offer))))
    return [python, "-m", MODULE, base64.urlsafe_b64encode(told).decode().rstrip("=")]


def agent_words(text: str, folder: Path) -> list[str]:
    """Write the join file into a folder, and return the options of the agent."""
    told = msgspec.json.decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=Told)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / "join.json"
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600), "wb") as file:
        file.write(msgspec.json.encode(told.join))
    return ["--join", str(path), "--data", str(folder), *told.options]


def main(words: Sequence[str]) -> None:
    """Become the agent."""
    # Flux binds a job of one task to one core. The agent knows how many its machine has.
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, range(os.cpu_count() or 1))
    try:
        given = agent_words(words[0], Path(os.environ.get("SPILL_DATA") or FOLDER))
    except PermissionError:
        given = agent_words(words[0], Path.home() / ".spillover")
    os.execv(sys.executable, [sys.executable, "-m", "spillover.agent", *given])  # noqa: S606 - no shell


if __name__ == "__main__":
    main(sys.argv[1:])
