"""What the server is to hear of leases: starts, results, and what is given back. All of it is told until it is answered."""

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Final

from spillover.agent.terms import RunningTask
from spillover.agent.values import Answered, Report, TaskResult
from spillover.agent.yielding import Yielding
from spillover.core.events import Lease
from spillover.core.proposals import Verdict

REPORT_LIMIT: Final = 2_000
"""Entries of one kind in a report: far below the size that a message may have."""


class Telling:
    """What is ready to be told, and the one report that is under way."""

    def __init__(self, unanswered: Iterable[TaskResult], yielding: Yielding) -> None:
        self.results: dict[Lease, TaskResult] = {result.lease: result for result in unanswered}
        """Not answered yet, in the order they came."""
        self.released: dict[Lease, None] = {}
        """Given back, as nothing was done about them."""
        self._yielding = yielding
        self._starts: dict[Lease, None] = {}
        """Starts to be told; a result that comes first takes the place of its start."""
        self._unacknowledged: dict[Lease, None] = {}
        """Starts that were told and not acknowledged; told again after the next heartbeat."""
        self._under_way: Report | None = None
        self._left: int | None = None
        """The registration under which the server knows that the agent was told to stop; None while it does not."""

    def started(self, lease: Lease) -> None:
        """A task began."""
        self._starts[lease] = None

    def ended(self, lease: Lease) -> None:
        """A task is over, so that nobody need hear of its start."""
        self._starts.pop(lease, None)
        self._unacknowledged.pop(lease, None)

    def news(self, incarnation: int | None, *, leaving: bool) -> bool:
        """Whether there is something that can be told now."""
        if self._under_way is not None or incarnation is None:
            return False  # it is looked at again when the report is answered, and after the next registration
        told = self._starts or self.released or self._yielding.answers
        return bool(self.results or told or self._unsaid(incarnation, leaving))

    def _unsaid(self, incarnation: int, leaving: bool) -> bool:
        """Whether the server would still give us work, although we were told to stop."""
        return leaving and self._left != incarnation

    def report(
        self, incarnation: int | None, running: Mapping[Lease, RunningTask], *, leaving: bool
    ) -> Report | None:
        """What is ready, if no report is under way."""
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
        if not (starts or results or released or yielded or self._unsaid(incarnation, leaving)):
            return None
        self._under_way = Report(incarnation, tuple(starts), results, released, leaving, yielded)
        for lease, _ in starts:
            del self._starts[lease]
            self._unacknowledged[lease] = None
        return self._under_way

    def over(self) -> Report | None:
        """The report under way came to its end, if there was one."""
        report, self._under_way = self._under_way, None
        return report

    def heard(self, report: Report, answer: Answered) -> list[tuple[Lease, Verdict]]:
        """The server has what a report told; its verdicts on results that waited for one."""
        judged = [each for each in answer.verdicts if self.results.pop(each[0], None) is not None]
        for lease in answer.started:
            self._unacknowledged.pop(lease, None)
        for lease in report.released:
            self.released.pop(lease, None)
        self._yielding.acknowledged(answer.yielded)
        if report.leaving:
            self._left = report.incarnation
        return judged

    def again(self) -> None:
        """Starts that nobody acknowledged are ready again, unless they may be in the report under way."""
        if self._under_way is None:
            self._starts |= self._unacknowledged
            self._unacknowledged.clear()
