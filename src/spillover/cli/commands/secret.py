"""`spill secret set`, `ls`, `rm` and `rekey`: values that jobs use and nobody can read back."""

import sys
from argparse import ArgumentParser, Namespace
from getpass import getpass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from spillover.cli import codes
from spillover.cli.command import Command, Context, UsageError, add_actions, add_connection, add_json
from spillover.cli.printing.output import Cell, Column, Row
from spillover.cli.printing.shown import NOTHING, local
from spillover.model.secrets import MOST_SECRET

if TYPE_CHECKING:
    from spillover.wire.api import SecretView

_SECRETS: Final = (
    Column("SECRET", gives=True),
    Column("PROJECT"),
    Column("VERSION"),
    Column("FOR", gives=True),
    Column("SET"),
    Column("BY"),
    Column("STATE"),
)


def _configure(parser: ArgumentParser) -> None:
    add = add_actions(parser)
    put = add(
        "set",
        "set a secret: from a file, from standard input, or from a prompt",
        "spill secret set db-password --project vision --file password.txt",
    )
    put.add_argument(
        "--file", metavar="FILE", help="read the value from FILE, with all its bytes (`-`: standard input)"
    )
    who = put.add_mutually_exclusive_group()
    who.add_argument("--users", metavar="NAMES", help="only jobs of these users may use it, such as ada,bob")
    who.add_argument("--everyone", action="store_true", help="jobs of all members of the project may use it")
    listing = add("ls", "list secrets without their values", "spill secret ls --project vision")
    remove = add("rm", "remove a secret", "spill secret rm db-password --project vision")
    rekey = add("rekey", "encrypt all secrets with the first key of the key file", "spill secret rekey")
    for one in (put, remove):
        one.add_argument("name", metavar="NAME", help="name of the secret within its project")
    for one in (put, listing, remove):
        one.add_argument(
            "--project",
            metavar="NAME",
            help="all projects by default" if one is listing else "project (default: that of the token)",
        )
    for one in (put, listing, remove, rekey):
        add_json(one)
        add_connection(one)


def _run(args: Namespace, context: Context) -> int:
    value = _value(args) if args.action == "set" else b""
    with context.connect(args) as client:
        match args.action:
            case "set":
                users = [] if args.everyone else args.users.split(",") if args.users is not None else None
                made = client.set_secret(args.name, value, project=args.project, users=users)
                if args.json:
                    context.out.json(made)
                else:
                    context.out.note(
                        f"set secret {made.name} of project {made.project}, version {made.version}"
                    )
            case "ls":
                found = client.secrets(project=args.project)
                if args.json:
                    context.out.json(found)
                elif found:
                    context.out.table(_SECRETS, [_row(each) for each in found])
                else:
                    context.out.note("no secrets")
            case "rm":
                gone = client.remove_secret(args.name, project=args.project)
                if args.json:
                    context.out.json(gone)
            case _:
                many = client.rekey_secrets()
                if args.json:
                    context.out.json({"secrets": many})
                else:
                    context.out.note(
                        f"{many} secret{'s' if many != 1 else ''} encrypted with the first key"
                        if many
                        else "all secrets are encrypted with the first key already"
                    )
    return codes.OK


def _value(args: Namespace) -> bytes:
    """Read the value: all bytes of a file, standard input without one line end, or what is typed."""
    if args.file is not None and args.file != "-":
        try:
            with Path(args.file).open("rb") as file:
                value = file.read(MOST_SECRET + 1)
        except OSError as error:
            raise UsageError(f"--file {args.file}: {error.strerror or error}") from None
    elif sys.stdin is None:
        raise UsageError("there is no standard input; use --file")
    elif sys.stdin.isatty() and args.file is None:
        try:
            value = getpass(f"Value of {args.name}: ", stream=sys.stderr).encode()
        except EOFError:
            value = b""
    else:
        value = sys.stdin.buffer.read(MOST_SECRET + 2)
        if args.file is None:
            value = value.removesuffix(b"\n").removesuffix(b"\r")
    if not value:
        raise UsageError("the value is empty; nothing was set")
    if len(value) > MOST_SECRET:
        raise UsageError(
            f"the value is larger than {MOST_SECRET >> 10} KiB; store it elsewhere, and its key here"
        )
    return value


def _row(secret: "SecretView") -> Row:
    """Return the row of one secret."""
    good = secret.state == "usable"
    return (
        secret.name,
        secret.project,
        str(secret.version),
        ", ".join(secret.users) or NOTHING,
        local(secret.set_at),
        secret.set_by,
        Cell("usable" if good else "no key", "" if good else "red"),
    )


COMMANDS = {
    "secret": Command(
        "Set, list and remove secrets: values that jobs get, and that nobody can read back.",
        _configure,
        _run,
        "spill secret set db-password --project vision --file password.txt\n"
        "openssl rand -hex 16 | spill secret set api-key\nspill secret ls",
    )
}
