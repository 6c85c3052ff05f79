"""`spill rerun`: submits jobs again, whole or only the failed members of arrays."""

from argparse import ArgumentParser, Namespace

from spillover.cli import codes
from spillover.cli.command import Command, Context, UsageError, add_connection, add_jobs, add_json
from spillover.cli.commands.wait import verdict
from spillover.cli.job_options import add_options, options_of


def _configure(parser: ArgumentParser) -> None:
    add_jobs(parser)
    parser.add_argument(
        "--failed",
        action="store_true",
        help="run only what failed or reached its walltime: of arrays those members, under the same indexes",
    )
    parser.add_argument(
        "--wait",
        action="store_true",
        help="wait until all jobs have ended; exit code 1 if one did not succeed",
    )
    parser.add_argument(
        "--empty-state",
        action="store_true",
        help="begin with an empty folder; else a job with --keep-state begins with the one that it left",
    )
    add_json(parser)
    add_options(
        parser.add_argument_group("job", "These replace what the jobs had; --env and --label add to it.")
    )
    add_connection(parser)


def _run(args: Namespace, context: Context) -> int:
    from spillover.cli.reading import from_options  # noqa: PLC0415 - heavy
    from spillover.cli.unused import telling  # noqa: PLC0415 - heavy
    from spillover.client import Refused  # noqa: PLC0415 - heavy
    from spillover.forms.jobs.options import as_flags  # noqa: PLC0415 - heavy
    from spillover.forms.problems import BadForm, FormProblem  # noqa: PLC0415 - heavy

    if args.job_input:
        raise UsageError("--input: a job runs again with the inputs that it had; for others, submit it again")
    changes = from_options(options_of(args))
    with context.connect(args) as client:
        try:
            with telling(context.out):
                ids = client.rerun(
                    *args.jobs, failed=args.failed, changes=changes, empty_state=args.empty_state
                )
        except Refused as error:
            if not error.problems:
                raise
            problems = [
                FormProblem("", None, each.path.removeprefix("changes."), each.message)
                if each.path.startswith("changes.")
                else FormProblem("", None, "", each.message)
                for each in error.problems
            ]
            raise as_flags(BadForm(problems)) from None
        if args.json:
            context.out.json(ids)
        else:
            for job in ids:
                context.out.line(job)
        context.out.flush()
        return verdict(context.out, client.wait(*ids)) if args.wait else codes.OK


COMMANDS = {
    "rerun": Command(
        "Submit jobs again with the same specs, all or none, and print the new ids, one per line.",
        _configure,
        _run,
        "spill rerun train --walltime 4h\nspill rerun --failed sweep --memory 8Gi",
    )
}
