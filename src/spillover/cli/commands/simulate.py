"""`spill simulate`: what would become of the jobs of a trace, under one set of policies or under many."""

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
    from spillover.sim.study import Study
    from spillover.sim.trace import Trace


def _configure(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("--trace", required=True, metavar="FILE|synthetic:...", help="jobs: CSV, SWF, sacct, or a recipe")
    add("--owned", required=True, metavar="NODES", help="machines, as 64x8gpu or 64x8gpu,48cpu,256GB")
    add(
        "--rented",
        required=True,
        metavar="PRICES",
        help="an hour's prices, as gpu=2.5,cpu=0.04,step=60s,startup=90s",
    )
    add(
        "--policy",
        action="append",
        default=[],
        metavar="POLICY",
        help="as wait=compute(0.076),backfill=strict; what is left out is as in spill.yaml",
    )
    add("--warmup", type=_count, default=0, metavar="W", help="jobs left out of the statistics at both ends")
    add("--seed", type=_count, default=0, metavar="N", help="of all dice: recipes, errors of estimates")
    add(
        "--estimates",
        type=_told,
        default="runtime",
        metavar="WHAT",
        help="what policies are told: runtime, walltime or nothing",
    )
    add(
        "--estimate-error",
        type=_error,
        default=(0.0, 0.0),
        metavar="ERROR",
        help="normal(0.25) or lognormal(0.5), on runtimes",
    )
    add("--skip-bad", action="store_true", help="leave rows that are wrong out, and count them")
    add("--jobs", metavar="FILE", help="write a row for each job (CSV, packed if it ends in .gz)")
    add_json(parser)
    group = parser.add_argument_group("many policies")
    group.add_argument(
        "--sweep",
        action="append",
        metavar="POLICY",
        help="a curve, as wait=constant(0.1h..4h/8), or one point of it; repeatable",
    )
    group.add_argument("--plot", metavar="FILE", help="draw cost against completion time (.svg or .png)")
    group.add_argument(
        "--out", metavar="FILE", help="results as they come; known ones are not simulated again"
    )
    group.add_argument("--processes", type=_number, metavar="N", help="default: one for each core")


def _count(text: str) -> int:
    """A whole number from 0."""
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise ArgumentTypeError(f"{text!r} is not a whole number from 0")
    return int(text)


def _number(text: str) -> int:
    """A whole number from 1."""
    if not (text.isascii() and text.isdigit() and len(text) < 19 and int(text)):
        raise ArgumentTypeError(f"{text!r} is not a whole number from 1")
    return int(text)


def _told(text: str) -> str:
    """What the scheduler is told about runtimes."""
    if text not in {"runtime", "walltime", "nothing"}:
        raise ArgumentTypeError(f"{text!r} is not known; write runtime, walltime or nothing")
    return text


def _error(text: str) -> tuple[float, float]:
    """The normal and the lognormal error of estimates."""
    _load_msgspec()
    from spillover.forms.oneline import Piece  # noqa: PLC0415 - heavy

    name, inside = Piece(text).call() or (Piece(""), None)
    kind = name.text
    try:
        size = float(inside.text) if inside else -1.0
    except ValueError:
        size = -1.0
    if kind not in {"normal", "lognormal"} or not 0 <= size <= 10:
        raise ArgumentTypeError(f"{text!r} is not an error; write normal(0.25) or lognormal(0.5)")
    return (size, 0.0) if kind == "normal" else (0.0, size)


def _run(args: Namespace, context: Context) -> int:
    started = perf_counter()
    gc.disable()
    _load_msgspec()
    try:
        _check(args)
        study, policies, trace = _read(args)
        _remark(args.rented, study, trace, context)
    finally:
        gc.freeze()  # what is loaded and read stays: nothing is to be looked for in it
        gc.enable()
    if args.sweep:
        from spillover.cli.sweeping import sweep  # noqa: PLC0415 - heavy

        return sweep(args, context, study, trace, policies)
    return _single(args, context, study, trace, policies, started)


def _load_msgspec() -> None:
    """Load it without typing_extensions, which it would take for names that Python has itself, and which loads longer than it does."""
    if "typing_extensions" not in sys.modules:
        sys.modules["typing_extensions"] = None  # type: ignore[assignment] # which is how Python writes that there is none
        import msgspec  # noqa: F401, PLC0415 - for whoever imports it after us

        del sys.modules["typing_extensions"]


def _read(args: Namespace) -> "tuple[Study, PolicySet, Trace]":
    """What is asked for, and the jobs."""
    from spillover.forms.policystring import read_policies  # noqa: PLC0415 - heavy
    from spillover.sim.study import read_jobs  # noqa: PLC0415 - heavy

    study = _study(args)
    policies = read_policies("".join(args.policy), "--policy", study=True)
    _load(policies)
    return study, policies, read_jobs(study)


def _check(args: Namespace) -> None:
    """Options that do not go together."""
    from spillover.cli.writing import problems_of  # noqa: PLC0415 - loaded with the command

    problems = [
        f"{flag} is for a sweep; write --sweep 'wait=constant(0.1h..4h/8)' too"
        for flag, value in (("--plot", args.plot), ("--out", args.out))
        if value is not None and not args.sweep
    ]
    if len(args.policy) > 1:
        problems.append("--policy is written twice; to compare several, write --sweep for each of them")
    if args.jobs and args.sweep:
        problems.append("--jobs is for one set of policies; leave --sweep out")
    if args.estimates != "runtime" and any(args.estimate_error):
        problems.append(
            f"--estimate-error is one of true runtimes; it does not go with --estimates {args.estimates}"
        )
    folder = os.path.dirname(args.jobs or "")  # noqa: PTH120 - pathlib takes as long to load as a small trace to read
    if folder and not os.path.isdir(folder):  # noqa: PTH112 - likewise
        problems.append(f"--jobs: there is no folder {folder}")
    written = (("--jobs", args.jobs), ("--out", args.out), ("--plot", args.plot))
    problems += problems_of(args.trace, "--trace", written)
    if problems:
        raise UsageError(*problems)


def _study(args: Namespace) -> "Study":
    """The study that was asked for; everything that is wrong with it is told at once."""
    from spillover.sim.estimates import Told  # noqa: PLC0415 - heavy
    from spillover.sim.fleet import read_site  # noqa: PLC0415 - heavy
    from spillover.sim.study import Study  # noqa: PLC0415 - heavy

    fleet, rent = read_site(args.owned, args.rented)
    normal, lognormal = args.estimate_error
    told = Told(args.estimates)
    return Study(args.trace, fleet, rent, args.seed, args.warmup, args.skip_bad, told, normal, lognormal)


def _load(policies: "PolicySet") -> None:
    """Refuse policies that cannot be made, before a long trace is read."""
    from spillover.policies.loading import UnknownPolicy, load  # noqa: PLC0415 - heavy
    from spillover.sim.study import for_engine  # noqa: PLC0415 - heavy

    try:
        load(for_engine(policies)[0])
    except UnknownPolicy as error:
        raise UsageError(f"--policy: {error}") from None


def _single(
    args: Namespace, context: Context, study: "Study", trace: "Trace", policies: "PolicySet", started: float
) -> int:
    """One set of policies."""
    from spillover.cli.progress import counting  # noqa: PLC0415 - heavy
    from spillover.sim.failing import told_of  # noqa: PLC0415 - heavy
    from spillover.sim.report import facts, fields, so_many, write_jobs  # noqa: PLC0415 - heavy
    from spillover.sim.study import run  # noqa: PLC0415 - heavy

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
        context.out.note(f"these are not numbers of the policy: {told_of(result.failures)}")
    gc.freeze()  # what is left goes with the process
    return codes.POLICY_FAILED if result.failures else codes.OK


def _remark(rented: str, study: "Study", trace: "Trace", context: Context) -> None:
    """Say what may not be as one thinks."""
    from spillover.sim.fleet import unpriced  # noqa: PLC0415 - heavy

    fleet = study.fleet
    if not fleet.limits_cpu:
        without = sum(1 for job in trace.jobs if not job.gpus and job.cpus)
        if without:
            some = "1 job has" if without == 1 else f"{without:,} jobs have"
            never = "waits" if without == 1 else "wait"
            context.out.note(f"{some} no GPUs and never {never}: --owned states no CPUs (as 64x8gpu,48cpu)")
    if not fleet.node.gpu and any(job.gpus for job in trace.jobs):
        context.out.note("jobs with GPUs never run on owned machines: --owned states no GPUs")
    for line in unpriced(rented, fleet, trace.jobs):
        context.out.note(line)


COMMANDS = {
    "simulate": Command(
        "Simulate the jobs of a trace with the scheduler itself: what would be rented, what it would cost, how long jobs would wait.",
        _configure,
        _run,
        "spill simulate --trace 'synthetic:jobs=2000,load=1.1' --owned 8x8gpu --rented gpu=2.5 --policy 'wait=compute(0.076)'\n"
        "spill simulate --trace jobs.csv.gz --owned 64x8gpu --rented gpu=2.5 --sweep 'wait=constant(0.1h..4h/8)' --plot curve.svg",
    )
}
