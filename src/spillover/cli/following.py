"""Follows a job at the prompt: streams its output, turns Ctrl-C into a cancellation, and returns its exit code."""

import os
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from spillover.cli import codes
from spillover.cli.aside import Aside
from spillover.cli.merging import MOST_FOLLOWED, Labelled, labels_of
from spillover.cli.printing.listing import has_run, outcome
from spillover.cli.printing.output import Output
from spillover.cli.printing.shown import ENDED

if TYPE_CHECKING:
    from spillover.client import Client
    from spillover.wire.api import JobView

_PATIENCE: Final = 2.0
"""Seconds before we explain why the job has not started."""
_AGAIN: Final = 0.1
"""Seconds between two looks at a job that does not run yet; longer for a gang, each of whose tasks is followed."""
_RARELY: Final = 2.0
_WRITING: Final = threading.Lock()
"""Held while lines of one task are written, so that those of others do not get in between."""
_NEVER_RAN: Final = frozenset({"could_not_start", "dependency_failed"})
"""Reasons that prove that no process ran."""


def follow(out: Output, client: "Client", job: str) -> int:
    """Stream the output of a job until it ends; return its exit code."""
    labels = labels_of(client.job(job))
    if len(labels) > MOST_FOLLOWED:
        first = f"following the first {MOST_FOLLOWED} of {len(labels)} tasks"
        out.note(f"{first}; `spill logs {job}` has the rest")
    streams = [
        _Stream(client, job, to.fileno(), (task, labels), stderr=stderr)
        for task in range(min(len(labels), MOST_FOLLOWED))
        for to, stderr in ((out.out, False), (out.err, True))
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
            out.note(f"stopped following {job}; run `spill logs {job} -f` to follow it again")
            return codes.INTERRUPTED
    for error in {str(stream.error) for stream in streams if stream.error is not None}:
        out.note(f"some output is missing here: {error}; run `spill logs {job}` for all of it")
    if ended.state != "SUCCEEDED" and (out.terminal or ended.exit_code is None):
        out.note(outcome(ended))
    return exit_code(ended)


def until_running(out: Output, client: "Client", job: str) -> "JobView | None":
    """Return a job once it runs or has ended; None if somebody who waits for it gives up. Ctrl-C cancels it."""
    began, told = time.monotonic(), False
    with Aside() as aside:
        try:
            while (view := aside.result(lambda: client.job(job))).state not in {"RUNNING", *ENDED}:
                if not told and time.monotonic() - began > _PATIENCE:
                    told = True
                    out.note(aside.result(lambda: client.why(job)).sentence)
                time.sleep(_AGAIN)
        except KeyboardInterrupt:
            if not _cancelled(out, client, job, aside):
                return None
            return aside.result(lambda: client.wait(job)[0])
    return view


def exit_code(job: "JobView") -> int:
    """The exit code of `spill run` for a job that has ended."""
    reason = job.reason.code if job.reason is not None else ""
    match job.state:
        case "SUCCEEDED":
            return codes.OK
        case "TIMED_OUT":
            return codes.TIMED_OUT
    if job.array is not None:
        return codes.NOT_SUCCEEDED  # its members ended in different ways
    if not has_run(job) or reason in _NEVER_RAN:
        return codes.NEVER_RAN
    if job.signal:
        return codes.SIGNALLED + job.signal
    return job.exit_code or codes.NOT_SUCCEEDED


def _cancelled(out: Output, client: "Client", job: str, aside: Aside) -> bool:
    """Cancel a job; return whether to wait for its end."""
    from spillover.client import Refused, Unavailable, Unreachable  # noqa: PLC0415 - heavy

    if out.terminal:
        print(file=out.err)  # the terminal has just written ^C
    out.note(f"cancelling {job}; press Ctrl-C again to stop waiting")
    try:
        aside.result(lambda: client.cancel(job))
    except Refused:
        pass  # it has ended in the meantime
    except (Unavailable, Unreachable) as error:
        sure = isinstance(error, Unreachable) and not error.sent
        fate = "was not cancelled and keeps running" if sure else "may not have been cancelled"
        out.note(str(error))
        out.note(f"{job} {fate}; run `spill cancel {job}` when the server answers again")
        return False
    except KeyboardInterrupt:
        out.note(f"{job} may not have been cancelled; run `spill cancel {job}` to make sure")
        return False
    return True


def _patiently(out: Output, client: "Client", job: str, aside: Aside) -> "JobView":
    """Wait for a job; if it has not ended soon, print what it waits for."""
    from spillover.client import WaitTimeout  # noqa: PLC0415 - heavy

    try:
        return aside.result(lambda: client.wait(job, timeout=_PATIENCE)[0])
    except WaitTimeout:
        why = aside.result(lambda: client.why(job))
        if why.state in {"QUEUED", "HELD"}:
            out.note(why.sentence)
    return aside.result(lambda: client.wait(job)[0])


class _Stream(threading.Thread):
    """Copies one output stream of a task to ours, through all of its attempts; those of a gang get labels."""

    def __init__(
        self, client: "Client", job: str, to: int, which: tuple[int, list[str]], *, stderr: bool
    ) -> None:
        """`which` is the number of the task, and the labels of all tasks that the job may have."""
        super().__init__(daemon=True)  # a second Ctrl-C must not wait for this thread
        self.error: Exception | None = None
        """Why it stopped early; None if it did not."""
        self._client, self._job, self._to, self._stderr = client, job, to, stderr
        self._task, self._tasks, self._label = which[0], len(which[1]), which[1][which[0]]

    def run(self) -> None:
        """Copy until the job has ended."""
        try:
            if self._tasks == 1:
                for piece in self._pieces():
                    _write(self._to, piece)
                return
            label = Labelled(self._label)
            for piece in self._pieces():
                with _WRITING:
                    _write(self._to, label.feed(piece))
            with _WRITING:
                _write(self._to, label.end())
        except BrokenPipeError:
            pass  # the reader closed the pipe; the job continues
        except Exception as error:  # noqa: BLE001 - the thread that waits for the job reports it
            self.error = error

    def _pieces(self) -> Iterator[bytes]:
        """Yield the output of one attempt after the other."""
        attempt, seen = 1, 0
        while True:
            before = self._client.job(self._job)
            if before.array is not None:
                return  # each member has its own output
            size = sum(before.task_counts.values()) or self._tasks  # of elastic size, it may be fewer
            if (has_run(before) or before.attempt > attempt) and self._task < size:
                at = 0
                for piece in self._attempt(attempt):
                    yield piece[max(0, seen - at) :]  # after a reconnection, skip what was shown
                    at += len(piece)
                seen = max(seen, at)
            now = self._client.job(self._job)
            if now.attempt > attempt:
                attempt, seen = attempt + 1, 0
            elif before.state in ENDED:
                return
            elif now.state not in ENDED:
                time.sleep(min(_RARELY, _AGAIN * self._tasks))

    def _attempt(self, attempt: int) -> Iterator[bytes]:
        """Yield the output of one attempt; if the server refuses it, record the error and end."""
        from spillover.client import Refused  # noqa: PLC0415 - heavy

        try:
            yield from self._client.logs(
                self._job, follow=True, stderr=self._stderr, attempt=attempt, task=self._task
            )
        except Refused as error:
            self.error = error


def _write(to: int, piece: bytes) -> None:
    """Write all of a piece without Python's buffers: a daemon thread must not hold their locks at exit."""
    while piece:
        piece = piece[os.write(to, piece) :]
