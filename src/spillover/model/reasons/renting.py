"""Reasons why a pool has no machine for a job yet."""

from spillover.model.ids import ClusterName, JobId
from spillover.model.reasons.base import NotNow
from spillover.model.units import format_moment


class MachineComing(NotNow, frozen=True, tag="machine_coming"):
    """A machine that could run it was ordered, and is not ready yet."""

    cluster: ClusterName
    machine: str
    """Its id."""
    type: str
    """The provider's name of its type."""
    state: str
    """`wanted` or `booting`; `growing` for a whole cluster that is there."""
    ready: int
    """When it is expected to be ready, nanoseconds UTC."""
    count: int = 1
    """How many such machines were ordered."""
    nodes: int = 0
    """Nodes of a whole cluster; 0 for a machine."""

    def __str__(self) -> str:
        more = f" and {self.count - 1} more" if self.count > 1 else ""
        doing = {"wanted": "was ordered", "growing": "grows"}.get(self.state, "boots")
        what = f"cluster {self.machine} ({self.nodes} x {self.type})" if self.nodes else ""
        if what:
            return (
                f"waits for {what}{more}, which {doing}; expected to be ready at {format_moment(self.ready)}"
            )
        return (
            f"waits for machine {self.machine} ({self.type}){more} of {self.cluster}, which {doing}; "
            f"expected to be ready at {format_moment(self.ready)}"
        )


class FreeSoon(NotNow, frozen=True, tag="free_soon"):
    """It needs no new machines: those that are kept for it are expected to be free before new ones were ready."""

    cluster: ClusterName
    machines: int
    """How many machines are kept for it."""
    at: int
    """When all of them are expected to be free, nanoseconds UTC."""

    def __str__(self) -> str:
        many = "1 machine" if self.machines == 1 else f"{self.machines} machines"
        verb = "is" if self.machines == 1 else "are"
        when = format_moment(self.at)
        return f"{many} of {self.cluster} {verb} kept for it, and {verb} expected to be free at {when}"


class KeptForGang(NotNow, frozen=True, tag="kept_for_gang"):
    """Free machines are kept for a gang until it starts: they were ordered for it, or it gets them besides new ones."""

    cluster: ClusterName
    job: JobId
    """The gang."""
    machines: int
    """How many machines are kept for it."""

    def __str__(self) -> str:
        if self.machines == 1:
            return f"1 free machine of {self.cluster} is kept for {self.job}, until it starts"
        return f"{self.machines} machines of {self.cluster} are kept for {self.job}, until it starts"


class KeptOffSpot(NotNow, frozen=True, tag="kept_off_spot"):
    """It could not run again before its deadline if the spot machines with room were taken back."""

    cluster: ClusterName
    deadline: int
    """Nanoseconds UTC."""

    def __str__(self) -> str:
        return (
            f"free machines of {self.cluster} are spot machines: if they were taken back, it could not run again before its "
            f"deadline at {format_moment(self.deadline)}; it waits for one on demand, as long as that would be in time"
        )


class PoolIsPaused(NotNow, frozen=True, tag="pool_paused"):
    """The pool that could rent a machine for it is paused."""

    cluster: ClusterName
    why: str

    def __str__(self) -> str:
        return f"the pool of {self.cluster} is paused: {self.why}; resume it with `spill pools resume {self.cluster}`"


class NoOfferOpen(NotNow, frozen=True, tag="no_offer_open"):
    """The provider refused all machines that could run it, so the pool does not order them for a while."""

    cluster: ClusterName
    offers: int
    """How many offers that are."""
    cause: str
    """`capacity`, `quota` or `lost`."""
    why: str
    """In the words of the provider."""
    until: int
    """When the first of them is tried again, nanoseconds UTC."""

    def __str__(self) -> str:
        what = "the only offer" if self.offers == 1 else f"all {self.offers} offers"
        causes = {"quota": "the account may not have more", "capacity": "there are none now"}
        cause = causes.get(self.cause, "the order was lost")
        return (
            f"the provider of {self.cluster} refused {what} that could run it ({cause}: {self.why}); "
            f"tried again at {format_moment(self.until)}"
        )


class PoolAtMost(NotNow, frozen=True, tag="pool_at_most"):
    """The pool that could rent a machine for it has as many as it may have."""

    cluster: ClusterName
    most: int
    ending: int = 0
    """How many of them are being ended."""
    needs: int = 1
    """How many new machines it needs at a time."""
    has: int = 0
    """How many machines the pool has, if it needs several."""
    free: int = 0
    """How many of those have room for some of its tasks now."""

    def __str__(self) -> str:
        ending = f", of which {self.ending} are ending" if self.ending else ""
        if self.needs > 1 or self.free:
            many = "1 machine" if self.needs == 1 else f"{self.needs} machines"
            free = f" besides {self.free} with room" if self.free else ""
            return (
                f"it needs {many}{free}, and the pool of {self.cluster} has {self.has} of the {self.most} that it "
                f"may have{ending}; raise `max`, or wait"
            )
        machines = "1 machine" if self.most == 1 else f"{self.most} machines"
        return f"the pool of {self.cluster} has {machines}{ending}, the most that it may have; raise `max`, or wait for one"


class PoolOutOfMoney(NotNow, frozen=True, tag="pool_out_of_money"):
    """The budget of the pool that could rent a machine for it is used up."""

    cluster: ClusterName
    per: str
    limit: int
    """Millionths."""
    left: int
    """Millionths."""
    until: int
    """When the budget renews, nanoseconds UTC."""
    needs: int = 1
    """How many machines it needs at a time."""

    def __str__(self) -> str:
        left = f"{self.left / 1_000_000:.2f} of {self.limit / 1_000_000:.2f}"
        renews = "" if self.per == "ever" else f"; it renews at {format_moment(self.until)}"
        few = "another machine" if self.needs == 1 else f"the {self.needs} machines that it needs"
        return f"the budget of the pool of {self.cluster} has {left} left, too little for {few}{renews}"
