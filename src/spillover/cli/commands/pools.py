"""`spill pools`: shows rented machines, and pauses and resumes the pools that rent them."""

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Final

from spillover.cli import codes
from spillover.cli.command import Command, Context, UsageError, add_connection, add_json
from spillover.cli.printing.output import Column, Row
from spillover.cli.printing.shown import NOTHING, local
from spillover.model.units import MONEY

if TYPE_CHECKING:
    from spillover.client import Client
    from spillover.ports.provider import PriceList
    from spillover.wire.api import MachineView, OfferView, PlannedView, PoolView, SweepView, SweptMachine

_MACHINES: Final = (
    Column("MACHINE"),
    Column("TYPE"),
    Column("ZONE"),
    Column("MARKET"),
    Column("STATE"),
    Column("SINCE"),
    Column("TASKS", right=True),
    Column("COST", right=True),
    Column("WHY", gives=True),
)
_OFFERS: Final = (
    Column("OFFER"),
    Column("ZONE"),
    Column("MARKET"),
    Column("CPU", right=True),
    Column("GPU", right=True),
    Column("HOUR", right=True),
    Column("BOOT", right=True),
    Column("STATE", gives=True),
)
_PLANNED: Final = (
    Column("POOL"),
    Column("ACTION"),
    Column("MACHINES", gives=True),
    Column("OFFER"),
    Column("HOUR", right=True),
    Column("WHY", gives=True),
)
_SWEPT: Final = (
    Column("POOL"),
    Column("ID"),
    Column("MACHINE"),
    Column("STATE"),
    Column("CREATED"),
    Column("WHAT", gives=True),
)
_OVER: Final = ("gone", "refused")
_NAMED: Final = 4
"""Machines to name in a table."""


def _configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "action",
        nargs="?",
        choices=("list", "offers", "plan", "pause", "resume", "sweep", "prices"),
        default="list",
        metavar="ACTION",
        help="list: pools and their machines (default); offers: what they could rent; plan: what they would order and end now; pause: order nothing more; resume: order again; sweep: end machines at the provider that are ours and that nothing wants; prices: write the prices of a provider to a file",
    )
    parser.add_argument("pools", nargs="*", metavar="CLUSTER", help="name of a cluster with a pool")
    parser.add_argument("--all", action="store_true", help="list: also the last machines that are gone")
    parser.add_argument(
        "--end",
        action="store_true",
        help="pause: end all machines at once; their tasks return to the queue",
    )
    parser.add_argument("--dry-run", action="store_true", help="sweep: only show what would be ended")
    parser.add_argument("--provider", metavar="NAME", help="prices: the provider, such as aws")
    parser.add_argument("--region", metavar="REGION", help="prices: its region, such as eu-central-1")
    parser.add_argument(
        "--out", metavar="FILE", help="prices: file to write (default: PROVIDER-REGION-DATE.yaml)"
    )
    parser.add_argument("--why", default="", metavar="TEXT", help="pause: the reason that `spill why` shows")
    add_json(parser)
    add_connection(parser)


def _run(args: Namespace, context: Context) -> int:
    _check(args)
    if args.action == "prices":
        return _prices(args, context)
    with context.connect(args) as client:
        match args.action:
            case "plan":
                _plan(client.pool_plan(), args, context)
            case "pause":
                for name in args.pools:
                    client.pause_pool(name, why=args.why, end=args.end)
            case "resume":
                for name in args.pools:
                    client.resume_pool(name)
            case "sweep":
                return _sweep(client.sweep_pools(*args.pools, dry_run=args.dry_run), args, context)
            case _:
                _list(_chosen(client, args), args, context)
    return codes.OK


def _check(args: Namespace) -> None:
    if args.action in {"pause", "resume"} and not args.pools:
        raise UsageError(f"name a cluster, as in: spill pools {args.action} cloud")
    if args.action == "plan" and args.pools:
        raise UsageError("plan shows all pools; leave out the name")
    if (args.end or args.why) and args.action != "pause":
        raise UsageError("--end and --why are for: spill pools pause CLUSTER")
    if (args.provider or args.region or args.out) and args.action != "prices":
        raise UsageError("--provider, --region and --out are for: spill pools prices")
    if args.action == "prices" and (args.pools or not args.provider or not args.region):
        raise UsageError(
            "name a provider and a region: spill pools prices --provider aws --region eu-central-1"
        )
    if args.dry_run and args.action != "sweep":
        raise UsageError("--dry-run is for: spill pools sweep")


def _chosen(client: "Client", args: Namespace) -> "list[PoolView]":
    """Return the pools that were named, or all."""
    found = client.pools()
    if not args.pools:
        return found
    names = [each.cluster for each in found]
    for name in args.pools:
        if name not in names:
            raise UsageError(f"there is no pool {name!r}; clusters with a pool: {', '.join(names) or 'none'}")
    return [each for each in found if each.cluster in args.pools]


def _list(pools: "list[PoolView]", args: Namespace, context: Context) -> None:
    if args.json:
        context.out.json(pools)
        return
    if not pools:
        context.out.note("no cluster has a pool; docs/pools.md says how to rent machines")
    for at, pool in enumerate(pools):
        if at:
            context.out.line()
        context.out.line(_summary(pool))
        if args.action == "offers":
            context.out.table(_OFFERS, [_offer(each) for each in pool.offers])
            continue
        shown = [each for each in pool.machines if args.all or each.state not in _OVER]
        if shown:
            context.out.table(_MACHINES, [_machine(each) for each in shown])


def _summary(pool: "PoolView") -> str:
    """Describe a pool in one line."""
    live = [each for each in pool.machines if each.state not in _OVER]
    hour = sum([each.hour for each in live])
    left = "" if pool.budget_left is None else f", {pool.budget_left:.2f} of the budget left"
    state = f"paused: {pool.paused}" if pool.paused is not None else pool.state
    what = "clusters" if any(each.nodes is not None for each in pool.offers) else "machines"
    return f"{pool.cluster} ({pool.provider}): {state}; {len(live)} of {pool.max} {what}, {hour:.2f} an hour{left}"


def _market(spot: bool) -> str:
    return "spot" if spot else "on-demand"


def _machine(each: "MachineView") -> Row:
    why = each.reason
    if not why and each.ready_at is not None:
        why = f"ready at about {local(each.ready_at)}"
    elif not why and each.leaves_at is not None:
        why = f"empty; given back at {local(each.leaves_at)}"
    return (
        each.id,
        each.type if each.nodes is None else f"{each.nodes} x {each.type}",
        each.zone or NOTHING,
        _market(each.spot),
        each.state,
        local(each.since),
        str(each.tasks),
        f"{each.cost:.4f}",
        why,
    )


def _offer(each: "OfferView") -> Row:
    closed = "" if each.closed_until is None else f"closed until {local(each.closed_until)}: {each.reason}"
    return (
        each.type if each.nodes is None else f"1..{each.nodes} x {each.type}",
        each.zone or NOTHING,
        _market(each.spot),
        f"{each.cpu:g}",
        str(each.gpu),
        f"{each.hour:.4f}",
        f"{each.boot_p50_s:.0f}s",
        closed or "open",
    )


def _plan(planned: "list[PlannedView]", args: Namespace, context: Context) -> None:
    if args.json:
        context.out.json(planned)
    elif planned:
        context.out.table(_PLANNED, [_step(each) for each in planned])
    else:
        context.out.note("no pool would order or end a machine now")


def _step(each: "PlannedView") -> Row:
    more = len(each.machines) - _NAMED
    machines = " ".join(each.machines[:_NAMED]) + (f" and {more} more" if more > 0 else "")
    return (each.cluster, each.action, machines, each.offer or NOTHING, f"{each.hour:.4f}", each.reason)


def _prices(args: Namespace, context: Context) -> int:
    """Write prices in the form of offers; asks the provider, and no server."""
    from datetime import UTC, datetime  # noqa: PLC0415 - few need it
    from pathlib import Path  # noqa: PLC0415 - heavy

    from spillover.ports.provider import ProviderError  # noqa: PLC0415 - heavy
    from spillover.providers.registry import load_providers  # noqa: PLC0415 - heavy

    providers = load_providers()
    if args.provider not in providers:
        raise UsageError(providers.why_not(args.provider))
    today = datetime.now(UTC).date().isoformat()
    path = Path(args.out or f"{args.provider}-{args.region.replace('/', '-')}-{today}.yaml")
    try:
        found = providers[args.provider].price_list(args.region)
    except ProviderError as error:
        raise UsageError(str(error)) from None
    if args.json:
        context.out.json(found.prices)
        return codes.OK
    try:
        part = path.with_name(f"{path.name}.part")
        part.write_text(_offers_file(found, today), encoding="utf-8")
        part.replace(path)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from None
    context.out.line(str(path))
    return codes.OK


def _offers_file(found: "PriceList", today: str) -> str:
    """Return prices as the offers of a pool; a type of which the list does not say the size is a remark."""
    from decimal import Decimal  # noqa: PLC0415 - few need it

    currencies = ", ".join(dict.fromkeys([each.currency for each in found.prices]))
    lines = [f"# {found.about}", f"# read {today}; prices of an hour in {currencies}", "offers:"]
    for each in found.prices:
        hour = f"{Decimal(each.hour) / MONEY:f}"
        if each.cpu and each.memory:
            gpu = f", gpu: {each.gpu}" if each.gpu and each.gpu != "0" else ""
            size = f"cpu: {each.cpu}, memory: {each.memory}Gi{gpu}"
            lines.append(f"- {{type: {each.type}, {size}, hour: {hour}}}")
        else:
            lines.append(f"# {each.type}: {hour}; the list does not say its CPUs and memory")
    return "\n".join(lines) + "\n"


def _sweep(found: "list[SweepView]", args: Namespace, context: Context) -> int:
    """Show what providers have that is not wanted; fail if one could not be asked."""
    rows = [(pool.cluster, each) for pool in found for each in pool.machines]
    if args.json:
        context.out.json(found)
    elif rows:
        context.out.table(_SWEPT, [_swept(name, each, dry=args.dry_run) for name, each in rows])
    elif not found:
        context.out.note("no cluster has a pool; docs/pools.md says how to rent machines")
    elif not any(pool.problem for pool in found):
        context.out.note("providers have no machine of ours that is not wanted")
    for pool in found:
        if pool.problem is not None:
            context.out.note(f"{pool.cluster}: {pool.problem}")
    return codes.NOT_SWEPT if any(pool.problem for pool in found) else codes.OK


def _swept(cluster: str, each: "SweptMachine", *, dry: bool) -> Row:
    end = "would be ended" if dry else "is ended once a second listing shows it"
    what = {
        "unwanted": end,
        "stopped": "would be removed" if dry else "is removed; it does not run any more",
        "ending": "is being ended",
        "unlisted": "stays: its agent answers, but the provider does not list it",
    }
    told = what.get(each.state, each.state) + (f": {each.reason}" if each.reason else "")
    return (cluster, each.id or NOTHING, each.machine or NOTHING, each.state, local(each.made_at), told)


COMMANDS = {
    "pools": Command(
        "Show the machines that pools have rented, and what they could rent. `pause` keeps a pool from ordering machines until `resume`; with --end it also ends all of its machines, which is the kill switch. `sweep` asks providers for machines that are ours and that nothing wants, and ends those that a second listing shows too; with --dry-run it only shows them. `prices` writes the prices that a provider publishes as offers for spill.yaml, without a server.",
        _configure,
        _run,
        "spill pools\nspill pools offers cloud\nspill pools plan\nspill pools pause cloud --end --why 'too dear'\nspill pools resume cloud\nspill pools sweep --dry-run\nspill pools prices --provider aws --region eu-central-1",
    )
}
