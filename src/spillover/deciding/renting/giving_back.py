"""Decides which machines to give back, and when.

An empty machine stays to the end of what is paid for it. If that is a matter of seconds, it stays for one boot time: if a
job comes right after, waiting cost as much as a new machine would have, so it never costs more than twice the best that
anybody could have done who knew the future. This holds if boots take as long as those before, also with a shortest time
that is paid; draining adds two seconds for each machine. A machine is drained first. If a job needs it before it is
ended, it stays.
"""

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from spillover.core.records.machines import POOL, RentedMachine
from spillover.core.state import State
from spillover.model.cluster import Billing, ClusterHealth, ClusterSpec, billed
from spillover.model.pools import MachineState, Pool
from spillover.model.units import FOREVER, SECOND

DRAINED_FOR: Final = 2 * SECOND
"""How long a machine is drained before it is ended, in which a new job may undo that."""
NEEDED_FOR: Final = 10 * SECOND
"""How long an empty machine stays that jobs are about to take, or that is new or was kept and had no job yet, beyond its time."""
TO_END: Final = 60 * SECOND
"""How long before the end of a paid step a machine is drained, so that it is gone by then; less if steps are short."""
LEAVING: Final = (MachineState.DRAINING, MachineState.ENDING)
"""States of machines that do not count among those that are always there."""
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
    state: State,
    spec: ClusterSpec,
    machines: Sequence[RentedMachine],
    needed: dict[str, None],
    now: int,
    *,
    busy: int = 0,
    steady: bool = True,
) -> GivenBack:
    """Return what becomes of live machines of a pool; those that jobs are about to take are needed.

    Ready machines with tasks may be left out if their cluster is open, because they stay; `busy` is how many were.
    Without `steady`, clock jumps count as time in which machines could join, as they did in earlier rules.
    """
    found, pool = GivenBack({}, {}, []), spec.pool
    if pool is None:
        return found
    closed, jumped = not state.is_open(spec.name), state.facts.jumped
    boots: dict[int, int] = {}
    """Boot times by the identity of the offer."""
    spare = busy + sum(each.state not in LEAVING for each in machines) - pool.min
    for machine in machines:
        use = _use_of(state, machine)
        match machine.state:
            case MachineState.WANTED | MachineState.BOOTING:
                if closed:
                    found.ended.setdefault(CLOSED, []).append(machine)
                else:
                    spare -= _give_up(found, machine, now, jumped if steady else machine.jumped)
            case MachineState.READY:
                why, at = (
                    (CLOSED, now)
                    if closed and not use.held
                    else _leaves(state, spec, pool, machine, use, now, boots)
                )
                at = _kept_until(why, at, now, spare=spare, needed=machine.id in needed)
                if at > now:
                    found.again = min(found.again, at)
                    continue
                found.drained.setdefault(why, []).append(machine)
                spare -= 1
            case MachineState.DRAINING:
                at = machine.since + DRAINED_FOR
                if use.held and not _is_failed(machine, use):
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
LOST_CLUSTER: Final = "it has failed"
CLOSED: Final = "its cluster is drained"
TOO_LATE: Final = "its agent did not join, and the server was away for too long"


def _give_up(found: GivenBack, machine: RentedMachine, now: int, jumped: int) -> bool:
    """End a machine whose agent did not join in time, or note when that is; return whether it is ended."""
    until = machine.joins_until(jumped)
    if until > now:
        found.again = min(found.again, until)
        return False
    if machine.join_by + jumped - machine.jumped > now:
        found.ended.setdefault(TOO_LATE, []).append(machine)  # no failed boot: the server was away
    else:
        found.unjoined.append(machine)
    return True


class _Use(Struct, frozen=True):
    """What becomes of a machine, or a whole cluster, as far as its node or the cluster tells."""

    held: bool
    """Whether it has tasks."""
    known: bool = True
    """Whether it has joined, and has found this server since that began."""
    lost: int | None = None
    """Since when it does not answer, nanoseconds UTC; None if it does."""
    drained: str = ""
    """The person who drained it; empty if nobody did, or the pool did."""


def _use_of(state: State, machine: RentedMachine) -> _Use:
    """Return who uses a machine."""
    if machine.is_cluster:
        name = machine.cluster_made
        life, condition = state.lives.get(name), state.conditions.get(name)
        failed = condition is not None and condition.health is ClusterHealth.FAILED
        by = "" if life is None or life.drained == POOL else life.drained
        since = condition.since if condition is not None and failed else None
        return _Use(bool(state.jobs_on(name)), life is not None, since, by)
    node = state.agents.get(machine.key)
    if node is None:
        return _Use(held=False, known=False)
    lost = None
    if node.status == "lost":
        lost = state.facts.now if node.missed is None else node.missed + state.facts.jumped
    drained = "" if node.drained == POOL else node.drained
    return _Use(bool(node.held), node.status != "unobserved", lost, drained)


def _is_failed(machine: RentedMachine, use: _Use) -> bool:
    """Return whether a whole cluster does not answer. Jobs that wait for it would wait for ever."""
    return machine.is_cluster and use.lost is not None


def _kept_until(why: str, at: int, now: int, *, spare: int, needed: bool) -> int:
    """Return until when a ready machine stays whose time is over: FOREVER while the pool has too few."""
    if at > now or why != EMPTY:
        return at
    if spare <= 0:
        return FOREVER  # until there are more
    return now + NEEDED_FOR if needed else at


def _leaves(
    state: State,
    spec: ClusterSpec,
    pool: Pool,
    machine: RentedMachine,
    use: _Use,
    now: int,
    boots: dict[int, int],
) -> tuple[str, int]:
    """Return why and when a ready machine is given back; FOREVER while it has tasks."""
    if use.lost is not None and (not use.held or _is_failed(machine, use)):
        return LOST_CLUSTER if machine.is_cluster else LOST, use.lost + pool.join_within
    empty = machine.empty_since
    if empty is None or not use.known or use.held:
        return EMPTY, FOREVER
    if use.drained:
        return f"{use.drained} drained it", empty
    at = leaves_at(state, spec, pool, machine, empty, now, boots)
    # If it is new, or was drained and kept, and no job has taken it, it is not drained at once.
    return EMPTY, at if empty > machine.since else max(machine.since + NEEDED_FOR, at)


def empty_for(pool: Pool, billing: Billing, boot: int) -> int:
    """Return the nanoseconds of what is paid in which a machine is empty at its end, at least."""
    if pool.idle is not None:
        return pool.idle
    return boot if billing.step <= boot else min(TO_END, billing.step // 10)


def leaves_at(
    state: State,
    spec: ClusterSpec,
    pool: Pool,
    machine: RentedMachine,
    empty: int,
    now: int,
    boots: dict[int, int] | None = None,
) -> int:
    """Return when a machine that is empty since a time is drained, nanoseconds UTC; `boots` saves lookups."""
    if pool.idle is not None:
        return empty + pool.idle
    # Machines that were ordered together share the offer, and so its boot time.
    boot = None if boots is None else boots.get(id(machine.offer))
    if boot is None:
        boot = state.pool(spec.name).boot(pool, machine.offer.key)
        if boots is not None:
            boots[id(machine.offer)] = boot
    if machine.made_at is None or spec.billing.step <= boot:
        stays = empty + boot
        if machine.made_at is not None:  # the shortest time that is paid
            stays = max(
                stays, machine.made_at + spec.billing.minimum - min(TO_END, spec.billing.minimum // 10)
            )
        return stays
    margin = empty_for(pool, spec.billing, boot)
    paid = machine.made_at + billed(spec.billing, empty - machine.made_at + margin)
    # Another step has begun if the clock jumped, or nobody planned, while the last one ended. It is paid too.
    paid = max(paid, machine.made_at + billed(spec.billing, now - machine.made_at))
    return paid - margin
