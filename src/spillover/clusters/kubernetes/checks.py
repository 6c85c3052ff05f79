"""Checks permissions and the namespace before the server uses a cluster, and reports one line for each problem."""

import asyncio
from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import Struct

from spillover.clusters.kubernetes.api.requests import Api, ApiRefused, Trouble


class Need(Struct, frozen=True):
    """A permission that the driver needs."""

    verb: str
    resource: str
    group: str = ""
    subresource: str = ""
    everywhere: bool = False
    """In all namespaces, not only in that of the cluster's Jobs."""

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
"""All permissions that the driver uses; `deploy/kubernetes` grants exactly these."""


class _Status(Struct, frozen=True):
    allowed: bool = False


class _Review(Struct, frozen=True):
    status: _Status = _Status()


_REVIEW: Final = msgspec.json.Decoder(_Review)


async def problems(api: Api, namespace: str) -> list[str]:
    """Return what prevents the use of a cluster, one line for each problem."""
    return await lacking(api, namespace, NEEDS) or await _without_namespace(api, namespace)


async def lacking(api: Api, namespace: str, needs: Sequence[Need]) -> list[str]:
    """Return which permissions we lack, or why that cannot be asked, one line each."""
    try:
        # Ask one question first: if the server is unreachable, the others would only wait in vain.
        first = await _may(api, needs[0], namespace)
    except Trouble as trouble:
        return [str(trouble)]
    others = await asyncio.gather(*(_may(api, need, namespace) for need in needs[1:]), return_exceptions=True)
    for answer in others:
        if isinstance(answer, Trouble):
            return [str(answer)]
        if isinstance(answer, BaseException):
            raise answer
    return [
        f"no permission to {need} "
        f"{'in all namespaces' if need.everywhere else f'in namespace {namespace!r}'}; grant it to {api.access.origin}"
        for need, may in zip(needs, (first, *others), strict=True)
        if not may
    ]


async def _may(api: Api, need: Need, namespace: str) -> bool:
    """Return whether we have a permission."""
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
    """Report a missing namespace."""
    # Lists in a missing namespace are just empty, so only a dry run of creating a Job shows that it is missing.
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
                (
                    f"there is no namespace {namespace!r}; create it with `kubectl create namespace "
                    f"{namespace}`, or set `namespace`"
                )
            ]
    except Trouble as trouble:
        return [str(trouble)]
    return []  # other refusals concern only this sample Job
