"""`spill token create`, `list` and `revoke`: who is let in, and for what."""

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from spillover.cli import codes
from spillover.cli.arguments import seconds
from spillover.cli.command import Command, Context, Usage, add_connection, add_json
from spillover.cli.output import Cell, Column, Row
from spillover.cli.shown import NOTHING, local
from spillover.model.tokens import read_token

if TYPE_CHECKING:
    from spillover.wire.api import TokenView

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
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True, help="what to do")
    create = actions.add_parser("create", help="make a token and print it, this once")
    create.add_argument(
        "--role",
        required=True,
        choices=("agent", "submit", "admin"),
        help="agent: run tasks; submit: jobs, and looking; admin: everything",
    )
    create.add_argument("--project", metavar="NAME", help="only jobs of this project (role submit)")
    create.add_argument("--user", metavar="NAME", help="who its holder is (default: as they say)")
    create.add_argument("--cluster", metavar="NAME", help="only agents of this cluster (role agent)")
    create.add_argument("--expires", type=seconds, metavar="DURATION", help="how long it is good, as 90d")
    create.add_argument("--note", default="", metavar="TEXT", help="what it is for")
    listing = actions.add_parser("list", help="all tokens, the newest first, without their secrets")
    revoke = actions.add_parser("revoke", help="let nobody in with a token any more")
    revoke.add_argument("token", metavar="ID", help="of the token, as `spill token list` shows it")
    for one in (create, listing, revoke):
        add_json(one)
        add_connection(one)


def _run(args: Namespace, context: Context) -> int:
    if args.action == "revoke" and (text := read_token(args.token)) is not None:
        raise Usage(f"that is the token itself, which others can read on a command line; its id is {text.id}")
    with context.connect(args) as client:
        match args.action:
            case "create":
                made = client.create_token(
                    args.role,
                    project=args.project,
                    user=args.user,
                    cluster=args.cluster,
                    expires=args.expires,
                    note=args.note,
                )
                context.out.json(made) if args.json else context.out.line(made.token)
            case "list":
                found = client.tokens()
                if args.json:
                    context.out.json(found)
                elif found:
                    context.out.table(_TOKENS, [_row(token) for token in found])
                else:
                    context.out.note("no tokens but the server's own")
            case _:
                token = client.revoke_token(args.token)
                if args.json:
                    context.out.json({"id": token})
    return codes.OK


def _row(token: "TokenView") -> Row:
    """One token."""
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
        token.note,
    )


COMMANDS = {
    "token": Command(
        "Make, list and revoke tokens, which let people and agents in. What is printed when one is made is its only copy: the server "
        "keeps a digest of it.",
        _configure,
        _run,
        "spill token create --role agent --cluster onprem --expires 90d > agent.token\n"
        "spill token create --role submit --project vision --note 'nightly build'\nspill token list",
    )
}
