"""The driver of one Kubernetes cluster: watches its objects, and creates and deletes Jobs."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, suppress
from typing import Any, Final

import msgspec
import structlog

from spillover.clusters.kubernetes.api.decoding import T
from spillover.clusters.kubernetes.api.kubeconfig import Access
from spillover.clusters.kubernetes.api.objects import (
    KubeEvent,
    KubeJob,
    KubeNode,
    Meta,
    Page,
    Pod,
    version_of,
)
from spillover.clusters.kubernetes.api.requests import (
    TOO_MANY,
    TRIES,
    Api,
    ApiRefused,
    Trouble,
    Unanswered,
    UnreadableAnswer,
    pause,
)
from spillover.clusters.kubernetes.api.watching import Reflector, Sink
from spillover.clusters.kubernetes.attempts.answers import answer_of
from spillover.clusters.kubernetes.attempts.jobs import Unrunnable, job_of
from spillover.clusters.kubernetes.attempts.logs import Logs
from spillover.clusters.kubernetes.attempts.naming import OWNER, epoch_of, labels_of, lease_of, name_of
from spillover.clusters.kubernetes.attempts.reading import NOTED
from spillover.clusters.kubernetes.attempts.usage import API as METRICS
from spillover.clusters.kubernetes.attempts.usage import SAMPLES
from spillover.clusters.kubernetes.checks import problems
from spillover.clusters.kubernetes.mirror import Mirror
from spillover.clusters.kubernetes.options import KubernetesOptions
from spillover.core.events import Lease
from spillover.model.backoff import reason_of
from spillover.model.units import SECOND
from spillover.ports.clock import boottime
from spillover.ports.cluster import Start
from spillover.ports.driver import Answer, Changes, Connection, DriverError, DriverLink, Lead, Made

log = structlog.get_logger()

CONFLICT: Final = 409
FORBIDDEN: Final = 403
NOT_FOUND: Final = 404
SAMPLED_EVERY: Final = 15.0
"""Seconds between two questions for what pods use; metrics-server has new samples as often."""
LINGER: Final = 0.5
"""Seconds between two looks for pods that run."""
LOOK_AGAIN: Final = 300.0
"""Seconds until a cluster without the metrics API is asked again whether it has one."""
SLOW: Final = 10.0
"""Seconds; after a slower failure, `start` does not try again."""
PATIENCE: Final = 10.0
"""Seconds for an API server to answer a probe."""
_JOB: Final = msgspec.json.Decoder(KubeJob)
_PODS: Final = msgspec.json.Decoder(Page[Pod])


class Kubernetes:
    """One cluster; implements the port `Driver`."""

    def __init__(self, options: KubernetesOptions, access: Access, lead: Lead) -> None:
        self.cluster = options.cluster
        self.namespace = options.namespace or access.namespace
        self._options = options
        self._lead = lead
        self._api = Api(access)
        self._mirror = Mirror(options.owner, self.namespace, options.gpu)
        self._jobs = f"/apis/batch/v1/namespaces/{self.namespace}/jobs"
        self._pods = f"/api/v1/namespaces/{self.namespace}/pods"
        self._news: Callable[[], None] = lambda: None
        self._changed = asyncio.Event()
        """Set and replaced on every change, so that each waiter wakes once."""
        self._in_doubt = asyncio.Event()
        self._connection = Connection(DriverLink.CONNECTING, boottime())
        self._probing: asyncio.Task[None] | None = None
        self._logs = Logs(self._api, self.namespace, self._mirror, self._change)
        mirror = self._mirror
        nodes = Sink(mirror.list_nodes, mirror.put_node, mirror.drop_node)
        pods = Sink(mirror.list_pods, mirror.put_pod, mirror.drop_pod)
        jobs = Sink(mirror.list_jobs, mirror.put_job, mirror.drop_job)
        notes = Sink(mirror.list_notes, mirror.put_note, mirror.drop_note)
        events = f"/api/v1/namespaces/{self.namespace}/events"
        self._watched: tuple[Reflector[Any], ...] = (
            self._reflector("/api/v1/nodes", KubeNode, nodes),
            self._reflector("/api/v1/pods", Pod, pods),
            self._reflector(self._jobs, KubeJob, jobs, labelSelector=f"{OWNER}={options.owner}"),
        )
        self._noted = tuple(
            self._reflector(events, KubeEvent, notes, fieldSelector=f"reason={reason}") for reason in NOTED
        )
        """Kubernetes events only explain delays. The connection counts as up without them, as we may lack the
        permission.
        """

    async def run(self, news: Callable[[], None]) -> None:
        """Watch the cluster until cancelled."""
        self._news = news
        self._mirror.tell_all()  # this may be the second run of the driver
        try:
            async with asyncio.TaskGroup() as group:
                for reflector in (*self._watched, *self._noted):
                    group.create_task(reflector.run())
                group.create_task(self._settle())
                group.create_task(self._measure())
        finally:
            if self._probing is not None:
                self._probing.cancel()
                await asyncio.gather(self._probing, return_exceptions=True)
            await self._api.close()

    async def close(self) -> None:
        """Close all connections of a driver that does not run."""
        await self._api.close()

    def connection(self) -> Connection:
        """Return the state of the connection."""
        return self._connection

    def take(self) -> Changes:
        """Return what changed since the last call; nothing before the first list."""
        return self._mirror.take()

    # --- requests

    async def start(self, start: Start) -> Answer:
        """Create the Job of an attempt."""
        try:
            body = job_of(start, self._options, self.namespace, self._lead.epoch, self._mirror.labels)
        except Unrunnable as error:
            return Answer(Made.REFUSED, str(error))
        except Exception as error:  # an unforeseen failure before any request: the Job was not created
            log.exception("cannot convert a job to a Job", job=start.lease.job)
            return Answer(Made.REFUSED, f"it cannot be converted to a Job: {reason_of(error)}")
        unsure = False
        for tried in range(TRIES):
            began = time.monotonic()
            try:
                made = await self._api.read(
                    _JOB, "POST", self._jobs, body=body, once=True, may=self._lead.leads
                )
            except Trouble as trouble:
                if isinstance(trouble, ApiRefused) and trouble.code == CONFLICT:
                    return await self._adopt(start.lease, unsure=unsure)
                if isinstance(trouble, Unanswered):
                    unsure = True
                    self._probe()
                passing = isinstance(trouble, Unanswered) or (
                    isinstance(trouble, ApiRefused) and trouble.code == TOO_MANY
                )
                # Ask again to find out whether it was created: the name is unique, so the second request finds it.
                if not passing or tried == TRIES - 1 or time.monotonic() - began > SLOW:
                    return answer_of(trouble, unsure=unsure)
                await asyncio.sleep(pause(tried, trouble.retry_after))
            else:
                return self._made(made)
        raise AssertionError("unreachable")  # pragma: no cover

    async def _adopt(self, lease: Lease, *, unsure: bool) -> Answer:
        """Adopt the existing Job of that name if its lease matches; `unsure` if an earlier try may still create one."""
        try:
            job = await self._api.read(_JOB, "GET", f"{self._jobs}/{name_of(lease)}")
        except Trouble as trouble:
            gone = isinstance(trouble, ApiRefused) and trouble.code == NOT_FOUND
            return answer_of(trouble, unsure=unsure or not gone)
        if lease_of(job.metadata.labels, self._options.owner) != lease:
            return Answer(
                Made.REFUSED, f"there is a Job {name_of(lease)} that this server did not create; delete it"
            )
        if job.metadata.deletion_timestamp is not None:
            made = Made.UNKNOWN if unsure else Made.NOT_NOW
            return Answer(made, f"the Job {name_of(lease)} is being deleted")
        return self._made(job)

    def _made(self, job: KubeJob) -> Answer:
        # Record it now, as the watch may report it much later.
        self._mirror.made_job(job)
        self._tell()
        return Answer(Made.MADE)

    async def stop(self, lease: Lease, grace: int) -> None:
        """Delete the Job and the pods of an attempt."""
        known = self._mirror.known(lease)
        try:
            if known is None or known.job is not None:
                await self._delete_job(lease, None if known is None or known.job is None else known.job)
            for each in known.living if known is not None else ():
                own = each.pod.spec.termination_grace_period_seconds
                seconds = max(1, -(-grace // SECOND))  # with 0, the pod would be gone before its processes
                if known is not None and (known.job is None or seconds < own):
                    await self._delete(
                        self._pods, each.pod.metadata, {"gracePeriodSeconds": min(seconds, own)}
                    )
        except Trouble as trouble:
            if isinstance(trouble, Unanswered):
                self._probe()
            raise DriverError(str(trouble)) from None

    async def _delete_job(self, lease: Lease, job: KubeJob | None) -> None:
        """Delete a Job and its pods."""
        job = job or await self._find(lease)
        if job is None:
            return
        over = any(one.holds and one.type in {"Complete", "Failed"} for one in job.status.conditions)
        # With Foreground, pods go first: when a running Job is gone, none of its pods runs.
        policy = "Background" if over else "Foreground"
        await self._delete(self._jobs, job.metadata, {"propagationPolicy": policy})

    async def _delete(self, kind: str, meta: Meta, how: dict[str, object]) -> None:
        """Delete this very object; raise DriverError if a later server created it, else Trouble on failure."""
        if (epoch := epoch_of(meta.labels)) > self._lead.epoch:
            # This server, or its data, is outdated: the later server may still need the object.
            raise DriverError(
                f"{meta.name} was created by a server of epoch {epoch}, and this one has epoch "
                f"{self._lead.epoch}; if this server's data is a backup, start it with `spill up --restored`, "
                "or delete the Job yourself"
            )
        # The uid makes sure that no other object of this name is deleted.
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": meta.uid}, **how}
        try:
            await self._api.ask("DELETE", f"{kind}/{meta.name}", body=body, may=self._lead.leads)
        except ApiRefused as refused:
            if refused.code not in {NOT_FOUND, CONFLICT}:  # it is gone, or another object has its name
                raise

    async def output(
        self, lease: Lease, task: int, offset: int, *, follow: bool
    ) -> AsyncGenerator[bytes, None]:
        """Yield the output of a task from a byte on; with `follow`, until the task has ended."""
        async with aclosing(self._logs.read(lease, task, offset, follow=follow)) as chunks:
            async for chunk in chunks:
                yield chunk

    async def check(self) -> Sequence[str]:
        """Return what prevents the use of this cluster."""
        return await problems(self._api, self.namespace)

    # --- observations

    def _reflector(self, path: str, kind: type[T], sink: Sink[T], **params: str) -> Reflector[T]:
        return Reflector(self._api, path, kind, sink, self._tell, params)

    def _tell(self) -> None:
        """Announce changes of objects or of the connection."""
        now = self._link()
        before, self._connection = self._connection, now
        if self._mirror.doubts():
            self._in_doubt.set()
        if self._mirror.has_news() or now != before:
            changed, self._changed = self._changed, asyncio.Event()
            changed.set()
            self._news()

    async def _change(self) -> None:
        await self._changed.wait()

    def _link(self) -> Connection:
        """Return the state of the connection: that of the worst watch."""
        worst = max(self._watched, key=lambda each: each.failures)
        if not all(each.listed for each in self._watched):
            link = DriverLink.CONNECTING
        else:
            link = DriverLink.DOWN if worst.failures else DriverLink.UP
        since = self._connection.since if link is self._connection.link else boottime()
        return Connection(link, since, worst.failures, worst.error)

    async def _settle(self) -> None:
        """Fetch attempts of which watches may have missed something."""
        tried = 0
        while True:
            await self._in_doubt.wait()
            self._in_doubt.clear()
            doubts = self._mirror.doubts()
            with suppress(Trouble):
                for lease in doubts:
                    with suppress(UnreadableAnswer):  # concerns this attempt only
                        await self._settle_one(lease)
            self._tell()
            if set(doubts).isdisjoint(self._mirror.doubts()):
                tried = 0
            else:
                tried += 1
                await asyncio.sleep(pause(tried))

    async def _measure(self) -> None:
        """Ask now and then what our pods use, while some run and the cluster tells it."""
        path = f"{METRICS}/namespaces/{self.namespace}/pods"
        ours = {"labelSelector": f"{OWNER}={self._options.owner}"}
        while True:
            while not self._mirror.runs:
                await self._change()
                await asyncio.sleep(LINGER)
            wait = SAMPLED_EVERY
            try:
                self._mirror.measure((await self._api.read(SAMPLES, "GET", path, ours, once=True)).items)
            except ApiRefused as refused:
                if refused.code in {NOT_FOUND, FORBIDDEN}:
                    wait = LOOK_AGAIN
            except Trouble:
                pass  # the watches notice if the API server fails, and report it
            await asyncio.sleep(wait)

    async def _settle_one(self, lease: Lease) -> None:
        """Fetch the Job and the pods of an attempt; raise Trouble on failure."""
        labels = labels_of(lease, self._options.owner).items()
        job = await self._find(lease)
        selector = ",".join(f"{name}={value}" for name, value in labels)
        page = await self._api.read(_PODS, "GET", self._pods, {"labelSelector": selector})
        self._mirror.settle(lease, job, page.items, version_of(page.metadata))

    async def _find(self, lease: Lease) -> KubeJob | None:
        """Return the current Job of an attempt; None if it does not exist or is not ours. Raise Trouble on failure."""
        try:
            job = await self._api.read(_JOB, "GET", f"{self._jobs}/{name_of(lease)}")
        except ApiRefused as refused:
            if refused.code == NOT_FOUND:
                return None
            raise
        return job if lease_of(job.metadata.labels, self._options.owner) == lease else None

    def _probe(self) -> None:
        """After an unanswered request, check whether the server answers at all; if not, restart the watches."""
        if self._probing is None or self._probing.done():
            self._probing = asyncio.create_task(self._ask_whether_it_lives())

    async def _ask_whether_it_lives(self) -> None:
        try:
            async with asyncio.timeout(PATIENCE):
                await self._api.ask("GET", "/version", once=True)
        except ApiRefused:
            return
        except (Trouble, TimeoutError):
            for each in (*self._watched, *self._noted):
                each.restart()
