"""`spill cert init`: what a server needs to be asked from other machines."""

import socket
from argparse import ArgumentParser, Namespace
from pathlib import Path

from spillover.cli import codes
from spillover.cli.arguments import count
from spillover.cli.command import Command, Context, UsageError, add_actions

_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def _configure(parser: ArgumentParser) -> None:
    init = add_actions(parser)(
        "init",
        "make a private authority and a certificate of it for a server",
        "spill cert init --host build.example.org --host 10.0.0.5",
    )
    init.add_argument("--out", default="spill-tls", metavar="DIR", help="where to (default: ./spill-tls)")
    init.add_argument(
        "--host",
        action="append",
        default=[],
        metavar="NAME",
        help="a name or address that the server is asked by (default: the name of this machine); loopback is always among them",
    )
    init.add_argument(
        "--days", type=count, default=825, metavar="N", help="how long the certificate is good (default: 825)"
    )


def _run(args: Namespace, context: Context) -> int:
    from spillover.server.certificates import CertificateTaken, is_host, make_certificates  # noqa: PLC0415 - heavy

    hosts = list(dict.fromkeys([*(args.host or [socket.gethostname()]), *_LOOPBACK]))
    if wrong := [host for host in hosts if not is_host(host)]:
        raise UsageError(*(f"--host {host!r} is not the name or address of a host" for host in wrong))
    if args.days > 3650:
        raise UsageError("--days is more than 3650, which is how long the authority itself is good")
    out = Path(args.out)
    try:
        make_certificates(out, hosts, args.days)
    except CertificateTaken as taken:
        raise UsageError(str(taken)) from None
    show = context.out.line
    show(f"made for {', '.join(hosts)}, good for {args.days} days. In spill.yaml:")
    show("")
    show("http: 0.0.0.0:7070")
    show("grpc: 0.0.0.0:7071")
    show(f"tls: {{cert: {out / 'server.pem'}, key: {out / 'server-key.pem'}, ca: {out / 'ca.pem'}}}")
    show("")
    show(
        f"Others need {out / 'ca.pem'}, which is no secret: `spill ls --server https://{hosts[0]}:7070 --ca ca.pem`,"
    )
    show(f"`spill agent --server https://{hosts[0]}:7070 --ca ca.pem --token-file agent.token`.")
    show(f"Keep {out / 'ca-key.pem'} away from everybody: whoever has it can pass for the server.")
    return codes.OK


COMMANDS = {
    "cert": Command(
        "Make a small private authority and a certificate for a server, so that it can be asked from other machines. Nothing is "
        "overwritten. Certificates of an authority of your own serve as well: name them under `tls` in spill.yaml.",
        _configure,
        _run,
        "spill cert init --host build.example.org --host 10.0.0.5",
    )
}
