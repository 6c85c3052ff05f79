"""Converts clusters, budgets, queues and policies of a server into the input of a simulation."""

from collections.abc import Sequence

from msgspec import Struct

from spillover.forms.graph import inside_from
from spillover.forms.policystring import read_policies
from spillover.forms.problems import BadForm, FormProblem
from spillover.model.budget import EVERY, Budget, Of, Per
from spillover.model.cluster import Billing, ClusterSpec, NodeClass, Price, Role
from spillover.model.ids import ClusterName, NodeName
from spillover.model.policy import PolicySet
from spillover.model.queues import QueueLimits, QueueSpec
from spillover.model.resources import Resources
from spillover.model.topology import Level
from spillover.model.units import MONEY, SECOND, parse_time
from spillover.sim.setting import FleetMachine, Site
from spillover.sim.studies.served_pools import (
    is_template,
    made_by,
    rented_machines,
    simulated_pool,
    with_pool,
)
from spillover.wire.api import (
    AgentView,
    BudgetView,
    ClusterView,
    PolicyRecord,
    PoolView,
    QueueAmounts,
    QueueView,
)


class Ruling(Struct, frozen=True):
    """The policies that really decided."""

    first: PolicySet
    """In effect when the first job came."""
    changes: tuple[tuple[int, PolicySet], ...] = ()
    """Later changes with their times (nanoseconds UTC), in order of time."""

    @property
    def last(self) -> PolicySet:
        """The policies at the end."""
        return self.changes[-1][1] if self.changes else self.first


def site_from(
    clusters: Sequence[ClusterView], agents: Sequence[AgentView], pools: Sequence[PoolView] = ()
) -> Site:
    """Return the clusters of a server with their current machines; those of pools are rented by the simulation."""
    rented, templates = rented_machines(pools), [each.cluster for each in pools if is_template(each)]
    simulated = {ClusterName(each.cluster): simulated_pool(each, agents) for each in pools}
    specs = [_cluster(each) for each in clusters if each.configured or not made_by(each.name, templates)]
    machines = [
        FleetMachine(
            ClusterName(one.cluster),
            NodeName(one.name),
            _resources(one.capacity),
            tuple(sorted(one.offers)),
            tuple(sorted(one.labels.items())),
            None if one.inside is None else inside_from(one.inside),
        )
        for one in agents
        if one.state != "lost" and (one.cluster, one.name) not in rented
    ]
    pooled = [
        with_pool(each, simulated[each.name].pool) if each.name in simulated else each for each in specs
    ]
    return Site(tuple(pooled), tuple(machines), pools=simulated)


def budgets_from(views: Sequence[BudgetView]) -> tuple[Budget, ...]:
    """Return the configured budgets; the server lists a budget for everyone once for each spender."""
    found = (
        Budget(Of(one.of), EVERY if one.every else one.name, Per(one.per), _millionths(one.limit))
        for one in views
    )
    return tuple(dict.fromkeys(found))


def queues_from(views: Sequence[QueueView]) -> tuple[QueueSpec, ...]:
    """Return the configured queues with what decides when jobs start; what they admit was decided before."""
    return tuple(
        [
            QueueSpec(
                one.name,
                default=one.default,
                total=_limits(one.limits),
                each=_limits(one.user_limits),
                clusters=tuple(one.clusters),
                priority=one.priority,
            )
            for one in views
        ]
    )


def _limits(amounts: QueueAmounts) -> QueueLimits:
    resources = Resources(round((amounts.cpu or 0) * 1000), amounts.memory or 0, amounts.gpu or 0)
    return QueueLimits(amounts.running or 0, resources)


def ruling_from(now: str, records: Sequence[PolicyRecord], begin: int, end: int) -> Ruling:
    """Return the policies over a span, from the current ones and the changes before, newest first."""
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
    """Parse policies of the past; refuse those that are not installed here."""
    try:
        return read_policies(line)
    except BadForm as error:
        (first, *_) = error.problems
        advice = "name the closest available policy with --really"
        raise BadForm(
            [
                FormProblem(
                    "",
                    None,
                    "",
                    f"{line} was in effect then, but is not available here: {first.message}; {advice}",
                )
            ]
        ) from None


def _cluster(view: ClusterView) -> ClusterSpec:
    """Convert a cluster."""
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
        levels=tuple([Level(name, label) for name, label in view.levels.items()]),
    )


def _resources(amounts: dict[str, float]) -> Resources:
    """Convert resources from the units of the API."""
    return Resources(
        round(amounts.get("cpu", 0) * 1000), round(amounts.get("memory", 0)), round(amounts.get("gpu", 0))
    )


def _millionths(amount: float) -> int:
    """Convert an amount of money from the unit of the API."""
    return round(amount * MONEY)
