"""Why a job that is held or queued does not start yet."""

from spillover.model.ids import ClusterName, JobId
from spillover.model.reasons.base import NotNow
from spillover.model.resources import Resources
from spillover.model.units import (
    format_moment,
)


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


class WaitNotOver(NotNow, frozen=True, tag="wait_not_over"):
    """Only rented clusters could run it, and its wait for owned capacity is not over."""

    clusters: tuple[ClusterName, ...]
    at: int
    """When it may be rented, nanoseconds UTC."""

    def __str__(self) -> str:
        return f"only {' or '.join(self.clusters)} could run it, where it may be rented from {format_moment(self.at)}"


class PolicyFailed(NotNow, frozen=True, tag="policy_failed"):
    """Its wait policy failed, or was disabled, so that nobody knows when to rent it: it waits for owned capacity."""

    policy: str
    """As `wait.half`."""
    error: str
    """What went wrong, in one line."""

    def __str__(self) -> str:
        return f"it waits for owned capacity and is not rented, because the policy {self.policy} failed: {self.error}"
