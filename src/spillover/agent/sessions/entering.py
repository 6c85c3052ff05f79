"""Becomes a command beside a task: takes on its limits, folder, CPUs and environment, then runs the command.

Runs in the new process, with an interpreter that loads little: `... PID BIRTH TERMINAL TERM GROUP... -- COMMAND...`
"""

import ctypes
import fcntl
import os
import signal
import sys
import termios
from typing import Final, NoReturn

from spillover.agent.nursery.procfs import birth_of, environ_of

MISSING: Final = 127
"""Exit code of a shell for a command that there is not."""
UNUSABLE: Final = 126
_PR_SET_PDEATHSIG: Final = 1


def main() -> None:
    """Run the command; does not return."""
    words = sys.argv[1:]
    behind = words.index("--")
    pid, birth, terminal, term = words[:4]
    groups, command = words[4:behind], words[behind + 1 :]
    # Nobody could end the command if the agent died, so the kernel does.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    try:
        for group in groups:
            with open(group, "w", encoding="ascii") as members:  # noqa: PTH123 - pathlib would have to be loaded
                members.write("0")
        variables = [each.partition(b"=") for each in environ_of(int(pid)) if each]
        os.chdir(f"/proc/{pid}/cwd")
        os.sched_setaffinity(0, os.sched_getaffinity(int(pid)))
    except OSError as error:
        _end(f"cannot enter the task: {error.strerror or error}", UNUSABLE)
    # Checked last: if the task ended before, what was read may be that of another process.
    if birth_of(int(pid)) != int(birth):
        _end("the task has ended", UNUSABLE)
    env = {os.fsdecode(name): os.fsdecode(value) for name, _, value in variables}
    if term:
        env["TERM"] = term
    if terminal == "1":
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    run(command, env)


def run(command: list[str], env: dict[str, str]) -> NoReturn:
    """Become a command; end as a shell does if there is none."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvpe(command[0], command, env)  # noqa: S606 - this is what it is for
    except OSError as error:
        missing = isinstance(error, FileNotFoundError | NotADirectoryError)
        _end(f"{command[0]}: {error.strerror}", MISSING if missing else UNUSABLE)


def _end(why: str, code: int) -> NoReturn:
    os.write(2, f"{why}\n".encode(errors="replace"))
    os._exit(code)
