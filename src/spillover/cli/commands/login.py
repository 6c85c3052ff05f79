"""`spill login` and `spill logout`: sign the command line in at the provider of the server, and out again."""

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from spillover.cli import codes
from spillover.cli.command import Command, Context, UsageError, add_connection, add_json
from spillover.cli.printing.shown import local

if TYPE_CHECKING:
    from spillover.client import Client

_NONE = "none"
"""For requests that need no token."""


def _configure(parser: ArgumentParser) -> None:
    add_json(parser)
    add_connection(parser)


def _login(args: Namespace, context: Context) -> int:
    from spillover.client.device_flow import DeviceFlow  # noqa: PLC0415 - heavy
    from spillover.client.signed_in import KeptSignIn, keep_sign_in  # noqa: PLC0415 - heavy

    with _client(args) as client:
        oidc = client.sign_in_methods().oidc
        if oidc is None:
            raise UsageError(
                f"nobody can sign in at {client.url} without a token; get one from `spill token create`, and set SPILL_TOKEN_FILE"
            )
        flow = DeviceFlow(oidc, client.ca)
        code = flow.begin()
        context.out.note(
            f"open {code.verification_uri} in a browser on any machine, and enter {code.user_code}"
        )
        if code.verification_uri_complete is not None:
            context.out.note(f"or open {code.verification_uri_complete}, and compare the code")
        context.out.flush()
        proof = flow.wait(code)
        made = client.sign_in(id_token=proof.id_token, access_token=proof.access_token)
        keep_sign_in(client.url, KeptSignIn(made.token or "", made.user, made.expires_at, client.ca))
    if args.json:
        told = {
            "server": client.url,
            "user": made.user,
            "role": made.role,
            "project": made.project,
            "expires_at": made.expires_at,
        }
        context.out.json(told)
    else:
        of = "" if made.project is None else f", project {made.project}"
        context.out.line(
            f"signed in at {client.url} as {made.user} (role {made.role}{of}) until {local(made.expires_at)}"
        )
    return codes.OK


def _logout(args: Namespace, context: Context) -> int:
    from spillover.client import Client, Refused, Unavailable, Unreachable  # noqa: PLC0415 - heavy
    from spillover.client.signed_in import forget_sign_in, read_sign_ins  # noqa: PLC0415 - heavy

    with _client(args) as client:
        url, ca = client.url, client.ca
    kept = read_sign_ins().sign_ins.get(url)
    if kept is None:
        raise UsageError(f"you are not signed in at {url}; `spill login` signs in")
    try:
        with Client(server=url, token=kept.token, ca=ca) as client:
            client.sign_out()
    except Refused as error:
        if error.status != 401:  # else it ended before
            raise
    except (Unavailable, Unreachable) as error:
        context.out.note(
            f"the server did not end the sign-in, which it does at {local(kept.expires_at)}: {error}"
        )
    forget_sign_in(url)
    if args.json:
        context.out.json({"server": url})
    else:
        context.out.line(f"signed out at {url}")
    return codes.OK


def _client(args: Namespace) -> "Client":
    """Open a client that shows no token."""
    from spillover.client import Client  # noqa: PLC0415 - heavy

    if args.token_file is not None:
        raise UsageError("--token-file does not go with signing in and out; leave it out")
    return Client(server=args.server, token=_NONE, data=args.data, ca=args.ca)


COMMANDS = {
    "login": Command(
        "Sign in at the provider of OpenID Connect that the server uses. Enter the code that this shows in a browser on any machine. Later commands use the sign-in for this server.",
        _configure,
        _login,
        "spill login --server https://build.example.org:7070",
    ),
    "logout": Command(
        "End the sign-in of `spill login`.",
        _configure,
        _logout,
        "spill logout --server https://build.example.org:7070",
    ),
}
