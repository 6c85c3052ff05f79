"""`spill why`: why a job is where it is, and what would change that."""

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Final

from spillover.cli import codes
from spillover.cli.command import Command, Context, add_connection, add_job, add_json
from spillover.cli.output import Column, Output
from spillover.cli.shown import duration, expected, local, money

if TYPE_CHECKING:
    from spillover.client import Client
    from spillover.wire.api import WhatIf, WhatIfView, WhyView

_AWAITED: Final = 3
"""Jobs that are named of those that one waits for, as many as its sentence has."""


def _configure(parser: ArgumentParser) -> None:
    add_job(parser)
    parser.add_argument(
        "--if",
        dest="assumed",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="say what would become of it if: cpu=2, memory=8Gi, gpu=1, policy='wait=zero', machines=CLUSTER:2 (as large as its"
        " largest) or machines=CLUSTER:2x48cpu,8gpu; may be given several times",
    )
    add_json(parser)
    add_connection(parser)


def _run(args: Namespace, context: Context) -> int:
    assumed = _assumption(args.assumed) if args.assumed else None
    with context.connect(args) as client:
        if assumed is not None:
            answer = client.what_if(args.job, assumed)
            context.out.json(answer) if args.json else _tell(context.out, answer)
            return codes.OK
        why = client.why(args.job)
        if args.json:
            context.out.json(why)
        else:
            explain(context.out, why, _awaited(client, why))
    return codes.OK


def _assumption(texts: list[str]) -> "WhatIf":
    """What `--if` says; raises BadForm."""
    from spillover.cli.assumptions import read_assumption  # noqa: PLC0415 - only with --if

    return read_assumption(texts)


def _tell(out: Output, answer: "WhatIfView") -> None:
    """What is, and what would be."""
    out.line(answer.now.sentence)
    out.line(f"if so: {answer.sentence}")


def _awaited(client: "Client", why: "WhyView") -> str:
    """The jobs that it waits for, each with its name and state; empty if it waits for none."""
    if why.reason is None or why.reason.code != "after":
        return ""
    from spillover.client import Refused  # noqa: PLC0415 - heavy

    jobs = why.reason.details.get("jobs", ())
    told: list[str] = []
    for job in jobs[:_AWAITED]:
        try:
            view = client.job(job)
        except Refused:  # it is gone by now, or not for this person to see; its id is in the sentence
            continue
        told.append(f"{view.name} ({job}), {view.state}")
    more = [f"{len(jobs) - _AWAITED} more"] if told and len(jobs) > _AWAITED else []
    return "; ".join([*told, *more])


def explain(out: Output, why: "WhyView", awaited: str = "") -> None:
    """Print the sentence, then the facts that it rests on, then what each cluster says."""
    out.line(why.sentence)
    if listed := [(name, text) for name, text in facts(why, awaited) if text]:
        out.line()
        out.sheet(listed)
    if why.clusters:
        out.line()
        out.table(
            (Column("CLUSTER"), Column("ROLE"), Column("SAYS", gives=True)),
            [
                (one.cluster, one.role, one.reason.message if one.reason else "would take it now")
                for one in why.clusters
            ],
        )


def facts(why: "WhyView", awaited: str = "") -> list[tuple[str, str]]:
    """What the sentence rests on; an empty text is left out."""
    waited = f" ({duration(why.waited_s)} ago)" if why.waited_s is not None else ""
    spills = f" (in {duration(why.spills_in_s)})" if why.spills_in_s is not None else ""
    return [
        ("state", why.state),
        ("waits for", awaited),
        ("waiting since", local(why.waiting_since) + waited if why.waiting_since else ""),
        ("may spill at", local(why.spills_at) + spills if why.spills_at else ""),
        ("ahead of it", _ahead(why)),
        ("expected to run", expected(why.estimate_s, why.estimate_from)),
        ("expected to end", local(why.ends_at) if why.ends_at else ""),
        ("would cost", _quoted(why)),
        ("never", _never(why)),
    ]


def _ahead(why: "WhyView") -> str:
    """How many jobs come before it."""
    if why.ahead is None:
        return ""
    return f"{why.ahead}{' or more' if why.more_ahead else ''} job{'' if why.ahead == 1 else 's'}"


def _never(why: "WhyView") -> str:
    """Why it does not help to wait; empty if it does."""
    if why.reason is None or not why.reason.never or why.state not in {"QUEUED", "HELD"}:
        return ""
    if why.reason.code == "too_dear":
        return f"it could cost more than {why.reason.details.get('cap', 'its cap')}"
    return "no cluster that is known could ever run it"


def _quoted(why: "WhyView") -> str:
    """What it is expected to cost, and what it can cost at the most."""
    if not why.estimated_cost:
        return ""
    most = "" if why.cost_at_walltime is None else f", {money(why.cost_at_walltime)} at the most"
    return (
        money(why.estimated_cost) + ("" if why.state in {"PLACED", "RUNNING"} else " if it is rented") + most
    )


COMMANDS = {
    "why": Command(
        "Say why a job is where it is: what it waits for, since when, when it may spill over, and what each cluster says.",
        _configure,
        _run,
        "spill why train --if cpu=2",
    )
}
