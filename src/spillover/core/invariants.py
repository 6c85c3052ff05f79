"""Invariants of the state. Tests and the debug switch check them after every step; each breach is one line."""

from collections import Counter
from collections.abc import Iterable

from spillover.core.appliers.queue import granted, live_of
from spillover.core.events import AnyEvent, GangPlaced, JobPlaced, LeaseMoved, MemberPlaced
from spillover.core.records.jobs import Ended, Job, Phase, Placed, Queued, Running, Waiting
from spillover.core.records.nodes import Node
from spillover.core.state import START, State
from spillover.core.transitions import TERMINAL
from spillover.model import ranges
from spillover.model.cluster import ClusterHealth, ClusterLife
from spillover.model.ids import (
    JobId,
    NodeName,
    TaskKey,
    job_of_task,
    member_id,
    split_member,
    split_task,
    task_key,
)
from spillover.model.inside import cpu_list, cpu_mask
from spillover.model.pools import MachineId
from spillover.model.resources import Resources


class Broken(AssertionError):
    """An invariant does not hold: a bug in Spillover."""


def check(state: State) -> None:
    """Raise Broken with all breaches, if there are any."""
    if found := breaches(state):
        raise Broken("\n".join(found))


def check_placed(state: State, events: Iterable[AnyEvent]) -> None:
    """Raise Broken if a lease was granted beyond the capacity of a node.

    Checked at the time of the grant, because an agent may return later with less capacity than it holds.
    """
    tasks: dict[TaskKey, NodeName]
    for event in events:
        if type(event) is JobPlaced:
            tasks = {task_key(event.job, event.attempt): event.node}
        elif type(event) is MemberPlaced:
            tasks = {task_key(member_id(event.array, event.index), 1): event.node}
        elif type(event) is GangPlaced:
            tasks = {task_key(event.job, event.attempt, rank): node for rank, node in enumerate(event.nodes)}
        elif type(event) is LeaseMoved:
            tasks = {task_key(event.job, event.attempt): event.thief}
        else:
            continue
        for task, name in tasks.items():
            node = state.nodes.get(f"{event.cluster}/{name}")
            if node is None:
                continue
            if task in node.ahead and len(node.ahead) > node.queue:
                raise Broken(
                    f"{node.key} holds {len(node.ahead)} prefetched leases, more than its {node.queue}"
                )
            room = node.capacity if node.foreign is None else node.capacity - node.foreign
            if task in node.holding and not _of(node.holding[task], node.used).fits(room):
                raise Broken(f"{node.key} was given {node.used}, more than its {room}")
            if node.places is not None and node.places < 0:
                raise Broken(f"{node.key} was given more tasks than the {node.tasks} that it takes")
            if type(event) is not LeaseMoved:  # asked for before, when there was time enough
                _check_reserved(state, node, job_of_task(task))


def _check_reserved(state: State, node: Node, job_id: JobId) -> None:
    """Raise Broken if a node was given to a job while an advance reservation keeps it for others."""
    job = state.jobs.get(job_id)
    if job is None:
        return
    for each in state.reservations.values():
        taken = each.cluster == node.cluster and node.name in each.nodes
        if taken and each.start <= state.facts.now < each.end and each.project != job.kind.project:
            raise Broken(f"{node.key} was given to {job_id}, although it is reserved as {each.name}")


def _of(asked: Resources, used: Resources) -> Resources:
    """Return the usage of the resources that a job asks for; bound tasks may exceed the others on external nodes."""
    names = {name for name, _ in asked.other}
    other = tuple([(name, amount) for name, amount in used.other if name in names])
    return Resources(used.cpu, used.memory, used.gpu, other)


def breaches(state: State) -> list[str]:
    """Return all breaches as text."""
    return [
        *_clusters(state),
        *_nodes(state),
        *_leases(state),
        *_backoffs(state),
        *_counts(state),
        *_usage(state),
        *_arrays(state),
        *_found(state),
        *_links(state),
        *_budgets(state),
        *_reservations(state),
        *_machines(state),
        *_machine_indexes(state),
    ]


def _machines(state: State) -> list[str]:
    """Each wish is one machine, machines that are gone hold nothing, and only those that may work have an agent."""
    found = [f"machine {key} has the id {each.id}" for key, each in state.machines.items() if key != each.id]
    made: dict[tuple[str, str], MachineId] = {}
    for each in state.machines.values():
        if not each.is_live:
            if each.holds:
                found.append(f"machine {each.id} is {each.state}, but holds {each.holds}")
            if each.key in state.agents:
                found.append(f"machine {each.id} is {each.state}, but its agent is known")
            if each.is_cluster and each.cluster_made in state.lives:
                found.append(f"cluster {each.id} is known, but {each.state}")
        elif each.provider_id:
            other = made.setdefault((each.cluster, each.provider_id), each.id)
            if other != each.id:
                found.append(f"machines {other} and {each.id} are both {each.provider_id}")
        if each.empty_since is not None and (node := state.agents.get(each.key)) is not None and node.held:
            found.append(f"machine {each.id} is empty, but its agent has {node.held}")
        if each.is_busy and (node := state.agents.get(each.key)) is not None and not node.held:
            found.append(f"machine {each.id} is not empty, but its agent has nothing")
    return found


def _machine_indexes(state: State) -> list[str]:
    """The state knows which machines are live, which of them plans must look at, and which belong together."""
    found: list[str] = []
    live = [each for each in state.machines.values() if each.is_live]
    known = [each for machines in state.live_rented.values() for each in machines]
    if sorted(known) != sorted([each.id for each in live]):
        found.append(f"machines {known} are known as live, but {[each.id for each in live]} are")
    open_ = [each for machines in state.unsettled.values() for each in machines]
    if sorted(open_) != sorted([each.id for each in live if not each.is_busy]):
        found.append(f"machines {open_} are known as not settled, which others are")
    grouped = [(group, each) for group, machines in state.groups.items() for each in machines]
    found += [f"group {group} has machine {each}" for group, each in grouped if each not in state.machines]
    for each in state.machines.values():
        if each.group and not each.is_cluster and each.id not in state.groups.get(each.group, {}):
            found.append(f"machine {each.id} is not in its group {each.group}")
    marked = [(gang, each) for gang, machines in state.earmarked.items() for each in machines]
    known_marks = [
        (each.earmark.gang, each.id) for each in state.machines.values() if each.earmark is not None
    ]
    if sorted(marked) != sorted(known_marks):
        found.append(f"machines {marked} are known as kept for gangs, but {known_marks} are")
    return found


def _reservations(state: State) -> list[str]:
    """No node is reserved twice at a time."""
    known = list(state.reservations.values())
    return [
        f"reservations {one.name} and {other.name} have a node at the same time"
        for at, one in enumerate(known)
        for other in known[at + 1 :]
        if one.overlaps(other)
    ]


def _nodes(state: State) -> list[str]:
    found = []
    agents = [node.key for node in state.nodes.values() if node.is_agent]
    if agents != list(state.agents):
        found.append(f"the nodes of agents are {agents}, but state.agents has {list(state.agents)}")
    lost = [node.key for node in state.agents.values() if node.status == "lost"]
    if len(lost) != state.lost:
        found.append(f"the lost agents are {lost}, but state.lost is {state.lost}")
    found += [
        f"state.registered gives incarnation {incarnation} to {key}, which is gone or has another incarnation"
        for incarnation, key in state.registered.items()
        if key not in state.agents or state.agents[key].incarnation != incarnation
    ]
    for node in state.nodes.values():
        total = Resources()
        for asked in node.holding.values():
            total = total + asked
        if total != node.used:
            found.append(f"{node.key} counts {node.used} as used, but its leases hold {total}")
        found += [
            f"{node.key} holds {task} both with capacity and prefetched"
            for task in node.ahead
            if task in node.holding
        ]
        jobs = node.jobs if node.alone else {}
        if node.alone and (len(jobs) != 1 if node.is_agent else not _has_exclusive(state, jobs)):
            found.append(f"{node.key} belongs to one job alone, but it holds {list(jobs)}")
        found += _granted(state, node)
        if node.drained and node.is_agent and node.status == "ready":
            found.append(f"{node.key} is ready although {node.drained} drained it")
        if not node.is_agent:
            found += _external_node(state, node)
        if node.ahead and next(iter(node.ahead.values())).fits(node.capacity - node.used):
            found.append(
                f"{node.key} has {next(iter(node.ahead))} prefetched, although it has capacity for it now"
            )
    return found


def _has_exclusive(state: State, jobs: Iterable[JobId]) -> bool:
    """Return whether one of these jobs has its nodes for itself."""
    topologies = [state.jobs[job].kind.shape.topology for job in jobs]
    return any(topology is not None and topology.exclusive for topology in topologies)


def _granted(state: State, node: Node) -> list[str]:
    """Check that no core and no GPU of a node is given twice, and that its tasks agree on what they have."""
    found = [
        f"{node.key} gives {task} {own}, but it does not hold it"
        for task, own in node.granted.items()
        if task not in node.holding
    ]
    cpus, gpus = 0, dict[str, TaskKey]()
    for task, own in node.granted.items():
        mask = cpu_mask(own.cpus)
        if cpus & mask:
            found.append(f"{node.key} gives CPUs {cpu_list(cpus & mask)} twice, the second time to {task}")
        cpus |= mask
        for gpu in own.gpus:
            if gpu in gpus:
                found.append(f"{node.key} gives GPU {gpu} to {gpus[gpu]} and {task}")
            gpus[gpu] = task
        job, _, rank = split_task(task)
        if job in state.jobs and state.jobs[job].granted(rank) != own:
            found.append(f"{node.key} gives {task} {own}, but its job has {state.jobs[job].granted(rank)}")
    return found


def _clusters(state: State) -> list[str]:
    """Check that each configured cluster has a lifecycle, and that a ready external cluster is reachable."""
    configured = [spec.name for spec in state.facts.clusters]
    if list(state.lives) != configured:
        return [f"the configured clusters are {configured}, but state.lives has {list(state.lives)}"]
    return [
        f"cluster {name} is {record.life}, but its health is {health}"
        for name, record in state.lives.items()
        if (health := state.health(name)) is not None
        and record.life is ClusterLife.READY
        and health is not ClusterHealth.READY
    ]


def _external_node(state: State, node: Node) -> list[str]:
    """Check a node of an external cluster."""
    found = []
    if node.ahead or node.queue:
        found.append(f"{node.key} has prefetched leases, which only agents can start")
    if node.status == "gone" and not node.holding:
        found.append(f"{node.key} is gone and holds no task, but the state still has it")
    if node.status != "gone" and state.health(node.cluster) is None:
        found.append(f"{node.key} is {node.status}, but cluster {node.cluster} has no health")
    return found


def _backoffs(state: State) -> list[str]:
    """Check that the kind of each job lists the clusters that it backs off from."""
    return [
        f"{job.id} backs off from {[each.cluster for each in job.extra.backoffs]}, but its kind lists {job.kind.backing_off}"
        for job in state.jobs.values()
        if tuple([each.cluster for each in job.extra.backoffs]) != job.kind.backing_off
    ]


def _leases(state: State) -> list[str]:
    """Check that nodes hold exactly the resources of live tasks."""
    found = []
    tasks: dict[str, dict[TaskKey, Resources]] = {}
    for job in state.jobs.values():
        phase = job.phase
        found += _gang(job)
        if not isinstance(phase, Placed | Running):
            continue
        for task in job.tasks:
            if task.lives:
                there = tasks.setdefault(f"{phase.cluster}/{task.node}", {})
                there[task_key(job.id, job.attempt, task.rank)] = job.held_by(task.rank)
        thief = phase.thief if type(phase) is Placed else None
        if thief is not None and (thief == phase.node or job.extra.gang is not None):
            found.append(f"{job.id} on {phase.key} is to move to {thief}, but it cannot")
    for key in dict.fromkeys((*state.nodes, *tasks)):
        node = state.nodes.get(key)
        held = {} if node is None else {**node.holding, **node.ahead}
        if held != tasks.get(key, {}):
            found.append(f"{key} holds {held}, but its live tasks hold {tasks.get(key, {})}")
    return found


def _gang(job: Job) -> list[str]:
    """Check the tasks of a gang."""
    gang, phase = job.extra.gang, job.phase
    if gang is None:
        return [f"{job.id} has several tasks, but no records of them"] if _legacy(phase) else []
    found = []
    shape = job.kind.shape
    if [task.rank for task in gang.tasks] != list(range(job.shape.tasks)):
        found.append(f"{job.id} has {job.shape.tasks} tasks, but its records are {gang.tasks}")
    if not shape.tasks <= len(gang.tasks) <= (shape.most or shape.tasks):
        found.append(f"{job.id} got {len(gang.tasks)} tasks, but asks for {shape.tasks} to {shape.most}")
    living = sum(task.lives for task in gang.tasks)
    if living != gang.live:
        found.append(f"{living} tasks of {job.id} are live, but its gang counts {gang.live}")
    found += [
        f"task {task.rank} of {job.id} is {task.state}, but counts as {'live' if task.lives else 'ended'}"
        for task in gang.tasks
        if task.lives is (task.state in TERMINAL)
    ]
    match phase:
        case Placed() | Running():
            if not living:
                found.append(f"{job.id} is {job.state}, but all of its tasks have ended")
            if phase.node != gang.tasks[0].node:
                found.append(f"{job.id} is on {phase.node}, but its first task is on {gang.tasks[0].node}")
            if (type(phase) is Running) is not any(task.started is not None for task in gang.tasks):
                found.append(f"{job.id} is {job.state}, but its tasks are {gang.tasks}")
        case Ended():
            if living:
                found.append(f"{job.id} has ended, but {living} of its tasks have not")
        case _:
            found.append(f"{job.id} is {job.state}, but has tasks")
    return found


def _legacy(phase: Phase) -> bool:
    """Return whether a phase has data that only old checkpoints have."""
    return isinstance(phase, Placed | Running) and bool(phase.others)


def _counts(state: State) -> list[str]:
    found = []
    queued = sum(_size(job) for job in state.jobs.values() if type(job.phase) is Queued)
    running = sum(type(job.phase) is Running for job in state.jobs.values())
    if queued != state.queued:
        found.append(f"{queued} jobs are queued, but state.queued is {state.queued}")
    waits = {job.id: granted(state, job) for job in state.jobs.values() if type(job.phase) is Queued}
    due = sum(wait for job, wait in waits.items() if state.jobs[job].due is not None)
    counted = state.facts.tally.granted, state.granted_due
    if (sum(waits.values()), due) != counted:
        found.append(
            f"queued jobs may wait {sum(waits.values())} ns, those that may be rented {due} ns, but {counted} are counted"
        )
    partly = [job.id for job in state.jobs.values() if type(job.phase) is Queued and job.partly_due]
    if not state.partly_due.keys() >= set(partly):
        found.append(f"{partly} may be rented in part, but state.partly_due has {list(state.partly_due)}")
    live, live_in = Counter[str](), Counter[tuple[str, str]]()
    for job in state.jobs.values():
        live[job.kind.project] += live_of(job)
        live_in[job.kind.queue, job.user] += live_of(job)
    if +live != state.live or live.total() != state.alive:
        found.append(f"{dict(+live)} jobs have not ended, but {state.live} ({state.alive}) are counted")
    if +live_in != state.live_in:
        found.append(f"{dict(+live_in)} jobs of queues have not ended, but {state.live_in} are counted")
    if running != state.running:
        found.append(f"{running} jobs run, but state.running is {state.running}")
    return found


def _usage(state: State) -> list[str]:
    """Check that the usage rate of projects equals what their placed jobs hold."""
    sharing = state.facts.sharing
    held = dict.fromkeys(state.usage, 0)
    for job in state.jobs.values() if sharing is not None else ():
        if isinstance(job.phase, Placed | Running):
            size = sharing.measure.size(job.shape) if sharing is not None else 0
            held[job.kind.project] = held.get(job.kind.project, 0) + size
    holders = sum(using.rate > 0 for using in state.usage.values())
    found = (
        []
        if holders == state.holders
        else [f"{holders} projects hold capacity, but state.holders is {state.holders}"]
    )
    return found + [
        f"project {project} holds {size}, but {state.usage[project].rate if project in state.usage else None} is counted"
        for project, size in held.items()
        if project not in state.usage or state.usage[project].rate != size
    ]


def _size(job: Job) -> int:
    return 1 if job.extra.members is None else ranges.size(job.extra.members.pending)


def _arrays(state: State) -> list[str]:
    found = []
    live: dict[str, int] = {}
    members_of: dict[JobId, dict[JobId, None]] = {}
    for job in state.jobs.values():
        member = split_member(job.id)
        if member is not None and job.state not in TERMINAL:
            live[member[0]] = live.get(member[0], 0) + 1
            members_of.setdefault(member[0], {})[job.id] = None
    if members_of != state.members:
        found.append(f"the live members are {members_of}, but state.members has {state.members}")
    found += _waiting_members(state, members_of)
    for job in state.jobs.values():
        members = job.extra.members
        if members is None:
            continue
        if members.live != live.get(job.id, 0):
            found.append(f"array {job.id} counts {members.live} live members, but has {live.get(job.id, 0)}")
        known = ranges.size(members.unplaced) + members.live + sum(members.ended.values())
        if known != members.size:
            found.append(f"array {job.id} has {members.size} members, but its counts add up to {known}")
        if type(job.phase) is Queued and members.throttled:
            found.append(f"array {job.id} is queued, but has {members.live} of {members.most} live members")
        if type(job.phase) is Queued and not members.pending:
            found.append(f"array {job.id} is queued, but has no pending members")
        if ranges.common(members.pending, members.blocked):
            found.append(f"members of {job.id} are pending and wait for others: {members.after}")
        if type(job.phase) is Ended and (members.live or members.unplaced):
            found.append(f"array {job.id} has ended, but some of its members have not")
    return found


def _waiting_members(state: State, members_of: dict[JobId, dict[JobId, None]]) -> list[str]:
    waits = {
        array: {each: None for each in own if type(state.jobs[each].phase) is Waiting}
        for array, own in members_of.items()
    }
    waiting = {array: own for array, own in waits.items() if own}
    if waiting == state.waiting_members:
        return []
    return [f"the waiting members are {waiting}, but state.waiting_members has {state.waiting_members}"]


def _found(state: State) -> list[str]:
    """Check that the indexes of names and ids contain exactly the jobs of the state."""
    known = {job.id: (job.kind.project, job.name) for job in state.jobs.values() if "." not in job.id}
    if state.findable == (known, {job: job[:START] for job in known}):
        return []
    return [f"jobs and their names are {known}, but state.findable is {state.findable}"]


def _links(state: State) -> list[str]:
    found = []
    for job in state.jobs.values():
        for wanted in job.extra.after:
            if job.id not in state.waiters.get(wanted.job, ()):
                found.append(f"{job.id} waits for {wanted.job}, but is not among its waiters")
            if wanted.job not in state.jobs or state.jobs[wanted.job].state in TERMINAL:
                found.append(f"{job.id} waits for {wanted.job}, which has ended")
    waits = {
        (each.job, job.id): ranges.size(each.members)
        for job in state.jobs.values()
        for each in (() if job.extra.members is None else job.extra.members.after)
    }
    known = {(wanted, waiter) for wanted, waiters in state.member_waiters.items() for waiter in waiters}
    if set(waits) != known or not all(waits.values()):
        found.append(f"members of arrays wait for {waits}, but state.member_waiters has {known}")
    found += [
        f"{wanted} is the array of members that {waiter} waits for, but has ended"
        for wanted, waiter in waits
        if wanted not in state.jobs or state.jobs[wanted].state in TERMINAL
    ]
    found += [
        f"{waiter} is a waiter of {wanted}, but does not wait for it"
        for wanted, waiters in state.waiters.items()
        for waiter in waiters or (JobId("nobody"),)
        if waiter not in state.jobs or wanted not in [each.job for each in state.jobs[waiter].extra.after]
    ]
    found += [
        f"key {key!r} of project {project} names {job}, which does not exist or belongs to another project"
        for project, key, job in state.keys
        if job not in state.jobs or state.jobs[job].kind.project != project
    ]
    return found


def _budgets(state: State) -> list[str]:
    """Check that only rented jobs have cost holds, and that budget periods count them."""
    found = []
    held = dict.fromkeys(state.budget_periods, 0)
    for job in state.jobs.values():
        hold = job.extra.hold
        if hold is None:
            continue
        if not isinstance(job.phase, Placed | Running):
            found.append(f"{job.id} is {job.state}, but holds {hold.amount}")
        for key in hold.periods:
            held[key] = held.get(key, 0) + hold.amount
    for machine in state.machines.values():
        for each in machine.holds:
            held[each.period.key] = held.get(each.period.key, 0) + each.amount
    found += [
        f"budget period {key} counts {period.held} as held, but its jobs and machines hold {held[key]}"
        for key, period in state.budget_periods.items()
        if period.held != held[key]
    ]
    found += [
        f"budget period {key} is gone, but jobs or machines hold {amount} in it"
        for key, amount in held.items()
        if key not in state.budget_periods
    ]
    return found
