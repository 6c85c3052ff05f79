"""Shows reserved capacity."""

from spillover.control.live.loop import Loop
from spillover.control.requests.whatif import on_snapshot
from spillover.core.state import State
from spillover.deciding.explain.reservations import Reserved, reservations
from spillover.deciding.whatif import Snapshot
from spillover.model.units import format_time
from spillover.wire.api import ReservationView


async def reservation_views(loop: Loop, project: str | None) -> list[ReservationView]:
    """Return the capacity that is reserved, in the order of its start; only that of a project, if one is given."""
    now = loop.now()

    def ask(snapshot: Snapshot) -> list[ReservationView]:
        snapshot.step(now)  # the list is for jobs that cannot start now
        found = sorted(reservations(snapshot, snapshot.now), key=lambda each: each.span.start)
        shown = [_view(snapshot.state, each) for each in found]
        return [each for each in shown if project is None or each.project == project]

    return await on_snapshot(loop, ask)


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
