"""Makes and cancels advance reservations: reads what a person asks for, and lets the scheduler choose the nodes."""

from typing import Final

from spillover.control.live.loop import Loop
from spillover.control.live.stepwise import stepwise
from spillover.control.requests.reservations import advance_view
from spillover.core.proposals import CancelReservation, Refusal, RefusalKind, Reserve
from spillover.core.state import State
from spillover.deciding.engine import Engine
from spillover.deciding.reserving import Choice, NoChoice, Request, Steps, choosing
from spillover.forms.problems import Findings
from spillover.forms.quantities import check_name, duration, quantity, read_words
from spillover.model.ids import ClusterName, NodeName
from spillover.model.reservation import LONGEST, MOST_AHEAD, AdvanceReservation
from spillover.model.units import (
    FOREVER,
    MINUTE,
    UnitError,
    format_moment,
    format_time,
    parse_duration,
    parse_time,
)
from spillover.ports.commands import CommandError, ErrorKind, refused
from spillover.wire.api import FieldProblem, ReservationRequest, ReservationView

TRIES: Final = 3
"""How often nodes are chosen again, because others took them in the meantime."""


class Reserving:
    """Makes and cancels the advance reservations of one server."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop

    async def reserve(self, asked: ReservationRequest, who: str) -> ReservationView:
        """Reserve nodes; with `dry_run`, only tell which they would be."""
        for _ in range(TRIES):
            await self._loop.ready()
            now = self._loop.now()
            request = _read(asked, now)

            def ask(engine: Engine, request: Request = request, now: int = now) -> Steps[Choice | NoChoice]:
                return choosing(engine.index, request, now)

            found = await stepwise(self._loop, ask)
            state = self._loop.state
            if isinstance(found, NoChoice):
                kind = ErrorKind.CONFLICT if found.possible else ErrorKind.INVALID
                raise CommandError(kind, found.message)
            project = "" if asked.maintenance else asked.project or ""
            reservation = AdvanceReservation(
                asked.name or _free_name(state, project or "maintenance", request.start),
                found.cluster,
                found.nodes,
                request.start,
                request.start + request.length,
                project,
                now,
                who,
                request.within,
                request.needs,
                not request.count,
            )
            if asked.dry_run:
                if reservation.name in state.reservations:
                    raise CommandError(ErrorKind.CONFLICT, f"there is already a reservation {asked.name}")
                return advance_view(state, reservation, self._loop.now())
            (reply,) = await self._loop.propose(Reserve(reservation))
            if not isinstance(reply, Refusal):
                return advance_view(self._loop.state, reservation, self._loop.now())
            if reply.kind is not RefusalKind.STALE:
                raise refused(reply)
        raise CommandError(ErrorKind.CONFLICT, "others took these nodes in the meantime; try again")

    async def cancel(self, name: str, who: str, project: str | None) -> None:
        """Cancel a reservation."""
        (reply,) = await self._loop.propose(CancelReservation(name, who, project))
        if isinstance(reply, Refusal):
            raise refused(reply)


def _read(asked: ReservationRequest, now: int) -> Request:
    """Check what a person asks for; raise CommandError with all problems."""
    found = Findings()
    start = _start(asked.start, now, found)
    length = duration(asked.length, ("length",), found, least=1, most=LONGEST)
    if sum([asked.nodes is not None, bool(asked.names), asked.all]) != 1:
        found.add(("nodes",), "set exactly one of `nodes` (how many), `names` (which ones) and `all`")
    if asked.maintenance is (asked.project is not None):
        found.add(("project",), "set either `project`, whose jobs may run there, or `maintenance`")
    for field in ("name", "project", "cluster"):
        if (name := getattr(asked, field)) is not None:
            check_name(name, (field,), found)
    if asked.nodes is None and (asked.within or asked.needs):
        found.add(("within" if asked.within else "needs",), "is only allowed with a number of nodes")
    needs = read_words(asked.needs, ("needs",), found)
    if found.found or start is None or length is None:
        problems = [FieldProblem(str(path[0]), message) for path, message in found.found]
        first = f"{problems[0].path}: {problems[0].message}" if problems else "it is not valid"
        many = f"the reservation has {len(problems)} problems"
        raise CommandError(ErrorKind.INVALID, first if len(problems) <= 1 else many, problems)
    return Request(
        start,
        length,
        asked.nodes or 0,
        tuple(NodeName(name) for name in asked.names),
        asked.within or "",
        needs,
        None if asked.cluster is None else ClusterName(asked.cluster),
        asked.ignore_jobs,
    )


def _start(text: str, now: int, found: Findings) -> int | None:
    """Read a start: `now`, `+2h` or a time. One within the last minute counts as now."""
    start: int | None
    if text == "now":
        return now
    if text.startswith("+"):
        ahead = quantity(parse_duration, text[1:], ("start",), found)
        start = None if ahead is None else now + ahead
    else:
        try:
            start = parse_time(text)
        except UnitError as error:
            found.add(("start",), f"{error}, `now` or `+2h`")
            return None
    if start is None:
        return None
    if start < now - MINUTE:
        found.add(("start",), f"{format_moment(start)} is in the past; it is {format_moment(now)} now")
        return None
    if start > (latest := min(now + MOST_AHEAD, FOREVER)):
        found.add(("start",), f"{text} is too far ahead; the latest start is {format_moment(latest)}")
        return None
    return max(start, now)


def _free_name(state: State, whose: str, start: int) -> str:
    """Return a name that no reservation has: whose it is, and when it starts (UTC)."""
    at = format_time(start)
    name = f"{whose[:40]}-{at[:10].replace('-', '')}-{at[11:16].replace(':', '')}"
    number = 2
    free = name
    while free in state.reservations:
        free, number = f"{name}-{number}", number + 1
    return free
