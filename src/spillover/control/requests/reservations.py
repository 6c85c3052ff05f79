"""Shows reserved capacity."""

from typing import Final

from msgspec.structs import replace

from spillover.control.live.loop import Loop
from spillover.control.requests.whatif import on_snapshot
from spillover.core.state import State
from spillover.deciding.explain.reservations import Reserved, reservations
from spillover.deciding.reserving import lost_nodes
from spillover.deciding.whatif import Snapshot
from spillover.model.ids import JobId
from spillover.model.reservation import AdvanceReservation
from spillover.model.units import format_time
from spillover.wire.api import ReservationView

MOST_SHOWN: Final = 100
"""The most jobs of others that a view names."""


async def reservation_views(loop: Loop, project: str | None) -> list[ReservationView]:
    """Return the capacity that is reserved, in the order of its start; only that of a project, if one is given."""
    now = loop.now()

    def ask(snapshot: Snapshot) -> list[ReservationView]:
        snapshot.step(now)  # the list is for jobs that cannot start now
        found = sorted(reservations(snapshot, snapshot.now), key=lambda each: each.span.start)
        shown = [_view(snapshot.state, each) for each in found]
        shown += [advance_view(snapshot.state, each, now) for each in snapshot.state.reservations.values()]
        shown.sort(key=lambda each: each.start)
        # Maintenance concerns everybody.
        own = {project, None} if project is not None else None
        return [
            _within(each, snapshot.state, project) for each in shown if own is None or each.project in own
        ]

    return await on_snapshot(loop, ask)


def advance_view(state: State, known: AdvanceReservation, now: int) -> ReservationView:
    """Return an advance reservation, with the jobs of others that run there if it has begun."""
    others: dict[str, None] = {}
    if known.start <= now:
        nodes = [state.nodes.get(f"{known.cluster}/{name}") for name in known.nodes]
        held = [job for node in nodes if node is not None for job in node.jobs]
        others = {job: None for job in held if state.jobs[job].kind.project != known.project}
    return ReservationView(
        kind="maintenance" if known.maintenance else "advance",
        name=known.name,
        job=None,
        project=known.project or None,
        cluster=known.cluster,
        nodes=list(known.nodes),
        start=format_time(known.start),
        end=format_time(known.end),
        by=known.who,
        missing=list(lost_nodes(known, state.nodes)),
        running=list(others)[:MOST_SHOWN],
    )


def _within(view: ReservationView, state: State, project: str | None) -> ReservationView:
    """Return a view without jobs of other projects, if one is given."""
    if project is None:
        return view
    own = [job for job in view.running if state.jobs[JobId(job)].kind.project == project]
    return replace(view, running=own)


def _view(state: State, reserved: Reserved) -> ReservationView:
    """Return the reservation of a waiting job."""
    job, span = state.jobs[reserved.job], reserved.span
    return ReservationView(
        kind="backfill",
        name=job.name,
        job=job.id,
        project=job.kind.project,
        cluster=span.cluster,
        nodes=list(span.nodes),
        start=format_time(span.start),
        end=format_time(span.end),
    )
