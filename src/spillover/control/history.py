"""The journal as people read it: one line an event."""

from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, TypeAlias, assert_never

import msgspec

from spillover.control.loop import Loop
from spillover.control.projects import OwnHistory
from spillover.control.subscribers import Subscription
from spillover.core import ranges
from spillover.core.about import jobs_of
from spillover.core.events import (
    AgentDraining,
    AgentForgotten,
    AgentLost,
    AgentRegistered,
    AgentResumed,
    AgentsConfigured,
    AnyEvent,
    BackoffEnded,
    BudgetsConfigured,
    ClockJumped,
    ClusterAdded,
    ClusterChanged,
    ClusterDraining,
    ClusterOpened,
    ClusterRemoved,
    ClusterResumed,
    ClustersConfigured,
    ClusterUpdated,
    CostHeld,
    Decided,
    DependencyEnded,
    EpochStarted,
    GangPlaced,
    Identified,
    JobEnded,
    JobHeld,
    JobPlaced,
    JobReleased,
    JobReprioritised,
    JobRequeued,
    JobsAdmitted,
    JobsArchived,
    JobStarted,
    JobStopping,
    JobSubmitted,
    LeaseMoved,
    MemberPlaced,
    MembersDropped,
    NodesSeen,
    PolicyChanged,
    PolicyDisabled,
    StealAsked,
    StealRefused,
    TasksBound,
    TokenCreated,
    TokenRevoked,
    Unmoved,
    WaitsExpired,
)
from spillover.forms.policystring import write_policies
from spillover.model.units import SECOND, format_duration, format_moment, format_money, format_time
from spillover.ports.journal import Journal, Stored, mark_of
from spillover.wire.api import EventView
from spillover.wire.journal import decode_event

CLOSE: Final = 100
"""Events between two of a job that are rather read than passed over."""
_UNMOVED: Final = {
    Unmoved.STARTED: "it has started there",
    Unmoved.UNKNOWN: "its agent has not seen it yet",
    Unmoved.VOID: "its agent registered anew",
}


async def history(
    loop: Loop,
    journal: Journal,
    after: int | None,
    follow: bool,
    job: str | None,
    own: OwnHistory | None = None,
) -> AsyncGenerator[EventView, None]:
    """Events after a revision, and on as they become durable if they are to be followed."""
    with _subscribed(loop, job, own) as news:
        at = after if after is not None else loop.gate.durable if follow else 0
        if job is not None and at < (indexed := await journal.indexed()):
            async for stored in _indexed(journal, job, at):
                if stored.revision <= indexed and (view := await _view(stored, job, own)) is not None:
                    yield view
            at = indexed
        while True:
            upto = loop.gate.durable
            async for stored in journal.tail(at):
                at = stored.revision
                if (view := await _view(stored, job, own)) is not None:
                    yield view
            if not follow:
                return
            # What is not news to us is passed over; the newest may be forgotten already.
            at = max(at, upto, await news.wait())


def _subscribed(loop: Loop, job: str | None, own: OwnHistory | None) -> AbstractContextManager[Subscription]:
    """Tells of commits that may have something to show."""
    if job is not None:
        return loop.subscribers.to_jobs([job])
    if own is not None and own.project is not None:
        return loop.subscribers.to_project(own.project)
    return loop.subscribers.to_all()


async def _indexed(journal: Journal, job: str, after: int) -> AsyncIterator[Stored]:
    """Events after a revision that may be about a job, as far as they are indexed."""
    for first, last in spans(await journal.mentioned(mark_of(job), after)):
        async for stored in journal.tail(first - 1, last - first + 1):
            if stored.revision <= last:  # else the first ones were forgotten meanwhile
                yield stored


def spans(revisions: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Revisions as spans, first and last, that are each read at once: with what is between those that are close."""
    first = last = 0
    for each in revisions:
        if last and each > last + CLOSE:
            yield first, last
            first = each
        first, last = first or each, each
    if last:
        yield first, last


async def _view(stored: Stored, job: str | None, own: OwnHistory | None) -> EventView | None:
    """A line of history; None if it is not to be shown."""
    event: AnyEvent | None = decode_event(stored.event)
    if event is not None and job is not None and not concerns(event, job):
        return None
    if own is not None and event is not None:
        event = await own.part(event)
    if event is None or (job is not None and not concerns(event, job)):
        return None
    return event_view(stored.revision, stored.at, event)


def concerns(event: AnyEvent, job: str) -> bool:
    """Whether an event is about a job, or about a member of it."""
    ids = jobs_of(event)
    return any(each == job or each.startswith(f"{job}.") for each in ids)


def event_view(revision: int, at: int, event: AnyEvent) -> EventView:
    """One line of history."""
    ids = jobs_of(event)
    data: Any = _plain(event)
    kind = str(event.__struct_config__.tag)
    return EventView(revision, format_time(at), kind, ids[0] if len(ids) == 1 else None, text_of(event), data)


def _plain(event: AnyEvent) -> dict[str, Any]:
    """The fields of an event by name."""
    plain: dict[str, Any] = {}
    for name in event.__struct_fields__:
        value = getattr(event, name)
        plain[name] = value.hex() if isinstance(value, bytes) else msgspec.to_builtins(value)
    if isinstance(event, TokenCreated):
        del plain["digest"]  # of use to nobody but the one who checks it
    return plain


def text_of(event: AnyEvent) -> str:
    """What happened, in words."""
    match event:
        case JobSubmitted():
            size = ranges.size(event.array)
            return f"{event.user} submitted {event.name}" + (f", an array of {size}" if size else "")
        case JobsAdmitted():
            return _many(event.jobs, "waits for owned capacity", "jobs wait for owned capacity")
        case WaitsExpired():
            return _many(event.jobs, "may be rented", "jobs may be rented") + f": {event.why}"
        case JobPlaced() | MemberPlaced():
            return f"placed on {event.cluster}/{event.node}: {event.why}"
        case GangPlaced():
            return f"{len(event.nodes)} tasks placed on {event.cluster}: {event.why}"
        case MembersDropped():
            return f"{ranges.size(event.members)} pending members will not start: {event.state}"
        case CostHeld():
            limit = "" if event.limit is None else f", which pays for {format_duration(event.limit)}"
            return f"{format_money(event.amount)} is held for it{limit}"
        case JobStarted():
            return f"started (attempt {event.attempt})"
        case JobStopping():
            return f"is to be stopped ({event.why}), by {event.who}"
        case JobRequeued():
            because = f": {event.because}" if event.because else ""
            until = (
                f"; not tried on {event.backing_off} until {format_moment(event.until)}"
                if event.backing_off
                else ""
            )
            return f"back to the queue ({event.why}), attempt {event.attempt}{because}{until}"
        case JobEnded():
            ran = f" after {format_duration(event.usage.ran)}" if event.usage.ran else ""
            return f"{event.state}{ran}" + (f": {event.why}" if event.why is not None else "")
        case BackoffEnded():
            return f"may be tried on {event.cluster} again"
        case JobHeld():
            return f"held by {event.who}"
        case JobReleased():
            return f"released by {event.who}"
        case DependencyEnded():
            return f"no longer waits for {event.on}"
        case JobReprioritised():
            return f"priority {event.priority}, by {event.who}"
        case JobsArchived():
            return _many(event.jobs, "moved to the archive", "jobs moved to the archive")
        case ClustersConfigured():
            return "clusters: " + ", ".join(f"{spec.name} ({spec.role})" for spec in event.clusters)
        case BudgetsConfigured():
            return f"{len(event.budgets)} budget{'s' if len(event.budgets) != 1 else ''} from now on"
        case TokenCreated():
            limits = [f"{name} {value}" for name, value in _limits(event) if value is not None]
            return f"{event.who} created token {event.token} of role {', '.join([event.role, *limits])}"
        case TokenRevoked():
            return f"{event.who} revoked token {event.token}"
        case EpochStarted():
            return f"epoch {event.epoch} began"
        case Identified():
            return f"what is made elsewhere is known by {event.identity}"
        case ClockJumped():
            told = f"waits are shifted by {event.by / SECOND:.0f}s"
            return f"{told}: {event.who} had the clock followed" if event.who else told
        case PolicyChanged():
            how = "reset" if event.reset else "changed"
            return f"policies {how} by {event.who}: {write_policies(event.policies)}"
        case PolicyDisabled():
            why = event.error or f"it took {format_duration(event.took)} in one step"
            return f"policy {event.axis}.{event.name} is disabled: {why}"
        case Decided():
            return f"a cycle decided ({event.plan.hex()[:8]})"
        case StealAsked():
            return f"agent {event.thief} asks {event.node} for it"
        case StealRefused():
            return f"stays where it is: {_UNMOVED[event.why]}"
        case LeaseMoved():
            return f"moved from {event.node} to {event.thief}"
        case _:
            return _of_places(event)


Places: TypeAlias = (
    AgentRegistered
    | AgentDraining
    | AgentResumed
    | AgentLost
    | AgentForgotten
    | AgentsConfigured
    | NodesSeen
    | ClusterChanged
    | ClusterAdded
    | ClusterUpdated
    | ClusterOpened
    | ClusterDraining
    | ClusterResumed
    | ClusterRemoved
    | TasksBound
)
"""Events of agents, of nodes of external clusters, and of external clusters."""


def _of_places(event: Places) -> str:
    """What happened to where jobs run, in words."""
    match event:
        case AgentRegistered():
            return f"agent {event.cluster}/{event.node} registered with {event.capacity}"
        case AgentDraining():
            return f"agent {event.cluster}/{event.node} is draining" + (
                f", drained by {event.who}" if event.who else ""
            )
        case AgentResumed():
            return f"agent {event.cluster}/{event.node} was resumed by {event.who}"
        case AgentLost():
            return f"agent {event.cluster}/{event.node} is lost"
        case AgentForgotten():
            return f"agent {event.cluster}/{event.node} was forgotten by {event.who}"
        case NodesSeen():
            return _nodes_seen(event)
        case ClusterChanged():
            return f"cluster {event.cluster} is {event.health}" + (f": {event.why}" if event.why else "")
        case ClusterAdded():
            return (
                f"cluster {event.spec.name} ({event.spec.kind}, {event.spec.role}) was added by {event.who}"
            )
        case ClusterUpdated():
            return f"cluster {event.spec.name} is configured otherwise, by {event.who}"
        case ClusterOpened():
            return f"cluster {event.cluster} is open"
        case ClusterDraining():
            leaving = f", to be removed ({event.leaving})" if event.leaving is not None else ""
            return f"cluster {event.cluster} was drained by {event.who}{leaving}"
        case ClusterResumed():
            return f"cluster {event.cluster} was resumed by {event.who}"
        case ClusterRemoved():
            return f"cluster {event.cluster} is gone"
        case TasksBound():
            many = f"{len(event.jobs)} jobs are"
            return f"{'is' if len(event.jobs) == 1 else many} bound to other nodes of {event.cluster} than planned"
        case AgentsConfigured():
            return f"agents are given work for {format_duration(event.ahead)} ahead of room"
        case _:
            assert_never(event)


def _nodes_seen(event: NodesSeen) -> str:
    """How many nodes of a cluster are new or changed, and how many are gone."""
    counts = (
        (len(event.nodes), "new or not what they were"),
        (len(event.used), "used otherwise"),
        (len(event.same), "as before"),
        (len(event.gone), "gone"),
    )
    return f"nodes of {event.cluster}: " + ", ".join(f"{count} {how}" for count, how in counts if count)


def _limits(event: TokenCreated) -> tuple[tuple[str, str | None], ...]:
    """What a token is limited to."""
    return ("project", event.project), ("user", event.user), ("cluster", event.cluster)


def _many(jobs: tuple[str, ...], one: str, many: str) -> str:
    """What happened to one job, or to several."""
    return one if len(jobs) == 1 else f"{len(jobs)} {many}"
