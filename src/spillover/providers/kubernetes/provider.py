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
from spillover.clusters.kubernetes.api.objects import UNREADABLE, Pod, is_object_name
from spillover.clusters.kubernetes.api.requests import Api, ApiRefused, Trouble, UnreadableAnswer, Unsent
from spillover.clusters.kubernetes.checks import Need, lacking
from spillover.forms.problems import Findings
from spillover.model.ids import ClusterName
from spillover.model.pools import MachineId, Offer, RefusalCause
from spillover.model.units import SECOND
from spillover.ports.provider import (
    MACHINE_TAG,
    OWNER_TAG,
    Created,
    Join,
    Listing,
    Made,
    NotNow,
    Order,
    PriceSeen,
    ProviderError,
    ProviderOpening,
    Refused,
    Unknown,
    machine_name,
    name_prefix,
)
from spillover.providers import rest
from spillover.providers.kubernetes.kind import KubernetesForm, group_of, patience
from spillover.providers.kubernetes.nodegroup import NodeGroup
from spillover.providers.kubernetes.pods import listed, pod_of, secret_of, without_node
from spillover.providers.rest import one_line

log = structlog.get_logger()

LOOK: Final = 10.0
"""Most seconds for which an order waits to hear that no node has room. With a longer patience, more nodes may come."""
POLL: Final = 0.2
"""Seconds between two looks at a pod."""
PAGE: Final = 500
NEEDS: Final = (
    *(Need(verb, "pods") for verb in ("create", "delete", "get", "list")),
    Need("create", "secrets"),
)
"""All permissions that the provider uses."""
_PODS: Final = msgspec.json.Decoder(Pod)


class Pods:
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
        named = group_of(form, management.namespace)
        self._group = None if named is None else NodeGroup(self._management, *named)

    async def create(self, order: Order) -> Created:
        """See Provider."""
        try:
            try:
                pod = await self._api.read(
                    _PODS, "POST", self._pods(), body=pod_of(order, self._form), once=True
                )
            except ApiRefused as refused:
                found = await self._looked_up(order, _refusal(refused), taken=refused.code == 409)
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
            order = _sample(offer, self._opening)
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

    async def _looked_up(self, order: Order, refusal: Created, *, taken: bool) -> Pod | Created:
        """Return the pod that has the name of a refused order already, or why there is none.

        An earlier request may have made it, and what was checked before its name says nothing about that.
        """
        if not (isinstance(refusal, Refused) and refusal.cause is not RefusalCause.AUTH):
            return refusal
        try:
            pod = await self._api.read(_PODS, "GET", self._pods(order.name))
        except ApiRefused as refused:
            if refused.code != 404:
                return Unknown(one_line(f"the pod {order.name} cannot be looked up: {refused}"))
            return Unknown(f"the pod {order.name} went while it was looked up") if taken else refusal
        labels = pod.metadata.labels
        # Nobody else gives a pod this name, so one without our labels has lost them.
        owner, machine = labels.get(OWNER_TAG, order.owner), labels.get(MACHINE_TAG, order.machine)
        if (owner, machine) == (order.owner, order.machine):
            return pod
        return Refused(
            RefusalCause.INVALID,
            f"there is a pod {order.name} of somebody else in {self._namespace}; delete it",
        )

    async def _with_secret(self, order: Order, pod: Pod) -> Created | None:
        """Create the Secret of a pod; if that is refused, delete the pod and return why."""
        try:
            path = f"/api/v1/namespaces/{self._namespace}/secrets"
            await self._api.ask("POST", path, body=secret_of(order, pod))
        except ApiRefused as refused:
            if refused.code == 409 or pod.metadata.deletion_timestamp is not None:
                return None
            await self._remove(pod)
            return _refusal(refused)
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
        more, first = "", True
        while first or more:
            asked = {"limit": str(PAGE)} | ({"continue": more} if more else {})
            try:
                page = self._decoding.page(await self._api.ask("GET", self._pods(), asked))
            except UNREADABLE as error:
                raise UnreadableAnswer(f"the list of pods cannot be read: {error}") from None
            yield [each for each in page.items if self._is_ours(each)]
            first, more = False, page.metadata.more

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
        try:
            await self._api.ask("DELETE", f"/api/v1/namespaces/{namespace}/pods/{name}")
        except ApiRefused as refused:
            return "" if refused.code == 404 else one_line(str(refused))
        except Unsent as error:
            raise rest.Unsent(one_line(str(error))) from None
        except Trouble as error:
            return one_line(str(error))
        return ""

    def _flaw(self, offer: Offer, refused: ApiRefused) -> str:
        """Return why the pod of an offer would be refused."""
        if refused.code == 404:
            return (
                f"there is no namespace {self._namespace!r}; create it with `kubectl create namespace "
                f"{self._namespace}`, or set `namespace`"
            )
        return one_line(f"the cluster refuses pods of the offer {offer.key}: {refused}")

    def _is_ours(self, pod: Pod) -> bool:
        owner = pod.metadata.labels.get(OWNER_TAG)
        if owner is None:
            return pod.metadata.name.startswith(name_prefix(self._opening.owner))
        return owner == self._opening.owner

    def _pods(self, name: str = "") -> str:
        path = f"/api/v1/namespaces/{self._namespace}/pods"
        return f"{path}/{name}" if name else path

    def _id(self, name: str) -> str:
        return f"{self._namespace}/{name}"


def _refusal(refused: ApiRefused) -> Refused | NotNow:
    """Translate a refusal of the API server."""
    why = one_line(f"Kubernetes: {refused}")
    if refused.code == 429:
        return NotNow(why, refused.retry_after or 0.0)
    if refused.code == 401 or "cannot create resource" in why:
        return Refused(RefusalCause.AUTH, why)
    # Admission has one code for all that it refuses, and quotas have only their words.
    cause = RefusalCause.QUOTA if refused.code == 403 and "exceeded quota" in why else RefusalCause.INVALID
    return Refused(cause, why)


def _sample(offer: Offer, opening: ProviderOpening) -> Order:
    """Return an order that is never carried out, to check its offer."""
    machine = MachineId(f"{opening.cluster}-0")
    join = Join("check:1", ClusterName(opening.cluster), machine, "check", 0)
    return Order(machine, machine_name(opening.owner, machine), opening.owner, offer, join)
