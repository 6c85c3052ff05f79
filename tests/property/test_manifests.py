"""Manifests of Kubernetes Jobs: whoever reads one agrees with the others on whether it is one, and on what engines can do."""

import json
from typing import Any, Final

from hypothesis import example, given
from hypothesis import strategies as st

from spillover.agent.runners.manifests import UnrunnableManifest, plan_of
from spillover.clusters.kubernetes.attempts.jobs import job_of
from spillover.clusters.kubernetes.options import KubernetesOptions
from spillover.forms.jobs.reading import BadForm, read_job, to_doc
from spillover.forms.problems import FormProblem
from spillover.model.admission import PODS
from spillover.model.ids import ClusterName
from spillover.model.job import Container
from spillover.ports.cluster import Start
from tests.support.inputs.odd import mutated
from tests.support.kubernetes import LEASE, NAMESPACE, OWNER

CLUSTER: Final = ClusterName("onprem")
OPTIONS: Final = KubernetesOptions(cluster=CLUSTER, owner=OWNER)
_CONTAINER: Final[dict[str, Any]] = {
    "name": "c",
    "image": "busybox",
    "command": ["sh"],
    "args": ["-c", "true"],
    "env": [{"name": "A", "value": "1"}],
    "workingDir": "/w",
    "volumeMounts": [{"name": "h", "mountPath": "/h", "readOnly": True}, {"name": "e", "mountPath": "/e"}],
    "resources": {"requests": {"cpu": "1", "memory": "1Gi"}},
}
MANIFEST: Final[dict[str, Any]] = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "pi", "labels": {"app": "pi"}, "annotations": {"spillover.dev/estimate": "5m"}},
    "spec": {
        "parallelism": 1,
        "completions": 1,
        "activeDeadlineSeconds": 60,
        "template": {
            "metadata": {"labels": {"app": "pi"}, "annotations": {"note": "x"}},
            "spec": {
                "containers": [_CONTAINER],
                "volumes": [{"name": "h", "hostPath": {"path": "/srv"}}, {"name": "e", "emptyDir": {}}],
                "nodeSelector": {"zone": "a"},
                "tolerations": [{"key": "gpu", "operator": "Exists"}],
            },
        },
    },
}


_CHOICE: Final[dict[str, Any]] = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}
_CHOOSY: Final[dict[str, Any]] = {"containers": [_CONTAINER], "affinity": {"nodeAffinity": _CHOICE}}
NO_TERMS: Final = MANIFEST | {"spec": {"template": {"spec": _CHOOSY}}}


def within(manifest: object) -> dict[str, Any]:
    """A job file that carries a manifest."""
    container = {"image": "busybox", "manifest": manifest}
    return {"apiVersion": "spillover/v1", "kind": "Job", "spec": {"container": container}}


def nulled(pod: str, container: str) -> dict[str, Any]:
    """The manifest with null for a part of its pod and of its container."""
    one = _CONTAINER | {container: None}
    spec = MANIFEST["spec"]["template"]["spec"] | {"containers": [one], pod: None}
    return MANIFEST | {"spec": {"template": {"spec": spec}}}


manifests = mutated(MANIFEST).map(json.dumps).map(json.loads)


@given(manifests, st.booleans())
@example(MANIFEST, False)
@example(MANIFEST | {"metadata": [1]}, True)
@example(nulled("volumes", "volumeMounts"), False)
@example(nulled("tolerations", "command"), False)
@example(NO_TERMS, False)
def test_a_manifest_is_refused_with_a_reason_or_runs_where_it_is_said_to(
    manifest: Any, carried: bool
) -> None:
    problems: tuple[FormProblem, ...] | None = None
    try:
        form = read_job(within(manifest) if carried else manifest)
    except BadForm as wrong:
        problems = wrong.problems
    if problems is not None:
        assert problems
        return
    assert read_job(to_doc(form)) == form
    work, runs = form.spec.work, form.spec.shape.runs
    assert isinstance(work, Container)
    # No cluster refuses its form, and no agent is given what it cannot do.
    made = job_of(Start(LEASE, form.spec, CLUSTER), OPTIONS, NAMESPACE, 1)
    assert made["kind"] == "Job"
    assert (PODS in runs) == bool(unable(work))


def unable(work: Container) -> str:
    """What keeps an engine from running it, but for names and paths, which only an engine takes amiss."""
    try:
        plan_of(work)
    except UnrunnableManifest as error:
        return "" if " path" in str(error) or "name of an image" in str(error) else str(error)
    return ""
