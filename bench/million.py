"""Measures requests to a server with a million queued jobs: latency, and how long each blocks the event loop.

Runs the core of a server on SQLite in this process, to watch its event loop: a task that wakes every millisecond
records the longest delay. The same run repeats everything with 10,000 jobs. Results and changes have the same size in
both.
"""

import asyncio
import contextlib
import gc
import resource
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench.reporting import Goal, Options, Report, Table, main, tell
from bench.servers import folder
from spillover.clusters.agents.hub import Hub
from spillover.control.controllers.archiving import Archiving
from spillover.control.controllers.files import FileKeeping
from spillover.control.controllers.indexing import Indexing
from spillover.control.controllers.keeping import Keeping, Retention
from spillover.control.live.clock import SystemClock
from spillover.control.live.loop import Loop
from spillover.control.live.specs import Specs
from spillover.control.requests.commands import LiveCommands, Parts
from spillover.control.requests.lookup import Lookup
from spillover.control.requests.submitting import Submitting
from spillover.core.apply import apply
from spillover.core.events import JobState, JobSubmitted
from spillover.core.proposals import SetPriority, StartEpoch
from spillover.core.state import State
from spillover.forms.jobs.reading import JobForm, read_job
from spillover.model.cluster import ClusterSpec, Role
from spillover.model.ids import ClusterName, JobId, job_id
from spillover.model.job import JobSpec, Range, Shape, Shell, Terms
from spillover.model.policy import PolicySet
from spillover.model.resources import Resources
from spillover.model.units import DAY, SECOND
from spillover.policies.loading import load
from spillover.ports.commands import JobQuery
from spillover.ports.journal import Batch, Changed
from spillover.server.metrics import Metrics
from spillover.server.up import COLLECT_AFTER
from spillover.stores.blobs import FileBlobs
from spillover.stores.open import open_store
from spillover.stores.store import Store
from spillover.wire.api import Action
from spillover.wire.journal import changed_records, encode_event, encode_spec

FEW: Final = 10_000
MANY: Final = 1_000_000
CHUNK: Final = 10_000
"""Events of one batch."""
SHAPES: Final = 4_000
NAMES: Final = 5_000
PROJECTS: Final = 50
USERS: Final = 200
SPECS: Final = 20_000
ARRAY: Final = 1_000
"""One job in so many is an array, of 100 members."""
PAUSE: Final = 0.1
"""Seconds that nothing may hold up the event loop."""
RARE: Final = 100
"""Jobs of the name, project and user that a list asks for: the oldest ones, so that a scan sees all others first."""
CHANGED: Final = 5_000
FOLLOWERS: Final = 2_000
COMMITS: Final = 200

OWNED: Final = ClusterSpec(ClusterName("site"), "agents", Role.OWNED)


def _id(number: int) -> JobId:
    """Return an id as a server draws it: in no order."""
    return job_id((number * 0x9E3779B97F4A7C15) & (2**60 - 1))


def _submitted(number: int, specs: Sequence[bytes], now: int) -> JobSubmitted:
    """Return one of many jobs. The first ones have their own name, project and user."""
    rare = number < RARE
    return JobSubmitted(
        _id(number),
        now,
        "rare" if rare else f"user-{number % USERS}",
        "rare" if rare else f"name-{number % NAMES}",
        "rare" if rare else f"project-{number % PROJECTS}",
        "default",
        0,
        specs[number % len(specs)],
        Shape(Resources(64_000, (1 + number % SHAPES) << 20)),
        Terms(estimate=(1 + number * 7919 % 10_000) * SECOND),
        array=(Range(0, 99),) if number % ARRAY == ARRAY - 1 else (),
    )


async def fill(data: Path, count: int) -> None:
    """Store queued jobs as a server that accepted them would: in the journal and in a checkpoint."""
    store = await open_store("sqlite", data)
    try:
        epoch = await store.election.campaign("bench", "http://127.0.0.1:1")
        if not isinstance(epoch, int):
            raise TypeError(f"the store is held by {epoch.name}")
        state, revision, now = State(), 0, time.time_ns()
        specs = [
            encode_spec(
                JobSpec(Shell(f"true {each}"), "bench", "default", "default", Shape(Resources(64_000)))
            )
            for each in range(SPECS)
        ]
        digests = [digest for digest, _ in specs]
        for first in range(0, count, CHUNK):
            events = [_submitted(number, digests, now) for number in range(first, min(first + CHUNK, count))]
            for event in events:
                apply(state, event)
            batch = Batch(now, tuple(map(encode_event, events)), dict(specs) if not first else {})
            revision = await store.journal.append(revision, batch, epoch)
        await store.journal.checkpoint(Changed(revision, changed_records(state, state.dirty)), epoch)
        await store.election.resign(epoch)
    finally:
        await store.close()


class Taken(NamedTuple):
    """Duration of an operation in seconds."""

    whole: float
    pause: float
    """The longest time for which the event loop did nothing else."""
    busy: float
    """The most CPU that its thread used without giving anybody else a turn: what of a pause is not due to other programs."""


class Probe:
    """Records for how long the event loop was blocked."""

    def __init__(self) -> None:
        self._pause = self._busy = 0.0

    async def run(self) -> None:
        """Measure until cancelled."""
        last, used = time.perf_counter(), time.thread_time()
        while True:
            await asyncio.sleep(0.001)
            self._pause = max(self._pause, time.perf_counter() - last)
            self._busy = max(self._busy, time.thread_time() - used)
            last, used = time.perf_counter(), time.thread_time()

    async def of(self, work: Callable[[], Awaitable[Any]]) -> Taken:
        """Measure one operation."""
        await asyncio.sleep(0.01)
        self._pause, self._busy, begin = 0.0, 0.0, time.perf_counter()
        await work()
        took = time.perf_counter() - begin
        await asyncio.sleep(0.005)
        return Taken(took, self._pause, self._busy)


class Inside:
    """The core of a server on a data folder."""

    def __init__(self, store: Store, data: Path) -> None:
        self.store = store
        clock = SystemClock()
        self.loop = Loop(store.journal, load, clock)
        self.specs = Specs(store.journal)
        lookup = Lookup(self.loop, store.archive)
        self.archiving = Archiving(self.loop, store.archive)
        self.indexing = Indexing(self.loop, store.journal)
        self.metrics = Metrics(self.loop)
        self.files = FileKeeping(self.loop, self.specs, FileBlobs(data / "blobs"), 90 * DAY)
        submitting = Submitting(self.loop, store.archive, lookup, self.specs)
        self.commands = LiveCommands(
            Parts(self.loop, store.journal, store.archive, Hub(1 << 30), self.specs, lookup, submitting)
        )

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Lead with the loaded state."""
        epoch = await self.store.election.campaign("bench", "http://127.0.0.1:1")
        if not isinstance(epoch, int):
            raise TypeError(f"the store is held by {epoch.name}")
        self.loop.begin(epoch, time.time_ns())
        looping = asyncio.create_task(self.loop.run())
        try:
            await self.loop.propose(StartEpoch(epoch, (OWNED,), PolicySet()))
            yield
        finally:
            looping.cancel()
            await asyncio.gather(looping, return_exceptions=True)
            await self.store.election.resign(epoch)

    async def listed(self, **query: Any) -> None:
        """Return one page of a list."""
        page = await self.commands.jobs(JobQuery(**query))
        if not page.jobs:
            raise RuntimeError(f"nothing was listed for {query}")

    async def pages(self, count: int) -> None:
        """Read some pages from the middle of a list."""
        cursor = None
        for _ in range(count):
            page = await self.commands.jobs(JobQuery(limit=1000, cursor=cursor))
            cursor = page.next

    async def history(self, job: JobId) -> None:
        """Read all events of one job."""
        async for _ in self.commands.events(0, follow=False, job=job):
            pass

    async def change(self, jobs: Sequence[JobId], priority: int) -> None:
        """Change the priority of jobs in one commit."""
        await self.loop.propose(*[SetPriority(job, priority, "bench") for job in jobs])


def _form(name: str) -> JobForm:
    """Return a job that waits like all others."""
    document = {
        "apiVersion": "spillover/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"run": "true", "resources": {"cpu": 64}},
    }
    return read_job(document)


async def _operations(inside: Inside, count: int) -> list[tuple[str, Callable[[], Awaitable[Any]]]]:
    """Yield the operations, in order."""
    commands, loop, store = inside.commands, inside.loop, inside.store
    middle = _id(count // 2)
    some = [_id(number) for number in range(count - CHANGED, count)]
    keeping = Keeping(loop, store.journal, store.archive, store.audit, Retention())

    async def overview() -> None:
        await commands.overview(20, 20, 20)

    async def metrics() -> None:
        await inside.metrics.figures()

    async def touch_all() -> None:
        for job in loop.state.jobs:
            loop.state.touch_job(job)

    async def subscribe() -> None:
        stream = commands.events(None, follow=True, job=middle)
        first = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        await inside.change([middle], 3)
        await first
        await stream.aclose()  # type: ignore[attr-defined]  # which a generator has

    await touch_all()
    return [
        ("checkpoint of all jobs", loop.checkpoints.write),
        ("change 5,000 jobs in one commit", lambda: inside.change(some, 1)),
        ("checkpoint of those", loop.checkpoints.write),
        ("list, first page", lambda: inside.listed(limit=100)),
        ("list by name", lambda: inside.listed(name="rare", limit=100)),
        ("list by project", lambda: inside.listed(project="rare", limit=100)),
        ("list by user", lambda: inside.listed(user="rare", limit=100)),
        ("list by state", lambda: inside.listed(state=JobState.QUEUED, limit=100)),
        ("list with members", lambda: inside.listed(members=True, limit=100)),
        ("ten pages of 1,000", lambda: inside.pages(10)),
        ("show by id", lambda: commands.job(middle)),
        ("show by prefix of an id", lambda: commands.job(middle[:8])),
        ("show by name", lambda: commands.job("unique")),
        ("why, of a job in the middle", lambda: commands.why(middle)),
        ("dry run of one job", lambda: commands.forecast([_form("trial")], "ada")),
        ("index all of history", inside.indexing.catch_up),
        ("history of one job", lambda: inside.history(middle)),
        ("follow one job until it changes", subscribe),
        ("overview", overview),
        ("costs by project", lambda: commands.costs("project", None)),
        ("metrics", metrics),
        ("submit one job", lambda: commands.submit([_form("one")], "ada")),
        ("cancel one job", lambda: commands.act(Action("cancel", [_id(count // 2 + 1)]), "ada")),
        ("find what ended before", inside.archiving.find),
        ("sweep of what is past its retention", keeping.sweep),
        ("sweep of files", inside.files.sweep),
    ]


async def _followers(inside: Inside, count: int) -> float:
    """Return the CPU seconds of a commit that concerns none of so many followers."""
    tasks: list[asyncio.Task[None]] = []

    async def follow(job: JobId) -> None:
        async for _ in inside.commands.events(None, follow=True, job=job):
            pass

    try:
        tasks += [asyncio.create_task(follow(_id(RARE + number))) for number in range(count)]
        await asyncio.sleep(0.5)
        other = _id(RARE + FOLLOWERS + 1)
        before = time.process_time()
        for number in range(COMMITS):
            await inside.change([other], number)
        await asyncio.sleep(0.2)
        return (time.process_time() - before) / COMMITS
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


Found = dict[str, Taken]


async def _measured(data: Path, count: int) -> tuple[Found, tuple[float, float]]:
    """Measure the seconds and longest pause of each operation, and the cost of a commit with and without followers."""
    gc.freeze()  # as a server does, and as seldom as it does
    gc.set_threshold(COLLECT_AFTER, *gc.get_threshold()[1:])
    store = await open_store("sqlite", data)
    probe = Probe()
    probing = asyncio.create_task(probe.run())
    try:
        inside = Inside(store, data)
        found = {"load at start": await probe.of(inside.loop.load)}
        async with inside.running():
            await inside.commands.submit([_form("unique")], "ada")
            gc.collect()
            for name, work in await _operations(inside, count):
                found[name] = await probe.of(work)
                took, pause, busy = (each * 1e3 for each in found[name])
                tell(f"{count:,}: {name}: {took:,.1f} ms, pause {pause:,.1f} ms, of CPU {busy:,.1f} ms")
            commits = await _followers(inside, 0), await _followers(inside, FOLLOWERS)
        return found, commits
    finally:
        probing.cancel()
        await asyncio.gather(probing, return_exceptions=True)
        await store.close()


def measure(options: Options) -> Report:
    """Measure few jobs, then many."""
    report = Report("A million queued jobs")
    many = MANY // 10 if options.quick else MANY
    results: dict[int, Found] = {}
    commits: dict[int, tuple[float, float]] = {}
    for count in (FEW, many):
        with folder("million") as path:
            (path / "data").mkdir()
            tell(f"filling a store with {count:,} jobs")
            asyncio.run(fill(path / "data", count))
            results[count], commits[count] = asyncio.run(_measured(path / "data", count))
    table = Table(
        f"milliseconds with {many:,} queued jobs ({SHAPES:,} shapes, {NAMES:,} names), and with {FEW:,}",
        ("", "takes", f"with {FEW:,}", "ratio", "longest pause", "CPU of it", f"with {FEW:,}"),
    )
    for name, (took, pause, busy) in results[many].items():
        before, _, least = results[FEW][name]
        table.add(name, took * 1e3, before * 1e3, took / before, pause * 1e3, busy * 1e3, least * 1e3)
        report.figures[f"{name}: ms"] = took * 1e3
        report.figures[f"{name}: pause ms"] = pause * 1e3
        report.figures[f"{name}: CPU of the pause, ms"] = busy * 1e3
    report.tables.append(table)
    herd = Table(
        "CPU milliseconds of a commit",
        ("queued jobs", "no followers", f"{FOLLOWERS:,} followers of other jobs"),
    )
    for count in (FEW, many):
        herd.add(count, *(each * 1e3 for each in commits[count]))
    report.tables.append(herd)
    for name, (_, pause, _) in results[many].items():
        report.goals.append(Goal(f"{name}: longest pause, ms", pause * 1e3, PAUSE * 1e3, at_most=True))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    report.notes.append(f"Peak memory of this process: {peak:,.0f} MiB.")
    return report


if __name__ == "__main__":
    main(measure, "A million queued jobs: what is asked, and how long nothing else gets its turn.")
