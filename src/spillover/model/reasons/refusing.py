"""Reasons why a cluster takes no such job: its size, its needs, its rules, or limits of the cluster."""

from spillover.model.ids import ClusterName
from spillover.model.reasons.base import Never, NotNow
from spillover.model.resources import Resources, format_amount
from spillover.model.units import format_cpu, format_memory, format_moment


class TooBig(Never, frozen=True, tag="too_big"):
    """It is larger than any machine."""

    asked: Resources
    largest: Resources
    """The most that any machine has of each resource."""

    def __str__(self) -> str:
        over = self.asked.exceeding(self.largest)
        if not over:
            return f"requests {self.asked} per task; no machine has all of that"
        requested = ", ".join(format_amount(name, asked) for name, asked, _ in over)
        parts = [f"requests {requested} per task"]
        if some := [format_amount(name, most) for name, _, most in over if most]:
            parts.append(f"the largest machine has {', '.join(some)}")
        if none := [_NO_MACHINE.get(name, name) for name, _, most in over if not most]:
            parts.append(f"no machine has {' or '.join(none)}")
        return "; ".join(parts)


_NO_MACHINE = {"cpu": "CPUs", "memory": "memory", "gpu": "a GPU"}


class NotOffered(Never, frozen=True, tag="not_offered"):
    """No machine offers what it needs."""

    words: tuple[str, ...]
    because: str = ""
    """Why an agent does not offer it, if an agent reports that."""

    def __str__(self) -> str:
        return f"no cluster offers {self.missing}"

    @property
    def missing(self) -> str:
        """The words, and why an agent does not offer them."""
        return ", ".join(self.words) + (f": {self.because}" if self.because else "")


class GangUnsupported(Never, frozen=True, tag="gang_unsupported"):
    """No cluster runs gangs."""

    tasks: int

    def __str__(self) -> str:
        return f"no cluster can run a gang of {self.tasks} task{'' if self.tasks == 1 else 's'}"


class NoSuchLevel(Never, frozen=True, tag="no_such_level"):
    """Its `within` or `spread` names a level that the cluster does not have, or that no cluster has."""

    level: str
    known: tuple[str, ...]
    """The levels that there are, the highest first."""

    def __str__(self) -> str:
        return f"there is no level {self.level}; the levels are {', '.join(self.known)}"


class GangTooBig(Never, frozen=True, tag="gang_too_big"):
    """All of its tasks together are more than a cluster, or one part of it, could hold if nothing else ran there."""

    tasks: int
    most: int
    """The most tasks of this kind that fit."""
    cluster: ClusterName
    within: str = ""
    """The level in one vertex of which all tasks must be; empty is the whole cluster."""
    alike: bool = True
    """Whether all tasks ask for the same."""
    spread: str = ""
    """The level over which the tasks must be spread; empty is none."""
    reservation: str = ""
    """The advance reservation that it names; empty is none."""

    def __str__(self) -> str:
        where = f"one {self.within} of {self.cluster}" if self.within else self.cluster
        if self.reservation:
            where = f"reservation {self.reservation} on {where}"
        tasks = f"{self.tasks} such tasks" if self.alike else f"{self.tasks} tasks"
        spread = f", spread over each {self.spread}" if self.spread else ""
        return f"requests {tasks} at once{spread}; {where} can hold at most {self.most}"


class TooBigInside(Never, frozen=True, tag="too_big_inside"):
    """No machine has as much in one socket or NUMA node, or as many linked GPUs, as its tasks ask for."""

    resources: Resources
    pin: str
    """`core`, `numa` or `socket`; empty if it asks for a link only."""
    link: str
    """The kind of link between its GPUs; empty if it asks for none."""
    cpus: int = 0
    """The most CPUs in one such part of a machine; 0 if no machine reports its cores."""
    gpus: int = 0
    """The most GPUs there."""
    links: tuple[str, ...] = ()
    """The kinds of links that machines report."""
    memory: int = 0
    """The most memory of one such part, in bytes; 0 if that is not what is too little."""

    def __str__(self) -> str:
        if self.link and not self.gpus:
            known = f"; they have {', '.join(self.links)}" if self.links else ""
            return f"no machine reports GPUs with the link {self.link}{known}"
        if self.pin and not self.cpus:
            return "no machine reports its cores, which `pin` needs"
        part = {"numa": "one NUMA node", "socket": "one socket"}.get(self.pin, "one machine")
        linked = f" with {self.link}" if self.link else ""
        most = f"{self.cpus} CPU" if self.pin else ""
        if self.resources.gpu:
            most += f"{' and ' if most else ''}{self.gpus} GPU{linked}"
        if self.memory:
            most = f"{format_memory(self.memory)} of memory"
        return f"requests {self.resources}{linked} in {part}; the largest has {most}"


class BurstRefused(Never, frozen=True, tag="burst_refused"):
    """Its own `burst` rules out this cluster, or all clusters that could run it."""

    burst: str

    def __str__(self) -> str:
        kind = "rented" if self.burst == "never" else "owned"
        return f"`burst: {self.burst}` rules out {kind} clusters"


class NotWhere(Never, frozen=True, tag="not_where"):
    """Its own `where` rules out this cluster, or all clusters that could run it."""

    asked: tuple[str, ...]
    """What `where` asks for and the clusters are not, such as `region: north`."""
    unknown: tuple[str, ...] = ()
    """The clusters that it names, if none of them exists."""

    def __str__(self) -> str:
        if self.unknown:
            return f"there is no cluster named {' or '.join(self.unknown)}"
        return f"ruled out by its `where`: {'; '.join(self.asked)}"


class CannotRun(Never, frozen=True, tag="cannot_run"):
    """The cluster does not support this kind of work: plain commands, whole pods, Python calls, files, groups, or rules for tasks."""

    what: str
    """`command`, `constraints`, `exclusive`, `files`, `groups`, `pin`, `pods`, `python`, `secrets`, `signals`, `spread`,
    `state`, `stdin`, `streams`, `task_rules` or `terminal`.
    """

    def __str__(self) -> str:
        return _CANNOT.get(self.what, f"no cluster can run jobs of kind {self.what}")


_CANNOT = {
    "command": "a plain command needs a default image there, and none is configured; give the job a `container`",
    "constraints": "`constraints` do not work there",
    "exclusive": "`exclusive` does not work there",
    "groups": "`groups` work on agents only",
    "pin": "`pin` and `gpu_link` work on agents only",
    "spread": "`spread` with more than one task in a vertex works on agents only",
    "files": "`inputs` and `outputs` work on agents only",
    "pods": "its manifest needs a Kubernetes cluster: it has several pods or containers, "
    "init containers, or variables or volumes from other objects",
    "python": "Python calls run on agents only",
    "secrets": "`secrets` work on agents only",
    "signals": "`signal_before` works on agents only",
    "srun": "`srun` in a script works on agents only",
    "stdin": "`stdin` works on agents only",
    "state": "`keep_state` works on agents only",
    "streams": "`stdout` and `stderr` work on agents only",
    "terminal": "a terminal (`--pty`) works on agents only",
    "task_rules": "`on_task_failure` and `on_task_success` work on agents only",
}


class NoSuchNode(Never, frozen=True, tag="no_such_node"):
    """No node has the labels, the name or the properties that it asks for."""

    asked: str
    """What the closest nodes lack, such as `disk=ssd`."""

    def __str__(self) -> str:
        return f"no node matches {self.asked}"


class Tainted(Never, frozen=True, tag="tainted"):
    """Every node that it asks for has a taint that its pods do not tolerate."""

    taints: tuple[str, ...]
    """Each as `KEY=VALUE:EFFECT`."""

    def __str__(self) -> str:
        return f"it does not tolerate the taints of the nodes: {', '.join(self.taints)}"


class AtLimit(NotNow, frozen=True, tag="at_limit"):
    """Our jobs use as much of a cluster as its limits allow, or its nodes take no more tasks."""

    cluster: ClusterName
    what: str
    """For example `jobs` or `cpu`; `tasks` is the task limit of nodes that have enough of everything else."""
    used: int
    """By present jobs, in thousandths of a CPU, bytes or a count."""
    most: int

    def __str__(self) -> str:
        used, most = _amount(self.what, self.used), _amount(self.what, self.most)
        if self.what == "tasks":
            return f"nodes of {self.cluster} with room for it take at most {most} ({used} there)"
        return f"{self.cluster} is at its limit of {most} ({used} in use)"


class OverLimit(Never, frozen=True, tag="over_limit"):
    """All of its tasks together ask for more than the limits of a cluster ever allow."""

    cluster: ClusterName
    what: str
    asked: int
    """Thousandths of a CPU, bytes or a count."""
    most: int

    def __str__(self) -> str:
        asked, most = _amount(self.what, self.asked), _amount(self.what, self.most)
        return f"requests {asked} in total; the limit of {self.cluster} is {most}"


class QueueAtLimit(NotNow, frozen=True, tag="queue_at_limit"):
    """Jobs of its queue run or hold as much as the limits of the queue allow."""

    queue: str
    what: str
    """`jobs`, `cpu`, `memory` or `gpu`."""
    used: int
    """By placed and running jobs, in thousandths of a CPU, bytes or a count."""
    most: int
    asked: int
    """By this job."""
    user: str = ""
    """The user whose jobs count; empty if those of all do."""

    def __str__(self) -> str:
        of = f" of {self.user}" if self.user else ""
        if self.what == "jobs":
            return f"queue {self.queue}: {self.used} of {self.most} running jobs{of}"
        used, most = _bare(self.what, self.used), _amount(self.what, self.most)
        return f"queue {self.queue}: jobs{of} use {used} of {most}, and it asks for {_bare(self.what, self.asked)}"


class QueueOverLimit(Never, frozen=True, tag="queue_over_limit"):
    """All of its tasks together ask for more than the limits of its queue ever allow."""

    queue: str
    what: str
    asked: int
    """Thousandths of a CPU, bytes or a count."""
    most: int
    user: str = ""
    """The user whose jobs count; empty if those of all do."""

    def __str__(self) -> str:
        asked, most = _amount(self.what, self.asked), _amount(self.what, self.most)
        return f"requests {asked} in total; queue {self.queue} runs {most} {'for each user' if self.user else 'in all'}"


def _bare(what: str, amount: int) -> str:
    """Format an amount without its name."""
    return format_cpu(amount) if what == "cpu" else format_memory(amount) if what == "memory" else str(amount)


def _amount(what: str, amount: int) -> str:
    """Format an amount with its name."""
    if what in {"jobs", "tasks"}:
        return f"{amount} {what if amount != 1 else what.removesuffix('s')}"
    return format_amount(what, amount)


class TooLate(Never, frozen=True, tag="too_late"):
    """It is not expected to end by its deadline there."""

    deadline: int
    """Nanoseconds UTC."""
    finish: int
    """Its expected end if it were placed now, nanoseconds UTC."""

    def __str__(self) -> str:
        return f"if started now, it would end at about {format_moment(self.finish)}, after its deadline {format_moment(self.deadline)}"


def text_of_cluster(reason: object) -> str:
    """Return a reason as the answer of one cluster, whose name stands beside it."""
    match reason:
        case NotOffered():
            return f"does not offer {reason.missing}"
        case GangUnsupported():
            return f"cannot run a gang of {reason.tasks} tasks"
    return str(reason)
