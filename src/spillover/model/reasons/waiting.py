"""Reasons why a held or queued job does not start yet."""

from itertools import zip_longest

from spillover.model.ids import ClusterName, JobId, NodeName
from spillover.model.reasons.base import NotNow
from spillover.model.resources import Resources
from spillover.model.units import (
    format_cpu,
    format_duration,
    format_memory,
    format_moment,
)


class Held(NotNow, frozen=True, tag="held"):
    """A person holds it."""

    by: str

    def __str__(self) -> str:
        return f"held by {self.by}; release it with `spill release`"


class _After(NotNow, frozen=True):
    """It waits for other jobs."""

    jobs: tuple[JobId, ...]
    names: tuple[str, ...] = ()
    """The name of each job, in the same order, empty where it is unknown; () if they are not to be shown."""
    succeed: bool = False
    """Whether all of them must succeed; if not, any end of some of them is enough."""
    fail: bool = False
    """Whether all of them must fail."""

    def __str__(self) -> str:
        return f"waits for {self._named} to {self._end}"

    @property
    def _named(self) -> str:
        """The jobs in words."""
        named = zip_longest(self.jobs[:3], self.names[:3], fillvalue="")
        first = ", ".join(f"{name} ({job})" if name not in {"", job} else job for job, name in named)
        return f"{first} and {len(self.jobs) - 3} more" if len(self.jobs) > 3 else first

    @property
    def _end(self) -> str:
        """What they must do, in words."""
        return "succeed" if self.succeed else "fail" if self.fail else "end"


class AfterJobs(_After, frozen=True, tag="after"):
    """It waits for other jobs to end."""


class AfterArrays(_After, frozen=True, tag="after_members"):
    """Each of its members waits for the member with its index of other arrays to end."""

    def __str__(self) -> str:
        return f"each of its members waits for that of {self._named} with its index to {self._end}"


class ArrayThrottled(NotNow, frozen=True, tag="array_throttled"):
    """As many members of its array are placed or running as may be at a time."""

    most: int

    def __str__(self) -> str:
        some = "1 member" if self.most == 1 else f"{self.most} members"
        return f"the array runs at most {some} at a time; the next one starts when one ends"


class NotBefore(NotNow, frozen=True, tag="not_before"):
    """It asked to start later."""

    at: int

    def __str__(self) -> str:
        return f"may not start before {format_moment(self.at)}"


class Fresh(NotNow, frozen=True, tag="fresh"):
    """No cycle has admitted it yet."""

    def __str__(self) -> str:
        return "was just submitted; the next cycle considers it"


class NoRoom(NotNow, frozen=True, tag="no_room"):
    """Machines that could run it are busy."""

    resources: Resources
    """What must become free on one machine."""
    clusters: tuple[ClusterName, ...]
    """Clusters where that would help, in the order in which they are tried."""

    def __str__(self) -> str:
        return f"waits for {self.resources} on one machine of {' or '.join(self.clusters)}"


class NoRoomTogether(NotNow, frozen=True, tag="no_room_together"):
    """Machines have room for some of its tasks, but not for all that must start together."""

    cluster: ClusterName
    tasks: int
    fitting: int
    """The most tasks that fit now where they must be."""
    within: str = ""
    """The level in one vertex of which all tasks must be; empty is the whole cluster."""
    most: int = 0
    """The most tasks that it takes, if its size is elastic; 0 if it is fixed."""

    def __str__(self) -> str:
        where = f"in one {self.within} of {self.cluster}" if self.within else f"on {self.cluster}"
        tasks = f"{self.tasks} to {self.most} tasks" if self.most else f"{self.tasks} tasks"
        few = {0: "none fits now", 1: "at most 1 fits now"}
        fit = few.get(self.fitting, f"at most {self.fitting} fit now")
        return f"waits for room for {tasks} {where}; {fit}"


class NoEmptyNode(NotNow, frozen=True, tag="no_empty_node"):
    """It asks for nodes of its own with `exclusive`, and too few nodes are empty."""

    cluster: ClusterName
    tasks: int
    fitting: int
    """How many of its tasks fit on the nodes that are empty now."""

    def __str__(self) -> str:
        many = "1 task" if self.tasks == 1 else f"{self.tasks} tasks"
        return f"waits for empty nodes of {self.cluster} for {many}; those that are empty now take {self.fitting}"


class AgentsOutdated(NotNow, frozen=True, tag="agents_outdated"):
    """The cluster is large enough for the gang, but agents before release 0.5 cannot run tasks of gangs."""

    cluster: ClusterName
    tasks: int
    most: int
    """How many of its tasks the other agents could run together."""
    nodes: tuple[NodeName, ...]
    """The nodes with such agents."""

    def __str__(self) -> str:
        more = len(self.nodes) - 3
        listed = ", ".join(self.nodes[:3]) + (f" and {more} more" if more > 0 else "")
        agents = f"agent {listed} is" if len(self.nodes) == 1 else f"agents {listed} are"
        return (
            f"{agents} of a release before 0.5, which cannot run gangs; the others of {self.cluster} could run "
            f"{self.most} of its {self.tasks} tasks; upgrade them"
        )


class NoRoomInside(NotNow, frozen=True, tag="no_room_inside"):
    """A machine has enough free, but not in one socket or NUMA node, or not with the link, that its tasks ask for."""

    cluster: ClusterName
    resources: Resources
    pin: str
    """`core`, `numa` or `socket`; empty if it asks for a link only."""
    link: str
    """The kind of link between its GPUs; empty if it asks for none."""
    node: NodeName
    """The machine that comes closest."""
    cpu: int
    """What is free there, in thousandths."""
    gpu: int
    parts: int
    """In how many sockets, NUMA nodes or groups of linked GPUs that is."""
    memory: int | None = None
    """The most memory that is free in one that could hold a task but for that, in bytes; None if memory is not missing."""

    def __str__(self) -> str:
        kind = f"{self.link} group" if self.link and self.pin in {"", "core"} else _PARTS[self.pin]
        own = f" with {self.link}" if self.link else ""
        where = f"one {kind}" if self.pin not in {"", "core"} else "one node"
        if self.memory is not None:
            free = f"a {kind} of {self.node} with enough CPUs has at most {format_memory(max(0, self.memory))} free"
            return f"waits for {self.resources}{own} in {where} of {self.cluster}; {free}"
        free = f"{self.gpu} free GPUs" if self.link or not self.cpu else f"{format_cpu(self.cpu)} free CPUs"
        if not self.link and self.gpu:
            free += f" and {self.gpu} free GPUs"
        spread = f"are on {self.parts} {kind}s"
        return f"waits for {self.resources}{own} in {where} of {self.cluster}; the {free} of {self.node} {spread}"


_PARTS = {"": "node", "core": "node", "numa": "NUMA node", "socket": "socket"}


class Reserved(NotNow, frozen=True, tag="reserved"):
    """Free nodes are reserved for others or for maintenance, and it would not end before that begins."""

    name: str
    """The advance reservation."""
    cluster: ClusterName
    start: int
    """Nanoseconds UTC."""
    end: int
    """Nanoseconds UTC."""
    project: str = ""
    """The project that may use them; empty for maintenance."""
    longest: int = 0
    """The longest walltime with which it could start now, in nanoseconds; 0 if it could not."""

    def __str__(self) -> str:
        whom = f"project {self.project}" if self.project else "maintenance"
        text = f"free nodes of {self.cluster} are reserved for {whom} ({self.name})"
        if self.longest <= 0:
            return f"{text} until {format_moment(self.end)}"
        span = f"from {format_moment(self.start)} to {format_moment(self.end)}"
        return f"{text} {span}; with a walltime of at most {format_duration(self.longest)} it could start now"


class ReservationClosed(NotNow, frozen=True, tag="reservation_closed"):
    """It names an advance reservation that has not begun, that leaves it too little time, or that is over."""

    name: str
    start: int | None
    """Nanoseconds UTC; None if the reservation has ended or was cancelled."""
    end: int | None
    """Nanoseconds UTC; None if the reservation has ended or was cancelled."""
    begun: bool = False

    def __str__(self) -> str:
        if self.start is None or self.end is None:
            return (
                f"its reservation {self.name} has ended or was cancelled; cancel the job and submit it again"
            )
        if not self.begun:
            return f"its reservation {self.name} begins at {format_moment(self.start)}"
        return f"its reservation {self.name} ends at {format_moment(self.end)}, before its walltime would be over"


class BehindOthers(NotNow, frozen=True, tag="behind"):
    """The queue order is strict, and a job ahead of it does not fit."""

    head: JobId

    def __str__(self) -> str:
        return f"the queue order is strict, and {self.head} ahead of it does not fit yet"


class KeptFor(NotNow, frozen=True, tag="kept_for"):
    """Free capacity is reserved for a job ahead of it, which will need it before this job would end."""

    job: JobId

    def __str__(self) -> str:
        return f"free capacity is reserved for {self.job}, which is ahead of it"


class BeyondDepth(NotNow, frozen=True, tag="beyond_depth"):
    """More kinds of jobs are ahead of it than a cycle tries."""

    depth: int

    def __str__(self) -> str:
        return f"a cycle considers {self.depth} kinds of jobs, and more are ahead of it"


class NotObserved(NotNow, frozen=True, tag="not_observed"):
    """The clusters that could run it have not connected since the server started."""

    clusters: tuple[ClusterName, ...]

    def __str__(self) -> str:
        return f"waits for an agent of {' or '.join(self.clusters)} to connect"


class AllDrained(NotNow, frozen=True, tag="all_drained"):
    """All connected agents that could run it are drained."""

    clusters: tuple[ClusterName, ...]
    agents: tuple[str, ...]
    """Each as CLUSTER/NAME."""
    why: tuple[str, ...] = ()
    """Why each of them was drained, as people said; empty texts for those without a reason."""

    def __str__(self) -> str:
        named, more = " ".join(self.agents[:3]), len(self.agents) - 3
        said = [*self.why[:3], "", "", ""]
        told = [f"{name}: {why}" if why else name for name, why in zip(self.agents[:3], said, strict=False)]
        listed = ", ".join(told) + (f" and {more} more" if more > 0 else "")
        return (
            f"all connected agents of {' or '.join(self.clusters)} that could run it are drained ({listed}); "
            f"resume them with `spill agents resume {named}`"
        )


class WaitNotOver(NotNow, frozen=True, tag="wait_not_over"):
    """Only rented clusters could run it, and its wait for owned capacity is not over."""

    clusters: tuple[ClusterName, ...]
    at: int
    """When it may be rented, nanoseconds UTC."""

    def __str__(self) -> str:
        return f"only {' or '.join(self.clusters)} could run it, and it may be rented from {format_moment(self.at)}"


class PolicyFailed(NotNow, frozen=True, tag="policy_failed"):
    """The wait policy failed or was disabled, so the job is not rented and waits for owned capacity."""

    policy: str
    """For example `wait.half`."""
    error: str
    """The error, in one line."""

    def __str__(self) -> str:
        return (
            f"it is not rented and waits for owned capacity because policy {self.policy} failed: {self.error}"
        )
