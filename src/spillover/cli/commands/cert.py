"""`spill cert init`: creates the certificates that a server needs to accept clients from other machines."""

import socket
from argparse import ArgumentParser, Namespace
from pathlib import Path

from spillover.cli import codes
from spillover.cli.arguments import count
from spillover.cli.command import Command, Context, UsageError, add_actions
from spillover.model.units import so_many

_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def _configure(parser: ArgumentParser) -> None:
    init = add_actions(parser)(
        "init",
        "create a private CA and a certificate for a server",
        "spill cert init --host build.example.org --host 10.0.0.5",
    )
    init.add_argument(
        "--out", default="spill-tls", metavar="DIR", help="output folder (default: ./spill-tls)"
    )
    init.add_argument(
        "--host",
        action="append",
        default=[],
        metavar="NAME",
        help="host name or address of the server (default: the host name of this machine); loopback is always included; repeatable",
    )
    init.add_argument(
        "--days",
        type=count,
        default=825,
        metavar="N",
        help="validity of the certificate in days (default: 825)",
    )


def _run(args: Namespace, context: Context) -> int:
    from spillover.server.certificates import CertificateTaken, is_host, make_certificates  # noqa: PLC0415 - heavy

    hosts = list(dict.fromkeys([*(args.host or [socket.gethostname()]), *_LOOPBACK]))
    if wrong := [host for host in hosts if not is_host(host)]:
        raise UsageError(*(f"--host {host!r} is not a host name or address" for host in wrong))
    if args.days > 3650:
        raise UsageError("--days is more than 3650, the validity of the CA")
    out = Path(args.out)
    try:
        make_certificates(out, hosts, args.days)
    except CertificateTaken as taken:
        raise UsageError(str(taken)) from None
    show = context.out.line
    show(
        f"Created a certificate for {', '.join(hosts)}, valid for {so_many(args.days, 'day')}. Add to spill.yaml:"
    )
    show("")
    show("http: 0.0.0.0:7070")
    show("grpc: 0.0.0.0:7071")
    show(f"tls: {{cert: {out / 'server.pem'}, key: {out / 'server-key.pem'}, ca: {out / 'ca.pem'}}}")
    show("")
    show(
        f"Other machines need {out / 'ca.pem'}, which is not secret: `spill ls --server https://{hosts[0]}:7070 --ca ca.pem`,"
    )
    show(f"`spill agent --server https://{hosts[0]}:7070 --ca ca.pem --token-file agent.token`.")
    show(f"Keep {out / 'ca-key.pem'} secret: anyone who has it can impersonate the server.")
    return codes.OK


COMMANDS = {
    "cert": Command(
        "Create a private CA and a certificate, so that clients on other machines can connect to the server. Existing files are not overwritten. To use a certificate from another CA, set it under `tls` in spill.yaml.",
        _configure,
        _run,
        "spill cert init --host build.example.org --host 10.0.0.5",
    )
}
