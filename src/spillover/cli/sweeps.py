"""Runs a sweep of policies, and prints its progress, its table and its plot."""

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from time import monotonic
from typing import Any, Final

from msgspec.structs import replace

from spillover.cli import codes
from spillover.cli.command import Context, UsageError
from spillover.cli.printing.output import Cell, Column, Output
from spillover.cli.printing.progress import progress
from spillover.forms.oneline import Piece
from spillover.model.policy import PolicySet
from spillover.model.policy_options import write_policies
from spillover.model.units import so_many
from spillover.policies.loading import UnknownPolicy, load
from spillover.sim.estimates import Known, Told
from spillover.sim.reports.failures import told_of
from spillover.sim.reports.plot import Curve, Dot, Origin, check_plot, draw
from spillover.sim.reports.report import fields, left_out, span
from spillover.sim.studies.study import Study, StudyResult, for_engine
from spillover.sim.studies.sweep import Point, Results, dominated, missing, plan
from spillover.sim.studies.workers import cores, simulate_all
from spillover.sim.trace import Trace

DEFAULT_OUT: Final = Path("spill-sweep.jsonl")
KNOWN: Final = Column("KNOWN")
"""What policies know about runtimes, if rows differ in that."""
COLUMNS: Final = (
    Column("POLICY", gives=True),
    Column("RENTED", right=True, drops=2),
    Column("COST", right=True),
    Column("SAVED", right=True),
    Column("WAIT", right=True, drops=1),
    Column("WASTED", right=True, drops=3),
    Column("COMPLETION", right=True),
    Column("LONGER", right=True),
    Column("", right=False),
)


def sweep(
    args: Namespace, context: Context, study: Study, trace: Trace, base: PolicySet, tolds: Sequence[Told]
) -> int:
    """Simulate every point without a stored result, and show all points."""
    picture = Path(args.plot) if args.plot else None
    if picture:
        check_plot(picture)
    points = plan(args.sweep, base, study, trace.jobs, tolds)
    _load(points)
    beside = picture.with_suffix(".jsonl") if picture else DEFAULT_OUT
    path = Path(args.out) if args.out else beside
    Results(path).check()
    results = _simulate(points, Results(path), args, context, study, trace)
    beaten = dominated(results)
    if picture:
        jobs = so_many(results[0].statistics.jobs)
        title = f"{_name(study.trace)}: {jobs} on {args.owned}, rented at {args.rented}"
        draw_points(picture, points, results, beaten, curve_names(args.sweep), title, args.currency)
    if args.json:
        context.out.json([_fields(*one, study, trace) for one in zip(points, results, beaten, strict=True)])
    else:
        context.out.sheet(_facts(base, trace, points))
        context.out.line()
        show_points(context.out, points, results, beaten)
    context.out.note(f"results are in {path}" + (f", the plot is in {picture}" if picture else ""))
    failed = [(point.label, one.failures) for point, one in zip(points, results, strict=True) if one.failures]
    for label, failures in failed:
        context.out.note(f"the numbers of {label} are not valid: {told_of(failures)}")
    return codes.POLICY_FAILED if failed else codes.OK


def _simulate(
    points: Sequence[Point], file: Results, args: Namespace, context: Context, study: Study, trace: Trace
) -> list[StudyResult]:
    """Return a result for each point; store new ones as they come."""
    kept = file.read()
    todo = list(missing(points, kept))
    processes = args.processes or cores()
    began = monotonic()
    known = len(points) - len(todo)
    added = 0
    try:
        with progress(context.out, len(todo), known) as done:
            for point, result in simulate_all(study, trace.jobs, todo, processes):
                file.add(point.key, result)
                kept[point.key] = result
                added += 1
                done(point.label)
    except KeyboardInterrupt:
        context.out.note(
            f"{known + added} of {len(points)} done, in {file.path}; run the command again to continue"
        )
        raise
    if todo:
        took, jobs = monotonic() - began, len(todo) * len(trace.jobs)
        many = "1 simulation" if len(todo) == 1 else f"{len(todo):,} simulations"
        context.out.note(f"{many} in {took:.1f} s ({jobs / took:,.0f} jobs a second)")
    return [replace(kept[point.key], known=point.known) for point in points]


def _load(points: Sequence[Point]) -> None:
    """Refuse policies that cannot be loaded, before any simulation starts."""
    for point in points:
        try:
            load(for_engine(point.policies)[0])
        except UnknownPolicy as error:
            raise UsageError(f"--sweep: {point.label}: {error}") from None


def _facts(base: PolicySet, trace: Trace, points: Sequence[Point]) -> list[tuple[str, str]]:
    """Return the facts that all points share."""
    told = [("policy", f"{write_policies(base)}, except where a row says otherwise")]
    told.append(("policies know", known_by(points)))
    return told + ([("left out", left_out(trace))] if trace.left_out or trace.not_jobs else [])


def known_by(points: Sequence[Point]) -> str:
    """Say what policies know about runtimes; if points differ, by the word in their rows."""
    known = list(dict.fromkeys(point.known for point in points[1:] or points))
    return str(known[0]) if len(known) == 1 else "; ".join(f"{each.word}: {each}" for each in known)


def show_points(
    out: Output, points: Sequence[Point], results: Sequence[StudyResult], beaten: Sequence[bool]
) -> None:
    """Print a row for each point, compared with the first one."""
    several = len({point.known for point in points[1:]}) > 1
    columns = (COLUMNS[0], KNOWN, *COLUMNS[1:]) if several else COLUMNS
    out.table(columns, _rows(points, results, beaten, several=several))


def _rows(
    points: Sequence[Point], results: Sequence[StudyResult], beaten: Sequence[bool], *, several: bool
) -> list[list[str | Cell]]:
    """Return the table: each point compared with the first one."""
    zero = results[0].statistics
    rows: list[list[str | Cell]] = []
    for point, result, worse in zip(points, results, beaten, strict=True):
        numbers = result.statistics
        texts = (
            _short(point.label),
            *([point.known.word if point.curve else ""] if several else []),
            f"{numbers.rented_jobs:,}",
            f"{numbers.rented_cost:,.2f}",
            _change(zero.rented_cost - numbers.rented_cost, zero.rented_cost),
            span(numbers.mean_wait_s),
            f"{numbers.wasted_wait:.0%}",
            span(numbers.mean_completion_s),
            _change(numbers.mean_completion_s - zero.mean_completion_s, zero.mean_completion_s),
            "failed" if result.failures else "dominated" if worse else "",
        )
        rows.append([Cell(text, "bright_black" if worse else "") for text in texts])
    return rows


def _short(label: str) -> str:
    """Shorten a label for the table: omit `wait=`."""
    return ",".join(part.strip().text.removeprefix("wait=") for part in Piece(label).parts())


def _change(part: float, whole: float) -> str:
    """Format a change in percent."""
    return f"{part / whole:.1%}" if whole else "-"


def _fields(point: Point, result: StudyResult, worse: bool, study: Study, trace: Trace) -> dict[str, Any]:
    """Return a point as JSON fields."""
    return {
        **fields(result, study, trace),
        "curve": point.curve,
        "label": point.label,
        "dominated": worse,
    }


def draw_points(
    picture: Path,
    points: Sequence[Point],
    results: Sequence[StudyResult],
    beaten: Sequence[bool],
    names: Sequence[str],
    title: str,
    currency: str,
    origin: Origin = Origin(),  # noqa: B008 - it never changes
) -> None:
    """Draw the points as curves with these names, compared with the first point."""
    right = [not one.failures for one in results]  # a failed policy did not produce its own numbers
    several = len({point.known for point in points[1:]}) > 1
    dots = [
        Dot(
            one.statistics.rented_cost,
            one.statistics.mean_completion_s / 3600,
            point.value,
            worse,
            point.known.word if several and point.curve else "",
        )
        for point, one, worse in zip(points, results, beaten, strict=True)
    ]
    found: dict[tuple[int, Known], list[Dot]] = {}
    for point, dot, is_right in zip(points, dots, right, strict=True):
        if is_right and point.curve:
            found.setdefault((point.curve, point.known), []).append(dot)
    curves = [
        Curve(f"{names[number - 1]}, {known.word}" if several else names[number - 1], some)
        for (number, known), some in found.items()
    ]
    draw(picture, curves, dots[0], f"{title}\npolicies know {known_by(points)}", currency, origin)


def curve_names(sweeps: Sequence[str]) -> list[str]:
    """Name the curves by their policies, without the swept option; as written if that is not unique."""
    names = [", ".join(_policy_name(part.strip()) for part in Piece(sweep).parts()) for sweep in sweeps]
    return [name if names.count(name) == 1 else sweep for name, sweep in zip(names, sweeps, strict=True)]


def _policy_name(part: Piece) -> str:
    """`compute(max_queue=30)` for `wait=compute(0.1..1/9,max_queue=30)`."""
    policy = (part.pair()[1] or part).strip()
    name, options = policy.call() or (policy, None)
    rest = (
        ",".join(one.text for one in options.parts() if one.text and ".." not in one.text) if options else ""
    )
    return f"{name.text}({rest})" if rest else name.text


def _name(trace: str) -> str:
    """Shorten the name of a trace for the title of a plot."""
    return trace if trace.startswith("synthetic:") else Path(trace).name
