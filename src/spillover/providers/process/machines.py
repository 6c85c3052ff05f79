"""Machines as folders and processes: how they are recorded, started, found and ended. All calls here block.

A machine is a folder. The folder appears with its record in one step before its process starts, so a crash in between
leaves a machine that a listing shows and that the same order starts. A process that runs holds the lock of its folder,
which it inherits, so it is never started twice and never mistaken for another process with the same pid.
"""

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Container, Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from spillover.model.units import SECOND
from spillover.ports.provider import Join, Presence
from spillover.providers.process.forks import PROGRAM, AgentForks
from spillover.providers.process.starting import MARK, Started

RECORD: Final = "machine.json"
JOIN: Final = "join.json"
LOG: Final = "agent.log"
_LOCK: Final = "lock"
_PID: Final = "pid"
_ENDING: Final = "ending"
_TAKEN: Final = "taken"
_ENDED: Final = "ended"
"""Folder beside the machines: a log for each machine that is gone, by its name."""
PATIENCE: Final = 4.0
"""Seconds that machines have to stop before they are killed, and then to disappear."""
MORE: Final = 0.05
"""Seconds more for each of several machines that stop at the same time."""
KEEP: Final = 86_400.0
"""Seconds for which names and logs of machines that are gone are kept."""
MOST_LOG: Final = 256 << 10
"""Bytes that are kept of the log of a machine that is gone."""
# `$$` is the leader of the session in the inner shell too. The outer one ends at once, so the server has no children.
_START: Final = 'echo $$ > pid.new && mv pid.new pid || exit 1; { sleep "$0" && exec "$@"; } &'

_NOTHING: Final[tuple[str, ...]] = ("sleep", "2147483647")


class Record(Struct, frozen=True):
    """What is known of a machine, as its file has it."""

    machine: str
    owner: str
    token: str
    name: str
    at: int
    """When it was created, nanoseconds UTC."""
    spot: bool = False


class Found(Struct, frozen=True):
    """A machine as its folder and its process show it."""

    name: str
    presence: Presence
    record: Record | None
    """None if its file is lost or unreadable."""
    reason: str = ""
    taken: bool = False
    """Whether it was taken back."""


class Machines:
    """All machines in one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.forks = AgentForks(folder)
        """Starts agents."""

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other providers in this folder from creating machines, also those of other processes; raise OSError."""
        (self._folder / _ENDED).mkdir(mode=0o700, parents=True, exist_ok=True)
        held = os.open(self._folder / f".{_LOCK}", os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(held, fcntl.LOCK_EX)
            yield
        finally:
            os.close(held)

    def record(self, name: str) -> Record | None:
        """Return the record of a machine; None if it is lost, or there is no such machine."""
        try:
            data = (self._folder / name / RECORD).read_bytes()
            return msgspec.json.decode(data, type=Record)
        except (OSError, msgspec.DecodeError, ValueError, RecursionError):
            return None

    def exists(self, name: str) -> bool:
        """Return whether there is a machine, running or not."""
        return (self._folder / name).is_dir()

    def was(self, name: str) -> bool:
        """Return whether there was a machine that is gone now."""
        return (self._folder / _ENDED / name).exists()

    def add(self, record: Record, join: Join) -> None:
        """Record a machine durably, in one step; raise OSError."""
        new = Path(tempfile.mkdtemp(prefix=".new-", dir=self._folder))
        try:
            _write(new / JOIN, msgspec.json.encode(join))
            _write(new / RECORD, msgspec.json.encode(record))
            new.rename(self._folder / record.name)
            _sync(self._folder)
        except OSError:
            shutil.rmtree(new, ignore_errors=True)
            raise

    def start(self, name: str, how: Started) -> None:
        """Start the process of a machine, unless it was started before; raise OSError."""
        folder = self._folder / name
        if (folder / _PID).exists() or (folder / _ENDING).exists():
            return
        held = locked(folder)
        if held is None:
            return
        joins = ("--join", str(folder / JOIN), "--data", str(folder)) if how.words else _NOTHING
        environ = {**how.environ, MARK: str(folder)}
        how = replace(how, words=(*how.words, *joins), environ=environ, folder=str(folder))
        try:
            with (folder / LOG).open("ab") as log:
                if how.agent:
                    self.forks.start(how, log.fileno(), held)
                else:
                    _launch(how, log.fileno(), held)
        finally:
            os.close(held)

    def found(self) -> list[Found]:
        """Return all machines, by name; raise OSError."""
        return [each for name in self.names() if (each := self._look(name)) is not None]

    def names(self) -> list[str]:
        """Return the names of all machines; raise OSError."""
        return sorted(each.name for each in os.scandir(self._folder) if _is_machine(each))

    def end(self, names: Sequence[str]) -> dict[str, str]:
        """End machines and everything that runs on them; return why some still run, by name. Raise OSError."""
        with self.alone():
            there = [name for name in names if _plain(name) and self.exists(name)]
            for name in there:
                with contextlib.suppress(FileNotFoundError):  # somebody else ends it too
                    (self._folder / name / _ENDING).touch()
        for name in there:
            self._signal(name, signal.SIGTERM)
        left = self._await_end(there, PATIENCE + len(there) * MORE)
        for name in left:
            self._signal(name, signal.SIGKILL)
        wrong = dict.fromkeys(self._kill_marked(there), "its processes do not end")
        for name in there:
            if name not in wrong:
                try:
                    self.remove(name)
                except OSError as error:
                    wrong[name] = f"its folder cannot be removed: {error}"
        return wrong

    def take_back(self, name: str) -> None:
        """End a machine as a provider does that takes it back: at once. Its folder stays."""
        (self._folder / name / _TAKEN).touch()
        self._signal(name, signal.SIGKILL)
        self._kill_marked([name])

    def clean(self, now: float) -> None:
        """Remove what was kept of machines that are gone, after they were listed for some time."""
        for found in self.found():
            old = found.record is None or now - found.record.at / SECOND > KEEP
            if found.presence is Presence.GONE and old:
                self.remove(found.name)
        self.forget(now)

    def forget(self, now: float) -> None:
        """Remove logs of machines that are gone."""
        for each in os.scandir(self._folder / _ENDED):
            with contextlib.suppress(FileNotFoundError):
                if now - each.stat().st_mtime > KEEP:
                    Path(each.path).unlink()

    def _look(self, name: str) -> Found | None:
        """Return one machine; None if it was removed meanwhile."""
        folder = self._folder / name
        record, taken = self.record(name), (folder / _TAKEN).exists()
        started = (folder / _PID).exists()
        if self.runs(name):
            stopping = taken or (folder / _ENDING).exists()
            return Found(name, Presence.STOPPING if stopping else Presence.RUNNING, record, taken=taken)
        if not folder.is_dir():
            return None
        if (folder / _ENDING).exists():
            return Found(name, Presence.STOPPING, record, "it is being removed", taken)
        if taken:
            return Found(name, Presence.GONE, record, "it was taken back", taken)
        if started:
            return Found(name, Presence.GONE, record, f"its process ended; see {folder / LOG}")
        return Found(name, Presence.PENDING, record)

    def runs(self, name: str) -> bool:
        """Return whether the process of a machine runs, or is being started."""
        try:
            held = locked(self._folder / name)
        except OSError:
            return False
        if held is not None:
            os.close(held)
        return held is None

    def _pid(self, name: str) -> int | None:
        """Return the leader of the session of a running machine; None if it is not known."""
        if not self.runs(name):
            return None
        with contextlib.suppress(OSError, ValueError):
            pid = int((self._folder / name / _PID).read_text())
            return pid if 1 < pid < 2**31 else None  # a signal to 0 or below would reach whole process groups
        return None

    def _signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal to the agent of a running machine."""
        pid = self._pid(name)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if pid is not None:
                os.killpg(pid, number)

    def _await_end(self, names: Sequence[str], patience: float) -> list[str]:
        """Wait until machines have ended; return those that still run."""
        until = time.monotonic() + patience
        left = [name for name in names if self.runs(name)]
        while left and time.monotonic() < until:
            time.sleep(0.02)
            left = [name for name in left if self.runs(name)]
        return left

    def _kill_marked(self, names: Sequence[str]) -> list[str]:
        """Kill all that is left on machines, in whichever session; return machines on which something does not end."""
        until = time.monotonic() + PATIENCE
        left = marked([self._folder / name for name in names])
        while any(left.values()) and time.monotonic() < until:
            for pids in left.values():
                for pid in pids:
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)
            left = marked([Path(folder) for folder, pids in left.items() if pids])
        return [Path(folder).name for folder, pids in left.items() if pids]

    def remove(self, name: str) -> None:
        """Remove the folder of a machine. Its log stays, under its name."""
        folder = self._folder / name
        kept = self._folder / _ENDED / name
        try:
            with (folder / LOG).open("rb") as log:
                log.seek(max(0, os.fstat(log.fileno()).st_size - MOST_LOG))
                kept.write_bytes(log.read(MOST_LOG))
        except FileNotFoundError:
            kept.touch()
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(folder)


def _launch(how: Started, log: int, lock: int) -> None:
    """Start the process of a machine, which keeps the lock; raise OSError."""
    limit = "" if how.files is None else f"ulimit -S -n {how.files}; "
    launched = subprocess.run(
        ["/bin/sh", "-c", limit + _START, str(how.boot), *how.words],
        cwd=how.folder,
        env=how.environ,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        pass_fds=(lock,),
        start_new_session=True,
        umask=how.umask,
        check=False,
    )
    if launched.returncode:
        raise OSError(f"sh ended with {launched.returncode}; see {how.folder}/{LOG}")


def _is_machine(entry: "os.DirEntry[str]") -> bool:
    """Return whether an entry is the folder of a machine."""
    return entry.name != _ENDED and not entry.name.startswith(".") and entry.is_dir()


def _plain(name: str) -> bool:
    """Return whether a name is that of a folder of a machine, not a path to anywhere else."""
    return bool(name) and "/" not in name and not name.startswith(".") and name != _ENDED and "\0" not in name


def locked(folder: Path, name: str = _LOCK) -> int | None:
    """Lock the folder of a machine, as its process does; None if that runs. Raise OSError if there is no folder."""
    held = os.open(folder / name, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(held)
        return None
    return held


def marked(folders: Sequence[Path]) -> dict[str, list[int]]:
    """Return the processes of machines by folder: those that carry the mark, and tasks of their agents."""
    found: dict[str, list[int]] = {str(folder): [] for folder in folders}
    if not found:
        return found
    by_path = {os.path.realpath(folder): folder for folder in found}
    for pid in [int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit()]:
        with contextlib.suppress(OSError):
            folder = _folder_of(pid, found) or by_path.get(_forked_in(pid))
            if folder is not None and pid != os.getpid():
                found[folder].append(pid)
    return found


def _folder_of(pid: int, folders: Container[str]) -> str | None:
    """Return to which of some machines a process belongs by its environment; raise OSError."""
    for each in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
        key, _, value = each.decode(errors="replace").partition("=")
        # The agent's own folder is that of its machine, /agents/NAME.
        folder = value if key == MARK else value.rpartition("/agents/")[0]
        if key in {MARK, "SPILL_AGENT"} and folder in folders:
            return folder
    return None


def _forked_in(pid: int) -> str:
    """Return the folder of an agent that was forked, whose environment in /proc is not its own; empty for others."""
    words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    if PROGRAM.encode() not in words:
        return ""
    return str(Path(f"/proc/{pid}/cwd").readlink()).removesuffix(" (deleted)")


def _write(path: Path, data: bytes) -> None:
    """Write a private file durably."""
    with os.fdopen(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync(folder: Path) -> None:
    """Make names in a folder durable."""
    held = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(held)
    finally:
        os.close(held)
