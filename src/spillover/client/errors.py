"""Errors of the client, by what to do next.

SpillError
├── Unreachable    no server answers: start it, or correct the address
├── Refused        the server refuses: change the request
├── Unavailable    the server cannot do it now: retry later
├── WaitTimeout    the jobs have not ended yet: wait again
└── CallFailed     a Python call did not return: read why
    ├── CallCancelled  somebody cancelled it
    └── RemoteError    it raised an exception
"""

from collections.abc import Sequence
from concurrent.futures import CancelledError

from spillover.wire.api import FieldProblem


class SpillError(Exception):
    """Base of all errors; its text is for people."""

    retry_after: float | None = None
    """Seconds after which a retry may help; None if unknown, or if it never does."""


class NoEffect(UserWarning):
    """A job asks for something that has no effect on this server."""


class Unreachable(SpillError):
    """The server did not answer."""

    def __init__(self, message: str, *, sent: bool = False) -> None:
        super().__init__(message)
        self.sent = sent
        """Whether the request may have reached the server, so that its outcome is unknown."""


class Refused(SpillError):
    """The server refuses the request, and would do so again."""

    def __init__(
        self, message: str, *, status: int, kind: str, problems: Sequence[FieldProblem] = ()
    ) -> None:
        super().__init__("\n".join([message, *map(_line, problems)] if len(problems) > 1 else [message]))
        self.status = status
        """HTTP status."""
        self.kind = kind
        """One word: invalid, unknown, ambiguous, conflict, too_large, unauthorized, ..."""
        self.problems = tuple(problems)
        """All problems, if there are several."""


class Unavailable(SpillError):
    """The server cannot do this now. A submission may still have succeeded; with a key, a retry is safe."""

    def __init__(self, message: str, *, kind: str = "unavailable", retry_after: float | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        """One word: unavailable, not_leader, internal, or limited (nothing was done; retry later)."""
        self.retry_after = retry_after


class WaitTimeout(SpillError, TimeoutError):
    """Some jobs did not end in time."""

    def __init__(self, jobs: Sequence[str], why: str = "") -> None:
        more = f" and {len(jobs) - 3} more" if len(jobs) > 3 else ""
        told = f": {why}" if why else "; wait again, or see `spill why`"
        super().__init__(f"{', '.join(jobs[:3])}{more} did not end in time{told}")
        self.jobs = tuple(jobs)
        """The jobs that had not ended, as the caller named them."""
        self.why = why
        """What the server says about the job: why it waits, or where it runs; empty if nobody asked."""


class CallFailed(SpillError):
    """A Python call ended without a value: it was cancelled or killed, took too long, or did not start."""

    def __init__(self, message: str, job: str, state: str) -> None:
        super().__init__(message)
        self.job = job
        """Id of its job."""
        self.state = state
        """State in which the job ended."""


class CallCancelled(CallFailed, CancelledError):
    """A Python call was cancelled. For `concurrent.futures` this is a CancelledError."""


class RemoteError(CallFailed):
    """A Python call raised an exception.

    If the exception can be unpickled, the client raises it, with this one as its cause.
    """

    def __init__(self, message: str, traceback: str, job: str, state: str) -> None:
        super().__init__(
            f"{message}\n\nOn the machine that made the call ({job}):\n{traceback}".rstrip(), job, state
        )
        self.traceback = traceback
        """Text of the traceback, starting at the called function."""


def _line(problem: FieldProblem) -> str:
    """Return a problem as one line."""
    return f"  {problem.path}: {problem.message}" if problem.path else f"  {problem.message}"
