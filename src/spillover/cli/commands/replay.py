"""`spill replay`: checks that the journal of a server gives the plans that it stored."""

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from spillover.cli import codes
from spillover.cli.command import Command, Context, UsageError, add_json
from spillover.cli.printing.shown import local

if TYPE_CHECKING:
    from spillover.cli.printing.output import Output
    from spillover.server.replaying import ReplayView


def _configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--config", metavar="FILE", help="spill.yaml of the server (default: ./spill.yaml if it exists)"
    )
    parser.add_argument("--data", metavar="DIR", help="data folder of the server")
    add_json(parser)


def _run(args: Namespace, context: Context) -> int:
    from spillover.ports.journal import StoreError  # noqa: PLC0415 - heavy
    from spillover.server.replaying import replay_journal  # noqa: PLC0415 - heavy

    try:
        view = replay_journal(args.config, args.data)
    except StoreError as error:
        raise UsageError(str(error)) from error
    context.out.json(view) if args.json else _show(context.out, view)
    return codes.OK if view.same else codes.DIFFERENT


def _show(out: "Output", view: "ReplayView") -> None:
    """Print one line if all plans are equal, else the first difference with both plans."""
    plans = f"{view.plans} {'plan' if view.plans == 1 else 'plans'}"
    if view.difference is None:
        out.line(f"events {view.first} to {view.last}: {plans}, all equal to the stored ones")
        return
    found = view.difference
    out.line(f"event {found.revision}, at {local(found.at)}: {found.what}")
    for title, lines in (("stored", found.stored), ("replayed", found.replayed)):
        out.line(f"{title}:")
        for line in lines or ("nothing",):
            out.line(f"  {line}")
    out.note(f"{plans} before it equal to the stored ones; later events were not checked")


COMMANDS = {
    "replay": Command(
        "Replay a journal: compute every plan again from the events before it, and compare it with the stored plan. The server may be running; nothing is written. Exit code 1 if a plan or an event does not follow from the events before it.",
        _configure,
        _run,
        "spill replay --data ./spill-data\nspill replay --config spill.yaml --json",
    )
}
