"""`spill version`: prints the version."""

from argparse import ArgumentParser, Namespace

from spillover import __version__
from spillover.cli.command import Command, Context, add_json


def _configure(parser: ArgumentParser) -> None:
    add_json(parser)


def _run(args: Namespace, context: Context) -> int:
    if args.json:
        context.out.json({"version": __version__})
    else:
        context.out.line(f"spillover {__version__}")
    return 0


COMMANDS = {"version": Command("Print the version of Spillover.", _configure, _run, "spill version")}
