"""What a client raises, by what to do next.

SpillError
├── Unreachable    no server answers: start it, or correct the address
├── Refused        it answered that this cannot be done: change what was asked
├── Unavailable    it cannot do it now: ask again later
├── WaitTimeout    the jobs have not ended yet: wait again
└── CallFailed     a Python call did not return: see why
    └── RemoteError    it raised something
"""

from collections.abc import Sequence

from spillover.wire.api import FieldProblem


class SpillError(Exception):
    """Base of all; its text is for a person."""

    retry_after: float | None = None
    """Seconds after which asking again may help; None when that is not known, or never."""


class Unreachable(SpillError):
    """No answer came from the server."""

    def __init__(self, message: str, *, sent: bool = False) -> None:
        super().__init__(message)
        self.sent = sent
        """Whether the request may have reached the server, which makes its outcome unknown."""


class Refused(SpillError):
    """The server will not do this, however often it is asked."""

    def __init__(
        self, message: str, *, status: int, kind: str, problems: Sequence[FieldProblem] = ()
    ) -> None:
        super().__init__("\n".join([message, *map(_line, problems)] if len(problems) > 1 else [message]))
        self.status = status
        """Of HTTP."""
        self.kind = kind
        """One word: invalid, unknown, ambiguous, conflict, too_large, unauthorized, ..."""
        self.problems = tuple(problems)
        """Each thing that is wrong, when several can be named."""


class Unavailable(SpillError):
    """The server cannot do this now. A submission may still have been taken; its key makes asking again safe."""

    def __init__(self, message: str, *, kind: str = "unavailable", retry_after: float | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        """One word: unavailable, not_leader, limited (nothing was done: the server takes no more now), internal."""
        self.retry_after = retry_after


class WaitTimeout(SpillError):
    """Some jobs had not ended in time."""

    def __init__(self, jobs: Sequence[str]) -> None:
        more = f" and {len(jobs) - 3} more" if len(jobs) > 3 else ""
        super().__init__(f"{', '.join(jobs[:3])}{more} did not end in time; wait again, or see `spill why`")
        self.jobs = tuple(jobs)
        """Those that were still to be waited for, as they were named."""


class CallFailed(SpillError):
    """A Python call ended without a value: it was cancelled or killed, took too long, or could not be made."""

    def __init__(self, message: str, job: str, state: str) -> None:
        super().__init__(message)
        self.job = job
        """The id of its job."""
        self.state = state
        """In which the job ended."""


class RemoteError(CallFailed):
    """A Python call raised something.

    Where that can be brought back it is raised itself, with this as its cause.
    """

    def __init__(self, message: str, traceback: str, job: str, state: str) -> None:
        super().__init__(
            f"{message}\n\nOn the machine that made the call ({job}):\n{traceback}".rstrip(), job, state
        )
        self.traceback = traceback
        """Text, from the called function on."""


def _line(problem: FieldProblem) -> str:
    """One problem as one line."""
    return f"  {problem.path}: {problem.message}" if problem.path else f"  {problem.message}"
