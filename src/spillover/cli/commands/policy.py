"""`spill policy show`, `set`, `reset` and `history`: show policies, and change them while the server runs."""

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING

from spillover.cli import codes
from spillover.cli.command import Command, Context, add_actions, add_connection, add_json
from spillover.cli.printing.output import Cell, Column, Output, Row
from spillover.cli.printing.shown import duration, local

if TYPE_CHECKING:
    from spillover.wire.api import PolicyAxis, PolicyOutcome, PolicyRecord, PolicyView

_AXES = (Column("AXIS"), Column("POLICY"), Column("FAILED", right=True), Column("PROBLEM", gives=True))
_CHANGES = (Column("WHEN"), Column("WHO"), Column("HOW"), Column("CHANGED"))
_LEAST = 20
"""Least characters for a line of changes on a narrow terminal."""


def _configure(parser: ArgumentParser) -> None:
    add = add_actions(parser)
    show = add(
        "show",
        "show the policies in effect (default), since when, and whether one fails",
        "spill policy show --json",
    )
    change = add(
        "set",
        "change policies",
        "spill policy set 'wait=compute(0.1),order=priority' --dry-run",
    )
    change.add_argument(
        "policy",
        metavar="POLICY",
        help="such as 'wait=compute(0.1),order=priority'; other axes stay as they are",
    )
    reset = add("reset", "return to the policies of spill.yaml", "spill policy reset --dry-run")
    for one in (change, reset):
        one.add_argument("--dry-run", action="store_true", help="only check, and show what would change")
    history = add("history", "list recent changes, newest first", "spill policy history")
    for one in (show, change, reset, history):
        add_json(one)
        add_connection(one)


def _run(args: Namespace, context: Context) -> int:
    with context.connect(args) as client:
        match args.action:
            case "show":
                view = client.policy()
                context.out.json(view) if args.json else _show(context.out, view)
            case "history":
                records = client.policy_history()
                context.out.json(records) if args.json else history(context.out, records)
            case _:
                line = args.policy if args.action == "set" else None
                outcome = client.set_policy(line, dry_run=args.dry_run)
                context.out.json(outcome) if args.json else _changed(context.out, outcome)
    return codes.OK


def _show(out: Output, view: "PolicyView") -> None:
    """Print each axis, since when the policies are in effect, and the configured ones; there may be no spill.yaml."""
    out.table(_AXES, [_axis(axis) for axis in view.axes])
    how = {
        "set": "set by",
        "reset": "reset by",
        "configured": "configured, by",
        "disabled": "changed by",
    }.get(view.how or "", "")
    out.line()
    out.sheet(
        [
            ("depth", str(view.depth)),
            ("unknown runtime", duration(view.unknown_runtime_s)),
            ("since", f"{local(view.since)}, {how} {view.who}" if view.since else "the beginning"),
            ("configured", view.configured if view.differs else "the same policies"),
            ("as a line", view.policy),
        ]
    )
    if view.differs:
        out.note("the server is configured with other policies; run `spill policy reset` to return to them")


def _axis(axis: "PolicyAxis") -> Row:
    """Return the row of one axis, with its problem."""
    problem = axis.error or ""
    if axis.disabled is not None:
        problem = f"{axis.disabled} is disabled: {problem}"
    return axis.axis, axis.policy, str(axis.failures or "-"), Cell(problem, "red")


def _changed(out: Output, outcome: "PolicyOutcome") -> None:
    """Print what a dry run would change; after a real change, print only that nothing changed."""
    if not outcome.changes:
        out.note("nothing changes" if outcome.done else "nothing would change")
    elif not outcome.done:
        for line in outcome.changes:
            out.line(line)


def history(out: Output, records: "list[PolicyRecord]") -> None:
    """Print one change per line."""
    if not records:
        out.note("the policies have never been changed")
        return
    rows = [(local(one.at), one.who, one.how, _told(one)) for one in records]
    out.table(_CHANGES, _wrapped(rows, out.console().width) if out.terminal else rows)


def _wrapped(rows: Sequence[tuple[str, ...]], width: int) -> list[Row]:
    """Wrap the last column over several lines instead of cutting it, because it matters most."""
    import textwrap  # noqa: PLC0415 - only here

    others = (*zip(*rows, strict=True),)[:-1]
    taken = sum(
        max(map(len, (column.title, *texts))) + 2 for column, texts in zip(_CHANGES, others, strict=False)
    )
    found: list[Row] = []
    for *first, changed in rows:
        lines = textwrap.wrap(changed, max(_LEAST, width - taken)) or [""]
        found.append((*first, lines[0]))
        found += [(*("" for _ in first), line) for line in lines[1:]]
    return found


def _told(record: "PolicyRecord") -> str:
    changes = ", ".join(record.changes)
    return f"{changes} ({record.error})" if record.error else changes


COMMANDS = {
    "policy": Command(
        "Show the policies in effect, change them while the server runs, or list earlier changes. A change persists over restarts, until the policies in spill.yaml change.",
        _configure,
        _run,
        "spill policy\nspill policy set 'wait=compute(0.1),order=priority' --dry-run",
        action="show",
    )
}
