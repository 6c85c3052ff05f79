"""`spill token create`, `list` and `revoke`: manage access for people and agents."""

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from spillover.cli import codes
from spillover.cli.arguments import seconds
from spillover.cli.command import Command, Context, UsageError, add_actions, add_connection, add_json
from spillover.cli.printing.output import Cell, Column, Row
from spillover.cli.printing.shown import NOTHING, local
from spillover.model.tokens import read_token

if TYPE_CHECKING:
    from spillover.client import Client
    from spillover.wire.api import NewToken, TokenView

_TOKENS = (
    Column("TOKEN"),
    Column("ROLE"),
    Column("STATE"),
    Column("FOR"),
    Column("CREATED"),
    Column("BY"),
    Column("EXPIRES"),
    Column("USED"),
    Column("NOTE", gives=True),
)


def _configure(parser: ArgumentParser) -> None:
    add = add_actions(parser)
    create = add(
        "create",
        "create a token and print it once, or write it to a file that only you can read",
        "spill token create --role agent --cluster onprem --expires 90d --out agent.token",
    )
    create.add_argument(
        "--role",
        required=True,
        choices=("agent", "read", "submit", "maintain", "admin"),
        help="agent: run tasks; read: view; submit: also submit jobs and change one's own; maintain: also change jobs of others; admin: everything",
    )
    create.add_argument(
        "--project",
        metavar="NAME",
        help="limit the token to jobs of this project (roles read, submit and maintain)",
    )
    create.add_argument(
        "--user", metavar="NAME", help="user name of the holder (default: the holder chooses)"
    )
    create.add_argument(
        "--cluster", metavar="NAME", help="limit the token to agents of this cluster (role agent)"
    )
    create.add_argument(
        "--expires", type=seconds, metavar="DURATION", help="how long the token is valid, such as 90d"
    )
    create.add_argument("--note", default="", metavar="TEXT", help="a note on its purpose")
    create.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="write the token to FILE with mode 0600 instead of printing it",
    )
    listing = add("list", "list all tokens, the newest first, without their secrets", "spill token list")
    revoke = add("revoke", "revoke a token", "spill token revoke 7ljrds7avbyb")
    revoke.add_argument("token", metavar="ID", help="id of the token, from `spill token list`")
    for one in (create, listing, revoke):
        add_json(one)
        add_connection(one)


def _run(args: Namespace, context: Context) -> int:
    if args.action == "revoke" and (text := read_token(args.token)) is not None:
        raise UsageError(
            f"this is the token itself, which other users can see on the command line; use its id, {text.id}"
        )
    if args.action == "create" and args.out is not None and args.json:
        raise UsageError("--json and --out exclude each other; remove one")
    with context.connect(args) as client:
        match args.action:
            case "create" if args.out is not None:
                with _new_file(args.out) as file:
                    file.write(f"{_made(client, args).token}\n")
            case "create":
                made = _made(client, args)
                context.out.json(made) if args.json else context.out.line(made.token)
            case "list":
                found = client.tokens()
                if args.json:
                    context.out.json(found)
                elif found:
                    context.out.table(_TOKENS, [_row(token) for token in found])
                else:
                    context.out.note("no tokens except the server's own")
            case _:
                token = client.revoke_token(args.token)
                if args.json:
                    context.out.json({"id": token})
    return codes.OK


def _made(client: "Client", args: Namespace) -> "NewToken":
    """Create the token that the options describe."""
    return client.create_token(
        args.role,
        project=args.project,
        user=args.user,
        cluster=args.cluster,
        expires=args.expires,
        note=args.note,
    )


@contextmanager
def _new_file(path: Path) -> Iterator[TextIO]:
    """Create a file that only its owner can read, before the token exists; remove it if no token is created."""
    try:
        file = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w")
    except FileExistsError:
        raise UsageError(f"--out {path}: file exists; choose another name") from None
    except OSError as error:
        raise UsageError(f"--out {path}: {error.strerror}") from None
    try:
        with file:
            yield file
    except BaseException:
        path.unlink()
        raise


def _row(token: "TokenView") -> Row:
    """Return the row of one token."""
    limits = (("project", token.project), ("user", token.user), ("cluster", token.cluster))
    good = token.state == "valid"
    return (
        token.id,
        token.role,
        Cell(token.state, "" if good else "yellow"),
        ", ".join(f"{what} {name}" for what, name in limits if name is not None) or NOTHING,
        local(token.created_at),
        token.created_by,
        local(token.expires_at) if token.expires_at else NOTHING,
        local(token.used_at) if token.used_at else NOTHING,
        token.note if token.sign_in is None else f"sign-in by {token.sign_in}, {token.note}",
    )


COMMANDS = {
    "token": Command(
        "Create, list and revoke tokens for people and agents. `create` outputs the only copy of a token; the server keeps a digest.",
        _configure,
        _run,
        "spill token create --role agent --cluster onprem --expires 90d --out agent.token\n"
        "spill token create --role submit --project vision --note 'nightly build'\nspill token list",
    )
}
