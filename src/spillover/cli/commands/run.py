"""`spill run`: one command as a job, waited for like a command of this machine."""

import os
from argparse import REMAINDER, ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spillover.cli import codes
from spillover.cli.command import Command, Context, UsageError, add_connection, add_json
from spillover.forms.options import OPTIONS, as_flags, doc_from_options
from spillover.forms.problems import BadForm

if TYPE_CHECKING:
    from spillover.client import Client


def _configure(parser: ArgumentParser) -> None:
    parser.usage = "spill run [options] -- COMMAND [ARGUMENT ...]"
    how = parser.add_mutually_exclusive_group()
    how.add_argument(
        "--wait", action="store_true", help="wait and stream its output (the default on a terminal)"
    )
    how.add_argument("--detach", action="store_true", help="print its id and leave (the default in a pipe)")
    how.add_argument(
        "--dry-run", action="store_true", help="say where and when it would start, and submit nothing"
    )
    parser.add_argument(
        "--fetch", action="store_true", help="after waiting, write its outputs to where it was submitted from"
    )
    add_json(parser)
    job = parser.add_argument_group("job")
    for option in OPTIONS:
        told = f"{option.help}; NAME alone copies yours" if option.flag == "--env" else option.help
        job.add_argument(
            option.flag,
            dest=f"job_{option.dest}",
            metavar=option.metavar,
            help=told.replace("%", "%%"),
            action="append" if option.repeatable else "store",
        )
    parser.add_argument(
        "command",
        nargs=REMAINDER,
        metavar="COMMAND",
        help="what to run, and its arguments: all that follows its first word is its own",
    )
    add_connection(parser)


def _run(args: Namespace, context: Context) -> int:
    from spillover.cli.following import follow  # noqa: PLC0415 - only when somebody waits
    from spillover.cli.forecasting import forecast  # noqa: PLC0415 - only for a dry run
    from spillover.cli.progress import moving  # noqa: PLC0415 - only when something moves

    if args.json and args.wait:
        raise UsageError(
            "--wait streams what the job prints; for JSON use --detach, then `spill wait --json`"
        )
    document = document_of(args)
    with context.connect(args) as client:
        if args.dry_run:
            return forecast(context.out, client, [document], as_json=args.json)
        with moving(context.out, "uploading inputs") as progress:
            packed = client.pack([document], progress=progress)
        [job] = client.submit(packed)
        if args.wait or (context.out.terminal and not args.detach and not args.json):
            if "array" in document["spec"]:
                context.out.note(f"{job} is an array: `spill logs {job}.INDEX` shows what a member wrote")
            code = follow(context.out, client, job)
            if "outputs" in document["spec"]:
                _bring(context, client, job, Path(document["spec"]["workdir"]), fetch=args.fetch)
            return code
        if args.fetch:
            context.out.note(
                f"--fetch does nothing for a job that is not waited for; `spill fetch {job}` does it later"
            )
    if args.json:
        context.out.json(job)
    else:
        context.out.line(job)
    return codes.OK


def _bring(context: Context, client: "Client", job: str, folder: Path, *, fetch: bool) -> None:
    """Write what a job brought back to where a command of this machine would have left it, or say how to."""
    from spillover.cli.progress import moving  # noqa: PLC0415 - only when something moves

    array = client.job(job).array is not None
    if not array and not client.files(job).files:
        context.out.note(f"{job} brought back no files")
        return
    if not fetch or array:
        context.out.note(f"`spill fetch {job}` brings its outputs here")
        return
    with moving(context.out, "fetching outputs") as progress:
        client.fetch(job, folder, force=True, progress=progress)


def document_of(args: Namespace) -> dict[str, Any]:
    """The job that the options and the command stand for; raises BadForm with what is wrong, by its flag."""
    from spillover.forms.jobs import read_job, to_doc  # noqa: PLC0415 - heavy

    words = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not words:
        raise UsageError(
            "there is nothing to run; write the command behind --, as in `spill run -- echo hello`"
        )
    values = {option.dest: getattr(args, f"job_{option.dest}") for option in OPTIONS}
    values["env"] = [_copied(word) for word in values["env"] or ()]
    try:
        document = doc_from_options(values, {"command": list(words)})
        return to_doc(read_job(document, directory=str(Path.cwd())))
    except BadForm as error:
        raise as_flags(error) from None


def _copied(word: str) -> str:
    """`NAME=VALUE` as it is; `NAME` with the value that it has here."""
    if "=" in word or not word:
        return word
    if word not in os.environ:
        raise UsageError(f"--env: {word!r} is not set here; write {word}=VALUE")
    return f"{word}={os.environ[word]}"


COMMANDS = {
    "run": Command(
        "Run one command as a job. On a terminal, or with --wait, its output is streamed and its exit code becomes this one's:\n"
        "128 + signal if it was killed, 124 at its walltime or deadline, 125 if it never ran. Ctrl-C cancels it.",
        _configure,
        _run,
        "spill run --cpu 2 --memory 1Gi --walltime 10m --wait -- python train.py --lr 0.1\n"
        "spill run --env HOME --detach -- sh -c 'echo $HOME'",
    )
}
