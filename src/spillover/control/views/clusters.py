"""Shows clusters and agents in the form of the API."""

from collections.abc import Iterable, Sequence

from spillover.control.live.loop import Loop
from spillover.control.views.jobs import amounts, money, when
from spillover.core.records.clusters import Condition
from spillover.core.records.jobs import Running
from spillover.core.records.nodes import Node
from spillover.core.state import State
from spillover.model.cluster import ClusterLife, ClusterSpec
from spillover.model.ids import ClusterName
from spillover.model.inside import cpu_list, cpu_mask
from spillover.model.pools import MachineId
from spillover.model.resources import Resources
from spillover.model.units import SECOND
from spillover.ports.cluster import Agents, Contact
from spillover.ports.commands import CommandError, ErrorKind
from spillover.wire.api import AgentView, ClusterView, DomainView, InsideView, LinkView, NodeView, RentedView


def agent_views(loop: Loop, agents: Agents, state: State, keys: Iterable[str]) -> list[AgentView]:
    """Return agents in the form of the API, with when each was last heard from."""
    now, mono = loop.now(), loop.time.monotonic()
    shown = []
    for key in keys:
        contact = agents.contact(key)
        heard_at = now - (mono - contact.heard) if contact is not None else None
        shown.append(agent_view(state, state.agents[key], contact, heard_at))
    return shown


def agent_view(state: State, node: Node, contact: Contact | None, heard_at: int | None) -> AgentView:
    """Return an agent in the form of the API."""
    running = sum(type(state.jobs[each].phase) is Running for each in node.jobs)
    return AgentView(
        name=node.name,
        cluster=node.cluster,
        state=node.status,
        capacity=amounts(node.capacity),
        used=amounts(node.used),
        running=running,
        leased=len(node.held),
        offers=list(node.offers),
        labels=node.labels,
        heartbeat_at=when(heard_at) if contact is not None else None,
        ahead=len(node.ahead),
        load=contact.load / 1000 if contact is not None else None,
        stolen_in=node.taken,
        stolen_out=node.given,
        drained_by=node.drained or None,
        inside=_inside(node),
        machine=_rented(state, node),
        drain_reason=node.reason or None,
        since=when(node.since or None),
        version=None if contact is None else contact.version or None,
    )


def node_keys(state: State, cluster: str) -> list[str]:
    """Return the keys of all nodes of an external cluster, or of all of them if it is empty."""
    if cluster:
        known = {spec.name: spec for spec in state.facts.clusters}
        spec = known.get(ClusterName(cluster))
        if spec is None:
            names = ", ".join(known) or "none"
            raise CommandError(ErrorKind.UNKNOWN, f"there is no cluster {cluster!r}; known: {names}")
        if not spec.external:
            raise CommandError(ErrorKind.UNKNOWN, f"{cluster} is a cluster of agents: ask for agents")
    return [key for key, node in state.nodes.items() if not node.is_agent and cluster in {"", node.cluster}]


def node_views(state: State, keys: Iterable[str]) -> list[NodeView]:
    """Return nodes of external clusters in the form of the API, without those that have gone meanwhile."""
    return [
        NodeView(
            name=node.name,
            cluster=node.cluster,
            state=node.status,
            capacity=amounts(node.capacity),
            used=amounts(node.used),
            foreign=amounts(node.foreign or Resources()),
            leased=len(node.held),
            offers=list(node.offers),
            labels=node.labels,
        )
        for node in map(state.nodes.get, keys)
        if node is not None
    ]


def _rented(state: State, node: Node) -> RentedView | None:
    """Return the machine of an agent; None if no pool rented it."""
    machine = state.machines.get(MachineId(node.name))
    if machine is None or machine.key != node.key:
        return None
    offer = machine.offer
    return RentedView(offer.type, offer.zone, offer.spot, machine.state, money(offer.hour))


def _inside(node: Node) -> InsideView | None:
    """Return the inside of a machine in the form of the API; None if it reports none."""
    inside, used = node.inside, 0
    if inside is None:
        return None
    for each in node.granted.values():
        used |= cpu_mask(each.cpus)
    return InsideView(
        [DomainView(one.socket, list(one.cpus), list(one.gpus), one.memory) for one in inside.domains],
        list(inside.gpus),
        [LinkView(one.kind, list(one.gpus)) for one in inside.links],
        cpu_list(used),
        sorted([gpu for each in node.granted.values() for gpu in each.gpus]),
    )


def cluster_view(state: State, spec: ClusterSpec, problem: str | None = None) -> ClusterView:
    """Return a cluster in the form of the API; `problem` is why it cannot be opened."""
    life = state.lives[spec.name]
    nodes = [node for node in state.nodes.values() if node.cluster == spec.name]
    ready = [node for node in nodes if node.status == "ready"]
    capacity, used, foreign = Resources(), Resources(), Resources()
    for node in ready:
        capacity, used = capacity + node.capacity, used + node.used
        foreign = foreign if node.foreign is None else foreign + node.foreign
    price, condition = spec.price, state.conditions.get(spec.name)
    since = None if life.life is ClusterLife.READY else life.since
    if condition is not None:
        since = condition.since
    more = {} if price.node is None else {"node_hour": money(price.node.hour)}
    if price.egress_gb:
        more["egress_gb"] = money(price.egress_gb)
    return ClusterView(
        name=spec.name,
        kind=spec.kind,
        role=spec.role,
        state=_cluster_state(state, spec, nodes, ready)
        if condition is None
        else _external_state(life.life, condition),
        agents=len(ready),
        capacity=amounts(capacity),
        used=amounts(used),
        running=sum(type(state.jobs[each].phase) is Running for node in nodes for each in node.jobs),
        price={
            "cpu_hour": money(price.cpu_hour),
            "memory_gib_hour": money(price.memory_gib_hour),
            "gpu_hour": money(price.gpu_hour),
            **more,
        },
        startup_s=spec.startup / SECOND,
        billing={"step_s": spec.billing.step / SECOND, "minimum_s": spec.billing.minimum / SECOND},
        node=None if price.node is None else amounts(price.node.resources),
        gangs=spec.gangs,
        foreign=amounts(foreign) if spec.external else {},
        why=problem or (None if condition is None else condition.why or None),
        since=when(since),
        region=spec.region,
        labels=spec.labels,
        life=life.life,
        configured=not life.form,
        added_by=life.who or None,
        drained_by=life.drained or None,
        leaving=life.leaving,
        levels={level.name: level.label for level in spec.levels},
    )


def _external_state(life: ClusterLife, condition: Condition) -> str:
    """Return the state of an external cluster: DRAINING, or its health."""
    return life.upper() if life is ClusterLife.DRAINING else condition.health.upper()


def _cluster_state(state: State, spec: ClusterSpec, nodes: Sequence[Node], ready: Sequence[Node]) -> str:
    """Return the state of a cluster of agents, from its lifecycle, its nodes and the machines that are coming."""
    life = state.lives[spec.name].life
    if life in {ClusterLife.DRAINING, ClusterLife.REQUESTED}:
        return life.upper()
    if ready or nodes:
        return "READY" if ready else "DEGRADED"
    return "PROVISIONING" if spec.external or state.live_machines(spec.name) else "EMPTY"
