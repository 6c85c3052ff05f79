"""`spill config`: check spill.yaml, compare it with what the server does, and have the server do as it says."""

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Final

from spillover.cli import codes
from spillover.cli.command import Command, Context, UsageError, add_actions, add_connection, add_json
from spillover.cli.output import Column, Output

if TYPE_CHECKING:
    from spillover.wire.api import ConfigOutcome

_CHANGES: Final = (Column("WHAT"), Column("CHANGE"), Column("HOW", gives=True))


def _configure(parser: ArgumentParser) -> None:
    add = add_actions(parser)
    check = add("check", "say what is wrong with a file, without a server", "spill config check spill.yaml")
    check.add_argument("file", nargs="?", metavar="FILE", help="default: spill.yaml")
    add_json(check)
    diff = add(
        "diff", "say what the server would change if it read its file again", "spill config diff --json"
    )
    apply = add("apply", "have the server read its file again and do as it says", "spill config apply --move")
    how = apply.add_mutually_exclusive_group()
    for name, about in (
        ("finish", "let what runs on clusters that are not named any more end there (default)"),
        ("move", "stop what runs there and queue it again"),
        ("cancel", "cancel what runs there"),
    ):
        how.add_argument(f"--{name}", dest="jobs", action="store_const", const=name, help=about)
    for one in (diff, apply):
        add_json(one)
        add_connection(one)


def _run(args: Namespace, context: Context) -> int:
    if args.action == "check":
        return _check(args, context)
    with context.connect(args) as client:
        if args.action == "diff":
            outcome = client.apply_config(dry_run=True)
        else:
            outcome = client.apply_config(jobs=args.jobs or "finish")
    if args.json:
        context.out.json(outcome)
    else:
        _show(context.out, outcome)
    return codes.OK


def _check(args: Namespace, context: Context) -> int:
    from pathlib import Path  # noqa: PLC0415 - only here

    from spillover.clusters.kinds import load_kinds  # noqa: PLC0415 - heavy
    from spillover.server.clusters import Unusable, check_access  # noqa: PLC0415 - likewise
    from spillover.server.up import settings_of  # noqa: PLC0415 - likewise

    file = args.file or "spill.yaml"
    Path(file).read_bytes()  # said as such if it cannot be
    config = settings_of(file, None)
    try:
        check_access(config)
    except Unusable as error:
        raise UsageError(*str(error).splitlines()) from None
    if args.json:
        context.out.json({"file": file, "clusters": [spec.name for spec in config.clusters]})
        return codes.OK
    for line in load_kinds().unusable.values():
        context.out.note(line)
    names = ", ".join(f"{spec.name} ({spec.kind}, {spec.role})" for spec in config.clusters)
    context.out.line(f"{file} can be used; clusters: {names}")
    return codes.OK


def _show(out: Output, outcome: "ConfigOutcome") -> None:
    if not outcome.changes:
        out.line("nothing differs")
        return
    out.table(_CHANGES, [(each.what, each.change, each.text) for each in outcome.changes])
    if not outcome.done:
        out.note("nothing was changed; `spill config apply` does it")


COMMANDS = {
    "config": Command(
        "Check spill.yaml, compare it with what the server does, and apply it without a restart.",
        _configure,
        _run,
        "spill config check\nspill config diff\nspill config apply",
    ),
}
