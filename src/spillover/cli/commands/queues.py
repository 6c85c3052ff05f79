"""`spill queues`: lists the named queues."""

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Final

from spillover.cli import codes
from spillover.cli.command import Command, Context, add_connection, add_json
from spillover.cli.printing.output import Cell, Column, Row
from spillover.cli.printing.shown import NOTHING, duration, number

if TYPE_CHECKING:
    from spillover.wire.api import QueueAmounts, QueueView

_COLUMNS: Final = (
    Column("QUEUE"),
    Column("RUNNING", right=True),
    Column("QUEUED", right=True),
    Column("LIMITS", gives=True),
    Column("EACH USER", gives=True),
    Column("EACH JOB", gives=True),
    Column("PRIORITY", right=True, drops=2),
    Column("ALLOWED", gives=True),
    Column("DESCRIPTION", gives=True, drops=1),
)


def _configure(parser: ArgumentParser) -> None:
    add_json(parser)
    add_connection(parser)


def _run(args: Namespace, context: Context) -> int:
    with context.connect(args) as client:
        found = client.queues()
    if args.json:
        context.out.json(found)
    elif found:
        context.out.table(_COLUMNS, [_row(each) for each in found])
    else:
        context.out.note("no queues; set them under `queues` in spill.yaml")
    return codes.OK


def _row(queue: "QueueView") -> Row:
    return (
        Cell(queue.name + (" (default)" if queue.default else ""), "bold" if queue.default else ""),
        str(queue.running),
        str(queue.queued),
        _limits(queue.limits),
        _limits(queue.user_limits),
        _largest(queue),
        f"{queue.priority:+}" if queue.priority else NOTHING,
        _allowed(queue),
        queue.description or NOTHING,
    )


def _limits(limits: "QueueAmounts") -> str:
    parts = [] if limits.running is None else [f"{limits.running} running"]
    parts += _amounts(limits.cpu, limits.memory, limits.gpu)
    parts += [] if limits.queued is None else [f"{limits.queued} queued"]
    return ", ".join(parts) or NOTHING


def _largest(queue: "QueueView") -> str:
    size = queue.size
    parts = [] if queue.walltime_s is None else [duration(queue.walltime_s)]
    parts += _amounts(size.cpu, size.memory, size.gpu)
    parts += [] if size.tasks is None else [f"{size.tasks} task{'' if size.tasks == 1 else 's'}"]
    return ", ".join(parts) or NOTHING


def _amounts(cpu: float | None, memory: int | None, gpu: int | None) -> list[str]:
    from spillover.model.units import format_memory  # noqa: PLC0415 - as little as possible is loaded for help

    parts = [] if cpu is None else [f"{number(cpu)} CPU"]
    parts += [] if memory is None else [format_memory(memory)]
    return parts if gpu is None else [*parts, f"{gpu} GPU"]


def _allowed(queue: "QueueView") -> str:
    parts = [f"project {each}" for each in queue.projects] + [f"user {each}" for each in queue.users]
    parts += [f"on {' or '.join(queue.clusters)}"] if queue.clusters else []
    return ", ".join(parts) or "all"


COMMANDS = {
    "queues": Command(
        "List the named queues: how many jobs run and wait in each, its limits in all and for each user, the largest job that it takes, the priority that it adds, and who may use it.",
        _configure,
        _run,
        "spill queues\nspill queues --json | jq -r '.[].name'",
    )
}
