"""What is on a cluster, as it was last heard, and what of that was not told yet. No I/O: whoever watches puts things in here.

Of pods that are none of ours only what they use is kept. Ours are kept until their whole attempt is gone, also once they were
deleted, because how they ended is not to be had again.
"""

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from typing import Final

from msgspec import Struct

from spillover.clusters.kubernetes.naming import lease_of, name_of
from spillover.clusters.kubernetes.nodes import KubernetesNodes
from spillover.clusters.kubernetes.notes import Notes, noted
from spillover.clusters.kubernetes.objects import KubeEvent, KubeJob, KubeNode, Meta, Pod, version_of
from spillover.clusters.kubernetes.reading import NOTED, read
from spillover.clusters.kubernetes.sightings import KnownObject, Sighting
from spillover.core.events import Lease
from spillover.forms.pods import GPU
from spillover.ports.driver import Changes, Seen

KINDS: Final = frozenset(("nodes", "pods", "jobs"))
"""What must have been listed before anything is told."""


class _Attempt(Struct):
    """The objects of an attempt of ours."""

    job: KubeJob | None = None
    pods: dict[str, Sighting] = {}
    """By name."""
    notes: tuple[KubeEvent, ...] = ()
    heard: bool = False
    """Whether it was ever heard of its Job."""
    settled: int | None = None
    """The version of its pods that were asked for after its Job was over or gone; None if they were not."""

    @property
    def is_there(self) -> bool:
        """Whether there is an object of it."""
        return self.job is not None or any(each.there for each in self.pods.values())


class Mirror:
    """One cluster."""

    def __init__(self, owner: str, namespace: str, gpu: str = GPU) -> None:
        self._owner = owner
        self._namespace = namespace
        self._gpu = gpu
        self._nodes = KubernetesNodes(gpu)
        self._attempts: dict[Lease, _Attempt] = {}
        self._names: dict[str, Lease] = {}
        """Whose the Jobs and pods are, for what is noted about them."""
        self._notes = Notes()
        self._told: dict[Lease, Seen] = {}
        self._changed: dict[Lease, None] = {}
        self._doubts: dict[Lease, None] = {}
        self._over: dict[Lease, None] = {}
        """Attempts whose Job is over, of which more was heard since it was last seen whether pods are lacking."""
        self._listed: set[str] = set()
        self._version = 0
        """Up to where Jobs were heard of."""
        self._pods_version = 0
        """Up to where pods were heard of."""
        self._whole = False
        """Whether all is to be told anew."""

    # --- what is heard of nodes

    def list_nodes(self, nodes: Iterable[KubeNode], _: int) -> None:
        """These are all the nodes."""
        self._look_at_pods_on(frozenset(self._nodes.replace(nodes)))
        self._list("nodes")

    def put_node(self, node: KubeNode) -> None:
        """A node is there, or is not as it was."""
        if self._nodes.put(node):
            self._look_at_pods_on({node.metadata.name})

    def drop_node(self, node: KubeNode) -> None:
        """A node is gone."""
        self._nodes.drop(node.metadata.name)
        self._look_at_pods_on({node.metadata.name})

    # --- what is heard of pods

    def list_pods(self, pods: Iterable[Pod], version: int) -> None:
        """These were all the pods at a version; what was made since is not among them.

        A list of before what was heard already is one of a cluster that was restored from a copy: it alone counts.
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
        """A pod is there, or is not as it was."""
        self._pods_version = max(self._pods_version, version_of(pod.metadata))
        self._put_pod(pod)

    def _put_pod(self, pod: Pod) -> None:
        lease = self._lease(pod.metadata)
        if lease is None:
            self._nodes.use(pod)
        else:
            self._see(lease, Sighting(pod))

    def drop_pod(self, pod: Pod) -> None:
        """A pod is gone; this is how it was."""
        self._pods_version = max(self._pods_version, version_of(pod.metadata))
        self._drop_pod(pod)

    def _drop_pod(self, pod: Pod) -> None:
        lease = self._lease(pod.metadata)
        if lease is None:
            self._nodes.leave(pod)
        elif lease in self._attempts:
            self._see(lease, Sighting(pod, there=False))

    def settle(self, lease: Lease, job: KubeJob | None, pods: Iterable[Pod], version: int) -> None:
        """This was the Job of an attempt in doubt, and these were all its pods after that, at a version."""
        self._doubts.pop(lease, None)
        attempt = self._attempts.get(lease)
        if attempt is None:
            return
        for pod in pods:
            if version < self._pods_version and pod.metadata.name not in attempt.pods:
                self._drop_pod(pod)  # it is gone by now, or it would have been heard of
            else:
                self._put_pod(pod)
        if job is not None:
            self.made_job(job)
        self._doubts.pop(lease, None)
        if attempt.job is None or KnownObject(attempt.job).over is not None:  # there will be no more pods
            if job is None or KnownObject(job).over is not None:
                attempt.settled = version
            else:
                self._doubts[lease] = None  # there may be pods that were made since
        self._changed[lease] = None

    # --- what is heard of Jobs

    def list_jobs(self, jobs: Iterable[KubeJob], version: int) -> None:
        """These were all the Jobs of the namespace at a version; what was made since is not among them; see `list_pods`."""
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
        """A Job is there, or is not as it was."""
        self._version = max(self._version, version_of(job.metadata))
        self._put_job(job)

    def made_job(self, job: KubeJob) -> None:
        """A Job is there, as somebody was told who asked; those who watch know better if they heard as much already."""
        if version_of(job.metadata) > self._version:
            self._put_job(job)

    def drop_job(self, job: KubeJob) -> None:
        """A Job is gone."""
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
                self._doubts[lease] = None  # a pod that was just made may not have been heard of yet
            attempt.job = None
            self._changed[lease] = None

    def _put_job(self, job: KubeJob) -> None:
        lease = self._lease(job.metadata)
        if lease is None:
            return
        attempt = self._attempts.setdefault(lease, _Attempt())
        had = attempt.job
        if had is not None and version_of(had.metadata) > version_of(job.metadata):
            return  # somebody who asked was told of what happened since
        if had is None or KnownObject(job).over is None:
            attempt.settled = None  # there may be more pods
        attempt.job, attempt.heard = job, True
        self._name(job.metadata.name, lease, attempt)
        self._changed[lease] = None
        self._look_for_pods(lease, attempt)

    # --- what is noted

    def list_notes(self, notes: Iterable[KubeEvent], _: int) -> None:
        """This is what is noted."""
        for note in notes:
            self.put_note(note)

    def put_note(self, note: KubeEvent) -> None:
        """Something was noted about an object."""
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
        """Notes are deleted after an hour: that says nothing."""

    # --- what is told

    def tell_all(self) -> None:
        """Whoever was told may not have taken it in: tell all of it."""
        self._whole = True

    def has_news(self) -> bool:
        """Whether there is something to tell."""
        return self._listed >= KINDS and bool(self._whole or self._changed or self._nodes.has_news)

    def doubts(self) -> tuple[Lease, ...]:
        """Attempts of which not all may have been heard that counts: ask for the Job, then for its pods, and `settle` them."""
        if "pods" in self._listed:
            over, self._over = self._over, {}
            for lease in over:
                if (attempt := self._attempts.get(lease)) is not None and self._known(attempt).lacks_pods:
                    self._doubts[lease] = None
        return tuple(self._doubts)

    def take(self) -> Changes:
        """What changed since it was last asked for; nothing before all was listed once."""
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
        """What is known of an attempt; None if there is none."""
        attempt = self._attempts.get(lease)
        return None if attempt is None else self._known(attempt)

    # --- records

    def _lease(self, meta: Meta) -> Lease | None:
        """The attempt of ours that an object is of."""
        return lease_of(meta.labels, self._owner) if meta.namespace == self._namespace else None

    def _name(self, name: str, lease: Lease, attempt: _Attempt) -> None:
        """An object is of an attempt, and so is what was noted about it before that was known."""
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
            return  # an answer that came after what happened since
        if had is None and self._is_past(lease, attempt, sighting.pod.metadata):
            return
        attempt.pods[sighting.name] = sighting
        self._name(sighting.name, lease, attempt)
        self._changed[lease] = None
        if not (attempt.heard or attempt.settled is not None or attempt.is_there):
            self._doubts[lease] = None  # pods come and go, but their Job may be there
        self._look_for_pods(lease, attempt)

    def _is_past(self, lease: Lease, attempt: _Attempt, meta: Meta) -> bool:
        """Whether a pod that was not heard of was gone when all were asked for, and the end was told without it."""
        told = self._told.get(lease)
        if attempt.settled is None or told is None or told.ending is None:
            return False
        return version_of(meta) <= attempt.settled

    def _look_for_pods(self, lease: Lease, attempt: _Attempt) -> None:
        """Of an attempt whose Job is over, see whether there are pods that were not heard of."""
        if attempt.settled is None and KnownObject(attempt.job).over is not None:
            self._over[lease] = None

    def _look_at_pods_on(self, nodes: AbstractSet[str]) -> None:
        """Nodes answer, or do not any more: what is on them may count otherwise."""
        for lease, attempt in self._attempts.items():
            if any(each.lives and each.pod.spec.node_name in nodes for each in attempt.pods.values()):
                self._changed[lease] = None

    def _known(self, attempt: _Attempt) -> KnownObject:
        pods = sorted(attempt.pods.values(), key=lambda each: (each.index, _age(each), each.name))
        nodes = {each.pod.spec.node_name for each in pods if each.lives}
        silent = frozenset(name for name in nodes if name and not self._nodes.answers(name))
        return KnownObject(attempt.job, tuple(pods), attempt.notes, attempt.settled is not None, silent)

    def _forget(self, lease: Lease, attempt: _Attempt) -> None:
        del self._attempts[lease]
        self._told.pop(lease, None)
        self._over.pop(lease, None)
        for name in (name_of(lease), *attempt.pods):
            self._names.pop(name, None)


def _is_later(had: Sighting, meta: Meta) -> bool:
    """Whether a pod was seen gone, or as it was after this."""
    known = had.pod.metadata
    return known.uid == meta.uid and (not had.there or version_of(known) > version_of(meta))


def _age(each: Sighting) -> float:
    made = each.pod.metadata.creation_timestamp
    return made.timestamp() if made is not None else 0.0
