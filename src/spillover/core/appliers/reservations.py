"""Applies events of advance reservations. The state has those that have not ended."""

from msgspec.structs import replace

from spillover.core.events import ReservationCancelled, ReservationEnded, ReservationMade, ReservationMoved
from spillover.core.state import State
from spillover.model.reservation import AdvanceReservation


def made(state: State, event: ReservationMade) -> None:
    """Add a reservation."""
    state.reservations[event.name] = AdvanceReservation(
        event.name,
        event.cluster,
        event.nodes,
        event.start,
        event.end,
        event.project,
        event.at,
        event.who,
        event.within,
        event.needs,
        event.named,
    )
    state.touch_reservation(event.name)


def moved(state: State, event: ReservationMoved) -> None:
    """Give a reservation other nodes."""
    state.reservations[event.name] = replace(state.reservations[event.name], nodes=event.nodes)
    state.touch_reservation(event.name)


def over(state: State, event: ReservationCancelled | ReservationEnded) -> None:
    """Drop a reservation."""
    del state.reservations[event.name]
    state.touch_reservation(event.name)
