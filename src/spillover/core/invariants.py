"""What must hold of the state after every step. Checked in tests and with the debug switch; each breach is one line."""

from spillover.core import ranges
from spillover.core.state import Ended, Job, Placed, Queued, Running, State
from spillover.core.transitions import TERMINAL
from spillover.model.ids import split_member
from spillover.model.resources import Resources


class Broken(AssertionError):
    """An invariant does not hold: a bug of ours."""


def check(state: State) -> None:
    """Raise with every breach there is."""
    if found := breaches(state):
        raise Broken("\n".join(found))


def breaches(state: State) -> list[str]:
    """All breaches, in words."""
    return [*_nodes(state), *_leases(state), *_counts(state), *_arrays(state), *_links(state)]


def _nodes(state: State) -> list[str]:
    found = []
    for node in state.nodes.values():
        total = Resources()
        for asked in node.holding.values():
            total = total + asked
        if total != node.used:
            found.append(f"{node.key} counts {node.used} used, its leases hold {total}")
        if node.holding and not node.used.fits(node.capacity):
            found.append(f"{node.key} holds {node.used}, more than its {node.capacity}")
        found += [
            f"{node.key} holds a lease of {job}, which is unknown"
            for job in node.holding
            if job not in state.jobs
        ]
        found += [f"{node.key} holds {job} twice" for job in node.ahead if job in node.holding]
    return found


def _leases(state: State) -> list[str]:
    found = []
    for job in state.jobs.values():
        where = [node.key for node in state.nodes.values() if job.id in node.holding or job.id in node.ahead]
        phase = job.phase
        placed = [f"{phase.cluster}/{phase.node}"] if isinstance(phase, Placed | Running) else []
        if where != placed:
            found.append(f"{job.id} is {job.state} at {placed}, but leases of it are at {where}")
    return found


def _counts(state: State) -> list[str]:
    found = []
    queued = sum(_size(job) for job in state.jobs.values() if type(job.phase) is Queued)
    running = sum(type(job.phase) is Running for job in state.jobs.values())
    if queued != state.queued:
        found.append(f"{queued} jobs are queued, {state.queued} are counted")
    if running != state.running:
        found.append(f"{running} jobs run, {state.running} are counted")
    return found


def _size(job: Job) -> int:
    return 1 if job.extra.members is None else ranges.size(job.extra.members.pending)


def _arrays(state: State) -> list[str]:
    found = []
    live: dict[str, int] = {}
    for job in state.jobs.values():
        member = split_member(job.id)
        if member is not None and job.state not in TERMINAL:
            live[member[0]] = live.get(member[0], 0) + 1
    for job in state.jobs.values():
        members = job.extra.members
        if members is None:
            continue
        if members.live != live.get(job.id, 0):
            found.append(
                f"array {job.id} counts {members.live} live members, there are {live.get(job.id, 0)}"
            )
        known = ranges.size(members.pending) + members.live + sum(members.ended.values())
        if known != members.size:
            found.append(f"array {job.id} has {members.size} members, {known} are accounted for")
        if type(job.phase) is Ended and (members.live or members.pending):
            found.append(f"array {job.id} ended with members that have not")
    return found


def _links(state: State) -> list[str]:
    found = []
    for job in state.jobs.values():
        for wanted in job.extra.after:
            if job.id not in state.waiters.get(wanted.job, ()):
                found.append(f"{job.id} waits for {wanted.job}, which does not know")
            if wanted.job not in state.jobs or state.jobs[wanted.job].state in TERMINAL:
                found.append(f"{job.id} waits for {wanted.job}, which has ended")
    found += [
        f"key {key!r} names {job}, which is unknown"
        for key, job in state.keys.items()
        if job not in state.jobs
    ]
    return found
