"""Turns durable events into spans, as soon as a part of the life of a job is over.

It remembers placed jobs, and those that were held or came back. All else is in the state, so a million queued jobs cost
nothing here. The state may be ahead of the events. So what changes with later events comes from the events alone.
"""

from collections.abc import Sequence
from typing import Final

from msgspec import Struct, field

from spillover.control.telemetry.spans import Place, Span, SpanEvent, SpanStatus, Tracer, Value
from spillover.core.events import (
    AnyEvent,
    GangPlaced,
    JobEnded,
    JobHeld,
    JobPlaced,
    JobReleased,
    JobRequeued,
    JobStarted,
    JobState,
    JobStopping,
    JobSubmitted,
    LeaseMoved,
    MemberPlaced,
    TaskEnd,
    TaskRestarted,
    TasksBound,
    TasksEnded,
    TasksStarted,
)
from spillover.core.records.jobs import Ended, Job, Placed, Running
from spillover.core.state import State
from spillover.model import ranges
from spillover.model.ids import ClusterName, JobId, NodeName, member_id
from spillover.model.reasons import Reason
from spillover.model.tracing import attempt_span, span_of, trace_of
from spillover.model.units import MONEY

_STATUS: Final = {
    JobState.SUCCEEDED: SpanStatus.OK,
    JobState.FAILED: SpanStatus.ERROR,
    JobState.TIMED_OUT: SpanStatus.ERROR,
}
HELD: Final = "held"
QUEUED: Final = "queued"


class _Attempt(Struct):
    """A placed job."""

    place: Place
    attempt: int
    at: int
    """When it was placed, nanoseconds UTC."""
    cluster: ClusterName
    nodes: list[NodeName]
    """By rank."""
    why: Reason
    started: int | None = None
    ran: bool = False
    """Whether its process ran; known once it is over."""
    tasks: dict[int, int] = field(default_factory=dict)
    """Start of each task of a gang that runs, by rank."""
    events: list[SpanEvent] = field(default_factory=list)
    parts: list[Span] = field(default_factory=list)
    """Spans of its tasks that ended before it did; their parent is known once the attempt is over."""

    @property
    def span(self) -> str:
        """Its span, of which tasks know if it started."""
        return f"attempt {self.attempt}" if self.ran else f"placed {self.at}"


class JobSpans:
    """Follows the events of jobs."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._attempts: dict[JobId, _Attempt] = {}
        self._since: dict[JobId, tuple[str, int]] = {}
        """How jobs wait, and since when, if that is not since their submission in the queue."""

    def begin(self, state: State) -> None:
        """Take over jobs that an earlier server placed."""
        for job_id in {job: None for node in state.nodes.values() for job in node.jobs}:
            job = state.jobs[job_id]
            phase = job.phase
            place = self._tracer.place(state, job_id)
            if not place.sampled or not isinstance(phase, Placed | Running):
                continue
            nodes = [task.node for task in job.tasks]
            known = _Attempt(place, job.attempt, phase.at, phase.cluster, nodes, phase.why)
            if isinstance(phase, Running):
                known.started = phase.since
            if job.kind.shape.is_gang:
                known.tasks = {task.rank: task.started for task in job.tasks if task.started is not None}
            self._attempts[job_id] = known

    def follow(self, state: State, events: Sequence[AnyEvent]) -> list[Span]:  # noqa: C901, PLR0912 - one case for each event
        """Return the spans that end with these events."""
        found: list[Span] = []
        for event in events:
            match event:
                case JobSubmitted():
                    if event.reached()[0].state is JobState.HELD:
                        self._since[event.job] = (HELD, event.at)
                case JobHeld() if event.who:
                    self._turn(state, event.job, HELD, event.at, found)
                case JobReleased():
                    self._turn(state, event.job, QUEUED, event.at, found)
                case JobPlaced():
                    self._placed(state, event.job, event, [event.node], event.attempt, found)
                case GangPlaced():
                    self._placed(state, event.job, event, [*event.nodes], event.attempt, found)
                case MemberPlaced():
                    member = member_id(event.array, event.index)
                    self._placed(state, member, event, [event.node], 1, found)
                case LeaseMoved() if (known := self._attempts.get(event.job)) is not None:
                    known.nodes = [event.thief]
                    known.events.append(SpanEvent(event.at, str(event)))
                case TasksBound():
                    for job, nodes in zip(event.jobs, event.nodes, strict=True):
                        if (known := self._attempts.get(job)) is not None:
                            known.nodes = [*nodes]
                case JobStarted() if (known := self._attempts.get(event.job)) is not None:
                    known.started = event.at
                    known.tasks[event.rank] = event.at
                case TasksStarted() if (known := self._attempts.get(event.job)) is not None:
                    known.tasks.update(dict.fromkeys(event.ranks, event.at))
                case TasksEnded() if (known := self._attempts.get(event.job)) is not None:
                    for end in event.ends:
                        _task_over(event.job, known, end)
                case TaskRestarted() if (known := self._attempts.get(event.job)) is not None:
                    _task_over(event.job, known, event.end)
                    known.tasks[event.end.rank] = event.end.at
                case JobStopping() if (known := self._attempts.get(event.job)) is not None:
                    known.events.append(SpanEvent(event.at, str(event)))
                case JobRequeued():
                    self._requeued(event, found)
                case JobEnded():
                    self._ended(state, event, found)
                case _:
                    pass
        return found

    def _turn(self, state: State, job_id: JobId, kind: str, at: int, found: list[Span]) -> None:
        """Record that a job waits in another way from now on."""
        before, since = self._waiting(state, job_id, HELD if kind is QUEUED else QUEUED)
        if before == kind:
            return
        job = state.jobs.get(job_id)
        if since is not None and job is not None and job.extra.members is None:
            self._waited(state, job_id, before, since, at, found)
        self._since[job_id] = (kind, at)

    def _waiting(self, state: State, job_id: JobId, kind: str = QUEUED) -> tuple[str, int | None]:
        """Return how a job waits and since when; by default, since its submission or its return to the queue."""
        if (known := self._since.get(job_id)) is not None:
            return known
        job = state.jobs.get(job_id)
        return kind, None if job is None else job.waiting_since

    def _waited(
        self, state: State, job_id: JobId, kind: str, since: int, until: int, found: list[Span]
    ) -> None:
        """Add the span of a wait."""
        place = self._tracer.place(state, job_id)
        if place.sampled and until > since:
            span = span_of(job_id, f"{kind} {since}")
            found.append(Span(place.trace, span, span_of(job_id), kind, since, until, {}))

    def _placed(
        self,
        state: State,
        job_id: JobId,
        event: JobPlaced | GangPlaced | MemberPlaced,
        nodes: list[NodeName],
        attempt: int,
        found: list[Span],
    ) -> None:
        """Begin an attempt, which ends the wait."""
        place = self._tracer.place(state, job_id)
        known = self._since.pop(job_id, None)
        if not place.sampled:
            return
        kind, since = known or self._waiting(state, job_id if place.array is None else place.array)
        if since is not None:
            self._waited(state, job_id, kind, min(since, event.at), event.at, found)
        self._attempts[job_id] = _Attempt(place, attempt, event.at, event.cluster, nodes, event.why)

    def _requeued(self, event: JobRequeued, found: list[Span]) -> None:
        """Add the spans of an attempt that another one follows."""
        if (known := self._attempts.get(event.job)) is not None:
            # It may have been too short for a report of its start, which is then unknown.
            known.ran = known.started is not None or event.attempt > known.attempt
        self._over(event.job, event.at, {"spillover.requeued": event.why.value}, found)
        self._since[event.job] = (QUEUED, event.at)

    def _over(self, job_id: JobId, at: int, more: dict[str, Value], found: list[Span]) -> None:
        """Add the spans of an attempt that is over."""
        known = self._attempts.pop(job_id, None)
        if known is None:
            return
        place, span = known.place, span_of(job_id, known.span)
        attributes: dict[str, Value] = {
            "spillover.attempt": known.attempt,
            "spillover.cluster": known.cluster,
            "spillover.node": known.nodes[0],
            "spillover.placed.reason": str(known.why),
            **more,
        }
        if len(known.nodes) > 1:
            attributes["spillover.tasks"] = len(known.nodes)
        name = f"attempt {known.attempt}"
        whole = Span(
            place.trace, span, span_of(job_id), name, known.at, at, attributes, events=tuple(known.events)
        )
        found.append(whole)
        began = at if known.started is None else known.started
        if known.started is not None or not known.ran:
            prepared = span_of(job_id, f"preparing {known.at}")
            found.append(Span(place.trace, prepared, span, "preparing", known.at, max(began, known.at), {}))
        if known.started is not None:
            running = span_of(job_id, f"running {known.attempt}")
            found.append(Span(place.trace, running, span, "running", began, max(at, began), {}))
            found += known.parts

    def _ended(self, state: State, event: JobEnded, found: list[Span]) -> None:
        """Add the spans of what a job did last, and of its whole life."""
        job_id = event.job
        job = state.jobs.get(job_id)
        known, since = self._attempts.get(job_id), self._since.pop(job_id, None)
        place = self._tracer.place(state, job_id) if known is None else known.place
        if job is None or not place.sampled:
            return
        code: dict[str, Value] = {} if event.exit_code is None else {"spillover.exit_code": event.exit_code}
        if known is not None:
            if known.started is None:  # too short for a report of its start
                known.started = event.started
            known.ran = known.started is not None
            if job.kind.shape.is_gang:  # the end of the last task is that of the job
                for rank in list(known.tasks):
                    end = TaskEnd(rank, event.at, event.state, None, event.exit_code, event.signal)
                    _task_over(job_id, known, end)
            self._over(job_id, event.at, code, found)
        elif job.extra.members is None and isinstance(job.phase, Ended) and job.phase.cluster is None:
            kind, begun = since or (QUEUED, job.waiting_since)
            self._waited(state, job_id, kind, begun, event.at, found)
        found.append(_whole(job, event, place, known))


def _task_over(job: JobId, known: _Attempt, end: TaskEnd) -> None:
    """Add the span of a task of a gang."""
    began = known.tasks.pop(end.rank, None)
    if began is None:  # too short for a report of its start
        if not end.usage.ran:
            return
        began = max(known.at, end.at - end.usage.ran)
    attributes: dict[str, Value] = {"spillover.task": end.rank, "spillover.state": end.state.value}
    if end.rank < len(known.nodes):
        attributes["spillover.node"] = known.nodes[end.rank]
    if end.exit_code is not None:
        attributes["spillover.exit_code"] = end.exit_code
    span = span_of(job, f"task {known.attempt} {end.rank} {began}")
    parent, status = attempt_span(job, known.attempt), _STATUS.get(end.state, SpanStatus.UNSET)
    known.parts.append(
        Span(
            known.place.trace,
            span,
            parent,
            f"task {end.rank}",
            began,
            max(end.at, began),
            attributes,
            status,
            end.message,
        )
    )


def _whole(job: Job, event: JobEnded, place: Place, last: _Attempt | None) -> Span:
    """Return the span of the whole life of a job."""
    attributes: dict[str, Value] = {
        "spillover.job.id": job.id,
        "spillover.job.name": job.name,
        "spillover.user": job.user,
        "spillover.project": job.kind.project,
        "spillover.queue": job.kind.queue,
        "spillover.state": event.state.value,
        "spillover.attempts": event.attempt if event.started is not None or last is not None else 0,
        "spillover.cost": event.cost / MONEY,
    }
    if last is not None:
        attributes["spillover.cluster"] = last.cluster
        attributes["spillover.node"] = last.nodes[0]
    if event.exit_code is not None:
        attributes["spillover.exit_code"] = event.exit_code
    if event.signal is not None:
        attributes["spillover.signal"] = event.signal
    if event.usage.cpu:
        attributes["spillover.cpu_seconds"] = event.usage.cpu / 1e9
    if event.usage.peak_memory:
        attributes["spillover.peak_memory"] = event.usage.peak_memory
    if event.why is not None:
        attributes["spillover.reason"] = str(event.why.__struct_config__.tag)
    if job.kind.shape.tasks > 1:
        attributes["spillover.tasks"] = len(last.nodes) if last is not None else job.kind.shape.tasks
    if (members := job.extra.members) is not None:
        attributes["spillover.members"] = members.size
        if unplaced := members.unplaced:
            attributes["spillover.members.never_started"] = ranges.size(unplaced)
    links: tuple[tuple[str, str], ...] = ()
    if place.array is not None:
        attributes["spillover.array.id"] = place.array
        if place.parent == "":
            links = ((trace_of(place.array), span_of(place.array)),)
    status = _STATUS.get(event.state, SpanStatus.UNSET)
    told = str(event.why) if status is SpanStatus.ERROR and event.why is not None else ""
    return Span(
        place.trace,
        span_of(job.id),
        place.parent,
        job.name,
        job.submitted,
        max(event.at, job.submitted),
        attributes,
        status,
        told,
        links=links,
        whole=True,
    )
