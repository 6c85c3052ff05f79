"""`spill policy show`, `set`, `reset` and `history`: what decides, and how it is changed while the server runs."""

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING

from spillover.cli import codes
from spillover.cli.command import Command, Context, add_actions, add_connection, add_json
from spillover.cli.output import Cell, Column, Output, Row
from spillover.cli.shown import duration, local

if TYPE_CHECKING:
    from spillover.wire.api import PolicyAxis, PolicyOutcome, PolicyRecord, PolicyView

_AXES = (Column("AXIS"), Column("POLICY"), Column("FAILED", right=True), Column("PROBLEM", gives=True))
_CHANGES = (Column("WHEN"), Column("WHO"), Column("HOW"), Column("CHANGED"))
_LEAST = 20
"""Characters of a line of what changed, however narrow the terminal is."""


def _configure(parser: ArgumentParser) -> None:
    add = add_actions(parser)
    show = add(
        "show", "say which policies decide, since when, and whether one fails", "spill policy show --json"
    )
    change = add(
        "set",
        "decide by other policies from now on",
        "spill policy set 'wait=compute(0.1),order=priority' --dry-run",
    )
    change.add_argument(
        "policy", metavar="POLICY", help="as 'wait=compute(0.1),order=priority'; axes that are not named stay"
    )
    reset = add("reset", "go back to what spill.yaml says", "spill policy reset --dry-run")
    for one in (change, reset):
        one.add_argument("--dry-run", action="store_true", help="only check it and say what would change")
    history = add("history", "list the last changes, newest first", "spill policy history")
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
    """Each axis, then since when and what spill.yaml says."""
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
            ("spill.yaml", view.configured if view.differs else "says the same"),
            ("as a line", view.policy),
        ]
    )
    if view.differs:
        out.note("spill.yaml says otherwise; `spill policy reset` goes back to it")


def _axis(axis: "PolicyAxis") -> Row:
    """One axis, with what is wrong with it."""
    problem = axis.error or ""
    if axis.disabled is not None:
        problem = f"{axis.disabled} is disabled: {problem}"
    return axis.axis, axis.policy, str(axis.failures or "-"), Cell(problem, "red")


def _changed(out: Output, outcome: "PolicyOutcome") -> None:
    """What would change; nothing when it was done, as with all commands that change something, unless nothing changed."""
    if not outcome.changes:
        out.note("nothing changes" if outcome.done else "nothing would change")
    elif not outcome.done:
        for line in outcome.changes:
            out.line(line)


def history(out: Output, records: "list[PolicyRecord]") -> None:
    """One change a line."""
    if not records:
        out.note("the policies were never changed")
        return
    rows = [(local(one.at), one.who, one.how, _told(one)) for one in records]
    out.table(_CHANGES, _wrapped(rows, out.console().width) if out.terminal else rows)


def _wrapped(rows: Sequence[tuple[str, ...]], width: int) -> list[Row]:
    """The same rows with what changed broken over as many lines as it needs: it is what the list is for."""
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
        "Show which policies decide, change them while the server runs, or list what decided before. What is set stays, also over "
        "restarts, until spill.yaml says something else than it did.",
        _configure,
        _run,
        "spill policy show\nspill policy set 'wait=compute(0.1),order=priority' --dry-run",
    )
}
