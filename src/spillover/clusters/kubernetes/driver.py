"""One cluster of Kubernetes, as control sees it."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, suppress
from typing import Any, Final

import msgspec
import structlog

from spillover.clusters.kubernetes.answers import answer_of
from spillover.clusters.kubernetes.api import (
    TOO_MANY,
    TRIES,
    Api,
    ApiRefused,
    Trouble,
    Unanswered,
    UnreadableAnswer,
    pause,
)
from spillover.clusters.kubernetes.checks import problems
from spillover.clusters.kubernetes.decoding import T
from spillover.clusters.kubernetes.jobs import Unrunnable, job_of
from spillover.clusters.kubernetes.kubeconfig import Access
from spillover.clusters.kubernetes.logs import Logs
from spillover.clusters.kubernetes.mirror import Mirror
from spillover.clusters.kubernetes.naming import OWNER, epoch_of, labels_of, lease_of, name_of
from spillover.clusters.kubernetes.objects import KubeEvent, KubeJob, KubeNode, Meta, Page, Pod, version_of
from spillover.clusters.kubernetes.options import KubernetesOptions
from spillover.clusters.kubernetes.reading import NOTED
from spillover.clusters.kubernetes.watching import Reflector, Sink
from spillover.core.events import Lease
from spillover.model.backoff import reason_of
from spillover.model.units import SECOND
from spillover.ports.clock import boottime
from spillover.ports.cluster import Start
from spillover.ports.driver import Answer, Changes, Connection, DriverError, DriverLink, Lead, Made

log = structlog.get_logger()

CONFLICT: Final = 409
NOT_FOUND: Final = 404
SLOW: Final = 10.0
"""Seconds after which an answer that did not come is not waited for a second time."""
PATIENCE: Final = 10.0
"""Seconds for a server to show that it lives."""
_JOB: Final = msgspec.json.Decoder(KubeJob)
_PODS: Final = msgspec.json.Decoder(Page[Pod])


class Kubernetes:
    """One cluster: implements `Driver` of the ports."""

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
        """Set, and made anew, when something has changed."""
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
        """What is noted explains; nothing rests on it, and it may be that we are not allowed to read it."""

    async def run(self, news: Callable[[], None]) -> None:
        """Watch until cancelled."""
        self._news = news
        self._mirror.tell_all()  # which may run for a second time
        try:
            async with asyncio.TaskGroup() as group:
                for reflector in (*self._watched, *self._noted):
                    group.create_task(reflector.run())
                group.create_task(self._settle())
        finally:
            if self._probing is not None:
                self._probing.cancel()
                await asyncio.gather(self._probing, return_exceptions=True)
            await self._api.close()

    async def close(self) -> None:
        """Close all connections of one that does not run."""
        await self._api.close()

    def connection(self) -> Connection:
        """How the connection is."""
        return self._connection

    def take(self) -> Changes:
        """What changed since this was last called; nothing before the first list."""
        return self._mirror.take()

    # --- what is asked for

    async def start(self, start: Start) -> Answer:
        """Have an attempt run."""
        try:
            body = job_of(start, self._options, self.namespace, self._lead.epoch)
        except Unrunnable as error:
            return Answer(Made.REFUSED, str(error))
        except Exception as error:  # what nobody foresaw of this job, of which the cluster has heard nothing
            log.exception("cannot write a job as a Job", job=start.lease.job)
            return Answer(Made.REFUSED, f"it cannot be written as a Job: {reason_of(error)}")
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
                # Whether it was made is told by asking again: under its name it is there once.
                if not passing or tried == TRIES - 1 or time.monotonic() - began > SLOW:
                    return answer_of(trouble, unsure=unsure)
                await asyncio.sleep(pause(tried, trouble.retry_after))
            else:
                return self._made(made)
        raise AssertionError("unreachable")  # pragma: no cover

    async def _adopt(self, lease: Lease, *, unsure: bool) -> Answer:
        """A Job of that name is there already: see whether it is that of the lease; `unsure` if an earlier try may yet make it."""
        try:
            job = await self._api.read(_JOB, "GET", f"{self._jobs}/{name_of(lease)}")
        except Trouble as trouble:
            gone = isinstance(trouble, ApiRefused) and trouble.code == NOT_FOUND
            return answer_of(trouble, unsure=unsure or not gone)
        if lease_of(job.metadata.labels, self._options.owner) != lease:
            return Answer(Made.REFUSED, f"a Job {name_of(lease)} is there that is none of ours; delete it")
        if job.metadata.deletion_timestamp is not None:
            made = Made.UNKNOWN if unsure else Made.NOT_NOW
            return Answer(made, f"the Job {name_of(lease)} is being deleted")
        return self._made(job)

    def _made(self, job: KubeJob) -> Answer:
        # It counts as seen: that it was made may be heard much later.
        self._mirror.made_job(job)
        self._tell()
        return Answer(Made.MADE)

    async def stop(self, lease: Lease, grace: int) -> None:
        """Have an attempt deleted, all of it."""
        known = self._mirror.known(lease)
        try:
            if known is None or known.job is not None:
                await self._delete_job(lease, None if known is None or known.job is None else known.job)
            for each in known.living if known is not None else ():
                own = each.pod.spec.termination_grace_period_seconds
                seconds = max(
                    1, -(-grace // SECOND)
                )  # 0 would not wait for the node to say that it has ended
                if known is not None and (known.job is None or seconds < own):
                    await self._delete(
                        self._pods, each.pod.metadata, {"gracePeriodSeconds": min(seconds, own)}
                    )
        except Trouble as trouble:
            if isinstance(trouble, Unanswered):
                self._probe()
            raise DriverError(str(trouble)) from None

    async def _delete_job(self, lease: Lease, job: KubeJob | None) -> None:
        """Delete a Job and then, or before it is gone, its pods."""
        job = job or await self._find(lease)
        if job is None:
            return
        over = any(one.holds and one.type in {"Complete", "Failed"} for one in job.status.conditions)
        # What may run is deleted before its Job: when that is gone, nothing of it runs.
        policy = "Background" if over else "Foreground"
        await self._delete(self._jobs, job.metadata, {"propagationPolicy": policy})

    async def _delete(self, kind: str, meta: Meta, how: dict[str, object]) -> None:
        """Delete the very object that was seen, unless a later server made it; raises DriverError then, and else Trouble."""
        if (epoch := epoch_of(meta.labels)) > self._lead.epoch:
            # We are of the past, or our data are: what we do not know of may well be wanted.
            raise DriverError(
                f"{meta.name} was made by a server of epoch {epoch}, and this one is of {self._lead.epoch}; "
                "if these data are older than that, as after restoring a backup, delete it yourself"
            )
        # Another of its name, or one whose epoch is another, has another uid.
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": meta.uid}, **how}
        try:
            await self._api.ask("DELETE", f"{kind}/{meta.name}", body=body, may=self._lead.leads)
        except ApiRefused as refused:
            if refused.code not in {NOT_FOUND, CONFLICT}:  # gone, and another in its place
                raise

    async def output(
        self, lease: Lease, task: int, offset: int, *, follow: bool
    ) -> AsyncGenerator[bytes, None]:
        """What a task wrote, from a byte on; following, until it has ended."""
        async with aclosing(self._logs.read(lease, task, offset, follow=follow)) as chunks:
            async for chunk in chunks:
                yield chunk

    async def check(self) -> Sequence[str]:
        """What keeps this cluster from being used."""
        return await problems(self._api, self.namespace)

    # --- what is seen

    def _reflector(self, path: str, kind: type[T], sink: Sink[T], **params: str) -> Reflector[T]:
        return Reflector(self._api, path, kind, sink, self._tell, params)

    def _tell(self) -> None:
        """Something was heard: pass on what is new."""
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
        """How the connection is now: as good as the worst of the watches."""
        worst = max(self._watched, key=lambda each: each.failures)
        if not all(each.listed for each in self._watched):
            link = DriverLink.CONNECTING
        else:
            link = DriverLink.DOWN if worst.failures else DriverLink.UP
        since = self._connection.since if link is self._connection.link else boottime()
        return Connection(link, since, worst.failures, worst.error)

    async def _settle(self) -> None:
        """Ask for attempts of which not all may have been heard."""
        tried = 0
        while True:
            await self._in_doubt.wait()
            self._in_doubt.clear()
            doubts = self._mirror.doubts()
            with suppress(Trouble):
                for lease in doubts:
                    with suppress(UnreadableAnswer):  # which is about this one alone
                        await self._settle_one(lease)
            self._tell()
            if set(doubts).isdisjoint(self._mirror.doubts()):
                tried = 0
            else:
                tried += 1
                await asyncio.sleep(pause(tried))

    async def _settle_one(self, lease: Lease) -> None:
        """Ask for all that there is of an attempt. Raises Trouble."""
        labels = labels_of(lease, self._options.owner).items()
        job = await self._find(lease)
        selector = ",".join(f"{name}={value}" for name, value in labels)
        page = await self._api.read(_PODS, "GET", self._pods, {"labelSelector": selector})
        self._mirror.settle(lease, job, page.items, version_of(page.metadata))

    async def _find(self, lease: Lease) -> KubeJob | None:
        """The Job of an attempt as it is now; None if there is none of ours. Raises Trouble."""
        try:
            job = await self._api.read(_JOB, "GET", f"{self._jobs}/{name_of(lease)}")
        except ApiRefused as refused:
            if refused.code == NOT_FOUND:
                return None
            raise
        return job if lease_of(job.metadata.labels, self._options.owner) == lease else None

    def _probe(self) -> None:
        """Something was not answered: see whether the server answers at all, and if not, do not wait for its watches."""
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
                each.begin_anew()
