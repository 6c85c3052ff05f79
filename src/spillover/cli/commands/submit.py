"""`spill submit`: submits job files, scripts and standard input, all or none."""

import os
from argparse import ArgumentParser, Namespace

from spillover.cli import codes
from spillover.cli.command import Command, Context, UsageError, add_connection, add_json
from spillover.cli.commands.wait import verdict
from spillover.cli.job_options import add_options, options_of


def _configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="a job file, a script with #SPILL or #SBATCH lines, or - for standard input; words behind one script, "
        "or behind --, are its arguments",
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
    add_options(
        parser.add_argument_group("job", "These replace what the files say; --env and --label add to it.")
    )
    add_connection(parser)


def _run(args: Namespace, context: Context) -> int:
    from spillover.cli.given import has_data  # noqa: PLC0415 - heavy
    from spillover.cli.printing.forecasts import forecast  # noqa: PLC0415 - only for a dry run
    from spillover.cli.printing.progress import moving, tell_inputs  # noqa: PLC0415 - heavy
    from spillover.cli.reading import located, read_files  # noqa: PLC0415 - heavy
    from spillover.cli.unused import tell_ignored_lines, telling  # noqa: PLC0415 - heavy

    if args.wait and args.dry_run:
        raise UsageError("--wait is not allowed with --dry-run")
    files, arguments = _with_arguments(args.files, args.behind)
    documents, origins = read_files(
        files, options=options_of(args), arguments=arguments, warn=context.out.note
    )
    if "-" not in files and has_data():
        told = "standard input is not sent to the job; write it to a file, and add --stdin FILE"
        context.out.note(told)
    with context.connect(args) as client:
        for document, origin in zip(documents, origins, strict=True):
            if origin.is_script:
                tell_ignored_lines(context.out, document, origin.source)
        with located(origins), telling(context.out):
            if args.dry_run:
                return forecast(context.out, client, documents, as_json=args.json)
            with moving(context.out, "uploading inputs") as progress:
                packed = client.pack(documents, progress=progress, sizes=tell_inputs(context.out))
            ids = client.submit(packed)
        if args.json:
            context.out.json(ids)
        else:
            for job in ids:
                context.out.line(job)
        context.out.flush()
        return verdict(context.out, client.wait(*ids)) if args.wait else codes.OK


def _with_arguments(files: list[str], behind: list[str] | None) -> tuple[list[str], list[str]]:
    """Return the files to submit, and the arguments of the script if there is one."""
    if behind is not None:
        if len(files) != 1:
            raise UsageError("arguments behind -- need exactly one script before it")
        return files, behind
    first, *rest = files
    if all(name == "-" or os.path.exists(name) for name in rest) or not _is_script(first):  # noqa: PTH110 - fast
        return files, []
    return [first], rest


def _is_script(name: str) -> bool:
    """Return whether a file is a script, from its first bytes."""
    from spillover.forms.jobs.scripts import is_script  # noqa: PLC0415 - heavy

    try:
        with open(name, "rb") as file:  # noqa: PTH123 - fast
            return is_script(file.read(1 << 16))
    except OSError:
        return False


COMMANDS = {
    "submit": Command(
        "Submit jobs, all or none, and print their ids, one per line.",
        _configure,
        _run,
        "spill submit prepare.yaml train.yaml --wait\n"
        "spill submit train.sh --dry-run\n"
        "spill submit --walltime 5m --cpu 2 job.sbatch -- --lr 0.1",
        takes_words_behind=True,
    )
}
