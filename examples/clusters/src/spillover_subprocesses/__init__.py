"""A kind of cluster that runs jobs as processes on the server's machine."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path
from typing import ClassVar

from msgspec import Struct

from spillover.core.events import Lease, SeenNode, Usage
from spillover.core.proposals import Outcome
from spillover.forms.problems import Findings
from spillover.forms.quantities import read_cpu, read_memory
from spillover.model.ids import ClusterName, NodeName
from spillover.model.job import Argv, JobSpec, Shell
from spillover.model.resources import Resources
from spillover.model.units import SECOND
from spillover.ports.cluster import OutputGone, Start
from spillover.ports.driver import Answer, Changes, Connection, DriverLink, Ending, Made, Seen, Stage
from spillover.ports.kinds import Capability, ClusterKind, Flaw, Opening

NODE = NodeName("here")
PIECE = 65_536
"""Most bytes of output to read at a time."""


class SubprocessesForm(Struct, frozen=True, forbid_unknown_fields=True):
    """The capacity that the cluster offers."""

    slots: str | int | float = 1
    """CPUs. The name `cpu` would hide the price of a CPU on the command line."""
    ram: str | int = "1Gi"


class SubprocessesKind(ClusterKind):
    """The kind `subprocesses`."""

    name: ClassVar[str] = "subprocesses"
    form: ClassVar[type[Struct]] = SubprocessesForm

    def capabilities(self, form: SubprocessesForm) -> frozenset[Capability]:
        """Return what the kind can run: commands only."""
        del form
        return frozenset({Capability.COMMANDS})

    def check(self, form: SubprocessesForm, cluster: ClusterName) -> Sequence[Flaw]:
        """Check that amounts are valid."""
        del cluster
        found = Findings()
        _capacity(form, found)
        return [Flaw(path, message) for path, message in found.found]

    def open(self, form: SubprocessesForm, opening: Opening) -> "Subprocesses":
        """Return a driver with a folder for output."""
        folder = opening.data / "subprocesses" / opening.cluster
        return Subprocesses(opening.cluster, _capacity(form, Findings()), folder)


def _capacity(form: SubprocessesForm, found: Findings) -> Resources:
    cpu = read_cpu(form.slots, ("slots",), found) or 0
    return Resources(cpu, read_memory(form.ram, ("ram",), found) or 0)


class _Attempt:
    """One process and its outcome."""

    def __init__(self, lease: Lease, uses: Resources, process: asyncio.subprocess.Process) -> None:
        self.lease = lease
        self.uses = uses
        self.process = process
        self.began = time.time_ns()
        self.stopping = False
        self.ended = asyncio.Event()
        self.ending: Ending | None = None

    def seen(self) -> Seen:
        """Return it as a report to the server."""
        if self.ending is not None:
            return Seen(self.lease, Stage.ENDED, started=self.began, nodes=(NODE,), ending=self.ending)
        uses = ((NODE, self.uses),)
        return Seen(self.lease, Stage.RUNNING, self.stopping, self.began, (NODE,), uses)


class Subprocesses:
    """The driver of one cluster."""

    def __init__(self, cluster: ClusterName, capacity: Resources, folder: Path) -> None:
        self.cluster = cluster
        self._capacity = capacity
        self._folder = folder
        self._attempts: dict[Lease, _Attempt] = {}
        self._changed: dict[Lease, None] = {}
        """What was not reported to the server yet."""
        self._listed = False
        self._news: Callable[[], None] = lambda: None
        self._minding: set[asyncio.Task[None]] = set()
        self._since = time.monotonic_ns()

    async def run(self, news: Callable[[], None]) -> None:
        """Run until cancelled, then end all processes."""
        self._news = news
        self._listed = False
        news()
        try:
            await asyncio.Event().wait()
        finally:
            for attempt in self._attempts.values():
                _signal(attempt, signal.SIGKILL)
            await asyncio.gather(*self._minding)

    def connection(self) -> Connection:
        """Return the connection, which is always up."""
        return Connection(DriverLink.UP, self._since)

    def take(self) -> Changes:
        """Return everything at first, then what changed."""
        leases = list(self._attempts if not self._listed else self._changed)
        whole, self._listed = not self._listed, True
        self._changed.clear()
        return Changes(
            whole,
            (SeenNode(NODE, self._capacity, Resources()),) if whole else (),
            attempts=tuple([self._attempts[each].seen() for each in leases if each in self._attempts]),
            gone=() if whole else tuple([each for each in leases if each not in self._attempts]),
        )

    async def start(self, start: Start) -> Answer:
        """Start a process with its output in a file."""
        if start.lease in self._attempts:
            return Answer(Made.MADE)
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            with self._path(start.lease).open("wb") as out:
                process = await asyncio.create_subprocess_exec(
                    *_words(start.spec),
                    cwd=start.spec.workdir,
                    env=_environment(start),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=out,
                    stderr=out,
                    start_new_session=True,
                )
        except OSError as error:
            return Answer(Made.REFUSED, f"cannot start it: {error}")
        attempt = self._attempts[start.lease] = _Attempt(start.lease, start.spec.shape.resources, process)
        task = asyncio.create_task(self._mind(attempt, start.spec.terms.walltime))
        self._minding.add(task)
        task.add_done_callback(self._minding.discard)
        self._tell(start.lease)
        return Answer(Made.MADE)

    async def _mind(self, attempt: _Attempt, walltime: int | None) -> None:
        """Wait for the end of a process, and stop it when its time is over."""
        late = False
        try:
            async with asyncio.timeout(None if walltime is None else walltime / SECOND):
                await attempt.process.wait()
        except TimeoutError:
            late = True
            _signal(attempt, signal.SIGKILL)
            await attempt.process.wait()
        code = attempt.process.returncode or 0
        outcome = Outcome.EXITED
        if late:
            outcome = Outcome.WALLTIME
        elif attempt.stopping:
            outcome = Outcome.STOPPED
        ended = time.time_ns()
        attempt.ending = Ending(
            outcome,
            code if code >= 0 else None,
            -code if code < 0 else None,
            Usage(ended - attempt.began),
            ended,
        )
        attempt.ended.set()
        self._tell(attempt.lease)

    async def stop(self, lease: Lease, grace: int) -> None:
        """Stop a process: TERM, then KILL. Forget one that has ended, with its output."""
        attempt = self._attempts.get(lease)
        if attempt is None:
            self._tell(lease)
            return
        attempt.stopping = True
        _signal(attempt, signal.SIGTERM)
        try:
            async with asyncio.timeout(grace / SECOND):
                await attempt.ended.wait()
        except TimeoutError:
            _signal(attempt, signal.SIGKILL)
            await attempt.ended.wait()
        del self._attempts[lease]
        self._path(lease).unlink(missing_ok=True)
        self._tell(lease)

    async def output(
        self, lease: Lease, task: int, offset: int, *, follow: bool
    ) -> AsyncGenerator[bytes, None]:
        """Stream what a process wrote. Both of its streams are in one file."""
        del task
        attempt = self._attempts.get(lease)
        if attempt is None:
            raise OutputGone("the process and its output are gone")
        with self._path(lease).open("rb") as file:
            file.seek(offset)
            while True:
                over = attempt.ended.is_set()
                while piece := file.read(PIECE):
                    yield piece
                if over or not follow:
                    return
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.2):
                        await attempt.ended.wait()

    async def close(self) -> None:
        """Do nothing: the driver holds nothing open."""

    async def check(self) -> Sequence[str]:
        """Return no problems: the machine is always usable."""
        return ()

    def _tell(self, lease: Lease) -> None:
        self._changed[lease] = None
        self._news()

    def _path(self, lease: Lease) -> Path:
        return self._folder / f"{lease.job}-{lease.attempt}-{lease.seq}.out"


def _words(spec: JobSpec) -> tuple[str, ...]:
    match spec.work:
        case Shell(run=line):
            return ("/bin/sh", "-c", line)
        case Argv(command=words):
            return words
        case other:  # not possible, as the kind runs commands only
            raise OSError(f"{type(other).__name__} is not a command")


def _environment(start: Start) -> dict[str, str]:
    ours = {
        "SPILL_JOB_ID": start.lease.job,
        "SPILL_ATTEMPT": str(start.lease.attempt),
        "SPILL_CLUSTER": start.cluster,
    }
    return {**os.environ, **start.spec.env, **ours}


def _signal(attempt: _Attempt, number: signal.Signals) -> None:
    """Send a signal to a process and everything that it started."""
    if attempt.process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(attempt.process.pid, number)
