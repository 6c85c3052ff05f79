"""`spill agents`, and the table rows for clusters and agents."""

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Final

from spillover.cli import codes
from spillover.cli.command import Command, Context, UsageError, add_connection, add_json
from spillover.cli.printing.output import Cell, Column, Row
from spillover.cli.printing.shown import NOTHING, between, duration, number, resources

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

MACHINE: Final = Column("MACHINE")
"""Only if some machines are rented: type, market and state."""


def _configure_agents(parser: ArgumentParser) -> None:
    parser.add_argument(
        "action",
        nargs="?",
        choices=("list", "drain", "resume", "undrain", "forget"),
        default="list",
        metavar="ACTION",
        help="list: list agents (default); drain: start no more tasks there; resume: start tasks again; forget: remove a lost agent from the list",
    )
    parser.add_argument("names", nargs="*", metavar="AGENT", help="name of an agent, or CLUSTER/NAME")
    add_json(parser)
    add_connection(parser)


def _agents(args: Namespace, context: Context) -> int:
    if args.action == "list" and args.names:
        raise UsageError("`spill agents list` lists all agents; remove the names")
    with context.connect(args) as client:
        if args.action != "list":
            return _act(client, args, context)
        found = list(client.agents())
    if args.json:
        context.out.json(found)
    elif found:
        rented = any(agent.machine is not None for agent in found)
        columns = (*AGENTS[:-1], MACHINE, AGENTS[-1]) if rented else AGENTS
        context.out.table(columns, [agent_row(agent, rented=rented) for agent in found])
    else:
        context.out.note("no agents")
    return codes.OK


def _act(client: "Client", args: Namespace, context: Context) -> int:
    """Drain, resume or forget agents."""
    if not args.names:
        raise UsageError(f"no agent to {args.action}; `spill agents` lists agents")
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
    """Return the row of one cluster, with used and total amount of each resource."""
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
    """Return the usage of a cluster by our jobs and by others."""
    return {kind: use + cluster.foreign.get(kind, 0) for kind, use in cluster.used.items()}


def agent_row(agent: "AgentView", *, rented: bool = False) -> Row:
    """Return the row of one agent, with used and total amount of each resource; with `rented`, also its machine."""
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
        *((_machine(agent),) if rented else ()),
        " ".join(agent.offers) or NOTHING,
    )


def _machine(agent: "AgentView") -> str:
    """Describe the rented machine of an agent."""
    machine = agent.machine
    if machine is None:
        return NOTHING
    return f"{machine.type}, {'spot' if machine.spot else 'on-demand'}, {machine.state}"


def _use(used: dict[str, float], capacity: dict[str, float], kind: str) -> str:
    """Format used and total amount of a resource."""
    if not capacity.get(kind):
        return NOTHING
    return f"{_amount(used.get(kind, 0), kind)}/{_amount(capacity[kind], kind)}"


def _amount(value: float, kind: str) -> str:
    """Format memory with its unit, other resources as a number."""
    if kind != "memory":
        return number(value)
    return resources({"memory": value}).removeprefix("0 CPU").removeprefix(", ") or "0"


def _state(name: str) -> Cell:
    """Colour a state: green if it accepts work."""
    return Cell(name, "green" if name in _GOOD else "yellow")


COMMANDS = {
    "agents": Command(
        "List agents with their usage; drain or resume agents, or forget lost ones.",
        _configure_agents,
        _agents,
        "spill agents --json\nspill agents drain local-1\nspill agents resume local-1",
    ),
}
