"""`spill backtest`: simulates past jobs under other policies, and measures the error of that simulation."""

import os
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from time import perf_counter
from typing import TYPE_CHECKING

from spillover.cli import codes
from spillover.cli.arguments import index, since
from spillover.cli.command import Command, Context, UsageError, add_connection, add_json

if TYPE_CHECKING:
    from spillover.cli.printing.output import Output
    from spillover.client import Client
    from spillover.model.policy import PolicySet
    from spillover.sim.studies.backtest import Backtest
    from spillover.sim.studies.past import PastJobs
    from spillover.sim.studies.served import Ruling
    from spillover.sim.studies.sweep import Point
    from spillover.wire.api import PastJob, PoolView

SLURM = "order=fifo,backfill=easy,wait=never,place=first_fit"
"""The policies that come closest to a usual Slurm configuration."""
_TOLD = ("then", "true", "walltime", "nothing")
_SOME = 25_000
"""Jobs between two progress messages while reading."""
_LONG = 50_000
"""Jobs to simulate, counted for each policy, from which on progress is shown."""


def _configure(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--policy",
        action="append",
        default=[],
        metavar="POLICY",
        help="policies to try, such as wait=compute(0.1),order=sjf; other axes stay as they were; repeatable",
    )
    add(
        "--since",
        type=since,
        metavar="WHEN",
        help="only jobs submitted since then, such as 30d or 2027-01-31",
    )
    add("--until", type=since, metavar="WHEN", help="only jobs submitted before then")
    add(
        "--really",
        metavar="POLICY",
        help="the policies that were in effect, if unknown or not installed here",
    )
    add(
        "--estimates",
        type=_told,
        default="then",
        metavar="WHAT",
        help="runtime estimates given to policies: then (the estimates of the time), true, walltime or nothing",
    )
    add(
        "--warmup",
        type=index,
        default=0,
        metavar="W",
        help="jobs at both ends to leave out of the statistics",
    )
    add(
        "--all-projects",
        action="store_true",
        help="show all projects, not only those with the largest changes",
    )
    add(
        "--jobs",
        metavar="FILE",
        help="write a row for each job and policy to FILE (CSV, compressed if it ends in .gz)",
    )
    add_json(parser)
    group = parser.add_argument_group("many policies")
    group.add_argument(
        "--sweep",
        action="append",
        default=[],
        metavar="POLICY",
        help="range of policies, such as wait=compute(0.02..0.2/8), or one policy; repeatable",
    )
    group.add_argument("--plot", metavar="FILE", help="plot cost against completion time (.svg or .png)")
    group = parser.add_argument_group("history of Slurm instead of this server's")
    group.add_argument("--sacct", metavar="FILE", help="output of sacct --parsable2 --allusers")
    group.add_argument(
        "--owned",
        metavar="NODES",
        help="its machines, such as 64x8gpu, 64x8gpu,48cpu,256GB or unlike ones, 4x8gpu,64cpu+16x32cpu",
    )
    group.add_argument(
        "--rented",
        metavar="PRICES",
        help="hourly prices of rented capacity, such as gpu=2.5,cpu=0.04; or machines of a pool, such as pool:8gpu,hour=20,boot=90s,step=1h",
    )
    group.add_argument("--skip-bad", action="store_true", help="skip invalid rows, and count them")
    add_connection(parser)


def _told(text: str) -> str:
    """Parse which runtime estimates policies get."""
    if text not in {*_TOLD, "runtime"}:  # the earlier name of `true`
        raise ArgumentTypeError(f"{text!r} is not valid; write {', '.join(_TOLD[:-1])} or {_TOLD[-1]}")
    return "runtime" if text == "true" else text


def _run(args: Namespace, context: Context) -> int:
    from spillover.cli.backtest_sweep import points_of  # noqa: PLC0415 - heavy
    from spillover.cli.printing.progress import progress  # noqa: PLC0415 - heavy
    from spillover.model.units import so_many  # noqa: PLC0415 - heavy
    from spillover.sim.estimates import Told  # noqa: PLC0415 - heavy
    from spillover.sim.reports.failures import told_of  # noqa: PLC0415 - heavy
    from spillover.sim.studies.backtest import run  # noqa: PLC0415 - heavy

    _check(args)
    began = perf_counter()
    _check_policies(args)
    if args.sacct:
        history, ruling, currency = *_slurm(args), ""
    else:
        with context.connect(args) as client:
            history, ruling, currency = _server(args, client, context.out)
    policies = [(text, _read(text, "--policy", ruling.last)) for text in args.policy]
    _load("what really ran", ruling.first, *(after for _, after in ruling.changes))
    points = points_of(args.sweep, ruling.last)
    swept = [(one.label, one.policies) for one in points]
    told = Told(args.estimates)
    lives = 1 + len(policies) + len(swept)
    long = lives * len(history.jobs) >= _LONG
    with progress(context.out, lives) if long else nullcontext(_quietly) as done:
        found = run(history, ruling, policies, told, args.warmup, done, swept)
    _report(args, context.out, history, found, ruling, points, currency)
    for remark in history.remarks:
        context.out.note(remark)
    took = perf_counter() - began
    context.out.note(
        f"{so_many(len(history.jobs))} simulated {lives} time{'s' if lives > 1 else ''} in {took:.1f} s"
    )
    failed = [one for one in (found.really, *found.policies, *found.swept) if one.failures]
    for one in failed:
        name = "what really ran" if one is found.really else one.name
        context.out.note(f"the numbers of {name} are not valid: {told_of(one.failures)}")
    return codes.POLICY_FAILED if failed else codes.OK


def _check_policies(args: Namespace) -> None:
    """Report problems with policies and the plot before reading a long history."""
    from pathlib import Path  # noqa: PLC0415 - heavy

    from spillover.cli.backtest_sweep import points_of  # noqa: PLC0415 - heavy
    from spillover.model.policy import PolicySet  # noqa: PLC0415 - heavy
    from spillover.sim.reports.plot import check_plot  # noqa: PLC0415 - heavy

    for text in args.policy:
        _read(text, "--policy")
    _load("--sweep", *(one.policies for one in points_of(args.sweep, PolicySet())))
    if args.plot:
        check_plot(Path(args.plot))


def _report(
    args: Namespace,
    out: "Output",
    history: "PastJobs",
    found: "Backtest",
    ruling: "Ruling",
    points: "Sequence[Point]",
    currency: str,
) -> None:
    """Write all results: rows of jobs, the plot, and tables or JSON."""
    from pathlib import Path  # noqa: PLC0415 - heavy

    from spillover.cli.backtest_sweep import draw_sweep, show_sweep, sweep_fields, swept_of  # noqa: PLC0415 - heavy
    from spillover.cli.printing.backtests import Shown, show, write_rows  # noqa: PLC0415 - heavy
    from spillover.model.units import format_moment  # noqa: PLC0415 - heavy
    from spillover.sim.estimates import Told  # noqa: PLC0415 - heavy
    from spillover.sim.studies.backtest import fields  # noqa: PLC0415 - heavy

    told = Told(args.estimates)
    if args.jobs:
        write_rows(args.jobs, history, found)
    swept = swept_of(found, points, ruling.last, told)
    if args.plot:
        first, last = (format_moment(history.jobs[at].submit) for at in (history.standing, -1))
        draw_sweep(Path(args.plot), swept, args.sweep, f"from {first} to {last}", currency)
    if args.json:
        every = {**fields(found, history, ruling, told, args.warmup), "currency": currency or None}
        out.json({**every, "sweep": sweep_fields(found, swept)})
    else:
        assumed = bool(args.sacct and not args.really)
        show(out, Shown(found, history, ruling, currency, args.warmup, args.all_projects, assumed, told))
        if points:
            show_sweep(out, swept)
    if args.plot:
        out.note(f"the plot is in {args.plot}")


def _quietly(_: str) -> None:
    """Ignore progress."""


def _check(args: Namespace) -> None:
    """Refuse options that exclude each other."""
    from spillover.cli.writing import problems_of  # noqa: PLC0415 - loaded with the command

    problems = []
    if args.sacct and not args.owned:
        problems.append("--sacct needs --owned, the machines that the jobs ran on, such as --owned 64x8gpu")
    if not args.sacct:
        problems += [
            f"{flag} is only allowed with --sacct"
            for flag, value in (("--owned", args.owned), ("--rented", args.rented))
            if value is not None
        ]
    if args.skip_bad and not args.sacct:
        problems.append("--skip-bad is only allowed with --sacct")
    if args.since is not None and args.until is not None and args.since >= args.until:
        problems.append("--since must be earlier than --until")
    if args.plot and not args.sweep:
        problems.append("--plot needs --sweep, such as --sweep 'wait=compute(0.02..0.2/8)'")
    folder = os.path.dirname(args.jobs or "")  # noqa: PTH120 - a command loads nothing that it may not need
    if folder and not os.path.isdir(folder):  # noqa: PTH112 - likewise
        problems.append(f"--jobs: folder {folder} does not exist")
    written = [("--jobs", args.jobs), ("--plot", args.plot)]
    problems += problems_of(args.sacct, "--sacct", written) if args.sacct else []
    if problems:
        raise UsageError(*problems)


def _slurm(args: Namespace) -> "tuple[PastJobs, Ruling]":
    """Read the history of an sacct file, and the policies assumed for it."""
    from msgspec.structs import replace  # noqa: PLC0415 - heavy

    from spillover.model.units import time_of  # noqa: PLC0415 - heavy
    from spillover.sim.fleet import read_site, unpriced  # noqa: PLC0415 - heavy
    from spillover.sim.studies.past import from_slurm  # noqa: PLC0415 - heavy
    from spillover.sim.studies.served import Ruling  # noqa: PLC0415 - heavy
    from spillover.sim.traces.opening import read_trace  # noqa: PLC0415 - heavy

    fleet, rent = read_site(args.owned, args.rented or "gpu=0")
    ruling = Ruling(_read(args.really or SLURM, "--really"))
    trace = read_trace(args.sacct, skip_bad=args.skip_bad)
    if not trace.happened:
        raise UsageError(f"{args.sacct} has no start times of jobs; use spill simulate instead")
    span = [None if when is None else time_of(when) for when in (args.since, args.until)]
    history = from_slurm(trace, fleet, rent, *span)
    if args.rented is None:
        free = "no rented capacity has a price; set one with --rented gpu=2.5"
        return replace(history, remarks=(*history.remarks, free)), ruling
    more = unpriced(args.rented, fleet, history.jobs)
    return replace(history, remarks=(*history.remarks, *more)), ruling


def _server(args: Namespace, client: "Client", out: "Output") -> "tuple[PastJobs, Ruling, str]":
    """Read the history of a server, its policies over that time, and its currency."""
    from msgspec.structs import replace  # noqa: PLC0415 - heavy

    from spillover.model.units import so_many, time_of  # noqa: PLC0415 - heavy
    from spillover.sim.studies.past import from_journal  # noqa: PLC0415 - heavy
    from spillover.sim.studies.served import Ruling, budgets_from, queues_from, ruling_from, site_from  # noqa: PLC0415 - heavy
    from spillover.sim.studies.served_pools import assumed  # noqa: PLC0415 - heavy

    server = client.server()
    pools = _pools(client)
    site = site_from(client.clusters(), client.agents(), pools)
    budgets = budgets_from(client.budgets())
    before: list[PastJob] = []
    begin = 0
    if args.since is not None:
        before, begin = list(client.past(None, args.since, args.since)), time_of(args.since)
    past = _counting(client.past(args.since, args.until), out)
    history = from_journal(past, site, budgets, before, begin, queues_from(client.queues()))
    history = replace(history, remarks=(*history.remarks, *assumed(pools)))
    waiting = server.queued + server.running
    if waiting:
        which = f"{so_many(waiting)} now, whenever submitted" if args.until else so_many(waiting)
        left = f"left out jobs that have not ended ({which}) and the capacity they use"
        history = replace(history, remarks=(*history.remarks, left))
    if args.really is not None:
        return history, Ruling(_read(args.really, "--really")), server.currency
    if not history.counted():
        raise UsageError(
            "no job ran and ended in this time range; choose another one with --since and --until"
        )
    begin, end = history.jobs[0].submit, max(one.start for one in history.happened)
    return history, ruling_from(client.policy().policy, client.policy_history(), begin, end), server.currency


def _pools(client: "Client") -> "list[PoolView]":
    """Return the pools of a server; none if it is of a release that had none."""
    from spillover.client import Refused  # noqa: PLC0415 - loaded with the command

    try:
        return client.pools()
    except Refused as error:
        if error.status != 404:
            raise
        return []


def _counting(jobs: "Iterator[PastJob]", out: "Output") -> "Iterator[PastJob]":
    """Yield the same jobs; print their number from time to time."""
    for count, job in enumerate(jobs, 1):
        if count % _SOME == 0:
            out.note(f"{count:,} jobs read")
        yield job


def _read(text: str, option: str, base: "PolicySet | None" = None) -> "PolicySet":
    """Parse policies and check that they can be loaded."""
    from spillover.forms.policystring import read_policies  # noqa: PLC0415 - heavy

    policies = read_policies(text, option, base=base)
    _load(option, policies)
    return policies


def _load(option: str, *policies: "PolicySet") -> None:
    """Refuse policies that cannot be loaded."""
    from spillover.policies.loading import UnknownPolicy, load  # noqa: PLC0415 - heavy

    for each in policies:
        try:
            load(each)
        except UnknownPolicy as error:
            raise UsageError(f"{option}: {error}") from None


COMMANDS = {
    "backtest": Command(
        "Simulate past jobs with the real scheduler, under the policies of the time and under others. Compares cost and wait times with what happened, shows which projects would win or lose, and reports the error of the simulation.",
        _configure,
        _run,
        "spill backtest --since 30d --policy 'wait=compute(0.1)' --policy 'wait=zero'\n"
        "spill backtest --since 30d --sweep 'wait=break_even(0.02..0.2/8)' --plot frontier.svg\n"
        "spill backtest --sacct sacct.txt --owned 16x8gpu,64cpu --rented gpu=2.5 --policy 'wait=compute(0.076)'",
    )
}
