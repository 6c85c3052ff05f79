"""What must hold in the journal of a server with a pool, whatever befell the server and its cloud."""

from collections.abc import Sequence

from spillover.core.events import (
    AnyEvent,
    MachineGone,
    MachineRefused,
    MachinesHeld,
    MachinesWanted,
    PoolPaused,
    PoolResumed,
)
from spillover.model.pools import MachineId


def wishes(events: Sequence[AnyEvent]) -> list[MachineId]:
    """Return the machines that were wanted; raise if one was wanted twice, or in a paused pool."""
    found: list[MachineId] = []
    paused = False
    for event in events:
        match event:
            case PoolPaused() | PoolResumed():
                paused = isinstance(event, PoolPaused)
            case MachinesWanted():
                assert not paused, f"a paused pool orders: {event}"
                found += [wish.machine for wish in event.wishes]
            case _:
                pass
    assert len({*found}) == len(found), "a machine is wanted twice"
    return found


def paid_in(events: Sequence[AnyEvent], limit: int) -> int:
    """Return what machines cost, in millionths; raise if one cost more than was held, or the budget did not cover all."""
    held: dict[MachineId, int] = {}
    paid = 0
    for event in events:
        match event:
            case MachinesHeld():
                for each in event.holds:
                    held[each.machine] = held.get(each.machine, 0) + each.amount
            case MachineRefused():
                held.pop(event.machine, None)
            case MachineGone():
                kept = held.pop(event.machine, None)
                assert kept is None or event.paid <= kept, (
                    f"{event} for {event.paid}, of which {kept} was held"
                )
                paid += event.paid
            case _:
                pass
        assert paid + sum(held.values()) <= limit, f"after {event}: {paid} paid, {held} held, of {limit}"
    return paid
