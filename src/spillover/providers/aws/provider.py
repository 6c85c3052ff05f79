"""Rents machines of EC2: one instance for each order, known by its token and its tags."""

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from spillover.model.pools import Offer, RefusalCause
from spillover.model.units import parse_money
from spillover.ports.provider import (
    Created,
    Listed,
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
from spillover.providers.aws.answers import (
    FAILURES,
    MISMATCH,
    NO_SUCH,
    TERMINATED,
    Failure,
    NotSent,
    Said,
    answer_to,
)
from spillover.providers.aws.calls import PAGE, Calls, Limits
from spillover.providers.aws.checks import check_offers
from spillover.providers.aws.launching import image_of, request_of
from spillover.providers.aws.listing import launched, questions, read_instance
from spillover.providers.aws.options import AwsForm
from spillover.providers.userdata import MOST_USER_DATA

BATCH: Final = 100
"""Machines that are destroyed by one request."""
_OF_ONE: Final = frozenset(
    (*NO_SUCH, "OperationNotPermitted", "UnauthorizedOperation", "UnsupportedOperation")
)
"""Errors that refuse a request because of some of its machines."""


class AwsProvider(Provider):
    """Machines of EC2 in one region, for one owner."""

    def __init__(self, form: AwsForm, opening: ProviderOpening, limits: Limits | None = None) -> None:
        self._form = form
        self._owner = opening.owner
        self._calls = Calls(form, opening, limits)
        self._roots: dict[str, str] = {}
        """Names of root devices by image. They never change."""

    async def create(self, order: Order) -> Created:
        """See Provider."""
        try:
            request = request_of(self._form, order, await self._root_device(order.offer.type))
        except FAILURES as failure:
            answer = answer_to(failure)
            # That was a question about the image. Nothing was ordered, whatever became of the question.
            return NotNow(answer.why) if isinstance(answer, Unknown) else answer
        if (size := len(request["UserData"].encode())) > MOST_USER_DATA:
            why = f"the user data has {size} bytes, and EC2 takes {MOST_USER_DATA}; shorten `setup`"
            return Refused(RefusalCause.INVALID, why)
        try:
            answered = await self._calls.call("run_instances", **request)
            return _made(answered["Instances"][0])
        except (LookupError, TypeError):
            return Unknown("EC2 answered an order without naming a machine")
        except Said as said:
            return (
                await self._earlier(order, said) if said.code in (MISMATCH, TERMINATED) else answer_to(said)
            )
        except FAILURES as failure:
            return answer_to(failure)

    async def _earlier(self, order: Order, said: Said) -> Created:
        """Return the machine that an earlier request with this token made."""
        filters = [{"Name": "client-token", "Values": [order.token]}]
        try:
            found = [each async for page in self._instances(filters) for each in page]
        except FAILURES as failure:
            return Unknown(f"{said} ({failure})")
        fit = [each for each in found if _is_of(each, order.offer)]
        if fit:
            return _made(fit[0])
        if found:
            why = f"{said} ({found[0]['InstanceId']} was ordered with this token as {found[0].get('InstanceType')})"
            return Refused(RefusalCause.INVALID, why)
        # EC2 forgets ended machines after an hour. With other parameters the machine may be too new to be listed.
        return Refused(RefusalCause.LOST, str(said)) if said.code == TERMINATED else Unknown(str(said))

    async def list(self) -> Listing:
        """See Provider."""
        began = time.time_ns()
        found: dict[str, Listed] = {}
        troubles: list[str] = []
        answered = False
        for filters in questions(self._owner):
            try:
                async for page in self._instances(filters):
                    answered = True
                    for each in page:
                        if (listed := read_instance(each, self._owner)) is not None:
                            found[listed.id] = listed
            except FAILURES as failure:
                troubles.append(str(failure))
                if not answered:
                    raise ProviderError(str(failure)) from None
        return Listing(began, not troubles, tuple(found.values()), "; ".join(dict.fromkeys(troubles)))

    async def _instances(self, filters: Sequence[Mapping[str, Any]]) -> Any:
        """Iterate over pages of instances."""
        async for page in self._calls.pages(
            "describe_instances", "Reservations", Filters=list(filters), MaxResults=PAGE
        ):
            yield [each for reservation in page for each in reservation.get("Instances") or ()]

    async def destroy(self, ids: Sequence[str]) -> Mapping[str, str]:
        """See Provider."""
        left: dict[str, str] = {}
        waiting = [list(ids[at : at + BATCH]) for at in range(0, len(ids), BATCH)]
        sent = False
        while waiting:
            batch = waiting.pop()
            try:
                await self._calls.call("terminate_instances", InstanceIds=batch)
            except FAILURES as failure:
                sent = sent or not isinstance(failure, NotSent)
                if len(batch) > 1 and isinstance(failure, Said) and failure.code in _OF_ONE:
                    half = len(batch) // 2
                    waiting += [batch[half:], batch[:half]]
                elif not (isinstance(failure, Said) and failure.code in NO_SUCH):
                    left |= dict.fromkeys(batch, str(failure))
                    if not _goes_on(failure):
                        left |= {id_: str(failure) for rest in waiting for id_ in rest}
                        break
            else:
                sent = True
        if left and not sent:
            raise ProviderError(next(iter(left.values())))
        return left

    async def check(self, offers: Sequence[Offer]) -> Sequence[str]:
        """See Provider."""
        return await check_offers(self._calls, self._form, offers)

    async def prices(self, offers: Sequence[Offer]) -> Sequence[PriceSeen]:
        """See Provider. These are spot prices; `pricelist` has the others."""
        types = sorted({each.type for each in offers if each.spot})
        if not types:
            return ()
        newest: dict[tuple[str, str], tuple[datetime, int]] = {}
        try:
            async for page in self._calls.pages(
                "describe_spot_price_history",
                "SpotPriceHistory",
                InstanceTypes=types,
                ProductDescriptions=["Linux/UNIX"],
                StartTime=datetime.now(UTC),
            ):
                for each in page:
                    key, at = (each["InstanceType"], each["AvailabilityZone"]), each["Timestamp"]
                    if key not in newest or at > newest[key][0]:
                        newest[key] = (at, parse_money(each["SpotPrice"]))
        except FAILURES as failure:
            raise ProviderError(str(failure)) from None
        except (KeyError, TypeError, ValueError):
            raise ProviderError("EC2 answered with spot prices that cannot be read") from None
        return [
            PriceSeen(each.type, each.zone, spot=True, hour=hour)
            for each in offers
            if each.spot and (hour := _spot_price(newest, each)) is not None
        ]

    async def close(self) -> None:
        """See Provider."""
        await self._calls.close()

    async def _root_device(self, type_: str) -> str:
        """Return the name of the root device of the image for a type; empty if `disk` is not set."""
        image = image_of(self._form, type_)
        if self._form.disk is None or image is None:
            return ""
        if image not in self._roots:
            answer = await self._calls.call("describe_images", ImageIds=[image])
            found = answer.get("Images") or ()
            if not found:
                raise Said("InvalidAMIID.NotFound", f"there is no image {image}")
            self._roots[image] = found[0].get("RootDeviceName") or "/dev/xvda"
        return self._roots[image]


def _made(instance: Mapping[str, Any]) -> Made:
    return Made(str(instance["InstanceId"]), launched(instance))


def _is_of(instance: Mapping[str, Any], offer: Offer) -> bool:
    """Return whether an instance is a machine of an offer."""
    zone = (instance.get("Placement") or {}).get("AvailabilityZone")
    spot = instance.get("InstanceLifecycle") == "spot"
    return (
        instance.get("InstanceType") == offer.type
        and spot == offer.spot
        and zone in (offer.zone or zone, None)
    )


def _goes_on(failure: Failure) -> bool:
    """Return whether a request for other machines may succeed."""
    return isinstance(failure, Said) and failure.code in _OF_ONE


def _spot_price(newest: Mapping[tuple[str, str], tuple[datetime, int]], offer: Offer) -> int | None:
    """Return the spot price of an offer; the highest of all zones if EC2 chooses the zone; None if there is none."""
    prices = [
        hour
        for (type_, zone), (_, hour) in newest.items()
        if type_ == offer.type and zone == (offer.zone or zone)
    ]
    return max(prices, default=None)
