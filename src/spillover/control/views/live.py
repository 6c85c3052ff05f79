"""Tells open pages what changes: computed once for all pages that may see the same, at most once a second.

A page gets everything first, and then only the machines and jobs that changed. So fifty open pages cost the server little
more than one, and nothing is computed while no page is open.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from typing import Final, NamedTuple

import msgspec
import structlog
from msgspec import Struct

from spillover.control.live.loop import Loop
from spillover.control.live.slices import slices
from spillover.control.requests.projects import budgets_of
from spillover.control.views.costs import budget_views
from spillover.control.views.counting import JobCounts
from spillover.control.views.jobs import money
from spillover.control.views.overview import Waits, rent_an_hour
from spillover.control.views.pools import pool_summaries
from spillover.core.events import AnyEvent
from spillover.core.records.nodes import Node
from spillover.core.state import State
from spillover.deciding.engine import Engine
from spillover.model.ids import JobId, job_of_task
from spillover.model.pools import MachineId, MachineState
from spillover.model.resources import Resources
from spillover.model.units import format_time
from spillover.ports.commands import CommandError, LiveMessage
from spillover.wire.api import (
    Amounts,
    ClusterView,
    LiveCluster,
    LiveCounts,
    LiveJobs,
    LiveMachine,
    LiveMachines,
    LiveOverview,
    LivePools,
    LiveProblem,
    LiveTask,
    ServerView,
)

log = structlog.get_logger()

EVERY: Final = 1.0
"""Seconds between two messages."""
STALE: Final = 10
"""Looks after which the overview is sent again although nothing was decided, since times and costs go on."""
MOST_JOBS: Final = 200
"""Most jobs in one message."""
MOST_PROJECTS: Final = 100
MOST_TASKS: Final = 3
"""Most jobs of one machine in a message."""
MANY: Final = 100
"""Changed machines up to which each look tells of them. With more, looks at machines are so many times rarer."""
RAREST: Final = 5
"""Most looks for one at machines. Where a thousand machines change each second, nobody can follow that, and fifty pages
would cost the server a tenth of a core.
"""
MOST_BEHIND: Final = 20
"""Messages that a page may be behind. It then gets everything once more instead of what it missed."""
_NODES: Final = 500
"""Machines to look at before other work runs."""


class Summary(Struct, frozen=True):
    """What the overview takes from other views."""

    clusters: Callable[[State], list[ClusterView]]
    server: Callable[[State], ServerView]
    ended_a_minute: Callable[[], int]
    set_aside: Callable[[Engine, str | None], int]
    """Work that is set aside, of one project if it is given."""


class LiveViews:
    """Follows the server for all open pages."""

    def __init__(self, loop: Loop, summary: Summary, waits: Waits) -> None:
        self._loop = loop
        self._summary = summary
        self._waits = waits
        self._counts = JobCounts(loop)
        self._audiences: dict[str | None, _Audience] = {}
        """By the only project that they may see; None is everything."""

    async def messages(self, project: str | None) -> AsyncGenerator[LiveMessage, None]:
        """Yield messages until the page is closed."""
        audience = self._audiences.get(project)
        if audience is None:
            audience = _Audience(self._loop, self._summary, self._waits, self._counts, project)
            self._audiences[project] = audience
        page = _Page()
        try:
            audience.join(page)
            while True:
                for message in await page.take():
                    yield message
        finally:
            if audience.leave(page) and self._audiences.get(project) is audience:
                del self._audiences[project]


class _Page:
    """What one open page has not been sent yet."""

    def __init__(self) -> None:
        self.is_new = True
        """Whether it has to be sent everything."""
        self._messages: list[LiveMessage] = []
        self._filled = asyncio.Event()

    def put(self, messages: Sequence[LiveMessage]) -> None:
        """Add messages; if the page is too far behind, drop them all and begin again."""
        if len(self._messages) + len(messages) > MOST_BEHIND:
            self._messages.clear()
            self.is_new = True
            return
        self._messages += messages
        self._filled.set()

    async def take(self) -> list[LiveMessage]:
        """Wait for messages, and remove and return them."""
        await self._filled.wait()
        self._filled.clear()
        taken, self._messages = self._messages, []
        return taken


class _Look(NamedTuple):
    """What changed since the last look."""

    changed: list[LiveMachine]
    gone: list[str]
    pools: bool


_NOTHING: Final = _Look([], [], pools=False)


class _Audience:
    """The open pages that may see the same."""

    def __init__(
        self, loop: Loop, summary: Summary, waits: Waits, counts: JobCounts, project: str | None
    ) -> None:
        self._loop = loop
        self._summary = summary
        self._waits = waits
        self._counts = counts
        self._project = project
        self._pages: dict[_Page, None] = {}
        self._joined = asyncio.Event()
        """Set when a page is new, and need not wait for the next second."""
        self._machines: dict[str, LiveMachine] = {}
        """As they were last sent, by CLUSTER/NAME."""
        self._rest = 0
        """Looks until the next one at machines."""
        self._is_owed = False
        """Whether machines may have changed since the last look at them."""
        self._rented: dict[str, MachineState] = {}
        """States of rented machines as they were last sent."""
        self._jobs: dict[str, None] = {}
        """Jobs that changed since the last message."""
        self._more = False
        self._at = -1
        """Revision of the last look."""
        self._unchanged = 0
        """Looks since the overview was last sent."""
        self._task: asyncio.Task[None] | None = None

    def join(self, page: _Page) -> None:
        """Send messages to a page from now on."""
        self._pages[page] = None
        self._joined.set()
        if self._task is None:
            self._loop.listen(self._see)
            self._task = asyncio.create_task(self._run(), name="live pages")

    def leave(self, page: _Page) -> bool:
        """Send nothing more to a page; return whether it was the last one, so that nothing runs any more."""
        del self._pages[page]
        if self._pages or self._task is None:
            return False
        self._loop.unlisten(self._see)
        self._task.cancel()
        self._task = None
        return True

    def _see(self, _: int, events: Sequence[AnyEvent]) -> None:
        """Note the jobs of durable events, up to the number that a message holds."""
        for event in events:
            if self._more:
                return
            about = event.about()
            for job in about[: MOST_JOBS + 1]:
                if self._is_own(job):
                    self._jobs[job] = None
            self._more = len(self._jobs) > MOST_JOBS

    def _is_own(self, job: str) -> bool:
        """Return whether these pages may see a job; one that is archived already was seen when it ended."""
        if self._project is None:
            return True
        found = self._loop.state.jobs.get(JobId(job)) or self._loop.state.jobs.get(
            JobId(job.partition(".")[0])
        )
        return found is not None and found.kind.project == self._project

    async def _run(self) -> None:
        """Look once a second, and at once for a new page."""
        failed = False
        while True:
            self._joined.clear()
            try:
                await self._look()
                failed = False
            except CommandError as error:
                self._send([_message("problem", LiveProblem(error.message))])
            except Exception:  # pages must not stay silent for ever because of one look
                if not failed:
                    log.exception("a look for open pages failed; it is tried again every second")
                failed = True
                self._send([_message("problem", LiveProblem("internal error; see the log of the server"))])
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(EVERY):
                    await self._joined.wait()

    async def _look(self) -> None:
        """Send what changed since the last look, and everything to new pages."""
        await self._counts.refresh()
        state = (await self._loop.read()).state
        revision = self._loop.gate.durable
        new = [page for page in self._pages if page.is_new]
        self._unchanged += 1
        self._rest -= 1
        owed = self._is_owed and self._rest <= 0
        if revision == self._at and self._unchanged < STALE and not new and not owed:
            return
        look, self._is_owed = _NOTHING, self._rest > 0 and not new
        if not self._is_owed:
            first = not self._machines
            look = await self._changed_machines(state)
            self._rest = 0 if first else min(RAREST, -(-len(look.changed) // MANY))
        overview = _message("overview", self._overview(await self._loop.read()))
        self._at, self._unchanged = revision, 0
        messages = [overview]
        if look.changed or look.gone:
            messages.append(_message("machines", LiveMachines(False, look.changed, look.gone)))
        if self._jobs:
            changed = list(self._jobs)[:MOST_JOBS]
            messages.append(_message("jobs", LiveJobs(revision, changed, self._more)))
            self._jobs.clear()
            self._more = False
        if look.pools:
            messages.append(_message("pools", LivePools(revision)))
        self._send(messages)
        if new:
            everything = _message("machines", LiveMachines(True, list(self._machines.values())))
            for page in new:
                page.is_new = False
                page.put([overview, everything])

    def _send(self, messages: Sequence[LiveMessage]) -> None:
        for page in self._pages:
            if not page.is_new or messages[0].event == "problem":
                page.put(messages)

    # --- machines

    async def _changed_machines(self, state: State) -> _Look:
        """Return what changed among machines, and remember it as sent."""
        seen: dict[str, None] = {}
        changed: list[LiveMachine] = []
        async for keys in slices(list(state.nodes), _NODES):
            state = self._loop.state
            self._compare(self._nodes(state, keys), seen, changed)
        self._compare(_coming(state), seen, changed)
        gone = [key for key in self._machines if key not in seen]
        for key in gone:
            del self._machines[key]
        rented = {str(each.id): each.state for each in state.machines.values() if each.is_live}
        pools, self._rented = rented != self._rented, rented
        return _Look(changed, gone, pools)

    def _compare(
        self, machines: Iterable[LiveMachine], seen: dict[str, None], changed: list[LiveMachine]
    ) -> None:
        for machine in machines:
            key = f"{machine.cluster}/{machine.name}"
            seen[key] = None
            if self._machines.get(key) != machine:
                self._machines[key] = machine
                changed.append(machine)

    def _nodes(self, state: State, keys: Sequence[str]) -> Iterable[LiveMachine]:
        for key in keys:
            if (node := state.nodes.get(key)) is not None:
                yield LiveMachine(
                    cluster=node.cluster,
                    name=node.name,
                    state=_state_of(state, node),
                    capacity=_amounts(node.capacity),
                    used=_amounts(node.used),
                    foreign=_amounts(node.foreign or Resources()),
                    tasks=len(node.holding),
                    ahead=len(node.ahead),
                    jobs=self._tasks(state, node),
                )

    def _tasks(self, state: State, node: Node) -> list[LiveTask]:
        """Return the first few jobs of a machine that these pages may see."""
        found: dict[str, LiveTask] = {}
        for key in node.holding:
            job = state.jobs.get(job_of_task(key))
            if job is not None and self._project in {None, job.kind.project} and job.id not in found:
                found[job.id] = LiveTask(job.id, job.name, job.user, job.state)
                if len(found) == MOST_TASKS:
                    break
        return list(found.values())

    # --- the overview

    def _overview(self, engine: Engine) -> LiveOverview:
        summary, now, state = self._summary, self._loop.now(), engine.state
        counts = Counter[tuple[str, str]]()
        for (kind, each), count in self._counts.counts.items():
            if self._project in {None, kind.project}:
                counts[kind.project, each] += count
        weights = Counter[str]()
        for (project, _), count in counts.items():
            weights[project] += count
        largest = sorted(weights, key=lambda name: (-weights[name], name))[:MOST_PROJECTS]
        return LiveOverview(
            at=format_time(now),
            server=summary.server(state),
            projects=[_counts_of(name, counts) for name in sorted(largest)],
            projects_in_all=len(weights),
            jobs=_counts_of("", _summed(counts)),
            clusters=[_cluster(view) for view in summary.clusters(state)],
            ended_a_minute=summary.ended_a_minute(),
            cost_an_hour=money(rent_an_hour(state, self._project)),
            waited_s=self._waits.mean(),
            budgets=budgets_of(budget_views(state, now), self._project),
            pools=pool_summaries(state, now),
            set_aside=summary.set_aside(engine, self._project),
        )


def _message(event: str, data: Struct) -> LiveMessage:
    """Return a message, encoded once for all pages."""
    return LiveMessage(event, msgspec.json.encode(data))


def _summed(counts: Counter[tuple[str, str]]) -> Counter[tuple[str, str]]:
    """Return the jobs of all projects together, under no name."""
    total = Counter[tuple[str, str]]()
    for (_, state), count in counts.items():
        total["", state] += count
    return total


def _counts_of(project: str, counts: Counter[tuple[str, str]]) -> LiveCounts:
    held, queued, placed, running = (
        counts[project, state] for state in ("HELD", "QUEUED", "PLACED", "RUNNING")
    )
    return LiveCounts(project, held, queued, placed, running)


def _cluster(view: ClusterView) -> LiveCluster:
    capacity, used, foreign = (
        Amounts(each.get("cpu", 0.0), int(each.get("memory", 0)), int(each.get("gpu", 0)))
        for each in (view.capacity, view.used, view.foreign)
    )
    return LiveCluster(
        view.name, view.kind, view.role, view.state, view.agents, capacity, used, foreign, view.why
    )


def _amounts(resources: Resources) -> Amounts:
    return Amounts(resources.cpu / 1000, resources.memory, resources.gpu)


def _state_of(state: State, node: Node) -> str:
    """Return the state of a node, or that of its rented machine while the plan gives it back."""
    machine = state.machines.get(MachineId(node.name))
    if machine is not None and machine.key == node.key and machine.state in _GOING:
        return machine.state
    return node.status


_GOING: Final = (MachineState.DRAINING, MachineState.ENDING)


def _coming(state: State) -> Iterable[LiveMachine]:
    """Yield machines that pools are renting and that have no agent yet."""
    for machine in state.machines.values():
        if machine.is_live and not machine.is_cluster and machine.key not in state.nodes:
            offer = machine.offer
            nothing = _amounts(Resources())
            yield LiveMachine(
                machine.cluster,
                machine.id,
                machine.state,
                _amounts(offer.resources),
                nothing,
                nothing,
                0,
                0,
                [],
            )
