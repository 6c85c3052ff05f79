"""What must hold of the state after every step. Checked in tests and with the debug switch; each breach is one line."""

from collections import Counter
from collections.abc import Iterable

from spillover.core import ranges
from spillover.core.appliers.queue import granted, live_of
from spillover.core.events import AnyEvent, GangPlaced, JobPlaced, LeaseMoved, MemberPlaced
from spillover.core.jobs import Ended, Job, Phase, Placed, Queued, Running
from spillover.core.nodes import Node
from spillover.core.state import START, State
from spillover.core.tasks import asked_by
from spillover.core.transitions import TERMINAL
from spillover.model.cluster import ClusterHealth, ClusterLife
from spillover.model.ids import JobId, NodeName, TaskKey, member_id, split_member, task_key
from spillover.model.resources import Resources


class Broken(AssertionError):
    """An invariant does not hold: a bug of ours."""


def check(state: State) -> None:
    """Raise with every breach there is."""
    if found := breaches(state):
        raise Broken("\n".join(found))


def check_placed(state: State, events: Iterable[AnyEvent]) -> None:
    """Raise if a lease was granted beyond a node's capacity.

    Looked at when it is granted, and has its room, as an agent may come back with less than it holds.
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


def _of(asked: Resources, used: Resources) -> Resources:
    """What is used in all, of what a job asks for: of the rest there may be too little, as tasks are bound where others were."""
    names = {name for name, _ in asked.other}
    other = tuple([(name, amount) for name, amount in used.other if name in names])
    return Resources(used.cpu, used.memory, used.gpu, other)


def breaches(state: State) -> list[str]:
    """All breaches, in words."""
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
        *_purses(state),
    ]


def _nodes(state: State) -> list[str]:
    found = []
    agents = [node.key for node in state.nodes.values() if node.is_agent]
    if agents != list(state.agents):
        found.append(f"agents are {agents}, known as such are {list(state.agents)}")
    lost = [node.key for node in state.agents.values() if node.status == "lost"]
    if len(lost) != state.lost:
        found.append(f"{lost} are lost, counted are {state.lost}")
    found += [
        f"incarnation {incarnation} is told to be of {key}, which has another or is gone"
        for incarnation, key in state.registered.items()
        if key not in state.agents or state.agents[key].incarnation != incarnation
    ]
    for node in state.nodes.values():
        total = Resources()
        for asked in node.holding.values():
            total = total + asked
        if total != node.used:
            found.append(f"{node.key} counts {node.used} used, its leases hold {total}")
        found += [f"{node.key} holds {task} twice" for task in node.ahead if task in node.holding]
        if node.drained and node.status == "ready":
            found.append(f"{node.key} is ready although {node.drained} drained it")
        if not node.is_agent:
            found += _external_node(state, node)
        if node.ahead and next(iter(node.ahead.values())).fits(node.capacity - node.used):
            found.append(f"{node.key} has room for {next(iter(node.ahead))}, which waits for it")
    return found


def _clusters(state: State) -> list[str]:
    """Each cluster that is configured has a life, in that order, and one that others run is ready only when it answers."""
    if list(state.lives) != [spec.name for spec in state.facts.clusters]:
        return [f"clusters are {list(state.clusters)}, and lives are told of {list(state.lives)}"]
    return [
        f"cluster {name} is {record.life}, and seen as {health}"
        for name, record in state.lives.items()
        if (health := state.health(name)) is not None
        and record.life is ClusterLife.READY
        and health is not ClusterHealth.READY
    ]


def _external_node(state: State, node: Node) -> list[str]:
    """What must hold of a node of an external cluster."""
    found = []
    if node.ahead or node.queue:
        found.append(f"{node.key} is given prefetched leases, which nobody there would start")
    if node.status == "gone" and not node.holding:
        found.append(f"{node.key} is gone, and nothing of ours is on it")
    if node.status != "gone" and state.health(node.cluster) is None:
        found.append(f"{node.key} is {node.status}, and nobody watches its cluster")
    return found


def _backoffs(state: State) -> list[str]:
    """Jobs are of the kind that backs off from the same clusters."""
    return [
        f"{job.id} backs off from {[each.cluster for each in job.extra.backoffs]}, its kind {job.kind.backing_off}"
        for job in state.jobs.values()
        if tuple([each.cluster for each in job.extra.backoffs]) != job.kind.backing_off
    ]


def _leases(state: State) -> list[str]:
    """What nodes hold is what tasks that go on hold there, each by its attempt and rank."""
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
                there[task_key(job.id, job.attempt, task.rank)] = asked_by(job.kind.shape, task.rank)
        thief = phase.thief if type(phase) is Placed else None
        if thief is not None and (thief == phase.node or job.extra.gang is not None):
            found.append(f"{job.id} at {phase.key} is wanted by {thief}, which cannot have it")
    for key in dict.fromkeys((*state.nodes, *tasks)):
        node = state.nodes.get(key)
        held = {} if node is None else {**node.holding, **node.ahead}
        if held != tasks.get(key, {}):
            found.append(f"{key} holds {held}, tasks that go on there hold {tasks.get(key, {})}")
    return found


def _gang(job: Job) -> list[str]:
    """What must hold of the tasks of a job that has several."""
    gang, phase = job.extra.gang, job.phase
    if gang is None:
        return [f"{job.id} is not told where all of its tasks are"] if _legacy(phase) else []
    found = []
    if [task.rank for task in gang.tasks] != list(range(job.kind.shape.tasks)):
        found.append(f"{job.id} has {job.kind.shape.tasks} tasks, known are {gang.tasks}")
    living = sum(task.lives for task in gang.tasks)
    if living != gang.live:
        found.append(f"{living} tasks of {job.id} go on, {gang.live} are counted")
    found += [
        f"task {task.rank} of {job.id} goes on and is {task.state}, or has ended and is not"
        for task in gang.tasks
        if task.lives is (task.state in TERMINAL)
    ]
    match phase:
        case Placed() | Running():
            if not living:
                found.append(f"{job.id} is {job.state}, and all of its tasks have ended")
            if phase.node != gang.tasks[0].node:
                found.append(f"{job.id} is at {phase.node}, its first task at {gang.tasks[0].node}")
            if (type(phase) is Running) is not any(task.started is not None for task in gang.tasks):
                found.append(f"{job.id} is {job.state}, its tasks are {gang.tasks}")
        case Ended():
            if living:
                found.append(f"{job.id} has ended, and {living} of its tasks have not")
        case _:
            found.append(f"{job.id} is {job.state} and has tasks")
    return found


def _legacy(phase: Phase) -> bool:
    """Whether a phase has what only checkpoints of before say of tasks."""
    return isinstance(phase, Placed | Running) and bool(phase.others)


def _counts(state: State) -> list[str]:
    found = []
    queued = sum(_size(job) for job in state.jobs.values() if type(job.phase) is Queued)
    running = sum(type(job.phase) is Running for job in state.jobs.values())
    if queued != state.queued:
        found.append(f"{queued} jobs are queued, {state.queued} are counted")
    waits = {job.id: granted(state, job) for job in state.jobs.values() if type(job.phase) is Queued}
    due = sum(wait for job, wait in waits.items() if state.jobs[job].due is not None)
    counted = state.facts.tally.granted, state.granted_due
    if (sum(waits.values()), due) != counted:
        found.append(
            f"queued jobs may wait {sum(waits.values())}, of which {due} are due; {counted} are counted"
        )
    partly = [job.id for job in state.jobs.values() if type(job.phase) is Queued and job.partly_due]
    if not state.partly_due.keys() >= set(partly):
        found.append(f"{partly} are partly due, {list(state.partly_due)} are known to be")
    live = Counter[str]()
    for job in state.jobs.values():
        live[job.kind.project] += live_of(job)
    if +live != state.live or live.total() != state.alive:
        found.append(f"{dict(+live)} jobs have not ended, {state.live} ({state.alive}) are counted")
    if running != state.running:
        found.append(f"{running} jobs run, {state.running} are counted")
    return found


def _usage(state: State) -> list[str]:
    """What projects use is what their placed jobs hold."""
    sharing = state.facts.sharing
    held = dict.fromkeys(state.usage, 0)
    for job in state.jobs.values() if sharing is not None else ():
        if isinstance(job.phase, Placed | Running):
            size = sharing.measure.size(job.kind.shape) if sharing is not None else 0
            held[job.kind.project] = held.get(job.kind.project, 0) + size
    holders = sum(using.rate > 0 for using in state.usage.values())
    found = (
        []
        if holders == state.holders
        else [f"{holders} projects hold something, {state.holders} are counted"]
    )
    return found + [
        f"project {project} holds {size}, {state.usage[project].rate if project in state.usage else None} is counted"
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
        found.append(f"live members are {members_of}, known are {state.members}")
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


def _found(state: State) -> list[str]:
    """Jobs are found by their names and by the first letters of their ids, and nothing else is."""
    known = {job.id: (job.kind.project, job.name) for job in state.jobs.values() if "." not in job.id}
    if state.findable == (known, {job: job[:START] for job in known}):
        return []
    return [f"jobs and their names are {known}, what is found by name and by id is {state.findable}"]


def _links(state: State) -> list[str]:
    found = []
    for job in state.jobs.values():
        for wanted in job.extra.after:
            if job.id not in state.waiters.get(wanted.job, ()):
                found.append(f"{job.id} waits for {wanted.job}, which does not know")
            if wanted.job not in state.jobs or state.jobs[wanted.job].state in TERMINAL:
                found.append(f"{job.id} waits for {wanted.job}, which has ended")
    found += [
        f"{waiter} is known to wait for {wanted}, but does not"
        for wanted, waiters in state.waiters.items()
        for waiter in waiters or (JobId("nobody"),)
        if waiter not in state.jobs or wanted not in [each.job for each in state.jobs[waiter].extra.after]
    ]
    found += [
        f"key {key!r} of project {project} names {job}, which is unknown or not of it"
        for project, key, job in state.keys
        if job not in state.jobs or state.jobs[job].kind.project != project
    ]
    return found


def _purses(state: State) -> list[str]:
    """Holds are those of jobs that are rented, and counted in their periods."""
    found = []
    held = dict.fromkeys(state.budget_periods, 0)
    for job in state.jobs.values():
        hold = job.extra.hold
        if hold is None:
            continue
        if not isinstance(job.phase, Placed | Running):
            found.append(f"{job.id} is {job.state} and holds {hold.amount}")
        for key in hold.periods:
            held[key] = held.get(key, 0) + hold.amount
    found += [
        f"purse {key} holds {period.held}, its jobs hold {held[key]}"
        for key, period in state.budget_periods.items()
        if period.held != held[key]
    ]
    found += [
        f"purse {key} is gone, but {amount} is held in it"
        for key, amount in held.items()
        if key not in state.budget_periods
    ]
    return found
