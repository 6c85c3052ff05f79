"""Lets an agent that root starts run itself and its tasks as another user (`--user`), on a rented machine.

A task of root could read the agent's token, and get the machine's own credentials from the metadata service of the cloud. So
the agent gives up root before it does anything. What needs root stays in a **helper**, a process that was forked before:
it asks for notices, stores the token where tasks cannot read it, and turns the machine off. Tasks cannot signal it, and
the kernel drops what they send to the metadata service.
"""

import asyncio
import contextlib
import logging
import os
import pwd
import select
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from spillover.agent.notices import Notices, Patient

ADDRESSES: Final = (("iptables", "169.254.169.254"), ("ip6tables", "fd00:ec2::254"))
"""Where clouds serve metadata, each with the program that can close the way there."""
KEPT: Final = "joined.json"
"""File in the data folder with the token of a machine that has joined; only root can read it."""
MOST_LINE: Final = 256 << 10

log = logging.getLogger("spillover.agent")


class Kept(Struct, frozen=True):
    """What a machine that has joined needs to return after its agent was started again."""

    name: str
    """Of the machine."""
    token: str
    authority: str


class Asked(Struct, frozen=True):
    """A message of the agent to its helper."""

    keep: Kept | None = None
    off: bool = False


def read_kept(data: Path, name: str) -> Kept | None:
    """Return what an earlier run on this machine kept; None if there is nothing of use."""
    with contextlib.suppress(OSError, msgspec.DecodeError):
        kept = msgspec.json.decode((data / KEPT).read_bytes(), type=Kept)
        return kept if kept.name == name else None
    return None


def user_problem(name: str) -> str | None:
    """Return why an agent cannot run as a user; None if it can."""
    if os.geteuid() != 0:
        return f"--user {name}: only root can run an agent as another user"
    try:
        found = pwd.getpwnam(name)
    except KeyError:
        return f"--user {name}: there is no such user"
    return f"--user {name}: tasks would run as root" if found.pw_uid == 0 else None


class Helper:
    """The agent's end of its helper."""

    def __init__(self, end: socket.socket, pid: int, name: str) -> None:
        self._socket = end
        self._name = name
        self._pid = pid

    def keep(self, token: str, authority: bytes) -> None:
        """Store the token of this machine."""
        self._say(Asked(keep=Kept(self._name, token, authority.decode(errors="replace"))))

    def turn_off(self) -> None:
        """Turn the machine off."""
        self._say(Asked(off=True))

    async def notice(self) -> int:
        """Return when the machine will be taken back, nanoseconds UTC, once that is announced; never if it is not."""
        loop = asyncio.get_running_loop()
        self._socket.setblocking(False)
        while True:
            line = await loop.sock_recv(self._socket, 64)
            if line.strip().isdigit():
                return int(line)
            if not line:  # only a bug or an operator ends the helper
                log.error("the helper of this agent is gone: no notices, and nobody turns this machine off")
                await asyncio.Event().wait()

    def close(self) -> None:
        """End the helper, once it has done what it was asked for."""
        self._socket.close()
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._pid, 0)

    def _say(self, asked: Asked) -> None:
        with contextlib.suppress(OSError):
            self._socket.setblocking(True)
            self._socket.send(msgspec.json.encode(asked))


def give_up_root(
    user: str, data: Path, name: str, notices: Notices | None, turn_off: Callable[[], object], poll: float
) -> Helper:
    """Start a helper, and run as another user from now on; raise OSError if that fails. No thread may run yet."""
    found = pwd.getpwnam(user)
    _give_folders(data, name, found.pw_uid, found.pw_gid)
    _delegate(Path("/proc/self/cgroup"), Path("/sys/fs/cgroup"), found.pw_uid, found.pw_gid)
    for why in close_metadata(found.pw_uid):
        log.warning("tasks may reach the metadata service of this machine: %s", why)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    if pid == 0:
        ours.close()
        _help(theirs, data, notices, turn_off, poll)
    theirs.close()
    os.initgroups(user, found.pw_gid)
    os.setgid(found.pw_gid)
    os.setuid(found.pw_uid)
    os.environ.update(HOME=found.pw_dir, USER=user, LOGNAME=user)
    os.environ.pop("XDG_RUNTIME_DIR", None)
    log.info("running as user %s", user)
    return Helper(ours, pid, name)


def close_metadata(uid: int) -> list[str]:
    """Let the kernel refuse what a user, or a container behind a bridge, sends to metadata services; return failures."""
    failed: list[str] = []
    for program, address in ADDRESSES:
        rules = (
            ("OUTPUT", "-d", address, "-m", "owner", "--uid-owner", str(uid), "-j", "REJECT"),
            ("FORWARD", "-d", address, "-j", "REJECT"),
        )
        for chain, *rule in rules:
            try:
                if _run(program, "-w", "-C", chain, *rule).returncode:
                    done = _run(program, "-w", "-I", chain, "1", *rule)
                    if done.returncode:
                        failed.append(
                            f"{program}: {done.stderr.strip().splitlines()[0] if done.stderr else ''}"
                        )
            except (OSError, subprocess.TimeoutExpired) as error:
                failed.append(f"{program}: {error}")
                break
    return failed


def _run(*command: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=10)


def _give_folders(data: Path, name: str, uid: int, gid: int) -> None:
    """Let the user pass through the data folder, and own the folder of its agent."""
    own = data / "agents" / name
    own.mkdir(parents=True, exist_ok=True)
    for folder in (data, data / "agents"):
        folder.chmod(folder.stat().st_mode | 0o111)
    if own.stat().st_uid == uid:
        return
    for each in (own, *own.rglob("*")):  # an earlier run may have been of root
        os.chown(each, uid, gid, follow_symlinks=False)


def _delegate(own: Path, root: Path, uid: int, gid: int) -> None:
    """Let the user make control groups below the one of this process, where systemd would with `User=`."""
    with contextlib.suppress(OSError):
        for line in own.read_text().splitlines():
            if line.startswith("0::/") and line != "0::/":  # never all of the machine
                folder = root / line[4:]
                for path in (
                    folder,
                    *[folder / f"cgroup.{each}" for each in ("procs", "threads", "subtree_control")],
                ):
                    os.chown(path, uid, gid)


# --- the helper itself


def _help(
    end: socket.socket, data: Path, notices: Notices | None, turn_off: Callable[[], object], poll: float
) -> None:
    """Serve the agent until it is gone; never return."""
    code = 1
    try:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)  # the agent drains first
        _serve(end, data, notices, turn_off, poll)
        code = 0
    except Exception:
        log.exception("the helper of this agent failed")
    finally:
        os._exit(code)


def _serve(
    end: socket.socket, data: Path, notices: Notices | None, turn_off: Callable[[], object], poll: float
) -> None:
    """Do what the agent asks, and tell it about a notice."""
    patient = None if notices is None else Patient(notices)
    due = time.monotonic()
    while True:
        wait = None if patient is None else max(0.0, due - time.monotonic())
        if select.select([end], [], [], wait)[0]:
            line = end.recv(MOST_LINE)
            if not line:
                return
            asked = msgspec.json.decode(line, type=Asked)
            if asked.keep is not None:
                _store(data / KEPT, msgspec.json.encode(asked.keep))
            if asked.off:
                turn_off()
        elif patient is not None:
            until = patient.ask()
            due = time.monotonic() + poll
            if until is not None:
                end.send(str(until).encode())
                patient = None


def _store(path: Path, content: bytes) -> None:
    """Write a file that only root can read."""
    new = path.with_suffix(".new")
    new.unlink(missing_ok=True)
    file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.write(file, content)
        os.fsync(file)
    finally:
        os.close(file)
    new.replace(path)
