"""What of a Kubernetes Job an engine can do, and what it says of the rest."""

import json
from typing import Any

import pytest

from spillover.agent.runners.manifests import ContainerPlan, UnrunnableManifest, plan_of
from spillover.model.job import Container


def a_manifest(
    container: dict[str, Any] | None = None, spec: dict[str, Any] | None = None, **pod: Any
) -> Container:
    first = {"image": "busybox"} | (container or {})
    manifest = {"spec": {"template": {"spec": {"containers": [first], **pod}}, **(spec or {})}}
    return Container("busybox", (), json.dumps(manifest))


def test_our_own_form_replaces_the_entry_point() -> None:
    assert plan_of(Container("i")) == ContainerPlan("i")
    assert plan_of(Container("i", ("echo", "a", "b"))) == ContainerPlan("i", "echo", ("a", "b"))


def test_arguments_alone_go_to_the_entry_point_of_the_image() -> None:
    plan = plan_of(a_manifest({"args": ["-x", "1"]}))
    assert (plan.entrypoint, plan.words, plan.own_folder) == (None, ("-x", "1"), False)
    both = plan_of(a_manifest({"command": ["sh", "-c"], "args": ["true"], "workingDir": "/w"}))
    assert (both.entrypoint, both.words, both.workdir) == ("sh", ("-c", "true"), "/w")


def test_empty_folders_and_those_of_the_host_are_mounted() -> None:
    mounts = [
        {"name": "a", "mountPath": "/a"},
        {"name": "b", "mountPath": "/b", "readOnly": True},
        {"name": "b", "mountPath": "/c"},
    ]
    volumes = [{"name": "a", "emptyDir": {}}, {"name": "b", "hostPath": {"path": "/srv"}}]
    plan = plan_of(a_manifest({"volumeMounts": mounts}, volumes=volumes))
    assert plan.volumes == ("/a", "/srv:/b:ro", "/srv:/c")


def test_null_is_the_same_as_nothing() -> None:
    nothing = dict.fromkeys(("command", "args", "env", "envFrom", "volumeMounts", "workingDir"))
    work = a_manifest(nothing, {"parallelism": None}, volumes=None, initContainers=None)
    assert plan_of(work) == plan_of(a_manifest())


@pytest.mark.parametrize(
    ("work", "said"),
    [
        (a_manifest(initContainers=[{"image": "curl"}]), "has initContainers"),
        (a_manifest(spec={"parallelism": 3}), "several pods"),
        (a_manifest({"env": [{"name": "A", "valueFrom": {"secretKeyRef": {}}}]}), "valueFrom"),
        (a_manifest({"envFrom": [{}]}), "envFrom"),
        (
            a_manifest({"volumeMounts": [{"name": "v", "mountPath": "/v"}]}),
            "volume 'v', which it does not define",
        ),
        (
            a_manifest(
                {"volumeMounts": [{"name": "v", "mountPath": "/v"}]},
                volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}],
            ),
            "neither emptyDir nor hostPath",
        ),
        (
            a_manifest(
                {"volumeMounts": [{"name": "v", "mountPath": "/v", "subPath": "s"}]},
                volumes=[{"name": "v", "emptyDir": {}}],
            ),
            "subPath",
        ),
        (
            a_manifest(
                {"volumeMounts": [{"name": "v", "mountPath": "/v:x"}]},
                volumes=[{"name": "v", "emptyDir": {}}],
            ),
            "colon",
        ),
        (
            a_manifest({"volumeMounts": [{"name": "v"}]}, volumes=[{"name": "v", "emptyDir": {}}]),
            "mounts 'v' without a path; write mountPath",
        ),
        (
            a_manifest(
                {"volumeMounts": [{"name": "v", "mountPath": "/v"}]},
                volumes=[{"name": "v", "hostPath": {"path": ""}}],
            ),
            "mounts 'v' without a path",
        ),
        (Container("i", (), "[" * 100_000), "cannot be read"),
        (Container("--privileged", ("sh", "alpine")), "'--privileged' is not the name of an image"),
        (a_manifest({"image": "-v/:/host"}), "'-v/:/host' is not the name of an image"),
        (Container("i", (), '{"spec": 5}'), "cannot be read"),
        (
            Container(
                "i", (), json.dumps({"spec": {"template": {"spec": {"containers": [{"image": "a"}] * 2}}}})
            ),
            "2 containers",
        ),
    ],
)
def test_what_an_engine_cannot_do_is_named(work: Container, said: str) -> None:
    with pytest.raises(UnrunnableManifest, match=said):
        plan_of(work)
