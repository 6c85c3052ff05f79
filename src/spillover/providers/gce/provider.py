"""Machines of Google Compute Engine by its REST API.

An order becomes an operation under a request id that follows from the token of the order. The same id within an hour
gets the same operation; after that the name, which is unique in a zone, meets the machine of the first try. An
operation may fail after it was accepted, for want of capacity or quota, so an order waits for it some time.

The provider's id of a machine is ZONE/NAME, because requests need both.
"""

import asyncio
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final
from urllib.parse import quote

from spillover.model.bounds import bounded
from spillover.model.pools import Offer, RefusalCause
from spillover.model.units import format_cpu, format_memory, time_of
from spillover.ports.provider import (
    MACHINE_TAG,
    OWNER_TAG,
    Created,
    Listed,
    Listing,
    Made,
    NotNow,
    Order,
    Presence,
    PriceSeen,
    Provider,
    ProviderError,
    ProviderOpening,
    Refused,
    Unknown,
    name_prefix,
)
from spillover.providers.gce.answers import (
    Failure,
    Instance,
    InstancesPage,
    MachineType,
    Operation,
    failed,
)
from spillover.providers.gce.credentials import AccessTokens, project_of
from spillover.providers.gce.kind import GceForm
from spillover.providers.gce.orders import body_of, escaped, request_id, unescaped
from spillover.providers.rest import (
    ANSWER,
    Answer,
    NoCredentials,
    Rest,
    Trouble,
    Unanswered,
    Unsent,
    destroyed,
    one_line,
)

WAIT: Final = 60.0
"""Seconds for which an order waits for its operation."""
POLL: Final = 1.0
"""Seconds between two looks at an operation."""
PAGE: Final = 500
"""Machines of a page, the most that the API takes."""
PRESENCE: Final[Mapping[str, Presence]] = {
    "PROVISIONING": Presence.PENDING,
    "STAGING": Presence.PENDING,
    "PENDING": Presence.PENDING,
    "PENDING_STOP": Presence.STOPPING,
    "STOPPING": Presence.STOPPING,
    "SUSPENDING": Presence.STOPPING,
    "SUSPENDED": Presence.STOPPING,
    "STOPPED": Presence.STOPPING,
    "TERMINATED": Presence.STOPPING,
    "DEPROVISIONING": Presence.STOPPING,
}
"""By the status of an instance; RUNNING for all others. None that stops is started again: it is deleted."""
HARMLESS: Final = frozenset(("NO_RESULTS_ON_PAGE",))
"""Warnings of lists after which nothing is missing."""
_ID: Final = re.compile(r"([a-z0-9-]{1,63})/([a-z](?:[a-z0-9-]{0,61}[a-z0-9])?)", re.ASCII)


class Gce(Provider):
    """See Provider."""

    def __init__(
        self,
        form: GceForm,
        opening: ProviderOpening,
        patience: float = ANSWER,
        wait: float = WAIT,
        poll: float = POLL,
    ) -> None:
        self._form = form
        self._opening = opening
        self._wait = wait
        self._poll = poll
        self._tokens = AccessTokens(form, opening.environ, opening.home)
        self._rest = Rest(form.endpoint, self._headers, patience)

    async def create(self, order: Order) -> Created:
        """See Provider."""
        zone = order.offer.zone
        params = {"requestId": request_id(order.token)}
        try:
            answer = await self._ask("POST", f"/zones/{zone}/instances", params, body_of(order, self._form))
            if not answer.ok:
                refusal = Failure.of(answer).refusal()
                if isinstance(refusal, Refused) and refusal.cause is not RefusalCause.AUTH:
                    return await self._looked_up(order, refusal, taken=answer.status == 409)
                return refusal
            operation = answer.read(Operation)
        except NoCredentials as error:
            return Refused(RefusalCause.AUTH, str(error))
        except Unsent as error:
            return NotNow(str(error))
        except Unanswered as error:
            return Unknown(str(error))
        return await self._finished(order, operation)

    async def list(self) -> Listing:
        """See Provider."""
        began, machines, unseen = time.time_ns(), dict[str, Listed](), dict[str, None]()
        owner, page, first = self._opening.owner, "", True
        asked = {
            "filter": f"(labels.{OWNER_TAG} = {owner}) OR (name : {name_prefix(owner)})",
            "maxResults": str(PAGE),
            "returnPartialSuccess": "true",
        }
        while first or page:
            try:
                answer = await self._ask(
                    "GET", "/aggregated/instances", {**asked, **({"pageToken": page} if page else {})}
                )
                if not answer.ok:
                    raise Unanswered(str(Failure.of(answer)))
                read = answer.read(InstancesPage)
            except Trouble as error:
                if first:
                    raise ProviderError(str(error)) from None
                return Listing(began, False, tuple(machines.values()), str(error))
            for scope, zone in read.items.items():
                for each in zone.instances:
                    if (seen := self._seen(scope.removeprefix("zones/"), each)) is not None:
                        machines[seen.id] = seen
            unseen.update(dict.fromkeys(_unseen(read)))
            first, page = False, read.next_page_token if read.next_page_token != page else ""
        why = one_line(f"these zones did not answer: {', '.join(unseen)}") if unseen else ""
        return Listing(began, not why, tuple(machines.values()), why)

    async def destroy(self, ids: Sequence[str]) -> Mapping[str, str]:
        """See Provider."""
        return await destroyed(ids, self._delete)

    async def check(self, offers: Sequence[Offer]) -> Sequence[str]:
        """See Provider."""
        found: list[str] = []
        try:
            for zone in dict.fromkeys(offer.zone for offer in offers):
                if await self._asked(f"/zones/{zone}") is None:
                    found.append(
                        f"Google Cloud has no zone {zone!r}; `gcloud compute zones list` shows those there are"
                    )
                    continue
                for offer in offers:
                    found += await self._flaws(offer) if offer.zone == zone else ()
            if offers and await self._asked(self._image_path()) is None:
                found.append(
                    f"Google Cloud has no image {self._form.image!r}; `gcloud compute images list` shows those there are"
                )
        except NoCredentials as error:
            return [str(error)]
        except (Trouble, ProviderError) as error:
            return [f"Google Cloud cannot be asked: {error}"]
        return list(dict.fromkeys(found))

    async def prices(self, offers: Sequence[Offer]) -> Sequence[PriceSeen]:
        """See Provider. The API of Compute Engine states no prices."""
        del offers
        return ()

    async def close(self) -> None:
        """See Provider."""
        await self._rest.close()

    # --- orders

    async def _finished(self, order: Order, operation: Operation) -> Created:
        """Wait for the operation of an order."""
        ends = time.monotonic() + self._wait
        path = f"/zones/{order.offer.zone}/operations/{quote(operation.name, safe='')}"
        while operation.status != "DONE":
            if time.monotonic() >= ends:
                return Unknown(
                    one_line(f"the operation {operation.name} of Google Cloud has not finished yet")
                )
            await asyncio.sleep(self._poll)
            try:
                answer = await self._ask("GET", path)
                operation = answer.read(Operation) if answer.ok else operation
            except Trouble:
                continue
        refusal = failed(operation)
        if refusal is None:
            return Made(_id(order), _time(operation.insert_time))
        if operation.is_taken:
            return await self._looked_up(order, refusal, taken=True)
        return refusal

    async def _looked_up(self, order: Order, refusal: Created, *, taken: bool) -> Created:
        """Return the machine that has the name of a refused order already, or why there is none.

        An earlier request may have made it, and what was checked before its name says nothing about that.
        """
        try:
            answer = await self._ask("GET", f"/zones/{order.offer.zone}/instances/{order.name}")
            if answer.status == 404:
                return (
                    Unknown(f"the name {order.name} is taken, but has no instance at present")
                    if taken
                    else refusal
                )
            if not answer.ok:
                return Unknown(f"an instance {order.name} cannot be looked up: {Failure.of(answer)}")
            there = answer.read(Instance)
        except Trouble as error:
            return Unknown(f"an instance {order.name} cannot be looked up: {error}")
        # Nobody else gives an instance this name, so one without our labels has lost them.
        owner = there.labels.get(OWNER_TAG, order.owner)
        machine = unescaped(there.labels.get(MACHINE_TAG, escaped(order.machine)))
        if (owner, machine) == (order.owner, order.machine):
            return Made(_id(order), _time(there.creation_timestamp))
        return Refused(
            RefusalCause.INVALID,
            f"there is an instance {order.name} of somebody else in {order.offer.zone}; delete or rename it",
        )

    # --- other requests

    async def _headers(self) -> Mapping[str, str]:
        return {"Authorization": f"Bearer {await self._tokens.current()}"}

    async def _ask(
        self, method: str, path: str, params: Mapping[str, str] | None = None, body: Any = None
    ) -> Answer:
        """Send a request about the project; once more if the token was refused, which may have been revoked."""
        project = project_of(self._form, self._opening.environ, self._opening.home)
        url = path if path.startswith("/projects/") else f"/projects/{quote(project, safe=':')}{path}"
        answer = await self._rest.ask(method, url, params, body)
        if answer.status == 401:
            self._tokens.refused()
            answer = await self._rest.ask(method, url, params, body)
        return answer

    async def _asked(self, path: str) -> Answer | None:
        """Return what there is at a path; None if there is nothing. Raise Trouble or ProviderError."""
        answer = await self._ask("GET", path)
        if answer.ok or answer.status == 404:
            return answer if answer.ok else None
        raise ProviderError(str(Failure.of(answer)))

    async def _flaws(self, offer: Offer) -> Sequence[str]:
        """Return why an offer cannot be rented in its zone."""
        answer = await self._asked(f"/zones/{offer.zone}/machineTypes/{quote(offer.type, safe='')}")
        if answer is None:
            shows = f"`gcloud compute machine-types list --zones {offer.zone}` shows those there are"
            return [f"Google Cloud has no machine type {offer.type!r} in {offer.zone}; {shows}"]
        kind, wanted, found = answer.read(MachineType), offer.resources, list[str]()
        if wanted.cpu > kind.guest_cpus * 1000:
            found.append(
                f"the offer {offer.key} states {format_cpu(wanted.cpu)} CPUs, and the type has {kind.guest_cpus}"
            )
        if wanted.memory > kind.memory_mb * 2**20:
            has = format_memory(kind.memory_mb * 2**20)
            found.append(
                f"the offer {offer.key} states {format_memory(wanted.memory)} of memory, and the type has {has}"
            )
        gpus = sum(each.guest_accelerator_count for each in kind.accelerators)
        if wanted.gpu > gpus and not (self._form.accelerator and not gpus):
            found.append(
                f"the offer {offer.key} states {wanted.gpu} GPUs, and the type has {gpus}; "
                "`accelerator` names the GPUs of types that have none"
            )
        return found

    def _image_path(self) -> str:
        image = self._form.image
        _, found, path = image.rpartition("projects/") if image.startswith("https://") else ("", "", "")
        return f"/projects/{path}" if found else f"/{image.lstrip('/')}"

    async def _delete(self, machine: str) -> str:
        """Delete an instance; return why it could not be, and nothing if it is gone or is being deleted."""
        parts = _ID.fullmatch(machine)
        if parts is None:
            return "is not ZONE/NAME of an instance"
        path = f"/zones/{parts[1]}/instances/{parts[2]}"
        answer = await self._ask("DELETE", path)
        if answer.ok or answer.status == 404:
            return ""
        failure = Failure.of(answer)
        if failure.reason == "resourceNotReady":
            there = await self._ask("GET", path)
            if there.status == 404 or (there.ok and _presence(there.read(Instance)) is Presence.STOPPING):
                return ""
        return str(failure)

    def _seen(self, zone: str, instance: Instance) -> Listed | None:
        """Translate a listed instance; None if it is not ours."""
        labels, ours = instance.labels, self._opening.owner
        owner = labels.get(OWNER_TAG, "")
        if owner != ours and (owner or not instance.name.startswith(name_prefix(ours))):
            return None
        presence = _presence(instance)
        reason = instance.status_message or f"it is {instance.status}"
        return Listed(
            f"{zone}/{instance.name}",
            presence,
            unescaped(labels.get(MACHINE_TAG, "")),
            owner,
            instance.name,
            _time(instance.creation_timestamp),
            one_line(reason) if presence is Presence.STOPPING else "",
        )


def _id(order: Order) -> str:
    return f"{order.offer.zone}/{order.name}"


def _time(when: datetime | None) -> int | None:
    return None if when is None else bounded(time_of(when))


def _presence(instance: Instance) -> Presence:
    return PRESENCE.get(instance.status, Presence.RUNNING)


def _unseen(page: InstancesPage) -> Iterator[str]:
    """Return what a page says it lacks."""
    yield from page.unreachables
    for scope, zone in page.items.items():
        if zone.warning is not None and zone.warning.code not in HARMLESS:
            yield scope.removeprefix("zones/")
    if page.warning is not None and page.warning.code not in HARMLESS:
        yield page.warning.message or page.warning.code
