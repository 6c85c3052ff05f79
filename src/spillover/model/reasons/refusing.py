"""Why a cluster takes no job of that kind: because of its size, its needs, its rules, or our limits."""

from spillover.model.ids import ClusterName
from spillover.model.reasons.base import Never, NotNow
from spillover.model.resources import Resources
from spillover.model.units import (
    format_cpu,
    format_memory,
    format_moment,
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
    "pods": "its manifest asks for what only a Kubernetes cluster can do: several pods or containers, init containers, "
    "variables or volumes from elsewhere",
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
