"""`spill agents`, and clusters and agents as rows: where jobs run."""

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Final

from spillover.cli import codes
from spillover.cli.command import Command, Context, UsageError, add_connection, add_json
from spillover.cli.output import Cell, Column, Row
from spillover.cli.shown import NOTHING, between, duration, number, resources

if TYPE_CHECKING:
    from spillover.client import Client
    from spillover.wire.api import AgentView, ClusterView

_GOOD: Final = frozenset({"ready", "READY"})
CLUSTERS: Final = (
    Column("CLUSTER"),
    Column("KIND"),
    Column("ROLE"),
    Column("STATE"),
    Column("NODES", right=True),
    Column("JOBS", right=True),
    Column("CPU", right=True),
    Column("MEMORY", right=True),
    Column("GPU", right=True),
)
AGENTS: Final = (
    Column("AGENT"),
    Column("CLUSTER"),
    Column("STATE"),
    Column("JOBS", right=True),
    Column("LEASED", right=True),
    Column("AHEAD", right=True),
    Column("CPU", right=True),
    Column("MEMORY", right=True),
    Column("GPU", right=True),
    Column("LOAD", right=True),
    Column("HEARD", right=True),
    Column("STOLEN", right=True),
    Column("OFFERS", gives=True),
)


def _configure_agents(parser: ArgumentParser) -> None:
    parser.add_argument(
        "action",
        nargs="?",
        choices=("drain", "resume", "undrain", "forget"),
        metavar="ACTION",
        help="drain: give it nothing more; resume: give it work again; forget: strike a lost one off the list",
    )
    parser.add_argument("names", nargs="*", metavar="AGENT", help="its name, or CLUSTER/NAME")
    add_json(parser)
    add_connection(parser)


def _agents(args: Namespace, context: Context) -> int:
    with context.connect(args) as client:
        if args.action is not None:
            return _act(client, args, context)
        found = list(client.agents())
    if args.json:
        context.out.json(found)
    elif found:
        context.out.table(AGENTS, [agent_row(agent) for agent in found])
    else:
        context.out.note("no agents")
    return codes.OK


def _act(client: "Client", args: Namespace, context: Context) -> int:
    """Do something to agents."""
    if not args.names:
        raise UsageError(f"name the agents to {args.action}; `spill agents` lists them")
    acts = {
        "drain": client.drain,
        "resume": client.resume,
        "undrain": client.resume,
        "forget": client.forget,
    }
    done = acts[args.action](*args.names)
    if args.json:
        context.out.json(done)
    return codes.OK


def cluster_row(cluster: "ClusterView") -> Row:
    """One cluster, with use and capacity of each resource."""
    prices = {
        kind.removesuffix("_hour").replace("_", " "): price for kind, price in cluster.price.items() if price
    }
    return (
        cluster.name,
        cluster.kind,
        cluster.role,
        _state(cluster.state),
        str(cluster.agents),
        str(cluster.running),
        *(_use(_in_all(cluster), cluster.capacity, kind) for kind in ("cpu", "memory", "gpu")),
        ", ".join(f"{kind} {number(price)}" for kind, price in prices.items()) or NOTHING,
    )


def _in_all(cluster: "ClusterView") -> dict[str, float]:
    """What is used of a cluster, by our jobs and by others."""
    return {kind: use + cluster.foreign.get(kind, 0) for kind, use in cluster.used.items()}


def agent_row(agent: "AgentView") -> Row:
    """One agent, with use and capacity of each resource."""
    heard = between(agent.heartbeat_at, None)
    return (
        agent.name,
        agent.cluster,
        _state(f"{agent.state}, drained" if agent.drained_by and agent.state != "draining" else agent.state),
        str(agent.running),
        str(agent.leased),
        str(agent.ahead),
        *(_use(agent.used, agent.capacity, kind) for kind in ("cpu", "memory", "gpu")),
        NOTHING if agent.load is None else f"{agent.load:.1f}",
        NOTHING if heard is None else f"{duration(heard)} ago",
        f"{agent.stolen_in} in, {agent.stolen_out} out" if agent.stolen_in or agent.stolen_out else NOTHING,
        " ".join(agent.offers) or NOTHING,
    )


def _use(used: dict[str, float], capacity: dict[str, float], kind: str) -> str:
    """How much of a resource is taken."""
    if not capacity.get(kind):
        return NOTHING
    return f"{_amount(used.get(kind, 0), kind)}/{_amount(capacity[kind], kind)}"


def _amount(value: float, kind: str) -> str:
    """Memory in its own units, all else as a number."""
    if kind != "memory":
        return number(value)
    return resources({"memory": value}).removeprefix("0 CPU").removeprefix(", ") or "0"


def _state(name: str) -> Cell:
    """A state, green when work can be given to it."""
    return Cell(name, "green" if name in _GOOD else "yellow")


COMMANDS = {
    "agents": Command(
        "List agents and what they are doing; drain them, resume them, or forget lost ones.",
        _configure_agents,
        _agents,
        "spill agents --json\nspill agents drain local-1\nspill agents resume local-1",
    ),
}
