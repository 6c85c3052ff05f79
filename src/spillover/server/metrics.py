"""Metrics for Prometheus: gauges read from the loop on request, and counters fed by durable events.

Values of the state pass the gate, like everything that leaves the process. While the state cannot be shown, the other
metrics remain, as operators need an alert when the store cannot be written.
"""

import asyncio
import contextlib
import threading
from collections import Counter as Tally
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from spillover.control.controllers.delivering import Delivering
from spillover.control.controllers.pools import PoolControl
from spillover.control.live.loop import Loop
from spillover.control.requests.limits import KINDS, Gauge
from spillover.control.views.costs import budget_views
from spillover.control.views.counting import JobCounts
from spillover.core.events import AnyEvent, CounterName, JobEnded, JobPlaced, MemberPlaced
from spillover.core.records.machines import LIVE, PoolRecord
from spillover.core.state import State
from spillover.model.ids import JobId
from spillover.model.policy import choice_of
from spillover.model.units import MONEY, SECOND
from spillover.ports.commands import CommandError
from spillover.server.occupancy import JobMetrics, agent_metrics, cluster_metrics
from spillover.server.pauses import Pauses
from spillover.stores.counted import REFUSALS, CountedBlobs

COUNTERS: Final[dict[CounterName, tuple[str, str, tuple[str, ...]]]] = {
    "submitted": ("jobs_submitted", "Jobs that were accepted.", ()),
    "placed": ("jobs_placed", "Leases granted.", ("cluster",)),
    "ended": ("jobs_ended", "Jobs that ended.", ("state",)),
    "disabled": ("policies_disabled", "Policies that were slow, or missing.", ("axis", "policy")),
    "cycles": ("cycles", "Cycles that decided something.", ()),
}
"""Counters by the name that events use: metric name, help text, labels."""


class _Now(Collector):
    """Collects current values."""

    def __init__(
        self,
        loop: Loop,
        gauge: Gauge | None,
        blobs: CountedBlobs | None,
        pools: Iterable[PoolControl] = (),
        spans: Mapping[str, int] | None = None,
        delivering: Delivering | None = None,
    ) -> None:
        self._spans = spans
        self._loop = loop
        self._delivering = delivering
        self._gauge = gauge
        self._blobs = blobs
        self._pools = pools
        self.jobs = JobCounts(loop)
        self._job_metrics = JobMetrics(self.jobs)
        self.hidden = False
        """Whether to leave out values of the state."""

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily("spill_revision", "Events in the journal.", value=self._loop.gate.durable)
        yield GaugeMetricFamily("spill_epoch", "Epoch of this server.", value=self._loop.epoch)
        writable = float(self._loop.problem is None)
        yield GaugeMetricFamily("spill_writable", "1 while changes are accepted.", value=writable)
        yield GaugeMetricFamily(
            "spill_clock_held_seconds",
            "How far the machine's clock is ahead of the server's time while the server ignores it.",
            value=self._loop.time.held() / SECOND,
        )
        if not self.hidden:
            yield from self._of_state(self._loop.state)
        failures = CounterMetricFamily(
            "spill_policy_failures", "Times that a policy failed.", labels=("axis", "policy")
        )
        for (axis, name), count in self._loop.watch.failures().items():
            failures.add_metric((axis, name), count)
        yield failures
        aside = GaugeMetricFamily(
            "spill_set_aside",
            "Work that failed unexpectedly and is retried.",
            labels=("work",),
        )
        works = Tally(each.work for each in (*self._loop.aside, *self._loop.engine.aside))
        for work, count in sorted(works.items()):
            aside.add_metric((work,), count)
        yield aside
        refused = CounterMetricFamily(
            "spill_refused", "Requests that a limit of the server refused.", labels=("limit",)
        )
        for limit in KINDS:
            refused.add_metric((limit,), 0 if self._gauge is None else self._gauge.refused[limit])
        yield refused
        if self._blobs is not None:
            yield from _of_blobs(self._blobs)
        yield from _of_calls(self._pools)
        sent = CounterMetricFamily(
            "spill_spans", "Spans of traces, by what became of them.", labels=("outcome",)
        )
        for outcome, count in (self._spans or {}).items():
            sent.add_metric((outcome,), count)
        yield sent
        if self._delivering is not None:
            yield from _of_messages(self._delivering)

    def _of_state(self, state: State) -> Iterator[Metric]:
        """Yield values of the state."""
        yield GaugeMetricFamily("spill_jobs_queued", "Jobs that wait to be placed.", value=state.queued)
        yield GaugeMetricFamily("spill_jobs_running", "Jobs whose process runs.", value=state.running)
        yield GaugeMetricFamily("spill_jobs_known", "Jobs outside the archive.", value=len(state.jobs))
        cpus = GaugeMetricFamily("spill_agent_cpus", "CPUs of agents.", labels=("cluster", "agent", "use"))
        for node in state.agents.values():
            cpus.add_metric((node.cluster, node.name, "capacity"), node.capacity.cpu / 1000)
            cpus.add_metric((node.cluster, node.name, "used"), node.used.cpu / 1000)
        yield cpus
        moved = CounterMetricFamily(
            "spill_agent_leases_moved",
            "Leases that agents stole from each other.",
            labels=("cluster", "agent", "way"),
        )
        for node in state.agents.values():
            moved.add_metric((node.cluster, node.name, "in"), node.taken)
            moved.add_metric((node.cluster, node.name, "out"), node.given)
        yield moved
        money = GaugeMetricFamily(
            "spill_budget",
            "Budgets of the current period, in the currency.",
            labels=("of", "name", "per", "what"),
        )
        for budget in budget_views(state, self._loop.now()):
            for what in ("limit", "spent", "held"):
                money.add_metric((budget.of, budget.name, budget.per, what), getattr(budget, what))
        yield money
        yield CounterMetricFamily(
            "spill_cost_overruns",
            "Attempts that cost more than was held for them.",
            value=state.facts.overruns,
        )
        disabled = GaugeMetricFamily(
            "spill_policy_disabled", "1 for a policy that was disabled.", labels=("axis", "policy")
        )
        for axis, note in state.policies.disabled.items():
            disabled.add_metric((axis, choice_of(note.before, axis).name), 1)
        yield disabled
        yield from self._job_metrics.collect(state)
        yield from cluster_metrics(state)
        yield from agent_metrics(state)
        yield from _of_pools(state, self._loop.now())


def _of_pools(state: State, now: int) -> Iterator[Metric]:
    """Yield values of pools of rented machines."""
    machines = GaugeMetricFamily("spill_machines", "Rented machines.", labels=("pool", "state"))
    paused = GaugeMetricFamily("spill_pool_paused", "1 while a pool orders nothing.", labels=("pool",))
    closed = GaugeMetricFamily(
        "spill_pool_closed_offers", "Offers that are not ordered after a refusal.", labels=("pool",)
    )
    for spec in state.facts.clusters:
        if spec.pool is None:
            continue
        count = Tally(each.state for each in state.live_machines(spec.name))
        for each in LIVE:
            machines.add_metric((spec.name, each), count[each])
        pool = state.pools.get(spec.name, PoolRecord(spec.name))
        paused.add_metric((spec.name,), bool(pool.paused))
        closed.add_metric((spec.name,), sum(pool.is_closed(key, now) for key in pool.closed))
    yield machines
    yield paused
    yield closed
    cost = CounterMetricFamily(
        "spill_machine_cost",
        "Cost of rented machines that are gone, in the currency, by what it was for.",
        labels=("pool", "what"),
    )
    spent: dict[tuple[str, str], int] = {}
    for spend in state.spends.values():
        for what in ("useful", "boot", "idle", "interrupted"):
            key = str(spend.cluster), what
            spent[key] = spent.get(key, 0) + getattr(spend, what)
    for key, amount in spent.items():
        cost.add_metric(key, amount / MONEY)
    yield cost


def _of_messages(delivering: Delivering) -> Iterator[Metric]:
    """Yield how many notifications wait and failed, and how many were sent."""
    kept = GaugeMetricFamily(
        "spill_notifications", "Notifications that are not sent, by channel.", labels=("channel", "state")
    )
    for channel, each in sorted(delivering.waiting.items()):
        kept.add_metric((channel, "waiting"), each.waiting)
        kept.add_metric((channel, "failed"), each.failed)
    yield kept
    tries = CounterMetricFamily(
        "spill_notification_tries", "Tries to send a notification.", labels=("channel", "result")
    )
    for counts, result in ((delivering.sent, "sent"), (delivering.unsent, "unsent")):
        for channel, count in sorted(counts.items()):
            tries.add_metric((channel, result), count)
    yield tries


def _of_calls(pools: Iterable[PoolControl]) -> Iterator[Metric]:
    """Yield the calls to providers."""
    calls = CounterMetricFamily(
        "spill_provider_calls", "Calls to providers of machines.", labels=("pool", "call", "outcome")
    )
    failing = GaugeMetricFamily(
        "spill_provider_failing", "1 while calls to a provider fail.", labels=("pool",)
    )
    for each in pools:
        for (call, outcome), count in sorted(each.calls.items()):
            calls.add_metric((each.cluster, call, outcome), count)
        failing.add_metric((each.cluster,), bool(each.ledger.problem))
    yield calls
    yield failing


def _of_blobs(blobs: CountedBlobs) -> Iterator[Metric]:
    """Yield values of the blob store."""
    count = GaugeMetricFamily("spill_blobs", "Blobs in the store.", labels=())
    size = GaugeMetricFamily("spill_blob_bytes", "Bytes of all blobs together.", labels=())
    if blobs.stock is not None:
        count.add_metric((), blobs.stock[0])
        size.add_metric((), blobs.stock[1])
    yield count
    yield size
    moved = CounterMetricFamily(
        "spill_blob_bytes_moved", "Bytes of blobs received and sent.", labels=("way",)
    )
    moved.add_metric(("in",), blobs.taken)
    moved.add_metric(("out",), blobs.given)
    yield moved
    refused = CounterMetricFamily(
        "spill_blobs_refused", "Blobs that were refused for their size.", labels=("why",)
    )
    for why in REFUSALS.values():
        refused.add_metric((why,), blobs.refused[why])
    yield refused


class _Process(Collector):
    """Collects values of this process that `ProcessCollector` does not have."""

    def __init__(self, pauses: Pauses) -> None:
        self._pauses = pauses

    def collect(self) -> Iterator[Metric]:
        yield HistogramMetricFamily(
            "spill_loop_pause_seconds",
            "Delay of the event loop, sampled every 50 ms.",
            self._pauses.buckets(),
            self._pauses.total,
        )
        yield GaugeMetricFamily(
            "spill_loop_longest_pause_seconds",
            "The longest pause of the event loop in the last minute.",
            value=self._pauses.longest(),
        )
        yield GaugeMetricFamily("spill_threads", "Threads of Python.", value=threading.active_count())
        tasks = GaugeMetricFamily("spill_asyncio_tasks", "Tasks of the event loop.", labels=())
        with contextlib.suppress(RuntimeError):  # outside of an event loop there are none
            tasks.add_metric((), len(asyncio.all_tasks()))
        yield tasks


class Metrics:
    """All metrics of a server."""

    def __init__(
        self,
        loop: Loop,
        gauge: Gauge | None = None,
        blobs: CountedBlobs | None = None,
        pools: Iterable[PoolControl] = (),
        spans: Mapping[str, int] | None = None,
        delivering: Delivering | None = None,
    ) -> None:
        self.registry = CollectorRegistry()
        self.pauses = Pauses()
        """Must run as a task beside the server."""
        self._now = _Now(loop, gauge, blobs, pools, spans, delivering)
        self.registry.register(self._now)
        self.registry.register(_Process(self.pauses))
        ProcessCollector(registry=self.registry)
        self._loop = loop
        self._counters = {
            name: Counter(f"spill_{called}", told, labels, registry=self.registry)
            for name, (called, told, labels) in COUNTERS.items()
        }
        self._cost = Counter("spill_cost", "Cost of ended jobs, in the currency.", registry=self.registry)
        self._wait = Histogram(
            "spill_wait_seconds",
            "Time that a job waited until a placement, before all its attempts together.",
            buckets=(0.01, 0.1, 1, 10, 60, 600, 3600, 36_000),
            registry=self.registry,
        )
        loop.listen(self._see)

    async def figures(self) -> bytes:
        """Return all metrics in the format of Prometheus."""
        try:
            await self._now.jobs.refresh()
            await self._loop.read()
            self._now.hidden = False
        except CommandError:  # it is not durable, and may never be
            self._now.hidden = True
        return generate_latest(self.registry)

    def _see(self, _: int, events: Sequence[AnyEvent]) -> None:
        # A counter takes a lock for each increment, so add up equal events first.
        counted = Tally([event.counted() for event in events])
        for what, count in counted.items():
            if what:
                counter, labels = self._counters[what[0]], what[1:]
                (counter.labels(*labels) if labels else counter).inc(count)
        cost = 0
        for event in events:  # these need the state
            if type(event) is JobPlaced:
                self._see_wait(event.job, event.at)
            elif type(event) is MemberPlaced:
                self._see_wait(event.array, event.at)
            elif type(event) is JobEnded and not self._is_array(event):  # members have counted its cost
                cost += max(0, event.cost)
        self._cost.inc(cost / MONEY)

    def _see_wait(self, job: JobId, placed: int) -> None:
        """Record how long a job waited for its placement."""
        found = self._loop.state.jobs.get(job)
        if found is not None:
            self._wait.observe(found.waited(placed) / SECOND)

    def _is_array(self, event: JobEnded) -> bool:
        """Return whether an array ended, if it is not archived yet."""
        job = self._loop.state.jobs.get(event.job)
        return job is not None and job.extra.members is not None
