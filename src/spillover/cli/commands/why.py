"""`spill why`: explains the state of a job, and what would change it."""

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Final

from spillover.cli import codes
from spillover.cli.command import Command, Context, UsageError, add_connection, add_job, add_json
from spillover.cli.printing.output import Column, Output
from spillover.cli.printing.shown import duration, expected, local, money, start_range
from spillover.model.units import format_cpu

if TYPE_CHECKING:
    from spillover.client import Client
    from spillover.wire.api import ChangesView, OtherJob, SmallChange, WhatIf, WhatIfView, WhyView

_AWAITED: Final = 3
"""Dependencies to name, as many as the sentence has."""


def _configure(parser: ArgumentParser) -> None:
    add_job(parser)
    parser.add_argument(
        "--if",
        dest="assumed",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="show what would happen with cpu=2, memory=8Gi, gpu=1, policy='wait=zero', machines=CLUSTER:2 (as large as its largest machine) or machines=CLUSTER:2x48cpu,8gpu; repeatable",
    )
    parser.add_argument(
        "--what-if",
        action="store_true",
        help="find the smallest changes that would let a waiting job start now; the scheduler tries each of them",
    )
    add_json(parser)
    add_connection(parser)


def _run(args: Namespace, context: Context) -> int:
    if args.assumed and args.what_if:
        raise UsageError("--what-if looks for changes by itself; it is not allowed with --if")
    assumed = _assumption(args.assumed) if args.assumed else None
    with context.connect(args) as client:
        if assumed is not None:
            answer = client.what_if(args.job, assumed)
            context.out.json(answer) if args.json else _tell(context.out, answer)
            return codes.OK
        if args.what_if:
            found = client.changes(args.job)
            context.out.json(found) if args.json else _tell_changes(context.out, found)
            return codes.OK
        why = client.why(args.job)
        if args.json:
            context.out.json(why)
        else:
            currency = client.server().currency if why.estimated_cost else ""
            explain(context.out, why, _awaited(client, why), currency)
    return codes.OK


def _assumption(texts: list[str]) -> "WhatIf":
    """Parse `--if`; raise BadForm."""
    from spillover.cli.assumptions import read_assumption  # noqa: PLC0415 - only with --if

    return read_assumption(texts)


def _tell(out: Output, answer: "WhatIfView") -> None:
    """Print the present state and the assumed one."""
    out.line(answer.now.sentence)
    out.line(f"then: {answer.sentence}")


def _tell_changes(out: Output, found: "ChangesView") -> None:
    """Print why a job waits, and with which changes it would start now."""
    out.line(found.sentence)
    ahead = ", ".join(_named(each) for each in found.ahead)
    more = found.ahead_in_all - len(found.ahead)
    if ahead and (more > 0 or found.more_ahead):
        ahead += f" and {max(1, more)} more"
    ends = [f"{_named(each)}, expected {local(each.ends_at)}" for each in found.ends if each.ends_at]
    facts = [
        ("expected to start", start_range(found.expected_start)),
        ("ahead of it", ahead),
        ("ends before it", "; ".join(ends)),
    ]
    if listed := [(name, text) for name, text in facts if text]:
        out.line()
        out.sheet(listed)
    out.line()
    if not found.changes:
        told = "No change was found with which it would start now"
        out.line(f"{told} ({found.tried} tried{'' if found.complete else ', before the time was up'}).")
        return
    out.line(f"It would start now, as the scheduler says ({found.tried} changes tried):")
    out.table(
        (Column("CHANGE"), Column("COMMAND", gives=True)),
        [
            (each.sentence.partition(", it would start")[0], _command(found.id, each))
            for each in found.changes
        ],
    )


def _named(job: "OtherJob") -> str:
    return job.name if job.id is None else f"{job.name} ({job.id})"


def _command(job: str, change: "SmallChange") -> str:
    """Return the command that makes a change; a dash if there is none."""
    if change.what == "hold":
        return f"spill release {job}"
    if change.changes is None:
        return "-"
    spec = change.changes["spec"]
    fields = spec.get("resources", spec)
    return " ".join(
        [f"spill set {job}", *(f"--{name} {_amount(name, value)}" for name, value in fields.items())]
    )


def _amount(name: str, value: object) -> str:
    """Return an amount as people write it."""
    if name == "memory":
        return _round(int(str(value)))
    return format_cpu(int(str(value).removesuffix("m"))) if name == "cpu" else str(value)


def _round(size: int) -> str:
    """Return bytes in the largest unit in which they are whole."""
    for unit, name in ((2**30, "Gi"), (2**20, "Mi"), (2**10, "Ki")):
        if size and size % unit == 0:
            return f"{size // unit}{name}"
    return str(size)


def _awaited(client: "Client", why: "WhyView") -> str:
    """Return the jobs that it waits for, with names and states; empty if there are none."""
    if why.reason is None or why.reason.code != "after":
        return ""
    from spillover.client import Refused  # noqa: PLC0415 - heavy

    jobs = why.reason.details.get("jobs", ())
    told: list[str] = []
    for job in jobs[:_AWAITED]:
        try:
            view = client.job(job)
        except Refused:  # removed, or hidden from this user; the sentence has its id
            continue
        told.append(f"{view.name} ({job}), {view.state}")
    more = [f"{len(jobs) - _AWAITED} more"] if told and len(jobs) > _AWAITED else []
    return "; ".join([*told, *more])


def explain(out: Output, why: "WhyView", awaited: str = "", currency: str = "") -> None:
    """Print the sentence, then its facts, then the reason of each cluster."""
    out.line(why.sentence)
    if listed := [(name, text) for name, text in facts(why, awaited, currency) if text]:
        out.line()
        out.sheet(listed)
    if why.clusters:
        out.line()
        out.table(
            (Column("CLUSTER"), Column("ROLE"), Column("REASON", gives=True)),
            [
                (one.cluster, one.role, one.reason.message if one.reason else "has room for it")
                for one in why.clusters
            ],
        )


def facts(why: "WhyView", awaited: str = "", currency: str = "") -> list[tuple[str, str]]:
    """Return the facts behind the sentence; the caller omits empty ones."""
    waited = f" (waited {duration(why.waited_s)})" if why.waited_s is not None else ""
    spills = f" (in {duration(why.spills_in_s)})" if why.spills_in_s is not None else ""
    return [
        ("state", why.state),
        ("waits for", awaited),
        ("waiting since", local(why.waiting_since) + waited if why.waiting_since else ""),
        ("may spill at", local(why.spills_at) + spills if why.spills_at else ""),
        ("expected to start", start_range(why.expected_start) or _unknown_start(why)),
        ("ahead of it", _ahead(why)),
        ("expected to run", expected(why.estimate_s, why.estimate_from, why.estimate_because)),
        ("expected to end", local(why.ends_at) if why.ends_at else ""),
        ("would cost", _quoted(why, currency)),
        ("never", _never(why)),
    ]


def _ahead(why: "WhyView") -> str:
    """Format the number of jobs ahead of it."""
    if why.ahead is None:
        return ""
    return f"{why.ahead}{' or more' if why.more_ahead else ''} job{'' if why.ahead == 1 else 's'}"


def _unknown_start(why: "WhyView") -> str:
    """Say why the start is not known; nothing if the job never starts, which is said elsewhere."""
    never = why.reason is not None and why.reason.never
    return "" if why.expected_start_note is None or never else f"not known: {why.expected_start_note}"


def _never(why: "WhyView") -> str:
    """Explain why waiting is in vain; empty if it is not."""
    if why.reason is None or not why.reason.never or why.state not in {"QUEUED", "HELD"}:
        return ""
    if why.reason.code == "too_dear":
        return f"it could cost more than {why.reason.details.get('cap', 'its cap')}"
    if why.reason.code == "too_late":
        return "it cannot end by its deadline"
    return "no known cluster could ever run it"


def _quoted(why: "WhyView", currency: str) -> str:
    """Format the expected cost and the largest possible cost."""
    if not why.estimated_cost:
        return ""
    most = "" if why.cost_at_walltime is None else f", at most {money(why.cost_at_walltime)}"
    told = money(why.estimated_cost, currency)
    return told + ("" if why.state in {"PLACED", "RUNNING"} else " if rented") + most


COMMANDS = {
    "why": Command(
        "Explain the state of a job: what it waits for, since when, when it may spill over, and why each cluster does not run it.",
        _configure,
        _run,
        "spill why train --what-if\nspill why train --if cpu=2",
    )
}
