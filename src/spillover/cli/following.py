"""A job that somebody waits for at the prompt: its output as it comes, Ctrl-C as cancel, and its exit code as ours."""

import os
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from spillover.cli import codes
from spillover.cli.aside import Aside
from spillover.cli.listing import has_run, outcome
from spillover.cli.output import Output
from spillover.cli.shown import ENDED

if TYPE_CHECKING:
    from spillover.client import Client
    from spillover.wire.api import JobView

_PATIENCE: Final = 2.0
"""Seconds after which a person is told why nothing happens yet."""
_AGAIN: Final = 0.1
"""Seconds until a job that is not running yet is looked at again."""
_NEVER_RAN: Final = frozenset({"could_not_start", "dependency_failed"})
"""Reasons that say that no process ran, whatever else is known."""


def follow(out: Output, client: "Client", job: str) -> int:
    """Stream a job until it ends; returns the exit code that it stands for."""
    streams = [
        _Stream(client, job, out.out.fileno(), stderr=False),
        _Stream(client, job, out.err.fileno(), stderr=True),
    ]
    with Aside() as aside:
        try:
            for stream in streams:
                stream.start()
            try:
                ended = _patiently(out, client, job, aside)
            except KeyboardInterrupt:
                if not _cancelled(out, client, job, aside):
                    return codes.INTERRUPTED
                ended = aside.result(lambda: client.wait(job)[0])
            for stream in streams:
                aside.result(stream.join)
        except KeyboardInterrupt:
            out.note(f"left {job}; `spill logs {job} -f` follows it again")
            return codes.INTERRUPTED
    for error in {str(stream.error) for stream in streams if stream.error is not None}:
        out.note(f"some of its output is missing here: {error}; `spill logs {job}` has it")
    if ended.state != "SUCCEEDED" and (out.terminal or ended.exit_code is None):
        out.note(outcome(ended))
    return exit_code(ended)


def exit_code(job: "JobView") -> int:
    """The exit code of `spill run` for a job that has ended."""
    reason = job.reason.code if job.reason is not None else ""
    match job.state:
        case "SUCCEEDED":
            return codes.OK
        case "TIMED_OUT":
            return codes.TIMED_OUT
    if job.array is not None:
        return codes.NOT_SUCCEEDED  # its members ended each in its own way
    if not has_run(job) or reason in _NEVER_RAN:
        return codes.NEVER_RAN
    if job.signal:
        return codes.SIGNALLED + job.signal
    return job.exit_code or codes.NOT_SUCCEEDED


def _cancelled(out: Output, client: "Client", job: str, aside: Aside) -> bool:
    """Cancel a job; whether its end is worth waiting for."""
    from spillover.client import Refused, Unavailable, Unreachable  # noqa: PLC0415 - heavy

    if out.terminal:
        print(file=out.err)  # the terminal has just written ^C
    out.note(f"cancelling {job}; Ctrl-C again leaves it to end by itself")
    try:
        aside.result(lambda: client.cancel(job))
    except Refused:
        pass  # it has just ended
    except (Unavailable, Unreachable) as error:
        sure = isinstance(error, Unreachable) and not error.sent
        fate = "was not cancelled and goes on" if sure else "may not have been cancelled, and then goes on"
        out.note(str(error))
        out.note(f"{job} {fate}; `spill cancel {job}` cancels it once the server answers")
        return False
    except KeyboardInterrupt:
        out.note(f"{job} may not have been cancelled, and then goes on; `spill cancel {job}` makes sure")
        return False
    return True


def _patiently(out: Output, client: "Client", job: str, aside: Aside) -> "JobView":
    """Wait for a job, and say after a moment what it waits for."""
    from spillover.client import WaitTimeout  # noqa: PLC0415 - heavy

    try:
        return aside.result(lambda: client.wait(job, timeout=_PATIENCE)[0])
    except WaitTimeout:
        why = aside.result(lambda: client.why(job))
        if why.state in {"QUEUED", "HELD"}:
            out.note(why.sentence)
    return aside.result(lambda: client.wait(job)[0])


class _Stream(threading.Thread):
    """Copies one output of a job to ours, through all of its attempts."""

    def __init__(self, client: "Client", job: str, to: int, *, stderr: bool) -> None:
        super().__init__(daemon=True)  # a second Ctrl-C must not wait for it
        self.error: Exception | None = None
        """Why it stopped early; None when it did not."""
        self._client, self._job, self._to, self._stderr = client, job, to, stderr

    def run(self) -> None:
        """Copy until the job has ended."""
        try:
            for piece in self._pieces():
                _write(self._to, piece)
        except BrokenPipeError:
            pass  # whoever read it has seen enough; the job goes on
        except Exception as error:  # noqa: BLE001 - told by the thread that waits for the job
            self.error = error

    def _pieces(self) -> Iterator[bytes]:
        """Output of one attempt after the other."""
        attempt, seen = 1, 0
        while True:
            before = self._client.job(self._job)
            if before.array is not None:
                return  # its members have outputs of their own
            if has_run(before) or before.attempt > attempt:
                at = 0
                for piece in self._attempt(attempt):
                    yield piece[max(0, seen - at) :]  # nothing is shown twice when a stream is taken up again
                    at += len(piece)
                seen = max(seen, at)
            now = self._client.job(self._job)
            if now.attempt > attempt:
                attempt, seen = attempt + 1, 0
            elif before.state in ENDED:
                return
            elif now.state not in ENDED:
                time.sleep(_AGAIN)

    def _attempt(self, attempt: int) -> Iterator[bytes]:
        """Output of one attempt; if it cannot be had, that of the next is still worth showing."""
        from spillover.client import Refused  # noqa: PLC0415 - heavy

        try:
            yield from self._client.logs(self._job, follow=True, stderr=self._stderr, attempt=attempt)
        except Refused as error:
            self.error = error


def _write(to: int, piece: bytes) -> None:
    """Write all of a piece past Python's buffers, whose locks a thread must not hold when the process ends."""
    while piece:
        piece = piece[os.write(to, piece) :]
