"""`spill config`: checks spill.yaml, compares it with the running server, and applies it."""

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from spillover.cli import codes
from spillover.cli.command import Command, Context, UsageError, add_actions, add_connection, add_json
from spillover.cli.printing.output import Column, Output

if TYPE_CHECKING:
    from spillover.forms.problems import FormProblem
    from spillover.wire.api import ConfigOutcome

_CHANGES: Final = (Column("WHAT"), Column("CHANGE"), Column("HOW", gives=True))


def _configure(parser: ArgumentParser) -> None:
    add = add_actions(parser)
    check = add("check", "check a file, without a server", "spill config check spill.yaml")
    check.add_argument("file", nargs="?", metavar="FILE", help="file to check (default: spill.yaml)")
    check.add_argument("--config", metavar="FILE", help="the same, as for `spill up`")
    add_json(check)
    diff = add(
        "diff", "show what the server would change if it reloaded its file", "spill config diff --json"
    )
    apply = add("apply", "make the server reload its file and apply it", "spill config apply --move")
    how = apply.add_mutually_exclusive_group()
    for name, about in (
        ("finish", "let jobs on removed clusters end (default)"),
        ("move", "stop jobs on removed clusters and requeue them"),
        ("cancel", "cancel jobs on removed clusters"),
    ):
        how.add_argument(f"--{name}", dest="jobs", action="store_const", const=name, help=about)
    for one in (diff, apply):
        add_json(one)
        add_connection(one)


def _run(args: Namespace, context: Context) -> int:
    if args.action == "check":
        return _check(args, context)
    with context.connect(args) as client, _located():
        if args.action == "diff":
            outcome = client.apply_config(dry_run=True)
        else:
            outcome = client.apply_config(jobs=args.jobs or "finish")
    if args.json:
        context.out.json(outcome)
    else:
        _show(context.out, outcome)
    return codes.OK


@contextmanager
def _located() -> Iterator[None]:
    """Convert a Refused error about the server's file into BadForm, so that it reads as in `spill config check`."""
    from spillover.client import Refused  # noqa: PLC0415 - heavy
    from spillover.forms.problems import BadForm, FormProblem  # noqa: PLC0415 - likewise

    try:
        yield
    except Refused as error:
        if not error.problems:
            raise
        found = [FormProblem(each.source, each.line, each.path, each.message) for each in error.problems]
        raise BadForm(found) from None


def _check(args: Namespace, context: Context) -> int:
    from pathlib import Path  # noqa: PLC0415 - only here

    from spillover.cli.unused import ignored_settings  # noqa: PLC0415 - only here
    from spillover.clusters.kinds import load_kinds  # noqa: PLC0415 - heavy
    from spillover.config.read import examine  # noqa: PLC0415 - likewise
    from spillover.forms.problems import BadForm  # noqa: PLC0415 - likewise
    from spillover.providers.registry import load_providers  # noqa: PLC0415 - likewise
    from spillover.server.clusters import missing_access  # noqa: PLC0415 - likewise
    from spillover.server.local_files import unusable_files  # noqa: PLC0415 - likewise

    if args.file is not None and args.config is not None:
        raise UsageError("name one file: `spill config check FILE`")
    file = args.file or args.config or "spill.yaml"
    reading = examine(Path(file).read_bytes(), file)
    config, problems, missing = reading.config, list(reading.problems), list[str]()
    if config is not None:
        problems = sorted([*problems, *reading.further(unusable_files(config))], key=_line)
        missing = missing_access(config)
    if problems or missing or config is None:
        raise UsageError(*str(BadForm(problems)).splitlines(), *missing)
    if args.json:
        context.out.json({"file": file, "clusters": [spec.name for spec in config.clusters]})
        return codes.OK
    for line in (*load_kinds().unusable.values(), *load_providers().unusable.values()):
        context.out.note(line)
    for line in ignored_settings(config):
        context.out.note(line)
    names = ", ".join(f"{spec.name} ({spec.kind}, {spec.role})" for spec in config.clusters)
    context.out.line(f"{file} is valid; clusters: {names}")
    return codes.OK


def _line(problem: "FormProblem") -> int:
    return problem.line or 0


def _show(out: Output, outcome: "ConfigOutcome") -> None:
    if not outcome.changes:
        out.line("no differences")
        return
    out.table(_CHANGES, [(each.what, each.change, each.text) for each in outcome.changes])
    if not outcome.done and (remedy := _remedy({each.change for each in outcome.changes})):
        out.note(f"nothing was changed; {remedy}")


def _remedy(kinds: set[str]) -> str:
    """Return how to apply changes of these kinds; empty if there is nothing to apply."""
    if kinds - {"kept", "restart"}:
        rest = "; then restart the server to apply the rest" if "restart" in kinds else ""
        return f"run `spill config apply` to apply this{rest}"
    return "restart the server to apply this" if "restart" in kinds else ""


COMMANDS = {
    "config": Command(
        "Check spill.yaml, compare it with the running server, and apply it without a restart.",
        _configure,
        _run,
        "spill config check\nspill config diff\nspill config apply",
    ),
}
