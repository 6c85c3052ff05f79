"""`spill agents`, and the table rows for clusters and agents."""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from spillover.cli import codes
from spillover.cli.command import Command, Context, UsageError, add_connection, add_json
from spillover.cli.printing.output import Cell, Column, Row
from spillover.cli.printing.shown import NOTHING, between, duration, local, number, resources

if TYPE_CHECKING:
    from spillover.client import Client
    from spillover.wire.api import AgentDetail, AgentTask, AgentView, ClusterView

_GOOD: Final = frozenset({"ready", "READY", "RUNNING"})
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
    Column("STATE", gives=True),
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
        choices=("list", "show", "drain", "resume", "undrain", "forget"),
        default="list",
        metavar="ACTION",
        help="list: list agents (default); show: show one and what runs there; drain: start no more tasks there; resume: start tasks again; forget: remove a lost agent from the list",
    )
    parser.add_argument("names", nargs="*", metavar="AGENT", help="name of an agent, or CLUSTER/NAME")
    parser.add_argument("--reason", metavar="TEXT", help="with drain: why, for everybody who looks")
    add_json(parser)
    add_connection(parser)


def _agents(args: Namespace, context: Context) -> int:
    if args.action == "list" and args.names:
        raise UsageError("`spill agents list` lists all agents; remove the names")
    if args.reason is not None and args.action != "drain":
        raise UsageError("--reason is for `spill agents drain`")
    if args.action == "show" and len(args.names) != 1:
        raise UsageError("name one agent; `spill agents` lists agents")
    with context.connect(args) as client:
        if args.action == "show":
            return _show(client, args, context)
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
    acts: dict[str, Callable[..., list[str]]] = {
        "drain": partial(client.drain, reason=args.reason) if args.reason else client.drain,
        "resume": client.resume,
        "undrain": client.resume,
        "forget": client.forget,
    }
    done = acts[args.action](*args.names)
    if args.json:
        context.out.json(done)
    return codes.OK


def _show(client: "Client", args: Namespace, context: Context) -> int:
    """Print everything about one agent, and the tasks that it holds."""
    agent = client.agent(args.names[0])
    if args.json:
        context.out.json(agent)
        return codes.OK
    context.out.sheet([(name, text) for name, text in _facts(agent) if text])
    if agent.tasks:
        context.out.line()
        context.out.table(_TASKS, [_task(task) for task in agent.tasks])
    if agent.tasks_in_all > len(agent.tasks):
        context.out.note(f"{agent.tasks_in_all - len(agent.tasks)} more tasks are not shown")
    return codes.OK


_TASKS: Final = (
    Column("JOB"),
    Column("TASK", right=True, drops=1),
    Column("NAME", gives=True),
    Column("USER"),
    Column("STATE"),
    Column("HOLDS"),
    Column("RAN", right=True),
    Column("HAS ALONE", drops=2),
)


def _task(task: "AgentTask") -> Row:
    alone = [f"CPUs {task.cpus}"] if task.cpus else []
    alone += [f"GPU {', '.join(task.gpus)}"] if task.gpus else []
    return (
        task.job,
        str(task.rank),
        task.name,
        task.user,
        _state("prefetched" if task.ahead else task.state),
        resources(task.resources),
        duration(between(task.started_at, None)),
        "; ".join(alone) or NOTHING,
    )


def _facts(agent: "AgentDetail") -> list[tuple[str, str]]:
    """Return named facts about an agent; the caller omits empty ones."""
    since = "" if agent.since is None else f" since {local(agent.since)}"
    drained = f"by {agent.drained_by}" if agent.drained_by else ""
    if agent.drained_by and agent.drain_reason:
        drained += f": {agent.drain_reason}"
    heard = between(agent.heartbeat_at, None)
    inside = agent.inside
    return [
        ("agent", f"{agent.cluster}/{agent.name}"),
        ("state", agent.state + since),
        ("drained", drained),
        ("version", agent.version or ""),
        ("heard", "" if heard is None else f"{duration(heard)} ago"),
        ("capacity", resources(agent.capacity)),
        ("in use", resources(agent.used)),
        ("load", "" if agent.load is None else f"{agent.load:.1f}"),
        ("tasks", f"{agent.running} running, {agent.leased} leased, {agent.ahead} of them prefetched"),
        (
            "stolen",
            f"{agent.stolen_in} in, {agent.stolen_out} out" if agent.stolen_in or agent.stolen_out else "",
        ),
        ("machine", "" if agent.machine is None else _machine(agent)),
        ("offers", " ".join(agent.offers)),
        ("labels", ", ".join(f"{name}={value}" for name, value in sorted(agent.labels.items()))),
        ("sockets", "" if inside is None else str(len({each.socket for each in inside.domains}) or "")),
        ("CPUs", "" if inside is None else "; ".join(", ".join(each.cpus) for each in inside.domains)),
        ("GPUs", "" if inside is None else ", ".join(inside.gpus)),
        (
            "links",
            ""
            if inside is None
            else "; ".join(f"{link.kind} {', '.join(link.gpus)}" for link in inside.links),
        ),
        ("token", agent.token or ""),
    ]


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
        _state(_drained(agent)),
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


def _drained(agent: "AgentView") -> str:
    """Describe the state of an agent, with the reason if a person drained it."""
    drained = agent.drained_by and agent.state != "draining"
    state = f"{agent.state}, drained" if drained else agent.state
    return f"{state}: {agent.drain_reason}" if agent.drained_by and agent.drain_reason else state


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
        "List agents with their usage, or show one; drain or resume agents, or forget lost ones.",
        _configure_agents,
        _agents,
        "spill agents show local-1\nspill agents drain local-1 --reason 'new disk'\nspill agents resume local-1",
    ),
}
