"""Runs the demo: starts a server, submits jobs over some seconds, shows and reports them, and cleans up."""

import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from spillover.cli import codes
from spillover.cli.command import Command, Context, UsageError
from spillover.cli.demo.machines import follow, moved
from spillover.cli.demo.plan import (
    CONFIG,
    MACHINE_CPUS,
    MOST_MACHINES,
    OWNED,
    OWNED_CPUS,
    RENTED,
    SECOND_PRICE,
    Wave,
    waves,
)
from spillover.cli.demo.report import report
from spillover.cli.demo.server import running
from spillover.cli.demo.story import DemoLook, happened
from spillover.cli.demo.view import HEADS, DemoView

if TYPE_CHECKING:
    from spillover.client import Client
    from spillover.wire.api import JobView

_EVERY: Final = 0.2
"""Seconds between two looks at the server."""
_START: Final = 10.0
"""Seconds for the owned machine to become ready; the demo begins without it after that."""
_MOST: Final = 60.0
"""Seconds after which the demo gives up."""


def _configure(parser: ArgumentParser) -> None:
    del parser  # it has no options


def _run(args: Namespace, context: Context) -> int:
    from spillover.client import Client  # noqa: PLC0415 - heavy

    del args
    out = context.out
    out.line(f"{OWNED} has {OWNED_CPUS} CPUs, which are paid for anyway. {RENTED} has none: the server rents")
    out.line(
        f"up to {MOST_MACHINES} machines of {MACHINE_CPUS} CPUs while jobs need them, at {SECOND_PRICE * 100:g} cents a second each."
    )
    out.line(f"A job waits for {OWNED}, longer if renting would cost more, then spills over.")
    out.line()
    out.flush()
    with running(CONFIG) as server, Client(server=server.url, token=server.token) as client:
        watched = sys.stdin.isatty() and sys.stdout.isatty()
        if watched:
            out.line(f"To watch it in a browser, open {client.sign_in_link().url}")
            out.line("within a minute; the link works once.")
            out.line()
            out.flush()
        with DemoView(out) as view:
            seen = play(client, view)
        report(out, seen, client.machine_costs().total)
        out.flush()
        if watched and client.sign_ins():
            out.line()
            out.line("The server of the demo runs for your browser until you press Enter.")
            out.flush()
            sys.stdin.readline()
    return codes.OK


def play(client: "Client", view: DemoView) -> DemoLook:
    """Submit each wave at its time, and watch until all jobs have ended and all machines were given back."""
    _await_owned(client)
    coming = sorted(waves(), key=lambda wave: wave.at)
    total = sum(_size(document) for wave in coming for document in wave.documents)
    start, seen = time.monotonic(), DemoLook(0.0, {}, [], total)
    while not seen.done():
        elapsed = time.monotonic() - start
        if elapsed > _MOST and seen.ended():
            break  # the machines end with the server
        if elapsed > _MOST:
            raise UsageError(
                f"the jobs of the demo have not ended after {_MOST:g} seconds; is this machine busy?"
            )
        coming = _submit_due(client, coming, elapsed)
        look = DemoLook(elapsed, _jobs(client), client.clusters(), total)
        rented = [machine for pool in client.pools() for machine in pool.machines]
        look = look._replace(machines=follow(seen.machines, rented, elapsed))
        look = look._replace(heads=[(job, client.why(job.id)) for job in look.waiting()[:HEADS]])
        view.show(look, [*moved(seen.machines, look.machines, look.jobs), *happened(seen.jobs, look.jobs)])
        seen = look
        time.sleep(_EVERY)
    return seen


def _await_owned(client: "Client") -> None:
    """Wait until the owned machine is there. Otherwise the first jobs would rent one for the time that its agent starts."""
    until = time.monotonic() + _START
    while time.monotonic() < until:
        if any(each.name == OWNED and each.capacity.get("cpu") for each in client.clusters()):
            return
        time.sleep(_EVERY)


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
        f"Start a server in a temporary folder with two CPUs on `{OWNED}` (owned), run about 40 short jobs, and rent machines for\n"
        f"`{RENTED}` while jobs need them. Show where each job runs and why, and what the machines cost. Takes about 20 seconds\n"
        "and leaves nothing behind.",
        _configure,
        _run,
        "spill demo\nspill demo | tee demo.txt",
    )
}
