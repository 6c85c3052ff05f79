"""Machines as pods of a Kubernetes cluster.

A pod has the name of its order, and names are unique in a namespace: a repeated order meets the pod of the first one and
adopts it. The pod is created first and waits for its Secret, which belongs to it: so neither is left behind when the
server stops between the two, and a repeated order creates the Secret that is missing.

The provider's id of a machine is NAMESPACE/NAME.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Final

import msgspec
import structlog

from spillover.clusters.kubernetes.api.decoding import Decoding
from spillover.clusters.kubernetes.api.kubeconfig import Access
from spillover.clusters.kubernetes.api.objects import Pod, is_object_name
from spillover.clusters.kubernetes.api.requests import Api, ApiRefused, Trouble, Unsent
from spillover.clusters.kubernetes.checks import Need, lacking
from spillover.forms.problems import Findings
from spillover.model.pools import Offer, RefusalCause
from spillover.model.units import SECOND
from spillover.ports.provider import (
    Created,
    Listing,
    Made,
    NotNow,
    Order,
    PriceSeen,
    Provider,
    ProviderError,
    ProviderOpening,
    Refused,
    Unknown,
)
from spillover.providers import rest
from spillover.providers.kubernetes.calls import (
    adopted,
    deleted,
    is_ours,
    pages,
    refusal,
    sample,
    without_namespace,
)
from spillover.providers.kubernetes.kind import KubernetesForm, named, patience
from spillover.providers.kubernetes.nodegroup import NodeGroup
from spillover.providers.kubernetes.pods import listed, pod_of, secret_of, without_node
from spillover.providers.rest import one_line

log = structlog.get_logger()

LOOK: Final = 10.0
"""Most seconds for which an order waits to hear that no node has room. With a longer patience, more nodes may come."""
POLL: Final = 0.2
"""Seconds between two looks at a pod."""
NEEDS: Final = (
    *(Need(verb, "pods") for verb in ("create", "delete", "get", "list")),
    Need("create", "secrets"),
)
"""All permissions that the provider uses."""
_PODS: Final = msgspec.json.Decoder(Pod)


class Pods(Provider):
    """See Provider."""

    def __init__(
        self, form: KubernetesForm, opening: ProviderOpening, access: Access, management: Access
    ) -> None:
        self._form = form
        self._opening = opening
        self._api = Api(access)
        self._namespace = form.namespace or access.namespace
        self._patience = patience(form, Findings())
        self._decoding = Decoding(Pod)
        self._management = self._api if management == access else Api(management)
        group = named(form.machine_deployment, management.namespace)
        self._group = None if group is None else NodeGroup(self._management, *group)

    async def create(self, order: Order) -> Created:
        """See Provider."""
        try:
            try:
                pod = await self._api.read(
                    _PODS, "POST", self._pods(), body=pod_of(order, self._form), once=True
                )
            except ApiRefused as refused:
                found = await adopted(self._api, _PODS, self._pods(order.name), order, refused)
                if not isinstance(found, Pod):
                    return found
                pod = found
            answer = await self._with_secret(order, pod) or await self._bound(order, pod)
        except Unsent as error:
            return NotNow(one_line(str(error)))
        except Trouble as error:
            return Unknown(one_line(str(error)))
        if isinstance(answer, Made):
            await self._scaled()
        return answer

    async def list(self) -> Listing:
        """See Provider. All pods of the namespace are asked for: one that lost its labels is known by its name."""
        await self._scaled()
        began, pods, pages = time.time_ns(), list[Pod](), 0
        why = ""
        try:
            async for page in self._pages():
                pods += page
                pages += 1
        except Trouble as error:
            why = one_line(str(error))
            if not pages:
                raise ProviderError(why) from None
        machines = [listed(each, self._id(each.metadata.name), began, self._patience) for each in pods]
        return Listing(began, not why, tuple(machines), why)

    async def destroy(self, ids: Sequence[str]) -> Mapping[str, str]:
        """See Provider."""
        answers = await rest.destroyed(ids, self._delete)
        await self._scaled()
        return answers

    async def check(self, offers: Sequence[Offer]) -> Sequence[str]:
        """See Provider."""
        found = await lacking(self._api, self._namespace, NEEDS)
        if self._group is not None and not found:
            found += map(one_line, await self._group.check())
        for offer in () if found else offers:
            order = sample(offer, self._opening)
            try:
                await self._api.ask("POST", self._pods(), {"dryRun": "All"}, pod_of(order, self._form))
            except ApiRefused as refused:
                found.append(self._flaw(offer, refused))
            except Trouble as error:
                return [one_line(str(error))]
        return list(dict.fromkeys(found))

    async def prices(self, offers: Sequence[Offer]) -> Sequence[PriceSeen]:
        """See Provider. Kubernetes has no prices."""
        del offers
        return ()

    async def close(self) -> None:
        """See Provider."""
        await self._api.close()
        await self._management.close()

    # --- orders

    async def _with_secret(self, order: Order, pod: Pod) -> Created | None:
        """Create the Secret of a pod; if that is refused, delete the pod and return why."""
        try:
            path = f"/api/v1/namespaces/{self._namespace}/secrets"
            await self._api.ask("POST", path, body=secret_of(order, pod))
        except ApiRefused as refused:
            if refused.code == 409 or pod.metadata.deletion_timestamp is not None:
                return None
            await self._remove(pod)
            return refusal(refused)
        return None

    async def _bound(self, order: Order, pod: Pod) -> Created:
        """Wait for the scheduler, unless more nodes may come; give back a machine for which no node has room."""
        made = Made(self._id(order.name), listed(pod, "", 0, self._patience).at)
        if self._patience > LOOK * SECOND:
            return made
        ends = time.monotonic() + self._patience / SECOND
        while not (pod.spec.node_name or pod.is_over or pod.metadata.deletion_timestamp):
            left = ends - time.monotonic()
            why = without_node(pod)
            if left <= 0:
                if why is None:
                    return made
                await self._remove(pod)
                return Refused(RefusalCause.CAPACITY, one_line(f"no node takes the pod: {why.message}"))
            await asyncio.sleep(min(POLL, left))
            try:
                pod = await self._api.read(_PODS, "GET", self._pods(order.name))
            except Trouble:
                return made  # it exists; the listing shows what becomes of it
        return made

    async def _remove(self, pod: Pod) -> None:
        """Delete a pod that was made just now; raise Trouble."""
        body = {"preconditions": {"uid": pod.metadata.uid}}
        try:
            await self._api.ask("DELETE", self._pods(pod.metadata.name), body=body)
        except ApiRefused as refused:
            if refused.code not in {404, 409}:
                raise

    # --- other requests

    async def _pages(self) -> AsyncIterator[Sequence[Pod]]:
        """Yield our pods page by page; raise Trouble."""
        async for page in pages(self._api, self._pods(), self._decoding.page):
            yield [each for each in page.items if is_ours(each.metadata, self._opening.owner)]

    async def _scaled(self) -> None:
        """Let the node group follow the pods. If that fails, the next listing tries it again."""
        if self._group is None:
            return
        try:
            await self._group.follow(self._occupied)
        except Trouble as error:
            log.warning(
                "cannot scale nodes", machine_deployment=self._form.machine_deployment, error=str(error)
            )

    async def _occupied(self) -> Sequence[str]:
        """Return the node of each pod that needs one; raise Trouble."""
        return [
            each.spec.node_name
            async for page in self._pages()
            for each in page
            if not each.is_over and each.metadata.deletion_timestamp is None
        ]

    async def _delete(self, machine: str) -> str:
        """Delete a pod; return why it could not be, and nothing if it is gone or is being deleted."""
        namespace, _, name = machine.partition("/")
        if not (is_object_name(namespace) and is_object_name(name)):
            return "is not NAMESPACE/NAME of a pod"
        return await deleted(self._api, f"/api/v1/namespaces/{namespace}/pods/{name}")

    def _flaw(self, offer: Offer, refused: ApiRefused) -> str:
        """Return why the pod of an offer would be refused."""
        if refused.code == 404:
            return without_namespace(self._namespace)
        return one_line(f"the cluster refuses pods of the offer {offer.key}: {refused}")

    def _pods(self, name: str = "") -> str:
        path = f"/api/v1/namespaces/{self._namespace}/pods"
        return f"{path}/{name}" if name else path

    def _id(self, name: str) -> str:
        return f"{self._namespace}/{name}"
