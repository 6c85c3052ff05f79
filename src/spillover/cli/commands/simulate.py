"""`spill simulate`: simulates the jobs of a trace, under one set of policies or many."""

import gc
import os
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from time import perf_counter
from typing import TYPE_CHECKING

from spillover.cli import codes
from spillover.cli.command import Command, Context, UsageError, add_json

if TYPE_CHECKING:
    from spillover.model.policy import PolicySet
    from spillover.sim.estimates import Told
    from spillover.sim.studies.study import Study
    from spillover.sim.trace import Trace


def _configure(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--trace",
        required=True,
        metavar="FILE|synthetic:...",
        help="jobs to simulate: a CSV, SWF or sacct file, or a recipe",
    )
    add(
        "--owned",
        required=True,
        metavar="NODES",
        help="owned machines, such as 64x8gpu, 64x8gpu,48cpu,256GB or unlike ones, 4x8gpu+16x32cpu; or a resource graph (JGF file, .json)",
    )
    add(
        "--rented",
        required=True,
        metavar="PRICES",
        help="hourly prices and billing of rented capacity, such as gpu=2.5,cpu=0.04,step=60s,startup=90s; or machines of a pool, such as pool:8gpu,hour=20,boot=90s,step=1h",
    )
    add(
        "--policy",
        action="append",
        default=[],
        metavar="POLICY",
        help="policies, such as wait=compute(0.076),backfill=strict; other axes have the server's defaults",
    )
    add(
        "--warmup",
        type=_count,
        default=0,
        metavar="W",
        help="jobs at both ends to leave out of the statistics",
    )
    add("--seed", type=_count, default=0, metavar="N", help="random seed for recipes and errors of estimates")
    add(
        "--estimates",
        type=_told,
        metavar="WHAT",
        help="what policies know about runtimes: true, walltime or nothing (default: walltime if most jobs of the trace state one, else true); with --sweep also several, such as true,walltime",
    )
    add(
        "--estimate-error",
        type=_error,
        default=(0.0, 0.0),
        metavar="ERROR",
        help="random error of estimates: normal(0.25) or lognormal(0.5)",
    )
    add(
        "--reserve",
        action="append",
        default=[],
        metavar="NODES",
        help="reserve owned machines for maintenance, such as nodes=4,start=24h,for=2h, or for a project (project=NAME); repeatable",
    )
    add("--skip-bad", action="store_true", help="skip invalid rows, and count them")
    add("--jobs", metavar="FILE", help="write a row for each job to FILE (CSV, compressed if it ends in .gz)")
    add_json(parser)
    group = parser.add_argument_group("many policies")
    group.add_argument(
        "--sweep",
        action="append",
        metavar="POLICY",
        help="range of policies, such as wait=constant(0.1h..4h/8), or one policy; repeatable",
    )
    group.add_argument("--plot", metavar="FILE", help="plot cost against completion time (.svg or .png)")
    group.add_argument(
        "--currency", default="USD", metavar="C", help="currency of the prices, for the plot (default: USD)"
    )
    group.add_argument(
        "--out", metavar="FILE", help="file for results; points it already has are not simulated again"
    )
    group.add_argument(
        "--processes", type=_number, metavar="N", help="worker processes (default: one for each core)"
    )


def _count(text: str) -> int:
    """Parse a whole number of at least 0."""
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise ArgumentTypeError(f"{text!r} is not a whole number of at least 0")
    return int(text)


def _number(text: str) -> int:
    """Parse a whole number of at least 1."""
    if not (text.isascii() and text.isdigit() and len(text) < 19 and int(text)):
        raise ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def _told(text: str) -> list[str]:
    """Parse which runtime estimates the scheduler gets; `runtime` is the earlier name of `true`."""
    words = ["runtime" if word == "true" else word for word in text.split(",")]
    if len(set(words)) < len(words) or not {*words} <= {"runtime", "walltime", "nothing"}:
        raise ArgumentTypeError(f"{text!r} is not valid; write true, walltime or nothing, each at most once")
    return words


def _error(text: str) -> tuple[float, float]:
    """Parse the error of estimates as normal and lognormal deviation."""
    _load_msgspec()
    from spillover.forms.oneline import Piece  # noqa: PLC0415 - heavy

    name, inside = Piece(text).call() or (Piece(""), None)
    kind = name.text
    try:
        size = float(inside.text) if inside else -1.0
    except ValueError:
        size = -1.0
    if kind not in {"normal", "lognormal"} or not 0 <= size <= 10:
        raise ArgumentTypeError(
            f"{text!r} is not an error distribution; write normal(0.25) or lognormal(0.5)"
        )
    return (size, 0.0) if kind == "normal" else (0.0, size)


def _run(args: Namespace, context: Context) -> int:
    started = perf_counter()
    gc.disable()
    _load_msgspec()
    try:
        _check(args)
        study, policies, trace = _read(args)
        _remark(args, study, trace, context)
    finally:
        gc.freeze()  # the collector need not search modules and jobs, which stay
        gc.enable()
    if args.sweep:
        from spillover.cli.sweeps import sweep  # noqa: PLC0415 - heavy

        return sweep(args, context, study, trace, policies, _tolds(args, trace))
    return _single(args, context, study, trace, policies, started)


def _load_msgspec() -> None:
    """Load msgspec without typing_extensions, which is slow to load and not needed on this Python."""
    if "typing_extensions" not in sys.modules:
        sys.modules["typing_extensions"] = None  # type: ignore[assignment] # Python's way to mark a module as missing
        import msgspec  # noqa: F401, PLC0415 - for later imports

        del sys.modules["typing_extensions"]


def _read(args: Namespace) -> "tuple[Study, PolicySet, Trace]":
    """Read the options, the policies and the jobs."""
    from msgspec.structs import replace  # noqa: PLC0415 - heavy

    from spillover.forms.policystring import read_policies  # noqa: PLC0415 - heavy
    from spillover.sim.studies.study import read_jobs  # noqa: PLC0415 - heavy

    study = _study(args)
    policies = read_policies("".join(args.policy), "--policy", study=True)
    _load(policies)
    trace = read_jobs(study)
    return replace(study, told=_tolds(args, trace)[0]), policies, trace


def _tolds(args: Namespace, trace: "Trace") -> "list[Told]":
    """Return what policies know about runtimes: as asked, or what is usual for the trace."""
    from spillover.sim.estimates import Told, usual  # noqa: PLC0415 - heavy

    if args.estimates:
        return [Told(each) for each in args.estimates]
    return [Told.RUNTIME if any(args.estimate_error) else usual(trace.jobs)]


def _check(args: Namespace) -> None:
    """Refuse options that exclude each other."""
    from spillover.cli.writing import problems_of  # noqa: PLC0415 - loaded with the command

    problems = [
        f"{flag} needs --sweep, such as --sweep 'wait=constant(0.1h..4h/8)'"
        for flag, value in (("--plot", args.plot), ("--out", args.out))
        if value is not None and not args.sweep
    ]
    if len(args.policy) > 1:
        problems.append("--policy is given twice; to compare policies, use --sweep for each of them")
    if args.jobs and args.sweep:
        problems.append("--jobs is not allowed with --sweep")
    told = args.estimates or ["runtime"]
    if "runtime" not in told and any(args.estimate_error):
        problems.append(f"--estimate-error is not allowed with --estimates {','.join(told)}")
    if len(told) > 1 and not args.sweep:
        problems.append("--estimates takes several only with --sweep")
    folder = os.path.dirname(args.jobs or "")  # noqa: PTH120 - pathlib takes as long to load as a small trace to read
    if folder and not os.path.isdir(folder):  # noqa: PTH112 - likewise
        problems.append(f"--jobs: folder {folder} does not exist")
    written = (("--jobs", args.jobs), ("--out", args.out), ("--plot", args.plot))
    problems += problems_of(args.trace, "--trace", written)
    if problems:
        raise UsageError(*problems)


def _study(args: Namespace) -> "Study":
    """Build the study from the options; report all problems at once."""
    from spillover.sim.estimates import Told  # noqa: PLC0415 - heavy
    from spillover.sim.fleet import read_reserve, read_site  # noqa: PLC0415 - heavy
    from spillover.sim.studies.study import Study  # noqa: PLC0415 - heavy

    fleet, rent = read_site(args.owned, args.rented)
    normal, lognormal = args.estimate_error
    told = Told((args.estimates or ["runtime"])[0])
    return Study(
        args.trace,
        fleet,
        rent,
        args.seed,
        args.warmup,
        args.skip_bad,
        told,
        normal,
        lognormal,
        tuple([read_reserve(each) for each in args.reserve]),
    )


def _load(policies: "PolicySet") -> None:
    """Refuse policies that cannot be loaded, before reading a long trace."""
    from spillover.policies.loading import UnknownPolicy, load  # noqa: PLC0415 - heavy
    from spillover.sim.studies.study import for_engine  # noqa: PLC0415 - heavy

    try:
        load(for_engine(policies)[0])
    except UnknownPolicy as error:
        raise UsageError(f"--policy: {error}") from None


def _single(
    args: Namespace, context: Context, study: "Study", trace: "Trace", policies: "PolicySet", started: float
) -> int:
    """Simulate one set of policies and print the result."""
    from spillover.cli.printing.progress import counting  # noqa: PLC0415 - heavy
    from spillover.model.units import so_many  # noqa: PLC0415 - heavy
    from spillover.sim.reports.failures import told_of  # noqa: PLC0415 - heavy
    from spillover.sim.reports.report import facts, fields, write_jobs  # noqa: PLC0415 - heavy
    from spillover.sim.studies.study import run  # noqa: PLC0415 - heavy

    with counting(context.out, len(trace.jobs)) as ended:
        result, outcomes = run(study, trace.jobs, policies, ended)
    took = perf_counter() - started
    if args.jobs:
        write_jobs(args.jobs, trace.jobs, outcomes)
    if args.json:
        context.out.json(fields(result, study, trace))
    else:
        context.out.sheet(facts(result, study, trace))
    count = len(trace.jobs)
    context.out.note(
        f"{so_many(count)} simulated in {took:.2f} s ({count / took:,.0f} a second, with reading)"
    )
    if result.failures:
        context.out.note(f"the numbers of the policy are not valid: {told_of(result.failures)}")
    gc.freeze()  # the process ends soon and frees everything
    return codes.POLICY_FAILED if result.failures else codes.OK


def _remark(args: Namespace, study: "Study", trace: "Trace", context: Context) -> None:
    """Print notes on inputs that may surprise the user."""
    from spillover.sim.fleet import unpriced  # noqa: PLC0415 - heavy
    from spillover.sim.traces.places import bound_to_nodes  # noqa: PLC0415 - heavy

    fleet = study.fleet
    if not fleet.limits_cpu:
        without = sum(1 for job in trace.jobs if not job.gpus and job.cpus)
        if without:
            some = "1 job has" if without == 1 else f"{without:,} jobs have"
            never = "waits" if without == 1 else "wait"
            context.out.note(f"{some} no GPUs and never {never}; --owned has no CPUs (write 64x8gpu,48cpu)")
    elif fleet.without_gpus is not None and not fleet.node.cpu:
        bare = sum(1 for job in trace.jobs if job.gpus and job.cpus)
        if bare:
            some = "1 job has" if bare == 1 else f"{bare:,} jobs have"
            never = "runs" if bare == 1 else "run"
            context.out.note(
                f"{some} GPUs and CPUs and never {never} on owned machines; those with GPUs have no CPUs (write 4x8gpu,48cpu+16x32cpu)"
            )
    if not fleet.node.gpu and any(job.gpus for job in trace.jobs):
        context.out.note("jobs with GPUs never run on owned machines, because --owned has no GPUs")
    unlimited = sum(1 for job in trace.jobs if job.walltime is None)
    if unlimited and "walltime" in _tolds(args, trace):
        some = "1 job has" if unlimited == 1 else f"{unlimited:,} jobs have"
        context.out.note(f"{some} no walltime; policies know only how long earlier jobs ran of those")
    if bound := sum(1 for job in trace.jobs if job.topology is not None and bound_to_nodes(job.topology)):
        some = "1 job with" if bound == 1 else f"{bound:,} jobs with"
        context.out.note(
            f"{some} spread, exclusive, pin or gpu_link {'is' if bound == 1 else 'are'} never rented"
        )
    for line in unpriced(args.rented, fleet, trace.jobs):
        context.out.note(line)


COMMANDS = {
    "simulate": Command(
        "Simulate the jobs of a trace with the real scheduler. Shows how many jobs would be rented, their cost, and how long jobs would wait.",
        _configure,
        _run,
        "spill simulate --trace 'synthetic:jobs=2000,load=1.1' --owned 8x8gpu --rented gpu=2.5 --policy 'wait=compute(0.076)'\n"
        "spill simulate --trace jobs.csv.gz --owned 64x8gpu --rented gpu=2.5 --sweep 'wait=constant(0.1h..4h/8)' --plot curve.svg",
    )
}
