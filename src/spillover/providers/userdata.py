"""The script that a new machine of a cloud runs at its first boot, so that its agent joins.

Clouds pass it as user data or as a startup script, and run it as root. The same order gives the same bytes, because a
cloud that is asked twice under one token compares them. It may run again after a reboot.

The token in it works once and only for this machine. Still only root can read the join file, and clouds keep the script
where root alone can read it. The metadata service of the machine has it too, and a token that was used is of no use there.
"""

import shlex
from collections.abc import Sequence
from typing import Final

import msgspec

from spillover.model.pools import Offer
from spillover.model.units import format_cpu, write_memory
from spillover.ports.provider import Order

FOLDER: Final = "/var/lib/spillover"
"""Of the agent, on the machine."""
USER: Final = "spillover"
"""The user that the agent and its tasks run as, if the machine has it; otherwise they run as root."""
MOST_USER_DATA: Final = 16384
"""Bytes that every cloud takes."""
MOST_SETUP: Final = 12288
"""Bytes of the operator's own lines, so that there is room for the rest."""
UNIT: Final = "spillover-agent.service"
_PATH: Final = "/opt/spillover/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_END: Final = "SPILLOVER_END"

_SERVICE: Final = f"""\
[Unit]
Description=Spillover agent
Wants=network-online.target
After=network-online.target
[Service]
Type=exec
ExecStart={FOLDER}/start
LimitNOFILE=1048576
TasksMax=infinity
Restart=on-failure
RestartSec=2
KillMode=mixed
Delegate=yes
OOMPolicy=continue
[Install]
WantedBy=multi-user.target
"""
"""As in deploy/systemd. `on-failure`: an agent that ended because its machine is no longer wanted stays ended."""


def user_data(order: Order, setup: Sequence[str] = (), program: str = "spill") -> str:
    """Return the script that writes the join file, runs the operator's lines, and starts the agent."""
    return "\n".join(
        (
            "#!/bin/sh",
            f"# Joins {order.join.cluster} of Spillover as {order.machine}.",
            "set -eu",
            f"export PATH={_PATH}",
            f"mkdir -p {FOLDER}",
            f"chmod 700 {FOLDER}",
            _file("join.json", msgspec.json.encode(order.join).decode(), 0o600),
            _file("setup", "\n".join(("set -eu", *setup)), 0o700),
            _file("start", _start(order, program), 0o700),
            f"sh {FOLDER}/setup || {{ echo 'spillover: the setup of this machine failed' >&2; exit 1; }}",
            "if [ -d /run/systemd/system ]; then",
            _file(UNIT, _SERVICE.rstrip("\n"), 0o644, "/etc/systemd/system"),
            "systemctl daemon-reload",
            f"systemctl enable --now {UNIT}",
            "else",
            # A program that was started before is not there after a reboot, so there are never two.
            f"nohup {FOLDER}/start >>{FOLDER}/agent.log 2>&1 </dev/null &",
            "fi",
            "",
        )
    )


def _start(order: Order, program: str) -> str:
    """Return the script that runs the agent."""
    return "\n".join(
        (
            "#!/bin/sh",
            f"export PATH={_PATH}",
            f"cd {FOLDER}",
            "ulimit -n 1048576 2>/dev/null || ulimit -n $(ulimit -H -n)",
            # As this user, tasks can read neither the token of the machine nor its metadata.
            f"set --; if id -u {USER} >/dev/null 2>&1; then set -- --user {USER}; fi",
            f'exec {shlex.join([program, "agent", *agent_options(order)])} "$@"',
        )
    )


def agent_options(order: Order, folder: str = FOLDER) -> list[str]:
    """Return the options of `spill agent` on the machine of an order, whose join file is in this folder."""
    return ["--join", f"{folder}/join.json", "--data", folder, *offer_options(order.offer)]


def offer_options(offer: Offer) -> list[str]:
    """Return the options of `spill agent` that say what a machine has."""
    has = offer.resources
    return [
        *("--cpu", format_cpu(has.cpu), "--memory", write_memory(has.memory), "--gpu", str(has.gpu)),
        *[part for word in offer.words for part in ("--offer", word)],
        *[part for key, value in sorted(offer.labels.items()) for part in ("--label", f"{key}={value}")],
    ]


def _file(name: str, text: str, mode: int, folder: str = FOLDER) -> str:
    """Return lines that write a file, which nobody else can read in the meantime, and which replaces an older one."""
    path, end = f"{folder}/{name}", _END
    while end in text:
        end += "_"
    return f"(umask 077; cat >{path}.new) <<'{end}'\n{text}\n{end}\nchmod {mode:o} {path}.new\nmv {path}.new {path}"
