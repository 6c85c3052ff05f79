"""`spill run`: runs a command as a job, and can wait for it as if it ran on this machine."""

from argparse import REMAINDER, ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spillover.cli import codes
from spillover.cli.command import Command, Context, UsageError, add_connection, add_json
from spillover.cli.job_options import add_options, options_of
from spillover.forms.jobs.options import as_flags, doc_from_options
from spillover.forms.problems import BadForm

if TYPE_CHECKING:
    from spillover.client import Client


def _configure(parser: ArgumentParser) -> None:
    parser.usage = "spill run [options] -- COMMAND [ARGUMENT ...]"
    how = parser.add_mutually_exclusive_group()
    how.add_argument(
        "--wait",
        action="store_true",
        help="wait for the job and stream its output (the default on a terminal)",
    )
    how.add_argument(
        "--detach", action="store_true", help="print the job's id and exit (the default in a pipe)"
    )
    how.add_argument(
        "--dry-run", action="store_true", help="show where and when the job would start, and submit nothing"
    )
    parser.add_argument(
        "--fetch",
        action="store_true",
        help="when the job has ended, download its outputs to the folder it was submitted from",
    )
    add_json(parser)
    job = parser.add_argument_group("job")
    add_options(job)
    parser.add_argument(
        "command",
        nargs=REMAINDER,
        metavar="COMMAND",
        help="program and arguments; options after the first word belong to the program",
    )
    add_connection(parser)


def _run(args: Namespace, context: Context) -> int:
    from spillover.cli.following import follow  # noqa: PLC0415 - only to wait
    from spillover.cli.given import send_input  # noqa: PLC0415 - heavy
    from spillover.cli.printing.forecasts import forecast  # noqa: PLC0415 - only for a dry run
    from spillover.cli.printing.progress import moving, tell_inputs  # noqa: PLC0415 - only for transfers
    from spillover.cli.unused import tell_unread, telling  # noqa: PLC0415 - heavy

    if args.json and args.wait:
        raise UsageError("--wait does not work with --json; use --detach, then `spill wait --json`")
    document = document_of(args)
    if interactive := bool(document["spec"].get("terminal")):
        _prepare_terminal(args, document["spec"])
    with context.connect(args) as client:
        if args.dry_run:
            with telling(context.out):
                return forecast(context.out, client, [document], as_json=args.json)
        if not interactive and not send_input(context.out, client, document["spec"]):
            tell_unread(context.out, args.command[1:] if args.command[:1] == ["--"] else args.command)
        if args.fetch and not {"inputs", "outputs"} & document["spec"].keys():
            context.out.note(
                "--fetch has nothing to download: the job has no outputs; name them with --output"
            )
        with moving(context.out, "uploading inputs") as progress:
            packed = client.pack([document], progress=progress, sizes=tell_inputs(context.out))
        with telling(context.out):
            [job] = client.submit(packed)
        if interactive and not args.detach and not args.json:
            return _in_terminal(args, context, client, job)
        if args.wait or (context.out.terminal and not args.detach and not args.json):
            if "array" in document["spec"]:
                context.out.note(
                    f"{job} is an array; run `spill logs {job}.INDEX` for the output of a member"
                )
            code = follow(context.out, client, job)
            if "outputs" in document["spec"] or (args.fetch and "inputs" in document["spec"]):
                _bring(context, client, job, Path(document["spec"]["workdir"]), fetch=args.fetch)
            return code
        if args.fetch:
            context.out.note(f"--fetch needs --wait; run `spill fetch {job}` when the job has ended")
    if args.json:
        context.out.json(job)
    else:
        context.out.line(job)
    return codes.OK


def _prepare_terminal(args: Namespace, spec: dict[str, Any]) -> None:
    """Check that we have a terminal to give a job, and add its kind to the environment of the job."""
    from os import environ  # noqa: PLC0415 - only with a terminal

    from spillover.cli.live.talking import has_terminal  # noqa: PLC0415 - only with a terminal

    if not (args.detach or args.json or args.dry_run or has_terminal()):
        raise UsageError(
            "--pty needs a terminal as standard input and output; leave it out, or add --detach and run `spill attach` later"
        )
    if term := environ.get("TERM"):
        spec["env"] = {"TERM": term} | spec.get("env", {})


def _in_terminal(args: Namespace, context: Context, client: "Client", job: str) -> int:
    """Connect our terminal to a job once it runs; return the exit code of its program."""
    from spillover.cli.commands.sessions import attach  # noqa: PLC0415 - only with a terminal
    from spillover.cli.following import exit_code, until_running  # noqa: PLC0415 - only to wait
    from spillover.cli.printing.listing import outcome  # noqa: PLC0415 - only to wait

    view = until_running(context.out, client, job)
    if view is None:
        return codes.INTERRUPTED
    if view.state != "RUNNING":
        context.out.note(outcome(view))
        return exit_code(view)
    return attach(args, context.out, job)


def _bring(context: Context, client: "Client", job: str, folder: Path, *, fetch: bool) -> None:
    """Download the outputs of a job to the folder it was submitted from, or say how to."""
    from spillover.cli.printing.progress import moving  # noqa: PLC0415 - only for transfers

    array = client.job(job).array is not None
    if not array and not client.files(job).files:
        context.out.note(f"{job} has no output files")
        return
    if not fetch or array:
        context.out.note(f"run `spill fetch {job}` to download its outputs")
        return
    with moving(context.out, "fetching outputs") as progress:
        client.fetch(job, folder, force=True, progress=progress)


def document_of(args: Namespace) -> dict[str, Any]:
    """Build a job from options and command; raise BadForm with each problem named by its flag."""
    from spillover.forms.jobs.reading import read_job, to_doc  # noqa: PLC0415 - heavy

    words = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not words:
        raise UsageError("no command; write it after --, as in `spill run -- echo hello`")
    try:
        document = doc_from_options(options_of(args), {"command": list(words)})
        return to_doc(read_job(document, directory=str(Path.cwd())))
    except BadForm as error:
        raise as_flags(error) from None


COMMANDS = {
    "run": Command(
        "Run a command as a job. On a terminal, or with --wait, spill streams its output and exits with its exit code:\n"
        "128 + signal if it was killed, 124 at its walltime or deadline, 125 if it never ran. Ctrl-C cancels the job.",
        _configure,
        _run,
        "spill run --cpu 2 --memory 1Gi --walltime 10m --wait -- python train.py --lr 0.1\n"
        "spill run --env HOME --detach -- sh -c 'echo $HOME'",
    )
}
