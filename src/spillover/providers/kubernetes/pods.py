"""A machine as a pod: what is created for an order, and what a pod says about its machine."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from spillover.clusters.kubernetes.api.objects import ObjectCondition, Pod, moment_of, said
from spillover.clusters.kubernetes.attempts.jobs import literal, resources_of
from spillover.clusters.kubernetes.attempts.placing import HOSTNAME, REQUIRED
from spillover.ports.provider import MACHINE_TAG, OWNER_TAG, Listed, Order, Presence
from spillover.providers.kubernetes.kind import KubernetesForm
from spillover.providers.rest import one_line
from spillover.providers.userdata import FOLDER, agent_options

ZONE: Final = "topology.kubernetes.io/zone"
MOST_LABEL: Final = 63
"""Characters of the value of a label. Names of clusters have no others than labels may have."""
JOIN: Final = "join.json"
KEPT: Final[Mapping[str, str]] = {
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
    "karpenter.sh/do-not-disrupt": "true",
}
"""Annotations that keep autoscalers from moving a pod in which tasks run."""


def pod_of(order: Order, form: KubernetesForm) -> dict[str, Any]:
    """Return the pod of an order. It waits for the Secret of its name, which belongs to it."""
    container = {
        "name": "agent",
        "image": form.image,
        "command": [form.program, "agent", *map(literal, agent_options(order))],
        "resources": resources_of(order.offer.resources),
        "volumeMounts": [
            {"name": "data", "mountPath": FOLDER},
            {"name": "join", "mountPath": f"{FOLDER}/{JOIN}", "subPath": JOIN, "readOnly": True},
        ],
    }
    # Readable for the user of the image, whoever that is. The token in it works once, so tasks gain nothing by it.
    volumes = [
        {"name": "data", "emptyDir": {}},
        {"name": "join", "secret": {"secretName": order.name, "defaultMode": 0o444}},
    ]
    spec: dict[str, Any] = {
        # Tasks are strangers to the cluster.
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        **form.pod,
        "restartPolicy": "Never",
        "containers": [container],
        "volumes": [*form.pod.get("volumes", []), *volumes],
    }
    if order.offer.zone:
        spec["nodeSelector"] = {**form.pod.get("nodeSelector", {}), ZONE: order.offer.zone}
    if form.machine_deployment and "affinity" not in form.pod:
        spec["affinity"] = {"podAntiAffinity": {REQUIRED: [_elsewhere(order.owner)]}}
    labels = {key: value for key, value in order.tags.items() if len(value) <= MOST_LABEL}
    meta = {"name": order.name, "labels": labels, "annotations": {**KEPT, **form.annotations}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def _elsewhere(owner: str) -> dict[str, Any]:
    """Return that a pod does not share its node with another machine of ours."""
    return {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {OWNER_TAG: owner}}}


def secret_of(order: Order, pod: Pod) -> dict[str, Any]:
    """Return the Secret with what the agent needs to join; Kubernetes deletes it with the pod."""
    meta = pod.metadata
    owner = {"apiVersion": "v1", "kind": "Pod", "name": meta.name, "uid": meta.uid}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": order.name, "labels": dict(meta.labels), "ownerReferences": [owner]},
        "immutable": True,
        "stringData": {JOIN: msgspec.json.encode(order.join).decode()},
    }


def without_node(pod: Pod) -> ObjectCondition | None:
    """Return why no node takes a pod; None if one does, or if that is not known yet."""
    if pod.spec.node_name:
        return None
    return next(
        (
            each
            for each in pod.status.conditions
            if each.type == "PodScheduled" and not each.holds and each.reason == "Unschedulable"
        ),
        None,
    )


def listed(pod: Pod, id_: str, now: int, patience: int) -> Listed:
    """Translate a pod; one that no node takes for so many nanoseconds counts as stopping."""
    meta, status = pod.metadata, pod.status
    presence = {"Pending": Presence.PENDING, "Succeeded": Presence.STOPPING, "Failed": Presence.STOPPING}.get(
        status.phase, Presence.RUNNING
    )
    reason = ": ".join(each for each in (status.reason, said(status.message)) if each)
    lost = next((each for each in status.conditions if each.type == "DisruptionTarget" and each.holds), None)
    if lost is not None:
        reason = f"{lost.reason}: {said(lost.message)}"
    homeless = without_node(pod)
    if meta.deletion_timestamp is not None:
        presence = Presence.STOPPING
        reason = reason or "it is being deleted"
    elif (
        homeless is not None
        and _since(homeless.last_transition_time, meta.creation_timestamp, now) > patience
    ):
        presence, reason = Presence.STOPPING, f"no node takes it: {said(homeless.message)}"
    elif presence is Presence.STOPPING:
        reason = reason or f"its agent ended ({status.phase})"
    at = meta.creation_timestamp
    return Listed(
        id_,
        presence,
        meta.labels.get(MACHINE_TAG, ""),
        meta.labels.get(OWNER_TAG, ""),
        meta.name,
        None if at is None else moment_of(at),
        one_line(reason) if presence is Presence.STOPPING else "",
        lost is not None,
    )


def _since(changed: datetime | None, created: datetime | None, now: int) -> int:
    """Return the nanoseconds for which a pod has no node."""
    since = changed or created
    return 0 if since is None else now - moment_of(since)
