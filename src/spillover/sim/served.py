"""What a server says of its clusters, budgets and policies, as a simulation takes it."""

from collections.abc import Sequence

from msgspec import Struct

from spillover.forms.policystring import read_policies
from spillover.forms.problems import BadForm, FormProblem
from spillover.model.budget import EVERY, Budget, Of, Per
from spillover.model.cluster import Billing, ClusterSpec, NodeClass, Price, Role
from spillover.model.ids import ClusterName, NodeName
from spillover.model.policy import PolicySet
from spillover.model.resources import Resources
from spillover.model.units import MONEY, SECOND, parse_time
from spillover.sim.setting import FleetMachine, Site
from spillover.wire.api import AgentView, BudgetView, ClusterView, PolicyRecord


class Ruling(Struct, frozen=True):
    """The policies that really decided."""

    first: PolicySet
    """When the first job came."""
    changes: tuple[tuple[int, PolicySet], ...] = ()
    """When others took over, nanoseconds UTC, in order of time."""

    @property
    def last(self) -> PolicySet:
        """Those that decided in the end."""
        return self.changes[-1][1] if self.changes else self.first


def site_from(clusters: Sequence[ClusterView], agents: Sequence[AgentView]) -> Site:
    """The clusters of a server with the machines that they have now."""
    machines = [
        FleetMachine(
            ClusterName(one.cluster),
            NodeName(one.name),
            _resources(one.capacity),
            tuple(sorted(one.offers)),
        )
        for one in agents
        if one.state != "lost"
    ]
    return Site(tuple(map(_cluster, clusters)), tuple(machines))


def budgets_from(views: Sequence[BudgetView]) -> tuple[Budget, ...]:
    """Budgets as they are configured there; one for all is shown for each that has spent of it."""
    found = (
        Budget(Of(one.of), EVERY if one.every else one.name, Per(one.per), _millionths(one.limit))
        for one in views
    )
    return tuple(dict.fromkeys(found))


def ruling_from(now: str, records: Sequence[PolicyRecord], begin: int, end: int) -> Ruling:
    """What decided from one time to another, by what decides now and the changes before, newest first."""
    changes: list[tuple[int, PolicySet]] = []
    first = now
    for record in records:
        at = parse_time(record.at)
        if at <= begin:
            break
        first = record.before
        if at < end:
            changes.append((at, _known(record.after)))
    return Ruling(_known(first), tuple(reversed(changes)))


def _known(line: str) -> PolicySet:
    """Policies that decided, if they are installed here too."""
    try:
        return read_policies(line)
    except BadForm as error:
        (first, *_) = error.problems
        advice = "name what comes closest with --really"
        raise BadForm(
            [FormProblem("", None, "", f"{line} decided then, and cannot here: {first.message}; {advice}")]
        ) from None


def _cluster(view: ClusterView) -> ClusterSpec:
    """A cluster as it is configured there."""
    price = view.price
    node = None
    if view.node is not None:
        node = NodeClass("node", _resources(view.node), _millionths(price.get("node_hour", 0)))
    return ClusterSpec(
        ClusterName(view.name),
        view.kind,
        Role(view.role),
        Price(
            _millionths(price.get("cpu_hour", 0)),
            _millionths(price.get("memory_gib_hour", 0)),
            _millionths(price.get("gpu_hour", 0)),
            node,
            _millionths(price.get("egress_gb", 0)),
        ),
        Billing(
            round(view.billing.get("step_s", 1) * SECOND), round(view.billing.get("minimum_s", 0) * SECOND)
        ),
        view.gangs,
        round(view.startup_s * SECOND),
    )


def _resources(amounts: dict[str, float]) -> Resources:
    """Resources from the numbers that people use."""
    return Resources(
        round(amounts.get("cpu", 0) * 1000), round(amounts.get("memory", 0)), round(amounts.get("gpu", 0))
    )


def _millionths(amount: float) -> int:
    """Money from the number that people use."""
    return round(amount * MONEY)
