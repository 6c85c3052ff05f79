"""Machines of Hetzner Cloud by its REST API.

The API has no client tokens, but names are unique in a project: a repeated order meets the machine of the first one and
adopts it. A server that is off is billed like one that runs, so machines are deleted and never stopped.

Listings ask for all servers of the project, not for our label, because one that lost its labels is known by its name.
"""

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final, TypeVar

from spillover.model.bounds import bounded
from spillover.model.pools import Offer, RefusalCause
from spillover.model.units import MINUTE, UnitError, parse_money, time_of
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
from spillover.providers.hetzner.answers import (
    Failure,
    Image,
    Images,
    Locations,
    Page,
    Server,
    ServerMade,
    Servers,
    ServerType,
    ServerTypes,
    offer_flaws,
)
from spillover.providers.hetzner.kind import HetznerForm, NoToken, token_of
from spillover.providers.rest import (
    ANSWER,
    NoCredentials,
    Rest,
    Trouble,
    Unanswered,
    Unsent,
    destroyed,
)
from spillover.providers.userdata import user_data

P = TypeVar("P", bound=Page)

PAGE: Final = 50
"""Entries of a page, the most that the API takes."""
MOST_LABEL: Final = 63
"""Characters of the value of a label. Names of clusters have no others than labels may have."""
STARTING: Final = 5 * MINUTE
"""Nanoseconds after its creation in which a server that is off has not been started yet."""
CAUSES: Final[Mapping[str, RefusalCause]] = {
    "resource_unavailable": RefusalCause.CAPACITY,
    "placement_error": RefusalCause.CAPACITY,
    "no_space_left_in_location": RefusalCause.CAPACITY,
    "resource_limit_exceeded": RefusalCause.QUOTA,
    "unauthorized": RefusalCause.AUTH,
    "forbidden": RefusalCause.AUTH,
    "token_readonly": RefusalCause.AUTH,
}
"""Errors after which an order is of no use. So are all others of status 4xx: INVALID."""
LATER: Final = frozenset(
    ("rate_limit_exceeded", "conflict", "locked", "resource_locked", "maintenance", "robot_unavailable")
)
"""Errors after which an order may be repeated, and surely nothing was made."""
PRESENCE: Final[Mapping[str, Presence]] = {
    "initializing": Presence.PENDING,
    "starting": Presence.PENDING,
    "rebuilding": Presence.PENDING,
    "stopping": Presence.STOPPING,
    "off": Presence.STOPPING,
    "deleting": Presence.STOPPING,
}
"""By the status of a server; RUNNING for all others."""


class Hetzner(Provider):
    """See Provider."""

    def __init__(self, form: HetznerForm, opening: ProviderOpening, patience: float = ANSWER) -> None:
        self._form = form
        self._opening = opening
        self._rest = Rest(form.endpoint, self._headers, patience)

    async def create(self, order: Order) -> Created:
        """See Provider."""
        try:
            answer = await self._rest.ask("POST", "/servers", body=self._body(order))
            if answer.ok:
                return _made(answer.read(ServerMade).server)
            failure = Failure.of(answer)
            refusal = _refusal(failure)
            # An earlier request may have made the machine, and what was checked before its name says nothing about that.
            refused = isinstance(refusal, Refused) and refusal.cause is not RefusalCause.AUTH
            return await self._looked_up(order, failure, refusal) if refused else refusal
        except NoCredentials as error:
            return Refused(RefusalCause.AUTH, str(error))
        except Unsent as error:
            return NotNow(str(error))
        except Unanswered as error:
            return Unknown(str(error))

    async def list(self) -> Listing:
        """See Provider."""
        began, machines, totals = time.time_ns(), dict[int, Listed](), set[int]()
        try:
            async for page in self._pages("/servers", Servers, {"sort": "id:asc"}):
                totals.add(page.meta.pagination.total_entries or 0)
                machines.update({each.id: _seen(each, began) for each in page.servers if self._is_ours(each)})
        except (Trouble, ProviderError) as error:
            if not totals:
                raise ProviderError(str(error)) from None
            return Listing(began, False, tuple(machines.values()), str(error))
        # Pages are numbered: when a server goes meanwhile, another moves to the page before, and is missed.
        why = "servers came or went while they were listed" if len(totals) > 1 else ""
        return Listing(began, not why, tuple(machines.values()), why)

    async def destroy(self, ids: Sequence[str]) -> Mapping[str, str]:
        """See Provider."""
        return await destroyed(ids, self._delete)

    async def check(self, offers: Sequence[Offer]) -> Sequence[str]:
        """See Provider."""
        try:
            token_of(self._form, self._opening.environ, self._opening.home)
            types = {each.name: each for each in await self._types()}
            locations = [
                each.name async for page in self._pages("/locations", Locations) for each in page.locations
            ]
            images = await self._images()
        except NoToken as error:
            return [str(error)]
        except (Trouble, ProviderError) as error:
            return [f"Hetzner cannot be asked: {error}"]
        found = [line for offer in offers for line in offer_flaws(offer, types, locations)]
        used = {types[each.type].architecture for each in offers if each.type in types}
        has = {each.architecture for each in images}
        found += [
            f"Hetzner has no image {self._form.image!r} for {architecture} machines; "
            "`hcloud image list` shows those there are"
            for architecture in sorted(used - has)
        ]
        return list(dict.fromkeys(found))

    async def prices(self, offers: Sequence[Offer]) -> Sequence[PriceSeen]:
        """See Provider. Prices are net, without the public IPv4 address."""
        try:
            types = {each.name: each for each in await self._types()}
        except Trouble as error:
            raise ProviderError(str(error)) from None
        found: dict[tuple[str, str], PriceSeen] = {}
        for offer in offers:
            for price in types[offer.type].prices if offer.type in types else ():
                if offer.zone in {"", price.location}:
                    try:
                        hour = bounded(parse_money(price.price_hourly.net))
                    except UnitError:
                        continue
                    found[offer.type, price.location] = PriceSeen(offer.type, price.location, False, hour)
        return list(found.values())

    async def close(self) -> None:
        """See Provider."""
        await self._rest.close()

    # --- requests

    async def _headers(self) -> Mapping[str, str]:
        try:
            token = token_of(self._form, self._opening.environ, self._opening.home)
        except NoToken as error:
            raise NoCredentials(str(error)) from None
        return {"Authorization": f"Bearer {token}"}

    def _body(self, order: Order) -> Mapping[str, Any]:
        """Return the request for a machine."""
        form = self._form
        body: dict[str, Any] = {
            "name": order.name,
            "server_type": order.offer.type,
            "image": form.image,
            "labels": {key: value for key, value in order.tags.items() if len(value) <= MOST_LABEL},
            "user_data": user_data(order, form.setup, form.program),
            "public_net": {"enable_ipv4": form.ipv4, "enable_ipv6": form.ipv6},
            "start_after_create": True,
        }
        body |= {"location": order.offer.zone} if order.offer.zone else {}
        body |= {"ssh_keys": form.ssh_keys} if form.ssh_keys else {}
        body |= {"networks": form.networks} if form.networks else {}
        body |= {"firewalls": [{"firewall": each} for each in form.firewalls]} if form.firewalls else {}
        return body

    async def _looked_up(self, order: Order, failure: Failure, refusal: Created) -> Created:
        """Return the machine that has the name of a refused order already, or why there is none."""
        answer = await self._rest.ask("GET", "/servers", {"name": order.name})
        if not answer.ok:
            return Unknown(f"{failure}; and it cannot be looked up: {Failure.of(answer)}")
        for server in answer.read(Servers).servers:
            if server.name != order.name:
                continue
            # Nobody else gives a server this name, so one without our labels has lost them.
            owner = server.labels.get(OWNER_TAG, order.owner)
            machine = server.labels.get(MACHINE_TAG, order.machine)
            if (owner, machine) == (order.owner, order.machine):
                return _made(server)
            return Refused(
                RefusalCause.INVALID,
                f"there is a server {order.name} of somebody else at Hetzner (id {server.id}); delete or rename it",
            )
        if failure.code == "uniqueness_error":
            return Unknown(f"{failure}; but no server is called {order.name} at present")
        return refusal

    async def _delete(self, machine: str) -> str:
        """Delete a server; return why it could not be, and nothing if it is gone."""
        if not (machine.isascii() and machine.isdigit()):
            return "is not the id of a server of Hetzner"
        answer = await self._rest.ask("DELETE", f"/servers/{machine}")
        return "" if answer.ok or answer.status == 404 else str(Failure.of(answer))

    async def _types(self) -> Sequence[ServerType]:
        return [
            each async for page in self._pages("/server_types", ServerTypes) for each in page.server_types
        ]

    async def _images(self) -> Sequence[Image]:
        """Return the images that the option `image` may mean."""
        wanted = self._form.image
        if wanted.isdigit():
            return [
                each
                async for page in self._pages("/images", Images)
                for each in page.images
                if str(each.id) == wanted
            ]
        return [
            each async for page in self._pages("/images", Images, {"name": wanted}) for each in page.images
        ]

    async def _pages(
        self, path: str, form: type[P], params: Mapping[str, str] | None = None
    ) -> AsyncIterator[P]:
        """Yield the pages of a list; raise Trouble or ProviderError."""
        page: int | None = 1
        while page is not None:
            asked = {**(params or {}), "page": str(page), "per_page": str(PAGE)}
            answer = await self._rest.ask("GET", path, asked)
            if not answer.ok:
                raise ProviderError(str(Failure.of(answer)))
            read = answer.read(form)
            yield read
            following = read.meta.pagination.next_page
            page = following if following is not None and following > page else None

    def _is_ours(self, server: Server) -> bool:
        owner = server.labels.get(OWNER_TAG)
        if owner is None:
            return server.name.startswith(name_prefix(self._opening.owner))
        return owner == self._opening.owner


def _made(server: Server) -> Made:
    return Made(str(server.id), None if server.created is None else bounded(time_of(server.created)))


def _refusal(failure: Failure) -> Refused | NotNow | Unknown:
    """Translate an error of the API."""
    if failure.code in CAUSES:
        return Refused(CAUSES[failure.code], str(failure))
    if failure.code in LATER or failure.status == 429:
        return NotNow(str(failure), failure.after)
    if failure.status >= 500 or not failure.code:
        return Unknown(str(failure))
    return Refused(RefusalCause.INVALID, str(failure))


def _seen(server: Server, now: int) -> Listed:
    """Translate a listed server."""
    at = None if server.created is None else bounded(time_of(server.created))
    presence = PRESENCE.get(server.status, Presence.RUNNING)
    reason = f"it is {server.status}" if presence is Presence.STOPPING else ""
    if server.status == "off":
        # A new server is off for a moment between its creation and its start.
        if at is not None and now < at + STARTING:
            presence, reason = Presence.PENDING, ""
        else:
            reason = "it is off, and billed until it is deleted"
    return Listed(
        str(server.id),
        presence,
        server.labels.get(MACHINE_TAG, ""),
        server.labels.get(OWNER_TAG, ""),
        server.name,
        at,
        reason,
    )
