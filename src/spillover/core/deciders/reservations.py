"""Decides on advance reservations. The proposer has chosen the nodes, and this checks them against the others."""

from spillover.core.events import (
    AnyEvent,
    ReservationCancelled,
    ReservationEnded,
    ReservationMade,
    ReservationMoved,
)
from spillover.core.proposals import (
    CancelReservation,
    Done,
    MoveReservation,
    Refusal,
    RefusalKind,
    Reply,
    Reserve,
)
from spillover.core.state import State
from spillover.model.ids import ClusterName, NodeName
from spillover.model.reservation import MOST_RESERVATIONS, AdvanceReservation


def reserve(state: State, proposal: Reserve, now: int) -> tuple[list[AnyEvent], Reply]:
    """Make a reservation."""
    asked = proposal.reservation
    if asked.name in state.reservations:
        message = f"there is already a reservation {asked.name}; choose another name with --name"
        return [], Refusal(RefusalKind.CONFLICT, message)
    if len(state.reservations) >= MOST_RESERVATIONS:
        message = f"there are {MOST_RESERVATIONS} reservations, the maximum; cancel some"
        return [], Refusal(RefusalKind.CONFLICT, message)
    if asked.end <= max(now, asked.start) or not asked.nodes:
        return [], Refusal(RefusalKind.INVALID, "a reservation needs nodes, and must end after it begins")
    if gone := _unknown(state, asked.cluster, asked.nodes):
        return [], Refusal(RefusalKind.STALE, f"node {gone[0]} of {asked.cluster} has left; try again")
    if (other := _overlapping(state, asked)) is not None:
        message = f"reservation {other.name} has some of these nodes at that time; try again"
        return [], Refusal(RefusalKind.STALE, message)
    made = ReservationMade(
        asked.name,
        now,
        asked.who,
        asked.cluster,
        asked.nodes,
        asked.start,
        asked.end,
        asked.project,
        asked.within,
        asked.needs,
        asked.named,
    )
    return [made], Done()


def move(state: State, proposal: MoveReservation, now: int) -> tuple[list[AnyEvent], Reply]:
    """Give a reservation other nodes, if it has not changed since."""
    known = state.reservations.get(proposal.name)
    if known is None or known.nodes != proposal.instead_of or known.nodes == proposal.nodes:
        return [], Done()
    other = AdvanceReservation(known.name, known.cluster, proposal.nodes, known.start, known.end)
    if _unknown(state, known.cluster, proposal.nodes) or _overlapping(state, other) is not None:
        return [], Refusal(RefusalKind.STALE, f"the nodes for reservation {known.name} are not free any more")
    return [ReservationMoved(known.name, now, known.cluster, proposal.nodes)], Done()


def cancel(state: State, proposal: CancelReservation, now: int) -> tuple[list[AnyEvent], Reply]:
    """Cancel a reservation."""
    known = state.reservations.get(proposal.name)
    if known is None or (proposal.project is not None and known.project != proposal.project):
        message = f"there is no reservation {proposal.name}; `spill reservations` lists them"
        return [], Refusal(RefusalKind.UNKNOWN, message)
    return [ReservationCancelled(known.name, now, proposal.who, known.cluster)], Done()


def ended(state: State, name: str, now: int) -> list[AnyEvent]:
    """End a reservation whose time is over."""
    known = state.reservations.get(name)
    return [] if known is None or known.end > now else [ReservationEnded(name, now, known.cluster)]


def _unknown(state: State, cluster: ClusterName, nodes: tuple[NodeName, ...]) -> list[NodeName]:
    return [name for name in nodes if f"{cluster}/{name}" not in state.nodes]


def _overlapping(state: State, asked: AdvanceReservation) -> AdvanceReservation | None:
    """Return another reservation of the same nodes at the same time."""
    others = (each for each in state.reservations.values() if each.name != asked.name)
    return next((each for each in others if each.overlaps(asked)), None)
