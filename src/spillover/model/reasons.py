"""Why a job is where it is, as data. "Not now" and "never" are different types.

A reason is shown as `{code, message, never}`; its code is the tag of its type, so programs can rely on it.
"""

from functools import cache
from typing import ClassVar, Final, TypeAlias

from msgspec import Struct

from spillover.model.cluster import Health
from spillover.model.ids import ClusterName, JobId
from spillover.model.job import WALLTIME_SLACK
from spillover.model.resources import Resources
from spillover.model.units import (
    FOREVER,
    format_cpu,
    format_duration,
    format_memory,
    format_moment,
    format_money,
)


class NotNow(Struct, frozen=True, tag_field="code"):
    """The job will run once something changes that can change by itself."""

    never: ClassVar[bool] = False


class Never(Struct, frozen=True, tag_field="code"):
    """The job will never run, as things are."""

    never: ClassVar[bool] = True


class Held(NotNow, frozen=True, tag="held"):
    """Somebody holds it."""

    by: str

    def __str__(self) -> str:
        return f"held by {self.by}; `spill release` lets it go"


class AfterJobs(NotNow, frozen=True, tag="after"):
    """It waits for other jobs to end."""

    jobs: tuple[JobId, ...]

    def __str__(self) -> str:
        more = f" and {len(self.jobs) - 3} more" if len(self.jobs) > 3 else ""
        return f"waits for {', '.join(self.jobs[:3])}{more} to end"


class NotBefore(NotNow, frozen=True, tag="not_before"):
    """It asked to start later."""

    at: int

    def __str__(self) -> str:
        return f"may not start before {format_moment(self.at)}"


class Fresh(NotNow, frozen=True, tag="fresh"):
    """No cycle has looked at it yet."""

    def __str__(self) -> str:
        return "was just submitted; the next cycle looks at it"


class NoRoom(NotNow, frozen=True, tag="no_room"):
    """Machines that could run it are busy."""

    resources: Resources
    """What has to become free on one machine."""
    clusters: tuple[ClusterName, ...]
    """Where that would help, in the order they are tried."""

    def __str__(self) -> str:
        return f"waits for {self.resources} on one machine of {' or '.join(self.clusters)}"


class BehindOthers(NotNow, frozen=True, tag="behind"):
    """The order is strict and a job ahead of it does not fit."""

    head: JobId

    def __str__(self) -> str:
        return f"the order is strict and {self.head}, ahead of it, does not fit yet"


class KeptFor(NotNow, frozen=True, tag="kept_for"):
    """There is room, but a job ahead of it that does not fit yet will need it before this one would end."""

    job: JobId

    def __str__(self) -> str:
        return f"what is free is kept for {self.job}, which is ahead of it"


class BeyondDepth(NotNow, frozen=True, tag="beyond_depth"):
    """More kinds of jobs are ahead of it than a cycle tries."""

    depth: int

    def __str__(self) -> str:
        return f"a cycle tries {self.depth} kinds of jobs, and more are ahead of it"


class NotObserved(NotNow, frozen=True, tag="not_observed"):
    """The clusters that could run it have not been heard from since the server started."""

    clusters: tuple[ClusterName, ...]

    def __str__(self) -> str:
        return f"waits for an agent of {' or '.join(self.clusters)} to connect"


class AllDrained(NotNow, frozen=True, tag="all_drained"):
    """Somebody drained every connected agent that could run it."""

    clusters: tuple[ClusterName, ...]
    agents: tuple[str, ...]
    """Each as CLUSTER/NAME."""

    def __str__(self) -> str:
        named, more = " ".join(self.agents[:3]), len(self.agents) - 3
        listed = named.replace(" ", ", ") + (f" and {more} more" if more > 0 else "")
        return (
            f"all connected agents of {' or '.join(self.clusters)} that could run it are drained ({listed}); "
            f"`spill agents resume {named}` gives them work again"
        )


class ClusterDown(NotNow, frozen=True, tag="cluster_down"):
    """A cluster that others run does not answer, or is being cleared after it had failed: it is given nothing."""

    cluster: ClusterName
    health: Health
    since: int
    """Nanoseconds UTC; 0 if nothing was ever seen of it."""
    why: str
    """In the words of whoever watches it; empty if there is nothing to say."""

    def __str__(self) -> str:
        since = f" since {format_moment(self.since)}" if self.since else ""
        why = f": {self.why}" if self.why else ""
        return f"{self.cluster} {_STATES[self.health]}{since}{why}"


class NotConfigured(NotNow, frozen=True, tag="not_configured"):
    """It was handed to a cluster that others run and that is not configured any more: nobody can say what became of it."""

    cluster: ClusterName

    def __str__(self) -> str:
        return (
            f"is on {self.cluster}, which is not configured any more; configure it again, "
            "or have the job given up there with `spill requeue` or `spill cancel`"
        )


_STATES: Final = {
    Health.UNOBSERVED: "was not seen yet, which the server waits for",
    Health.READY: "is ready",
    Health.DEGRADED: "does not answer",
    Health.FAILED: "has failed",
    Health.CLEARING: "is being cleared of what was left there when it failed,",
}


class NoNodeReady(NotNow, frozen=True, tag="no_node_ready"):
    """No node of a cluster that others run, which could run it, is ready and may be given tasks."""

    clusters: tuple[ClusterName, ...]

    def __str__(self) -> str:
        return f"waits for a node of {' or '.join(self.clusters)} that could run it to be ready, and not cordoned"


class Shunned(NotNow, frozen=True, tag="shunned"):
    """A cluster gave it back, and it is tried there again after a while."""

    cluster: ClusterName
    until: int
    """Nanoseconds UTC."""
    because: str
    """In the words of the cluster; empty if it said nothing."""

    def __str__(self) -> str:
        because = f": {self.because}" if self.because else ""
        return f"{self.cluster} gave it back and is tried again at {format_moment(self.until)}{because}"


class WaitNotOver(NotNow, frozen=True, tag="wait_not_over"):
    """Only rented clusters could run it, and its wait for owned capacity is not over."""

    clusters: tuple[ClusterName, ...]
    at: int
    """When it may be rented, nanoseconds UTC."""

    def __str__(self) -> str:
        return f"only {' or '.join(self.clusters)} could run it, where it may be rented from {format_moment(self.at)}"


class NotRented(Never, frozen=True, tag="not_rented"):
    """Only rented clusters could run it, and the wait policy never lets it be rented."""

    clusters: tuple[ClusterName, ...]

    def __str__(self) -> str:
        return f"only {' or '.join(self.clusters)} could run it, and the wait policy never rents"


class PolicyFailed(NotNow, frozen=True, tag="policy_failed"):
    """Its wait policy failed, or was disabled, so that nobody knows when to rent it: it waits for owned capacity."""

    policy: str
    """As `wait.half`."""
    error: str
    """What went wrong, in one line."""

    def __str__(self) -> str:
        return f"it waits for owned capacity and is not rented, because the policy {self.policy} failed: {self.error}"


class OverMaxCost(NotNow, frozen=True, tag="over_max_cost"):
    """Renting it could cost more than its own `max_cost` leaves."""

    runs: int
    """Nanoseconds that it would be rented for: its walltime, or the least that is worth it."""
    cost: int
    """Millionths that this could cost, with the grace and the time until it is surely ended: what would be held."""
    left: int
    """Millionths that earlier attempts left of the limit."""
    limit: int
    """Its `max_cost`."""
    grace: int = 0
    """Nanoseconds that it has to end."""
    limited: bool = True
    """Whether it has a walltime of its own."""
    owned: bool = True
    """Whether owned capacity could run it too."""

    def __str__(self) -> str:
        spent = "" if self.left == self.limit else f", of which {format_money(max(0, self.left))} is left"
        waits = ": it waits for owned capacity" if self.owned else ""
        return f"{_to_rent(self)}; its max_cost is {format_money(self.limit)}{spent}{waits}"


class OverBudget(NotNow, frozen=True, tag="over_budget"):
    """Renting it could cost more than a budget leaves in its period."""

    whose: str
    """As `project vision`."""
    per: str
    runs: int
    """Nanoseconds that it would be rented for: its walltime, or the least that is worth it."""
    cost: int
    """Millionths that this could cost, with the grace and the time until it is surely ended: what would be held."""
    left: int
    """Millionths that are neither spent nor held."""
    limit: int
    """Millionths for the whole period."""
    until: int
    """When the period ends, nanoseconds UTC; FOREVER if it does not."""
    grace: int = 0
    """Nanoseconds that it has to end."""
    limited: bool = True
    """Whether it has a walltime of its own."""
    owned: bool = True
    """Whether owned capacity could run it too."""

    def __str__(self) -> str:
        when = "" if self.until >= FOREVER else f" until {format_moment(self.until)}"
        each = "" if self.per == "ever" else f" a {self.per}"
        return (
            f"{_to_rent(self)}; {self.whose} has {format_money(max(0, self.left))} of {format_money(self.limit)}{each} "
            f"left{when}{self._waits()}"
        )

    def _waits(self) -> str:
        """What could let it run: the budget only if it is ever enough."""
        enough = self.cost <= self.limit
        hopes = [*(["owned capacity"] if self.owned else []), *(["the budget"] if enough else [])]
        return f": it waits for {', or for '.join(hopes)}" if hopes else ", which is never enough"


class TooDear(Never, frozen=True, tag="too_dear"):
    """Only rented clusters could run it, and it could cost more there than a cap ever allows."""

    clusters: tuple[ClusterName, ...]
    runs: int
    """Nanoseconds that it would be rented for: its walltime, or the least that is worth it."""
    cost: int
    """Millionths that this could cost, where it is cheapest."""
    limit: int
    """Millionths that the whole cap is."""
    cap: str
    """As `its max_cost` or `the budget of project vision`."""
    grace: int = 0
    """Nanoseconds that it has to end."""
    limited: bool = True
    """Whether it has a walltime of its own."""

    def __str__(self) -> str:
        return (
            f"only {' or '.join(self.clusters)} could run it, and {_to_rent(self)}; "
            f"{self.cap} is {format_money(self.limit)}"
        )


def _to_rent(reason: OverMaxCost | OverBudget | TooDear) -> str:
    """The most that renting could cost, and what that is made up of."""
    runs, grace = format_duration(reason.runs), format_duration(reason.grace)
    most, what = (" at the most", "walltime") if reason.limited else ("", "at the least")
    ended = f"{format_duration(WALLTIME_SLACK)} until it is surely ended"
    return (
        f"to rent it could cost {format_money(reason.cost)}{most} ({runs} {what}, {grace} grace and {ended})"
    )


class TooBig(Never, frozen=True, tag="too_big"):
    """Larger than any machine."""

    asked: Resources
    largest: Resources
    """The most that one machine has of each."""

    def __str__(self) -> str:
        return f"asks for {self.asked} a task; the largest machine has {self.largest}"


class NotOffered(Never, frozen=True, tag="not_offered"):
    """Nothing offers what it needs."""

    words: tuple[str, ...]
    because: str = ""
    """Why an agent does not, if one said so."""

    def __str__(self) -> str:
        return f"no cluster offers {', '.join(self.words)}" + (f": {self.because}" if self.because else "")


class GangUnsupported(Never, frozen=True, tag="gang_unsupported"):
    """No cluster runs several tasks together."""

    tasks: int

    def __str__(self) -> str:
        return f"no cluster runs a gang of {self.tasks} tasks yet"


class BurstRefused(Never, frozen=True, tag="burst_refused"):
    """The job's own `burst` rules out the clusters that could run it, or this one."""

    burst: str

    def __str__(self) -> str:
        kind = "rented" if self.burst == "never" else "owned"
        return f"it says `burst: {self.burst}`, which rules {kind} clusters out"


class NotWhere(Never, frozen=True, tag="not_where"):
    """The job's own `where` rules out the clusters that could run it, or this one."""

    asked: tuple[str, ...]
    """What it asks for that they are not, as `region: north`."""

    def __str__(self) -> str:
        return f"ruled out by its `where`: {'; '.join(self.asked)}"


class CannotRun(Never, frozen=True, tag="cannot_run"):
    """What the job does cannot be done there: plain commands, whole pods, calls of Python functions, or files that are brought along."""

    what: str
    """`command`, `files`, `pods` or `python`."""

    def __str__(self) -> str:
        return _CANNOT.get(self.what, f"a cluster is needed that can run what is called {self.what}")


_CANNOT = {
    "command": "a plain command runs there only in a default image, and none is configured; give the job a `container`",
    "files": "`inputs` and `outputs` are brought to agents and back, and to no other cluster",
    "pods": "its manifest asks for what only a Kubernetes cluster can do: several containers, init containers, variables or volumes "
    "from elsewhere",
    "python": "calls of Python functions run on agents only",
}


class NoSuchNode(Never, frozen=True, tag="no_such_node"):
    """No node has the labels, or the name, that its pods ask for."""

    asked: str
    """What the nearest nodes miss, as `disk=ssd`."""

    def __str__(self) -> str:
        return f"no node is one that it asks for: {self.asked}"


class Tainted(Never, frozen=True, tag="tainted"):
    """Every node that it asks for has a taint that its pods do not tolerate."""

    taints: tuple[str, ...]
    """Each as `KEY=VALUE:EFFECT`."""

    def __str__(self) -> str:
        return f"it does not tolerate the taints of nodes: {', '.join(self.taints)}"


class AtLimit(NotNow, frozen=True, tag="at_limit"):
    """Our jobs use as much of a cluster as its limits allow."""

    cluster: ClusterName
    what: str
    """As `jobs` or `cpu`."""
    used: int
    """By jobs that are there now; thousandths of a CPU, bytes or whole ones."""
    most: int

    def __str__(self) -> str:
        used, most = _amount(self.what, self.used), _amount(self.what, self.most)
        return f"the limit of {most} on {self.cluster} is reached: {used} in use"


class OverLimit(Never, frozen=True, tag="over_limit"):
    """It asks for more, all tasks together, than a cluster's limits ever allow."""

    cluster: ClusterName
    what: str
    asked: int
    """Thousandths of a CPU, bytes or whole ones."""
    most: int

    def __str__(self) -> str:
        asked, most = _amount(self.what, self.asked), _amount(self.what, self.most)
        return f"asks for {asked} in all; at most {most} may be used of {self.cluster} at a time"


def _amount(what: str, amount: int) -> str:
    """An amount with its name."""
    match what:
        case "cpu":
            return f"{format_cpu(amount)} CPU"
        case "memory":
            return format_memory(amount)
        case "gpu":
            return f"{amount} GPU"
    return f"{amount} {what if amount != 1 else what.removesuffix('s')}"


class TooLate(Never, frozen=True, tag="too_late"):
    """It is not expected to end by its deadline there."""

    deadline: int
    """Nanoseconds UTC."""
    finish: int
    """When it would be expected to end if it were placed now, nanoseconds UTC."""

    def __str__(self) -> str:
        return f"started now it would end about {format_moment(self.finish)}, after its deadline {format_moment(self.deadline)}"


class RoomOwned(NotNow, frozen=True, tag="room_owned"):
    """It runs, or ran, on owned capacity because there was room."""

    def __str__(self) -> str:
        return "owned capacity had room"


class RoomSoon(NotNow, frozen=True, tag="room_soon"):
    """It was handed to an agent whose tasks are so short that it has room by the time the message is there."""

    def __str__(self) -> str:
        return "owned capacity was about to have room"


class WaitOver(NotNow, frozen=True, tag="wait_over"):
    """It was rented because it had waited as long as its policy lets it."""

    waited: int
    """Nanoseconds."""

    def __str__(self) -> str:
        return f"its wait was over after {format_duration(self.waited)}"


class NotInTime(NotNow, frozen=True, tag="not_in_time"):
    """It was rented because it was not expected to start on owned capacity while waiting was worth it."""

    within: int
    """Nanoseconds within which it would have had to start."""

    def __str__(self) -> str:
        return f"owned capacity was not expected to have room within {format_duration(self.within)}, which is what waiting was worth"


class QueueFull(NotNow, frozen=True, tag="queue_full"):
    """It was rented because its place in the queue was past `max_queue`."""

    def __str__(self) -> str:
        return "the queue was longer than max_queue"


class AlwaysRented(NotNow, frozen=True, tag="always_rented"):
    """It was rented because its spec says so."""

    def __str__(self) -> str:
        return "it says `burst: always`"


class OnlyRented(NotNow, frozen=True, tag="only_rented"):
    """It was rented at once because its `where` rules all owned clusters out."""

    def __str__(self) -> str:
        return "its `where` rules all owned clusters out"


class Stopping(NotNow, frozen=True, tag="stopping"):
    """It is being stopped; its capacity is held until the end is confirmed."""

    why: str

    def __str__(self) -> str:
        return f"is being stopped: {self.why}"


class DependencyFailed(Never, frozen=True, tag="dependency_failed"):
    """A job that it waited for did not succeed."""

    job: JobId

    def __str__(self) -> str:
        return f"{self.job}, which it was to run after, did not succeed"


class CancelledBy(Never, frozen=True, tag="cancelled"):
    """Somebody cancelled it."""

    who: str

    def __str__(self) -> str:
        return f"cancelled by {self.who}"


class PastDeadline(Never, frozen=True, tag="past_deadline"):
    """Its deadline passed."""

    def __str__(self) -> str:
        return "its deadline passed"


class PastWalltime(Never, frozen=True, tag="past_walltime"):
    """It ran as long as it was allowed to."""

    def __str__(self) -> str:
        return "it ran longer than its walltime"


class PastCap(Never, frozen=True, tag="past_cap"):
    """It ran, on rented capacity, as long as its cap could pay for."""

    walltime: int
    """Nanoseconds that it was given, as it has no walltime of its own."""

    def __str__(self) -> str:
        return f"it ran longer than {format_duration(self.walltime)}, which is what its cap could pay for"


class LostTooOften(Never, frozen=True, tag="lost"):
    """The machine it ran on was lost more often than its budget allows."""

    times: int
    because: str = ""
    """What was said of it the last time; empty if nothing."""

    def __str__(self) -> str:
        times = f"{self.times} time{'s' if self.times != 1 else ''}"
        because = f": {self.because}" if self.because else ""
        return f"its machine was lost {times}, more than `retry.lost` allows{because}"


class ClusterFailed(Never, frozen=True, tag="cluster_failed"):
    """Its cluster failed while it was there, and it says `on_cluster_failure: cancel`."""

    cluster: ClusterName
    because: str

    def __str__(self) -> str:
        return f"{self.cluster} failed ({self.because}), and it says `on_cluster_failure: cancel`"


class Exited(Never, frozen=True, tag="exited"):
    """Its own process ended with an exit code that is not 0, or a signal."""

    exit_code: int | None
    signal: int | None

    def __str__(self) -> str:
        return f"killed by signal {self.signal}" if self.signal else f"exited with code {self.exit_code}"


class OutOfMemory(Never, frozen=True, tag="out_of_memory"):
    """It was killed because it used more memory than it asked for."""

    asked: int
    """Bytes that its task asked for; 0 if it did not say."""
    peak: int
    """Bytes that it used at most before it was killed; 0 if nobody saw."""

    def __str__(self) -> str:
        peak = f"; it used {format_memory(self.peak)} when it was killed" if self.peak else ""
        if not self.asked:
            return f"ran out of memory, of which it asked for none{peak}"
        return f"used more memory than the {format_memory(self.asked)} that it asked for{peak}"


class OutputsNotKept(Never, frozen=True, tag="outputs_not_kept"):
    """It ended well, and what it made could not be brought back."""

    message: str

    def __str__(self) -> str:
        return f"its outputs could not be brought back: {self.message}"


class CouldNotStart(Never, frozen=True, tag="could_not_start"):
    """The agent could not start its process."""

    message: str
    agent: str = ""
    """As CLUSTER/NAME; empty where an earlier version did not note it."""

    def __str__(self) -> str:
        where = f" on {self.agent}" if self.agent else ""
        return f"could not be started{where}: {self.message}{self._hint()}"

    def _hint(self) -> str:
        """What to do about a folder that the machine does not have, which an agent tells like this."""
        if not self.message.startswith("workdir "):
            return ""
        return "; give it a `workdir` that is there, or `inputs`, with which it runs in a folder of its own"


class NotStarting(NotNow, frozen=True, tag="not_starting"):
    """It was handed to a cluster that others run, which has not started it yet."""

    cluster: ClusterName
    what: str
    """`unschedulable`, `image`, `refused` or `config`."""
    message: str
    """In the words of that cluster."""
    at: int
    """Since when, nanoseconds UTC."""

    def __str__(self) -> str:
        said = f": {self.message}" if self.message else ""
        return f"is not started by {self.cluster} since {format_moment(self.at)} ({self.what}{said})"


class MembersFailed(Never, frozen=True, tag="members_failed"):
    """Some members of the array did not succeed."""

    count: int

    def __str__(self) -> str:
        return f"{self.count} of its members did not succeed"


Reason: TypeAlias = (
    Held
    | AfterJobs
    | NotBefore
    | Fresh
    | NoRoom
    | BehindOthers
    | KeptFor
    | BeyondDepth
    | NotObserved
    | AllDrained
    | ClusterDown
    | NotConfigured
    | NoNodeReady
    | Shunned
    | WaitNotOver
    | NotRented
    | PolicyFailed
    | OverMaxCost
    | OverBudget
    | TooDear
    | TooBig
    | NotOffered
    | GangUnsupported
    | BurstRefused
    | NotWhere
    | CannotRun
    | NoSuchNode
    | Tainted
    | AtLimit
    | OverLimit
    | TooLate
    | RoomOwned
    | RoomSoon
    | WaitOver
    | NotInTime
    | QueueFull
    | AlwaysRented
    | OnlyRented
    | Stopping
    | DependencyFailed
    | CancelledBy
    | PastDeadline
    | PastWalltime
    | PastCap
    | LostTooOften
    | ClusterFailed
    | Exited
    | OutOfMemory
    | OutputsNotKept
    | CouldNotStart
    | NotStarting
    | MembersFailed
)


def code_of(reason: Reason) -> str:
    """The word that programs know a reason by."""
    return _code(type(reason))


@cache
def _code(kind: type[Reason]) -> str:
    return str(kind.__struct_config__.tag)
