"""Keeps the last known state of a cluster, and what of it has not been reported yet. No I/O: the watches call it.

Of foreign pods it keeps only what they use. It keeps our pods until their whole attempt is gone, even deleted ones,
because the cluster does not report again how they ended.
"""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Final

from msgspec import Struct

from spillover.clusters.kubernetes.api.objects import KubeEvent, KubeJob, KubeNode, Meta, Pod, version_of
from spillover.clusters.kubernetes.attempts.naming import lease_of, name_of
from spillover.clusters.kubernetes.attempts.notes import Notes, noted
from spillover.clusters.kubernetes.attempts.reading import NOTED, read
from spillover.clusters.kubernetes.attempts.sightings import KnownObject, Sighting
from spillover.clusters.kubernetes.attempts.usage import PodMetrics, PodUses
from spillover.clusters.kubernetes.nodes import KubernetesNodes
from spillover.core.events import Lease
from spillover.forms.jobs.pods import GPU
from spillover.ports.driver import Changes, Seen

KINDS: Final = frozenset(("nodes", "pods", "jobs"))
"""Kinds that must be listed before anything is reported."""


class _Attempt(Struct):
    """The objects of one attempt."""

    job: KubeJob | None = None
    pods: dict[str, Sighting] = {}
    """By name, with deleted ones."""
    notes: tuple[KubeEvent, ...] = ()
    heard: bool = False
    """Whether its Job was ever seen."""
    settled: int | None = None
    """Version of the list of its pods that was fetched after its Job ended or was deleted; None if it was not."""

    @property
    def is_there(self) -> bool:
        """Whether an object of it exists."""
        return self.job is not None or any(each.there for each in self.pods.values())


class Mirror:
    """The known state of one cluster."""

    def __init__(self, owner: str, namespace: str, gpu: str = GPU) -> None:
        self._owner = owner
        self._namespace = namespace
        self._gpu = gpu
        self._nodes = KubernetesNodes(gpu)
        self._attempts: dict[Lease, _Attempt] = {}
        self._names: dict[str, Lease] = {}
        """The attempt of each Job and pod by name, for Kubernetes events about them."""
        self._notes = Notes()
        self._uses = PodUses()
        self._told: dict[Lease, Seen] = {}
        self._changed: dict[Lease, None] = {}
        self._doubts: dict[Lease, None] = {}
        self._over: dict[Lease, None] = {}
        """Attempts whose Job has ended and which changed since `doubts` last checked them for missing pods."""
        self._listed: set[str] = set()
        self._version = 0
        """Newest version of a Job that was seen."""
        self._pods_version = 0
        """Newest version of a pod that was seen."""
        self._whole = False
        """Whether the next report must contain everything."""

    # --- nodes

    def list_nodes(self, nodes: Iterable[KubeNode], _: int) -> None:
        """Replace all nodes."""
        self._look_at_pods_on(frozenset(self._nodes.replace(nodes)))
        self._list("nodes")

    def put_node(self, node: KubeNode) -> None:
        """Add or update a node."""
        if self._nodes.put(node):
            self._look_at_pods_on({node.metadata.name})

    def drop_node(self, node: KubeNode) -> None:
        """Remove a node."""
        self._nodes.drop(node.metadata.name)
        self._look_at_pods_on({node.metadata.name})

    # --- pods

    def list_pods(self, pods: Iterable[Pod], version: int) -> None:
        """Replace all pods by a list of this version; newer ones are not in it.

        A list older than what was seen comes from a cluster restored from a backup. It then replaces everything.
        """
        restored, self._pods_version = version < self._pods_version, version
        ours: dict[str, Pod] = {}
        others: list[Pod] = []
        for pod in pods:
            if self._lease(pod.metadata) is None:
                others.append(pod)
            else:
                ours[pod.metadata.uid] = pod
        self._nodes.use_only(others)
        for lease, attempt in self._attempts.items():
            if restored:
                attempt.settled = None
                self._look_for_pods(lease, attempt)
            for sighting in list(attempt.pods.values()):
                meta = sighting.pod.metadata
                if sighting.there and meta.uid not in ours and (restored or version_of(meta) <= version):
                    self._drop_pod(sighting.pod)
                elif restored and meta.uid in ours:
                    del attempt.pods[sighting.name]
        for pod in ours.values():
            self._put_pod(pod)
        self._list("pods")

    def put_pod(self, pod: Pod) -> None:
        """Add or update a pod."""
        self._pods_version = max(self._pods_version, version_of(pod.metadata))
        self._put_pod(pod)

    def _put_pod(self, pod: Pod) -> None:
        lease = self._lease(pod.metadata)
        if lease is None:
            self._nodes.use(pod)
        else:
            self._see(lease, Sighting(pod))

    def drop_pod(self, pod: Pod) -> None:
        """Remove a pod, and keep its last state if it is ours."""
        self._pods_version = max(self._pods_version, version_of(pod.metadata))
        self._drop_pod(pod)

    def _drop_pod(self, pod: Pod) -> None:
        lease = self._lease(pod.metadata)
        if lease is None:
            self._nodes.leave(pod)
        elif lease in self._attempts:
            self._see(lease, Sighting(pod, there=False))

    def settle(self, lease: Lease, job: KubeJob | None, pods: Iterable[Pod], version: int) -> None:
        """Store the Job of an attempt in doubt, and the list of its pods that was fetched after the Job."""
        self._doubts.pop(lease, None)
        attempt = self._attempts.get(lease)
        if attempt is None:
            return
        for pod in pods:
            if version < self._pods_version and pod.metadata.name not in attempt.pods:
                self._drop_pod(pod)  # it is gone by now, or the watch would have reported it
            else:
                self._put_pod(pod)
        if job is not None:
            self.made_job(job)
        self._doubts.pop(lease, None)
        # The list is final only if the Job had ended, or was gone, when the pods were fetched.
        if attempt.job is None or KnownObject(attempt.job).over is not None:  # no more pods will be created
            if job is None or KnownObject(job).over is not None:
                attempt.settled = version
            else:
                self._doubts[lease] = None  # pods may have been created since
        self._changed[lease] = None

    # --- Jobs

    def list_jobs(self, jobs: Iterable[KubeJob], version: int) -> None:
        """Replace all Jobs by a list of this version; as in `list_pods`."""
        restored, self._version = version < self._version, version
        there = {job.metadata.uid: job for job in jobs}
        for attempt in list(self._attempts.values()):
            had = attempt.job
            if had is None:
                continue
            if had.metadata.uid in there:
                if restored:
                    attempt.job = None
            elif restored or version_of(had.metadata) <= version:
                self._drop_job(had)
        for job in there.values():
            self._put_job(job)
        self._list("jobs")

    def put_job(self, job: KubeJob) -> None:
        """Add or update a Job."""
        self._version = max(self._version, version_of(job.metadata))
        self._put_job(job)

    def made_job(self, job: KubeJob) -> None:
        """Add or update a Job from the answer to a request, unless the watch has already got as far."""
        if version_of(job.metadata) > self._version:
            self._put_job(job)

    def drop_job(self, job: KubeJob) -> None:
        """Remove a Job."""
        self._version = max(self._version, version_of(job.metadata))
        self._drop_job(job)

    def _drop_job(self, job: KubeJob) -> None:
        lease = self._lease(job.metadata)
        attempt = self._attempts.get(lease) if lease is not None else None
        if lease is None or attempt is None or attempt.job is None:
            return
        if attempt.job.metadata.uid == job.metadata.uid:
            known = self._known(attempt)
            if known.over is None or known.lacks_pods:
                self._doubts[lease] = None  # the watch may not have reported a new pod yet
            attempt.job = None
            self._changed[lease] = None

    def _put_job(self, job: KubeJob) -> None:
        lease = self._lease(job.metadata)
        if lease is None:
            return
        attempt = self._attempts.setdefault(lease, _Attempt())
        had = attempt.job
        if had is not None and version_of(had.metadata) > version_of(job.metadata):
            return  # the answer to a request was newer
        if had is None or KnownObject(job).over is None:
            attempt.settled = None  # more pods may be created
        attempt.job, attempt.heard = job, True
        self._name(job.metadata.name, lease, attempt)
        self._changed[lease] = None
        self._look_for_pods(lease, attempt)

    # --- usage

    @property
    def runs(self) -> bool:
        """Whether a pod of ours runs, so that its usage can be measured."""
        return any(
            each.lives and each.started is not None
            for attempt in self._attempts.values()
            for each in attempt.pods.values()
        )

    def measure(self, samples: Iterable[PodMetrics]) -> None:
        """Add samples of what pods use. They are told with the end of their attempts."""
        self._uses.add(samples, self._names)

    # --- Kubernetes events

    def list_notes(self, notes: Iterable[KubeEvent], _: int) -> None:
        """Add the listed events."""
        for note in notes:
            self.put_note(note)

    def put_note(self, note: KubeEvent) -> None:
        """Add an event to the attempt that it is about; keep it aside while the attempt is unknown."""
        lease = self._names.get(note.involved_object.name)
        attempt = self._attempts.get(lease) if lease is not None else None
        if note.reason not in NOTED:
            return
        if lease is None or attempt is None:
            self._notes.keep(note)
            return
        attempt.notes = noted(attempt.notes, note)
        self._changed[lease] = None

    def drop_note(self, note: KubeEvent) -> None:
        """Do nothing: Kubernetes deletes events after an hour."""

    # --- reports

    @property
    def labels(self) -> Iterable[Mapping[str, str]]:
        """The labels of all nodes."""
        return self._nodes.labels

    def tell_all(self) -> None:
        """Report everything again, as the receiver may have lost earlier reports."""
        self._whole = True

    def has_news(self) -> bool:
        """Return whether `take` has something to report."""
        return self._listed >= KINDS and bool(self._whole or self._changed or self._nodes.has_news)

    def doubts(self) -> tuple[Lease, ...]:
        """Return attempts that may have unseen pods: fetch the Job, then the pods, and call `settle`."""
        if "pods" in self._listed:
            over, self._over = self._over, {}
            for lease in over:
                if (attempt := self._attempts.get(lease)) is not None and self._known(attempt).lacks_pods:
                    self._doubts[lease] = None
        return tuple(self._doubts)

    def take(self) -> Changes:
        """Return what changed since the last call; nothing before all kinds were listed."""
        if not self.has_news():
            return Changes(whole=False)
        whole, self._whole = self._whole, False
        changed = self._attempts if whole else self._changed
        attempts, gone = [], []
        for lease in list(changed):
            attempt = self._attempts.get(lease)
            if attempt is None:
                continue
            if not attempt.is_there and lease not in self._doubts:
                self._forget(lease, attempt)
                gone.append(lease)
                continue
            seen = read(lease, self._known(attempt), self._gpu)
            if whole or self._told.get(lease) != seen:
                self._told[lease] = seen
                attempts.append(seen)
        self._changed = {}
        nodes, gone_nodes = self._nodes.take(whole=whole)
        return Changes(whole, nodes, gone_nodes, tuple(attempts), tuple(gone))

    def known(self, lease: Lease) -> KnownObject | None:
        """Return what is known of an attempt; None if nothing is."""
        attempt = self._attempts.get(lease)
        return None if attempt is None else self._known(attempt)

    # --- records

    def _lease(self, meta: Meta) -> Lease | None:
        """Return the attempt that an object belongs to; None if it is not ours."""
        return lease_of(meta.labels, self._owner) if meta.namespace == self._namespace else None

    def _name(self, name: str, lease: Lease, attempt: _Attempt) -> None:
        """Map an object to its attempt, and add the events that arrived before the object."""
        self._names[name] = lease
        for note in self._notes.take(name):
            attempt.notes = noted(attempt.notes, note)

    def _list(self, kind: str) -> None:
        self._listed.add(kind)
        self._whole = True

    def _see(self, lease: Lease, sighting: Sighting) -> None:
        attempt = self._attempts.setdefault(lease, _Attempt())
        had = attempt.pods.get(sighting.name)
        if had is not None and sighting.there and _is_later(had, sighting.pod.metadata):
            return  # an older answer arrived late
        if had is None and self._is_past(lease, attempt, sighting.pod.metadata):
            return
        attempt.pods[sighting.name] = sighting
        self._name(sighting.name, lease, attempt)
        self._changed[lease] = None
        if not (attempt.heard or attempt.settled is not None or attempt.is_there):
            self._doubts[lease] = None  # its pods came and went, but its Job may still exist
        self._look_for_pods(lease, attempt)

    def _is_past(self, lease: Lease, attempt: _Attempt, meta: Meta) -> bool:
        """Return whether an unseen pod was already gone when the end of the attempt was reported without it."""
        told = self._told.get(lease)
        if attempt.settled is None or told is None or told.ending is None:
            return False
        return version_of(meta) <= attempt.settled

    def _look_for_pods(self, lease: Lease, attempt: _Attempt) -> None:
        """If the Job has ended, have `doubts` check for unseen pods."""
        if attempt.settled is None and KnownObject(attempt.job).over is not None:
            self._over[lease] = None

    def _look_at_pods_on(self, nodes: AbstractSet[str]) -> None:
        """Report attempts on these nodes again, as the nodes became ready or stopped being ready."""
        for lease, attempt in self._attempts.items():
            if any(each.lives and each.pod.spec.node_name in nodes for each in attempt.pods.values()):
                self._changed[lease] = None

    def _known(self, attempt: _Attempt) -> KnownObject:
        pods = sorted(attempt.pods.values(), key=lambda each: (each.index, _age(each), each.name))
        nodes = {each.pod.spec.node_name for each in pods if each.lives}
        silent = frozenset(name for name in nodes if name and not self._nodes.answers(name))
        settled = attempt.settled is not None
        return KnownObject(attempt.job, tuple(pods), attempt.notes, settled, silent, self._uses)

    def _forget(self, lease: Lease, attempt: _Attempt) -> None:
        del self._attempts[lease]
        self._told.pop(lease, None)
        self._over.pop(lease, None)
        for name in (name_of(lease), *attempt.pods):
            self._names.pop(name, None)
        self._uses.forget(attempt.pods)


def _is_later(had: Sighting, meta: Meta) -> bool:
    """Return whether the known pod is deleted already, or is newer."""
    known = had.pod.metadata
    return known.uid == meta.uid and (not had.there or version_of(known) > version_of(meta))


def _age(each: Sighting) -> float:
    made = each.pod.metadata.creation_timestamp
    return made.timestamp() if made is not None else 0.0
