"""What keeps a cluster from being used: asked for before anything is placed there, so that it can be told in one line each."""

import asyncio
from typing import Final

import msgspec
from msgspec import Struct

from spillover.clusters.kubernetes.api import Api, ApiRefused, Trouble


class Need(Struct, frozen=True):
    """Something that we do, and must be allowed to."""

    verb: str
    resource: str
    group: str = ""
    subresource: str = ""
    everywhere: bool = False
    """In all namespaces, not only in ours."""

    def __str__(self) -> str:
        name = self.resource + (f"/{self.subresource}" if self.subresource else "")
        return f"{self.verb} {name}"


NEEDS: Final = (
    *(Need(verb, "nodes", everywhere=True) for verb in ("list", "watch")),
    *(Need(verb, "pods", everywhere=True) for verb in ("list", "watch")),
    Need("delete", "pods"),
    Need("get", "pods", subresource="log"),
    *(Need(verb, "jobs", "batch") for verb in ("create", "delete", "get", "list", "watch")),
    *(Need(verb, "events") for verb in ("list", "watch")),
)
"""All that is done; `deploy/kubernetes` grants this and no more."""


class _Status(Struct, frozen=True):
    allowed: bool = False


class _Review(Struct, frozen=True):
    status: _Status = _Status()


_REVIEW: Final = msgspec.json.Decoder(_Review)


async def problems(api: Api, namespace: str) -> list[str]:
    """What keeps a cluster from being used, one line each."""
    try:
        # One first: of a server that cannot be reached everything would be asked in vain.
        first = await _may(api, NEEDS[0], namespace)
    except Trouble as trouble:
        return [str(trouble)]
    others = await asyncio.gather(*(_may(api, need, namespace) for need in NEEDS[1:]), return_exceptions=True)
    for answer in others:
        if isinstance(answer, Trouble):
            return [str(answer)]
        if isinstance(answer, BaseException):
            raise answer
    found = [
        f"we may not {need} {'in all namespaces' if need.everywhere else f'in namespace {namespace!r}'}; have that granted to {api.access.origin}"
        for need, may in zip(NEEDS, (first, *others), strict=True)
        if not may
    ]
    return found or await _without_namespace(api, namespace)


async def _may(api: Api, need: Need, namespace: str) -> bool:
    """Whether we are allowed to do something."""
    wish = {
        "verb": need.verb,
        "resource": need.resource,
        "group": need.group,
        "subresource": need.subresource,
        "namespace": "" if need.everywhere else namespace,
    }
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": wish},
    }
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    return (await api.read(_REVIEW, "POST", path, body=body)).status.allowed


async def _without_namespace(api: Api, namespace: str) -> list[str]:
    """Whether the namespace is missing: a list of one that is not there is only empty, so a Job is made that is not kept."""
    pod = {"containers": [{"name": "main", "image": "none"}], "restartPolicy": "Never"}
    body = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"generateName": "spill-check-"},
        "spec": {"template": {"spec": pod}},
    }
    try:
        await api.ask("POST", f"/apis/batch/v1/namespaces/{namespace}/jobs", {"dryRun": "All"}, body)
    except ApiRefused as refused:
        if refused.code == 404:
            return [
                f"there is no namespace {namespace!r}; make it with `kubectl create namespace {namespace}`, or name another with `namespace`"
            ]
    except Trouble as trouble:
        return [str(trouble)]
    return []  # any other refusal is of this Job, which nobody wants
