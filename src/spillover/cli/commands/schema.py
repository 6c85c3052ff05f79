"""`spill schema`: prints JSON Schemas of job files and spill.yaml, for editors and other programs."""

import json
from argparse import ArgumentParser, ArgumentTypeError, Namespace

from spillover.cli import codes
from spillover.cli.command import Command, Context


def _configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "what", type=_kind, metavar="job|config", help="job for job files, config for spill.yaml"
    )


def _kind(text: str) -> str:
    """Parse the name of a schema."""
    if text not in {"job", "config"}:
        raise ArgumentTypeError(f"{text!r} has no schema; write job or config")
    return text


def _run(args: Namespace, context: Context) -> int:
    from spillover.clusters.kinds import load_kinds  # noqa: PLC0415 - heavy
    from spillover.forms.schema import config_schema, job_schema  # noqa: PLC0415 - heavy

    schema = job_schema() if args.what == "job" else config_schema(load_kinds().config_doc)
    print(json.dumps(schema, indent=2), file=context.out.out)
    return codes.OK


COMMANDS = {
    "schema": Command(
        "Print the JSON Schema of job files or of spill.yaml.",
        _configure,
        _run,
        "spill schema job > job.schema.json",
    )
}
