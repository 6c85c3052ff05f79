"""Follows the rented machines of the demo: when each was ordered, ready and gone, as lines to show. Pure functions."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from spillover.cli.demo.plan import CURRENCY, RENTED
from spillover.cli.demo.story import Happening, cents, tenths

if TYPE_CHECKING:
    from spillover.wire.api import JobView, MachineView

OVER: Final = frozenset({"gone", "refused"})
_COMING: Final = frozenset({"wanted", "booting"})


class Rented(NamedTuple):
    """A machine, and at how many seconds of the demo it was first seen in a state."""

    machine: "MachineView"
    """As the last look showed it."""
    ordered: float
    ready: float | None = None
    """None until its agent has joined."""
    gone: float | None = None
    """None until it costs nothing any more."""


def follow(
    before: Mapping[str, Rented], machines: "Iterable[MachineView]", elapsed: float
) -> dict[str, Rented]:
    """Return all machines, in the order in which they were ordered."""
    after = dict(before)
    for each in machines:
        known = after.get(each.id) or Rented(each, elapsed)
        ready = elapsed if known.ready is None and each.state not in (_COMING | OVER) else known.ready
        gone = elapsed if known.gone is None and each.state in OVER else known.gone
        after[each.id] = known._replace(machine=each, ready=ready, gone=gone)
    return after


def moved(
    before: Mapping[str, Rented], after: Mapping[str, Rented], jobs: "Mapping[str, JobView]"
) -> list[Happening]:
    """Return what is new since the last look: which machines were ordered, ready and given back."""
    found: list[Happening] = []
    for key, each in after.items():
        old = before.get(key)
        if old is None:
            found.append(Happening(key, f"a machine is ordered{_for(each, jobs)}", "magenta"))
        if each.ready is not None and (old is None or old.ready is None):
            found.append(Happening(key, f"is ready after {tenths(each.ready - each.ordered)}", "magenta"))
        if old is None or old.machine.state != each.machine.state:
            found += _ended(key, each)
    return found


def _for(rented: Rented, jobs: "Mapping[str, JobView]") -> str:
    """Name the job that a machine was ordered for; one of an array is known by its first member."""
    wanted = rented.machine.job
    job = None if wanted is None else jobs.get(wanted) or jobs.get(f"{wanted}.1")
    return "" if job is None else f" for {job.name}"


def _ended(name: str, rented: Rented) -> list[Happening]:
    """Describe the end of a machine, if it ends."""
    machine = rented.machine
    match machine.state:
        case "ending":
            return [Happening(name, f"is given back: {machine.reason}", "magenta")]
        case "gone":
            return [Happening(name, f"is gone; it cost {cents(machine.cost)} {CURRENCY}", "magenta")]
        case "refused":
            return [Happening(name, f"was refused: {machine.reason}", "red")]
        case _:
            return []


def state_of(rented: Rented) -> str:
    """Describe the state of a machine in a word or two."""
    words = {"wanted": "ordered", "booting": "boots", "draining": "empty", "ending": "ends"}
    state = rented.machine.state
    tasks = rented.machine.tasks
    return f"runs {tasks} {'job' if tasks == 1 else 'jobs'}" if tasks else words.get(state, state)


def jobs_on(rented: Rented, jobs: "Iterable[JobView]") -> int:
    """Count the jobs that ran on a machine."""
    return sum(job.cluster == RENTED and job.node == rented.machine.id for job in jobs)
