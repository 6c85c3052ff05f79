"""Requests for objects that stand for an order: pods as machines, and clusters of Cluster API.

Such an object has the name of its order, and names are unique in a namespace: a repeated order meets the object of the
first one and adopts it.
"""

from collections.abc import AsyncIterator, Callable
from typing import Final, Protocol, TypeVar

import msgspec

from spillover.clusters.kubernetes.api.objects import UNREADABLE, Meta, Page
from spillover.clusters.kubernetes.api.requests import Api, ApiRefused, Trouble, UnreadableAnswer, Unsent
from spillover.model.ids import ClusterName
from spillover.model.pools import MachineId, Offer, RefusalCause
from spillover.ports.provider import (
    MACHINE_TAG,
    OWNER_TAG,
    Created,
    Join,
    NotNow,
    Order,
    ProviderOpening,
    Refused,
    Unknown,
    machine_name,
    name_prefix,
)
from spillover.providers import rest
from spillover.providers.rest import one_line

PAGE: Final = 500
"""Objects of a page."""
NOT_FOUND: Final = 404
CONFLICT: Final = 409


class Named(Protocol):
    """An object of Kubernetes."""

    @property
    def metadata(self) -> Meta:
        """Its metadata."""
        ...


T = TypeVar("T", bound=Named)


async def adopted(
    api: Api, decoder: "msgspec.json.Decoder[T]", path: str, order: Order, refused: ApiRefused
) -> T | Created:
    """Return the object that has the name of a refused order already, or why there is none; raise Trouble.

    An earlier request may have made it, and what was checked before its name says nothing about that.
    """
    answer = refusal(refused)
    if not (isinstance(answer, Refused) and answer.cause is not RefusalCause.AUTH):
        return answer
    what = path.rsplit("/", 2)[-2].removesuffix("s")
    try:
        there = await api.read(decoder, "GET", path)
    except ApiRefused as missing:
        if missing.code != NOT_FOUND:
            return Unknown(one_line(f"the {what} {order.name} cannot be looked up: {missing}"))
        if refused.code == CONFLICT:
            return Unknown(f"the {what} {order.name} went while it was looked up")
        return answer
    labels = there.metadata.labels
    # Nobody else gives an object this name, so one without our labels has lost them.
    owner, machine = labels.get(OWNER_TAG, order.owner), labels.get(MACHINE_TAG, order.machine)
    if (owner, machine) == (order.owner, order.machine):
        return there
    where = there.metadata.namespace
    return Refused(
        RefusalCause.INVALID, f"there is a {what} {order.name} of somebody else in {where}; delete it"
    )


async def pages(api: Api, path: str, decode: Callable[[bytes], Page[T]]) -> AsyncIterator[Page[T]]:
    """Yield all objects page by page; raise Trouble."""
    more, first = "", True
    while first or more:
        asked = {"limit": str(PAGE)} | ({"continue": more} if more else {})
        try:
            page = decode(await api.ask("GET", path, asked))
        except UNREADABLE as error:
            what = path.rsplit("/", 1)[-1]
            raise UnreadableAnswer(f"the list of {what} cannot be read: {error}") from None
        yield page
        first, more = False, page.metadata.more


async def deleted(api: Api, path: str) -> str:
    """Delete an object; return why it could not be, and nothing if it is gone or is being deleted."""
    try:
        await api.ask("DELETE", path)
    except ApiRefused as refused:
        return "" if refused.code == NOT_FOUND else one_line(str(refused))
    except Unsent as error:
        raise rest.Unsent(one_line(str(error))) from None
    except Trouble as error:
        return one_line(str(error))
    return ""


def is_ours(meta: Meta, owner: str) -> bool:
    """Return whether an object is one of an owner, by its label, or else by its name."""
    found = meta.labels.get(OWNER_TAG)
    return meta.name.startswith(name_prefix(owner)) if found is None else found == owner


def refusal(refused: ApiRefused) -> Refused | NotNow:
    """Translate a refusal of the API server."""
    why = one_line(f"Kubernetes: {refused}")
    # A new quota refuses everything until its controller has counted what is there.
    if refused.code == 429 or "status unknown for quota" in why:
        return NotNow(why, refused.retry_after or 0.0)
    if refused.code == 401 or "cannot create resource" in why:
        return Refused(RefusalCause.AUTH, why)
    # Admission has one code for all that it refuses, and quotas have only their words.
    cause = RefusalCause.QUOTA if refused.code == 403 and "exceeded quota" in why else RefusalCause.INVALID
    return Refused(cause, why)


def without_namespace(namespace: str) -> str:
    """Return what to do about a namespace that is not there."""
    return (
        f"there is no namespace {namespace!r}; create it with `kubectl create namespace {namespace}`, "
        "or set `namespace`"
    )


def sample(offer: Offer, opening: ProviderOpening) -> Order:
    """Return an order that is never carried out, to check its offer."""
    machine = MachineId(f"{opening.cluster}-0")
    join = Join("check:1", ClusterName(opening.cluster), machine, "check", 0)
    return Order(machine, machine_name(opening.owner, machine), opening.owner, offer, join, nodes=offer.least)
