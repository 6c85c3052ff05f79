"""Makes one Python call in a container, with the interpreter of the image. Standard library only, see `worker`.

A process that is the first of a container does not get signals that it does not handle, and inherits orphans. So the
call is made in a child, which is like any other process. The first process passes signals on, and reaps.
"""

# The interpreter of an image starts for each call, and pathlib would make that slower:
# ruff: noqa: PTH104, PTH109, PTH123

import contextlib
import marshal
import os
import signal
import sys
from types import FrameType, ModuleType
from typing import Final, NoReturn

from spillover.agent.nursery.notifying import handles
from spillover.agent.runners.invoking import CallContext, Invoker

CALL: Final = "/.spillover/call"
VALUE: Final = "/.spillover/value"
CODE: Final = "/.spillover/code"
"""Folders in the container: what to call, what came of it, and our packages."""
ASKED: Final = "asked"
"""The file in `CALL` with the context of the call and its index."""
TELL_TERM: Final = 40
"""Stands for a TERM that must not end a call which does not handle it: the signal before a walltime.

A real-time signal that no libc keeps for itself."""
ADVICE: Final = "the image must have the packages for the {what} of the call; add them to it"
"""What to do if a module is missing."""
_TOLD: Final = ("HUP", "INT", "QUIT", "USR1", "USR2", "ALRM", "CONT", "URG", "XCPU", "WINCH")
"""Signals that a job may ask for."""


def main() -> NoReturn:
    """Make the call in a child; end as it does."""
    passed = [signal.SIGTERM, TELL_TERM, *(getattr(signal, f"SIG{name}") for name in _TOLD)]
    signal.pthread_sigmask(signal.SIG_BLOCK, passed)
    child = os.fork()
    if child == 0:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, passed)
        _call()

    def stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - as Python calls it
        os.kill(child, signal.SIGTERM)

    def tell(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - as above
        meant = signal.SIGTERM if number == TELL_TERM else number
        if handles(child, meant):
            os.kill(child, meant)

    for number in passed:
        signal.signal(number, stop if number == signal.SIGTERM else tell)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, passed)
    while True:
        ended, status = os.wait()
        if ended == child:
            code = os.waitstatus_to_exitcode(status)
            os._exit(code if code >= 0 else 128 - code)


def _call() -> NoReturn:
    """Make the call and store what came of it."""
    with open(f"{CALL}/{ASKED}", "rb") as file:
        *context, index = marshal.loads(file.read())  # noqa: S302 - the agent wrote it
    errors = sys.stderr
    with contextlib.suppress(AttributeError):
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr] # `spill logs -f` follows lines
    if context[2]:  # a pickled function
        # The image may have an older one, which cannot read it.
        sys.path.insert(0, CODE)
        import cloudpickle  # type: ignore[import-untyped,unused-ignore] # noqa: F401, PLC0415 - for what unpickles

        del sys.path[0]
    # Modules in the work folder come first, as for a script in that folder.
    sys.path.insert(0, os.getcwd())
    sys.argv = [""]
    sys.modules["__main__"] = ModuleType("__main__")
    for name in [name for name in sys.modules if name.partition(".")[0] == "spillover"]:
        del sys.modules[name]
    code, value = Invoker(ADVICE).outcome(CallContext(*context), index, errors)
    for stream in (sys.stdout, errors):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    path = f"{VALUE}/value"
    with open(f"{path}.half", "wb") as half:
        half.write(value)
        os.fchmod(half.fileno(), 0o644)
    os.rename(f"{path}.half", path)
    os._exit(code)
