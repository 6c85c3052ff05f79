"""Runs the demo: starts a server, submits jobs over some seconds, shows and reports them, and cleans up."""

import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from spillover.cli import codes
from spillover.cli.command import Command, Context, UsageError
from spillover.cli.demo.plan import CONFIG, OWNED, OWNED_CPUS, RENTED, RENTED_CPUS, Wave, waves
from spillover.cli.demo.report import report
from spillover.cli.demo.server import running
from spillover.cli.demo.story import DemoLook, happened
from spillover.cli.demo.view import HEADS, DemoView

if TYPE_CHECKING:
    from spillover.client import Client
    from spillover.wire.api import JobView

_EVERY: Final = 0.2
"""Seconds between two looks at the server."""
_MOST: Final = 45.0
"""Seconds after which the demo gives up."""


def _configure(parser: ArgumentParser) -> None:
    del parser  # it has no options


def _run(args: Namespace, context: Context) -> int:
    from spillover.client import Client  # noqa: PLC0415 - heavy

    del args
    out = context.out
    out.line(
        f"{OWNED} has {OWNED_CPUS} owned CPUs; {RENTED} has {RENTED_CPUS} rented CPUs, at one cent per CPU-second."
    )
    out.line("A job waits for owned CPUs, longer if renting would cost more, then spills over.")
    out.line()
    out.flush()
    with running(CONFIG) as server, Client(server=server.url, token=server.token) as client:
        with DemoView(out) as view:
            jobs = play(client, view)
        report(out, jobs)
        out.flush()
    return codes.OK


def play(client: "Client", view: DemoView) -> "list[JobView]":
    """Submit each wave at its time, and watch until all jobs have ended."""
    coming = sorted(waves(), key=lambda wave: wave.at)
    total = sum(_size(document) for wave in coming for document in wave.documents)
    start, seen = time.monotonic(), DemoLook(0.0, {}, [], total)
    while not seen.done():
        elapsed = time.monotonic() - start
        if elapsed > _MOST:
            raise UsageError(
                f"the jobs of the demo have not ended after {_MOST:g} seconds; is this machine busy?"
            )
        coming = _submit_due(client, coming, elapsed)
        look = DemoLook(elapsed, _jobs(client), client.clusters(), total)
        look = look._replace(heads=[(job, client.why(job.id)) for job in look.waiting()[:HEADS]])
        view.show(look, happened(seen.jobs, look.jobs))
        seen = look
        time.sleep(_EVERY)
    return list(seen.jobs.values())


def _submit_due(client: "Client", coming: list[Wave], elapsed: float) -> list[Wave]:
    """Submit the waves that are due; return the others."""
    for wave in coming:
        if wave.at <= elapsed:
            client.submit(wave.documents)
    return [wave for wave in coming if wave.at > elapsed]


def _jobs(client: "Client") -> "dict[str, JobView]":
    """Return all jobs in the order of submission, with members instead of arrays."""
    newest_first = list(client.jobs(limit=200))
    return {job.id: job for listed in reversed(newest_first) for job in _members(client, listed)}


def _members(client: "Client", job: "JobView") -> "Iterator[JobView]":
    """Yield the members of an array, or the job itself."""
    if job.array is None:
        yield job
        return
    for index in range(1, job.array.size + 1):
        yield client.job(f"{job.id}.{index}")


def _size(document: dict[str, Any]) -> int:
    """Return the number of jobs that a document describes."""
    first, dash, last = str(document["spec"].get("array", "")).partition("-")
    return int(last) - int(first) + 1 if dash else 1


COMMANDS = {
    "demo": Command(
        f"Start a server in a temporary folder with two CPUs on `{OWNED}` (owned) and four on `{RENTED}` (rented), run about 40"
        " short jobs, and show\nwhere each job runs and why. Takes about twenty seconds and leaves nothing behind.",
        _configure,
        _run,
        "spill demo\nspill demo | tee demo.txt",
    )
}
