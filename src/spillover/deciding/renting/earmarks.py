"""Earmarks: machines that are kept for a gang until it starts: those that it was ordered, and those that it gets besides.

Machines of one order become ready one after the other, and others have to become free first. Without earmarks, other jobs
would take the first of them, and the gang would wait for those jobs, or all of its machines would be ordered again. An
earmark ends when the gang leaves the queue, when one of the machines fails, and after a time, so that no machine is kept
for ever.
"""

from typing import Final

from msgspec import Struct

from spillover.core.records.jobs import Queued
from spillover.core.records.machines import RentedMachine
from spillover.core.state import State
from spillover.model.ids import JobId
from spillover.model.pools import MachineId, MachineState, machine_number
from spillover.model.units import FOREVER, MINUTE

KEPT_FOR: Final = MINUTE
"""How long machines are kept for a gang that could start, because all of them are ready, but does not."""


class Earmarks(Struct, frozen=True):
    """The machines that are kept for gangs at a time, whether they are ready or not."""

    gangs: dict[MachineId, JobId]
    """The gang that each machine is kept for."""
    until: int = FOREVER
    """When the first of them is kept no longer, nanoseconds UTC."""


NO_EARMARKS: Final = Earmarks({})


def earmarks_at(state: State, now: int) -> Earmarks:
    """Return the machines that are kept for gangs that wait for them."""
    gangs: dict[MachineId, JobId] = {}
    first = FOREVER
    for group in dict.fromkeys([*state.groups, *state.earmarked]):
        job = state.jobs.get(JobId(group))
        if job is None or type(job.phase) is not Queued or job.due is None:
            continue
        machines = ordered_for(state, job.id)
        if (
            machines
            and machines[0].cluster not in job.kind.backing_off
            and (until := _until(machines, job.id, state)) > now
        ):
            gangs |= dict.fromkeys([each.id for each in machines], job.id)
            first = min(first, until)
    return Earmarks(gangs, first)


def ordered_for(state: State, gang: JobId) -> list[RentedMachine]:
    """Return the machines that the last plan for a gang counts on: those that it ordered, and those that it kept.

    That is none if one of them failed, because the gang cannot start on the others.
    """
    known = [state.machines[each] for each in state.groups.get(gang, ())]
    job = state.jobs.get(gang)
    if job is not None and job.extra.members is not None:
        # On busy ones a member of the array has started.
        known = [each for each in known if not each.is_busy]
    order = [each for each in known if _order_of(each) == _order_of(known[-1])]
    marks = {each: mark for each in state.earmarked.get(gang, ()) if (mark := state.machines[each].earmark)}
    if marks:
        last = max(marks.values(), key=lambda each: each.cycle)
        if not order or order[0].wanted_at <= last.at:  # else it got new machines only since then
            kept = [state.machines[each] for each, mark in marks.items() if mark == last]
            if any(each.notice is not None for each in kept):
                return []
            new = [
                each for each in known if each.wanted_at == last.at and machine_number(each.id) > last.after
            ]
            order = kept + new
    return order if all(each.is_coming or each.state is MachineState.READY for each in order) else []


def _order_of(machine: RentedMachine) -> tuple[int, str]:
    return machine.wanted_at, machine.offer.key


def _until(machines: list[RentedMachine], gang: JobId, state: State) -> int:
    """Return until when the machines of an order are kept, nanoseconds UTC."""
    if all(each.joined_at is not None for each in machines):
        marks = [mark for each in machines if (mark := each.earmark) is not None and mark.gang == gang]
        free = [max(each.at, each.free_by) for each in marks]
        return max([each.joined_at or 0 for each in machines] + free) + KEPT_FOR
    jumped = state.facts.jumped
    return (
        max([each.joins_until(jumped) for each in machines]) + KEPT_FOR
    )  # one that is late by then was given up
