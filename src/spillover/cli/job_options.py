"""The options of a job on the command line, for `spill run` and `spill submit`."""

import os
from argparse import ArgumentParser, Namespace, _ArgumentGroup
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from spillover.cli.command import UsageError
from spillover.forms.jobs.options import OPTIONS, OptionKind


def add_options(parser: ArgumentParser | _ArgumentGroup, only: Mapping[str, str] | None = None) -> None:
    """Add all options of a job, or only some flags, each with its help."""
    for option in OPTIONS:
        if only is not None:
            if option.flag not in only:
                continue
            option = replace(option, help=only[option.flag])  # noqa: PLW2901 - the same option with other help
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
    values = {option.dest: getattr(args, f"job_{option.dest}", None) for option in OPTIONS}
    values["env"] = [_copied(word) for word in values["env"] or ()]
    return values


def _copied(word: str) -> str:
    """Return `NAME=VALUE` unchanged; complete `NAME` with its value in this environment."""
    if "=" in word or not word:
        return word
    if word not in os.environ:
        raise UsageError(f"--env: {word!r} is not set in this shell; write {word}=VALUE")
    return f"{word}={os.environ[word]}"
