"""Starts a new round of waits when policies or clusters change, which makes all older waits void."""

from spillover.core.appliers.queue import grant, let_rent
from spillover.core.records.jobs import Queued
from spillover.core.state import State


def reset_waits(state: State) -> None:
    """Make the next cycles give every waiting job a new wait, including arrays that are partly rentable.

    A new round makes older waits void, so a million jobs get new waits without a loop over them.
    """
    for each in state.partly_due:
        job = state.jobs.get(each)
        if job is not None and type(job.phase) is Queued and job.partly_due and job.extra.members is not None:
            grant(state, job, None)
            let_rent(state, job, None)
            job.extra.members.due = 0
            state.touch_job(each)
    state.partly_due.clear()
    state.facts.rounds += 1
    state.facts.tally.granted = state.granted_due
    state.touch_facts()
