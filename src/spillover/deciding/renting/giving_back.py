"""Decides which machines to give back, and when.

An empty machine stays to the end of what is paid for it. If that is a matter of seconds, it stays for one boot time: if a
job comes right after, waiting cost as much as a new machine would have, so it never costs more than twice the best that
anybody could have done who knew the future. A machine is drained first. If a job needs it before it is ended, it stays.
"""

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from spillover.core.deciders.machines import POOL
from spillover.core.records.machines import RentedMachine
from spillover.core.records.nodes import Node
from spillover.core.state import State
from spillover.model.cluster import ClusterSpec, billed
from spillover.model.pools import MachineState, Pool
from spillover.model.units import FOREVER, SECOND

DRAINED_FOR: Final = 2 * SECOND
"""How long a machine is drained before it is ended, in which a new job may undo that."""
NEEDED_FOR: Final = 10 * SECOND
"""How long an empty machine stays that is new, was kept, or that jobs are about to take, beyond its time."""
TO_END: Final = 60 * SECOND
"""How long before the end of a paid step a machine is drained, so that it is gone by then; less if steps are short."""
MOST_FAILED: Final = 3
"""Boots in a row that do not join, after which the pool is paused."""


class GivenBack(Struct):
    """What becomes of the machines of one pool."""

    drained: dict[str, list[RentedMachine]]
    """Machines to drain, by the reason."""
    ended: dict[str, list[RentedMachine]]
    """Machines to end, by the reason."""
    unjoined: list[RentedMachine]
    """Machines to end because their agents did not join in time."""
    again: int = FOREVER
    """When to look again, nanoseconds UTC."""


def give_back(
    state: State, spec: ClusterSpec, machines: Sequence[RentedMachine], needed: dict[str, None], now: int
) -> GivenBack:
    """Return what becomes of the live machines of a pool; those that jobs are about to take are needed."""
    found, pool = GivenBack({}, {}, []), spec.pool
    if pool is None:
        return found
    closed = not state.is_open(spec.name)
    spare = sum(each.state is not MachineState.ENDING for each in machines) - pool.min
    for machine in machines:
        node = state.agents.get(machine.key)
        match machine.state:
            case MachineState.WANTED | MachineState.BOOTING:
                if closed:
                    found.ended.setdefault(CLOSED, []).append(machine)
                elif machine.join_by <= now:
                    found.unjoined.append(machine)
                    spare -= 1
                else:
                    found.again = min(found.again, machine.join_by)
            case MachineState.READY:
                why, at = (
                    (CLOSED, now) if closed and _is_idle(node) else _leaves(state, spec, pool, machine, node)
                )
                at = _kept_until(why, at, now, spare=spare, needed=machine.id in needed)
                if at > now:
                    found.again = min(found.again, at)
                    continue
                found.drained.setdefault(why, []).append(machine)
                spare -= 1
            case MachineState.DRAINING:
                at = machine.since + DRAINED_FOR
                if node is not None and node.held:
                    continue
                if at > now and machine.notice is None:
                    found.again = min(found.again, at)
                else:
                    found.ended.setdefault(machine.why, []).append(machine)
            case _:
                pass
    return found


EMPTY: Final = "it was empty for as long as it pays"
LOST: Final = "its agent does not answer"
CLOSED: Final = "its cluster is drained"


def _is_idle(node: Node | None) -> bool:
    return node is None or not node.held


def _kept_until(why: str, at: int, now: int, *, spare: int, needed: bool) -> int:
    """Return until when a ready machine stays whose time is over: FOREVER while the pool has too few."""
    if at > now or why != EMPTY:
        return at
    if spare <= 0:
        return FOREVER  # until there are more
    return now + NEEDED_FOR if needed else at


def _leaves(
    state: State, spec: ClusterSpec, pool: Pool, machine: RentedMachine, node: Node | None
) -> tuple[str, int]:
    """Return why and when a ready machine is given back; FOREVER while it has tasks."""
    if node is not None and node.status == "lost" and not node.held:
        missed = state.facts.now if node.missed is None else node.missed + state.facts.jumped
        return LOST, missed + pool.join_within
    empty = machine.empty_since
    if empty is None or node is None or node.held:
        return EMPTY, FOREVER
    if node.drained and node.drained != POOL:
        return f"{node.drained} drained it", empty
    # If it was drained, and kept for a job that did not take it, it is not drained again at once.
    return EMPTY, max(machine.since + NEEDED_FOR, leaves_at(state, spec, pool, machine, empty))


def leaves_at(state: State, spec: ClusterSpec, pool: Pool, machine: RentedMachine, empty: int) -> int:
    """Return when a machine that is empty since a time is drained, nanoseconds UTC."""
    if pool.idle is not None:
        return empty + pool.idle
    boot = state.pool(spec.name).boot(pool, machine.offer.key)
    if machine.made_at is None or spec.billing.step <= boot:
        stays = empty + boot
        if machine.made_at is not None:  # the shortest time that is paid
            stays = max(
                stays, machine.made_at + spec.billing.minimum - min(TO_END, spec.billing.minimum // 10)
            )
        return stays
    margin = min(TO_END, spec.billing.step // 10)
    paid = machine.made_at + billed(spec.billing, empty - machine.made_at + margin)
    return paid - margin
