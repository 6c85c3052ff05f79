"""`srun` of tasks with `#SBATCH` lines: runs a command once for each task of a step, here or on all nodes of a gang.

A step of one task in a job of one task becomes the command itself, so nothing stands between it and the script.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import stat
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from spillover.agent.rsh.calling import NoShell, Streams, call
from spillover.agent.rsh.frames import PASSED_ON
from spillover.agent.rsh.gang import NotInGang, OwnGang
from spillover.agent.rsh.serving import FOLDER, SIGNALLED
from spillover.agent.rsh.srun_options import SrunError, read_line
from spillover.agent.rsh.srun_plan import OwnJob, Step, StepTask, plan, remote_line

REFUSED: Final = 2
NO_COMMAND: Final = 127
NO_SHELL: Final = 255
MOST_LINE: Final = 1 << 17
"""Bytes that the system accepts as one argument: those of a command on another node, with its variables."""


def main(words: list[str], environ: Mapping[str, str]) -> int:
    """Run a command line of srun; return its exit code, unless the process becomes the command."""
    try:
        line = read_line(words)
        gang = _gang(environ)
        nodes = () if gang is None else tuple(dict.fromkeys(peer.node for peer in gang.peers))
        step = plan(line, OwnJob.of(environ, nodes))
        if step.folder:
            os.chdir(step.folder)
    except SrunError as error:
        for problem in error.args:
            _say(problem)
        return REFUSED
    except OSError as error:
        _say(f"{error.filename}: {error.strerror}")
        return REFUSED
    for note in step.notes:
        _say(note)
    if gang is None and len(step.tasks) == 1:
        return _become(step, environ)
    return asyncio.run(_Running(step, gang, environ).run())


def _gang(environ: Mapping[str, str]) -> OwnGang | None:
    """Return the gang of this job; None for a job with one task."""
    if "SPILL_GANG_TOKEN" not in environ:
        return None
    if FOLDER not in environ:
        told = "each task of this job runs the whole script, so remove srun; with `#SBATCH --nodes` only the first one does"
        raise SrunError(told)
    try:
        return OwnGang.of(environ)
    except NotInGang as error:
        raise SrunError(str(error)) from None


def _become(step: Step, environ: Mapping[str, str]) -> int:
    """Replace this process by the only command; return an exit code if there is none."""
    env = {**environ, **step.tasks[0].variables}
    try:
        os.execvpe(step.command[0], step.command, env)  # noqa: S606 - the words of the script, as they are
    except OSError as error:
        _say(f"{step.command[0]}: {error.strerror}")
        return NO_COMMAND


class _Running:
    """A step of several tasks, or of a gang."""

    def __init__(self, step: Step, gang: OwnGang | None, environ: Mapping[str, str]) -> None:
        self._step = step
        self._gang = gang
        self._environ = environ
        self._signals: list[asyncio.Queue[int]] = [asyncio.Queue() for _ in step.tasks]
        """Signals to pass on to each task."""
        self._again = _can_reopen()

    async def run(self) -> int:
        """Run all tasks; return the highest exit code."""
        loop = asyncio.get_running_loop()
        for number in PASSED_ON:
            loop.add_signal_handler(number, self._pass_on, number)
        if not self._again:
            _say("standard input goes to the first task only; write `< FILE` to give it to all")
        running = [asyncio.create_task(self._one(task)) for task in self._step.tasks]
        early = self._step.stops_early
        for done in asyncio.as_completed(running):
            if await done and early:
                self._pass_on(signal.SIGTERM)
                early = False
        return max(task.result() for task in running)

    def _pass_on(self, number: int) -> None:
        """Send a signal to all tasks."""
        for queue in self._signals:
            queue.put_nowait(number)

    async def _one(self, task: StepTask) -> int:
        """Run one task; return its exit code."""
        given = self._given(task.rank)
        try:
            if self._gang is None:
                return await self._here(task, given)
            line = remote_line(task, self._step.command, self._environ, str(Path.cwd()))
            if len(os.fsencode(line)) >= MOST_LINE:
                _say(
                    f"the command and its variables have more than {MOST_LINE} bytes; export fewer variables"
                )
                return REFUSED
            peer = self._gang.find(task.node)
            return await call(self._gang, peer, line, Streams(given), self._signals[task.rank])
        except NoShell as error:
            _say(str(error))
            self._pass_on(signal.SIGTERM)  # the step is not whole, so the others wait for it in vain
            return NO_SHELL
        except OSError as error:
            _say(f"{self._step.command[0]}: {error.strerror}")
            return NO_COMMAND
        finally:
            os.close(given)

    async def _here(self, task: StepTask, given: int) -> int:
        """Run one task on this node."""
        env = {**self._environ, **task.variables}
        program = shutil.which(self._step.command[0], path=env.get("PATH")) or self._step.command[0]
        child = await asyncio.create_subprocess_exec(program, *self._step.command[1:], env=env, stdin=given)
        passing = asyncio.create_task(self._tell(child, self._signals[task.rank]))
        code = await child.wait()
        passing.cancel()
        return code if code >= 0 else SIGNALLED - code

    async def _tell(self, child: asyncio.subprocess.Process, signals: "asyncio.Queue[int]") -> None:
        """Send the signals that come to a task on this node."""
        while True:
            number = await signals.get()
            if child.returncode is None:
                # `child.send_signal` may collect the exit code, which the loop then misses.
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child.pid, number)

    def _given(self, rank: int) -> int:
        """Return a descriptor of standard input of its own for a task."""
        if self._again:
            return os.open("/proc/self/fd/0", os.O_RDONLY)
        return os.dup(0) if rank == 0 else os.open(os.devnull, os.O_RDONLY)


def _can_reopen() -> bool:
    """Return whether each task can read all of standard input for itself: it is a file or a device."""
    kind = os.fstat(0).st_mode
    return stat.S_ISREG(kind) or stat.S_ISCHR(kind)


def _say(text: str) -> None:
    sys.stderr.write(f"srun: {text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
