"""Collects what the agent reports about leases, and repeats each entry until the server answers."""

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Final

from spillover.agent.leases.running import RunningTask
from spillover.agent.leases.values import Answered, Readiness, Report, TaskResult
from spillover.agent.leases.yielding import Yielding
from spillover.core.events import Lease
from spillover.core.proposals import Verdict

REPORT_LIMIT: Final = 2_000
"""Most entries of one kind in a report, far below the size limit of a message."""


class PendingReports:
    """What is ready to report, and the report in flight. There is at most one."""

    def __init__(self, unanswered: Iterable[TaskResult], yielding: Yielding) -> None:
        self.results: dict[Lease, TaskResult] = {result.lease: result for result in unanswered}
        """Results without an answer, in order of arrival."""
        self.released: dict[Lease, None] = {}
        """Leases that the agent gives back unstarted."""
        self._yielding = yielding
        self._starts: dict[Lease, None] = {}
        """Starts to report. A result that comes first replaces the start."""
        self._unacknowledged: dict[Lease, None] = {}
        """Starts that were reported and not acknowledged. They are reported again after the next heartbeat."""
        self.prepared: dict[Lease, Readiness] = {}
        """Prepared tasks of gangs to report."""
        self._under_way: Report | None = None
        self._left: int | None = None
        """Incarnation under which the server knows that the agent is leaving; None if it does not know."""
        self._taken_back = 0
        """When the machine will be taken back, nanoseconds UTC; 0 if it will not."""

    def started(self, lease: Lease) -> None:
        """Add a start to report."""
        self._starts[lease] = None

    def ended(self, lease: Lease) -> None:
        """Drop the start of a task that ended, because its result replaces it."""
        self._starts.pop(lease, None)
        self._unacknowledged.pop(lease, None)

    def taken_back(self, until: int) -> None:
        """Report when the machine will be taken back, also if the server knows already that the agent is leaving."""
        self._taken_back, self._left = until, None

    def news(self, incarnation: int | None, *, leaving: bool) -> bool:
        """Return whether there is something to report now."""
        if self._under_way is not None or incarnation is None:
            return False  # the answer to the report, or the next registration, asks again
        other = self._starts or self.released or self._yielding.answers or self.prepared
        return bool(self.results or other or self._is_leaving_unreported(incarnation, leaving))

    def _is_leaving_unreported(self, incarnation: int, leaving: bool) -> bool:
        """Return whether the server does not know yet that the agent is leaving."""
        return leaving and self._left != incarnation

    def report(
        self, incarnation: int | None, running: Mapping[Lease, RunningTask], *, leaving: bool
    ) -> Report | None:
        """Return what is ready to report, or None if nothing is or a report is in flight."""
        if self._under_way is not None or incarnation is None:
            return None
        starts = [
            (lease, run.started)
            for lease in islice(self._starts, REPORT_LIMIT)
            if (run := running[lease]).started is not None
        ]
        results = tuple(islice(self.results.values(), REPORT_LIMIT))
        released = tuple(islice(self.released, REPORT_LIMIT))
        yielded = tuple(islice(self._yielding.answers.items(), REPORT_LIMIT))
        prepared = tuple(islice(self.prepared.items(), REPORT_LIMIT))
        some = starts or results or released or yielded or prepared
        if not (some or self._is_leaving_unreported(incarnation, leaving)):
            return None
        self._under_way = Report(
            incarnation,
            tuple(starts),
            results,
            released,
            leaving,
            yielded,
            prepared,
            taken_back=self._taken_back,
        )
        for lease, _ in starts:
            del self._starts[lease]
            self._unacknowledged[lease] = None
        return self._under_way

    def over(self) -> Report | None:
        """End the report in flight and return it, if there is one."""
        report, self._under_way = self._under_way, None
        return report

    def heard(self, report: Report, answer: Answered) -> list[tuple[Lease, Verdict]]:
        """Drop what the server acknowledged; return its verdicts on results that were waiting for one."""
        judged = [each for each in answer.verdicts if self.results.pop(each[0], None) is not None]
        for lease in answer.started:
            self._unacknowledged.pop(lease, None)
        for lease in report.released:
            self.released.pop(lease, None)
        for lease, _ in report.prepared:
            self.prepared.pop(lease, None)
        self._yielding.acknowledged(answer.yielded)
        if report.leaving and report.taken_back == self._taken_back:
            self._left = report.incarnation
        return judged

    def again(self) -> None:
        """Make unacknowledged starts ready again, unless the report in flight may contain them."""
        if self._under_way is None:
            self._starts |= self._unacknowledged
            self._unacknowledged.clear()
