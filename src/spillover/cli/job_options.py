"""The options of a job on the command line, for `spill run` and `spill submit`."""

import os
from argparse import ArgumentParser, Namespace, _ArgumentGroup
from collections.abc import Sequence

from spillover.cli.command import UsageError
from spillover.forms.jobs.options import OPTIONS, OptionKind


def add_options(parser: ArgumentParser | _ArgumentGroup) -> None:
    """Add all options of a job."""
    for option in OPTIONS:
        told = option.help.replace("%", "%%")
        if option.kind is OptionKind.FLAG:
            parser.add_argument(
                option.flag, dest=f"job_{option.dest}", help=told, action="store_const", const=""
            )
            continue
        if option.flag == "--env":
            told += "; NAME alone copies the value from this shell"
        parser.add_argument(
            option.flag,
            dest=f"job_{option.dest}",
            metavar=option.metavar,
            help=told,
            action="append" if option.repeatable else "store",
        )


def options_of(args: Namespace) -> dict[str, str | Sequence[str] | None]:
    """Return the options that were given, by `Option.dest`."""
    values = {option.dest: getattr(args, f"job_{option.dest}") for option in OPTIONS}
    values["env"] = [_copied(word) for word in values["env"] or ()]
    return values


def _copied(word: str) -> str:
    """Return `NAME=VALUE` unchanged; complete `NAME` with its value in this environment."""
    if "=" in word or not word:
        return word
    if word not in os.environ:
        raise UsageError(f"--env: {word!r} is not set in this shell; write {word}=VALUE")
    return f"{word}={os.environ[word]}"
