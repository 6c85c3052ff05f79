"""Rounds of waits: what was given before counts no more when policies or clusters are others."""

from spillover.core.appliers.queue import grant, let_rent
from spillover.core.jobs import Queued
from spillover.core.state import State


def wait_anew(state: State) -> None:
    """Let the next cycles give every waiting job a new wait, and all members of an array of which only some may be rented.

    What was given before is void in another round: a million jobs wait anew without being looked at one by one.
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
