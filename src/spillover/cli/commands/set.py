"""`spill set`: changes a job that waits, or the walltime of one that runs. It prints nothing on success."""

from argparse import ArgumentParser, Namespace
from typing import Any, Final

from spillover.cli import codes
from spillover.cli.arguments import index
from spillover.cli.command import Command, Context, UsageError, add_connection, add_job, add_json
from spillover.cli.job_options import add_options, options_of

_OPTIONS: Final = {
    "--name": "name of the job",
    "--queue": "queue that it waits in; `spill queues` lists them",
    "--cpu": "CPUs of each task: 2, 1.5 or 500m",
    "--memory": "memory of each task: 512Mi, 2Gi",
    "--gpu": "GPUs of each task",
    "--walltime": "time limit, such as 90s, 10m or 1h30m, or `none`; also of a job that runs",
    "--estimate": "expected runtime, or `none`",
    "--deadline": "latest end, such as 2027-01-31T18:00:00Z, or `none`",
    "--priority": "jobs with a higher priority go first; the default is 0",
    "--after": "job that must succeed (with :any, end; with :failure, fail) first, in place of those so far; with :same, each member waits for that of the other array with its index alone; repeatable",
}
"""The options of a job that can change, and what they mean here."""
_REMOVABLE: Final = ("walltime", "estimate", "deadline")


def _configure(parser: ArgumentParser) -> None:
    add_job(parser)
    add_options(parser, _OPTIONS)
    parser.add_argument("--no-after", action="store_true", help="wait for no other job any more")
    parser.add_argument(
        "--throttle",
        type=index,
        metavar="N",
        help="of an array: place at most this many members at a time; 0 for all",
    )
    add_json(parser)
    add_connection(parser)


def _run(args: Namespace, context: Context) -> int:
    """Change a job, and say what has no effect."""
    from spillover.cli.unused import telling  # noqa: PLC0415 - heavy
    from spillover.client import Refused  # noqa: PLC0415 - heavy
    from spillover.forms.jobs.options import as_flags  # noqa: PLC0415 - heavy
    from spillover.forms.problems import BadForm, FormProblem  # noqa: PLC0415 - heavy

    fields = _fields(args)
    with context.connect(args) as client:
        try:
            with telling(context.out):
                jobs = client.change(args.job, **fields)
        except Refused as error:
            if not error.problems:
                raise
            problems = [FormProblem("", None, each.path, each.message) for each in error.problems]
            raise as_flags(BadForm(problems)) from None
    if args.json:
        context.out.json(jobs)
    return codes.OK


def _fields(args: Namespace) -> dict[str, Any]:
    """Return the fields to change."""
    from spillover.cli.reading import from_options  # noqa: PLC0415 - heavy

    options = options_of(args)
    removed = {name: None for name in _REMOVABLE if options[name] == "none"}
    given = from_options({name: each for name, each in options.items() if name not in removed})
    fields = {**given.get("metadata", {}), **given.get("spec", {}), **removed}
    if args.no_after and "after" in fields:
        raise UsageError("give either --after or --no-after")
    if args.no_after:
        fields["after"] = []
    if args.throttle is not None:
        fields["throttle"] = args.throttle
    if not fields:
        raise UsageError("nothing to change; give an option such as --walltime (see --help)")
    return fields


COMMANDS = {
    "set": Command(
        "Change a job that waits, or the walltime of one that runs.",
        _configure,
        _run,
        "spill set train --walltime 4h\nspill set train --cpu 4 --memory 8Gi --queue long\nspill set sweep --throttle 8\nspill set report --no-after",
    )
}
