"""`spill submit`: submits job files, scripts and standard input, all or none."""

from argparse import ArgumentParser, Namespace

from spillover.cli import codes
from spillover.cli.command import Command, Context, UsageError, add_connection, add_json
from spillover.cli.commands.wait import verdict


def _configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="a job file, a script with #SPILL lines, or - for standard input",
    )
    parser.add_argument(
        "--wait",
        action="store_true",
        help="wait until all jobs have ended; exit code 1 if one did not succeed",
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="show where and when the jobs would start and what they would cost, and submit nothing",
    )
    add_json(parser)
    add_connection(parser)


def _run(args: Namespace, context: Context) -> int:
    from spillover.cli.printing.forecasts import forecast  # noqa: PLC0415 - only for a dry run
    from spillover.cli.printing.progress import moving  # noqa: PLC0415 - heavy
    from spillover.cli.reading import located, read_files  # noqa: PLC0415 - heavy
    from spillover.cli.unused import tell_ignored_lines, tell_unused  # noqa: PLC0415 - heavy

    if args.wait and args.dry_run:
        raise UsageError("--wait is not allowed with --dry-run")
    documents, origins = read_files(args.files)
    with context.connect(args) as client:
        for document, origin in zip(documents, origins, strict=True):
            if not origin.lines:  # a script
                tell_ignored_lines(context.out, document, origin.source)
        with located(origins):
            tell_unused(context.out, client, documents)
            if args.dry_run:
                return forecast(context.out, client, documents, as_json=args.json)
            with moving(context.out, "uploading inputs") as progress:
                packed = client.pack(documents, progress=progress)
            ids = client.submit(packed)
        if args.json:
            context.out.json(ids)
        else:
            for job in ids:
                context.out.line(job)
        context.out.flush()
        return verdict(context.out, client.wait(*ids)) if args.wait else codes.OK


COMMANDS = {
    "submit": Command(
        "Submit jobs, all or none, and print their ids, one per line.",
        _configure,
        _run,
        "spill submit prepare.yaml train.yaml --wait\nspill submit train.sh --dry-run",
    )
}
