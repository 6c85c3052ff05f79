"""The provider `process`: rents processes of the server's machine, for trying pools out, demos and tests.

Machines survive a restart of the server, as rented machines do. Options make them boot slowly and fail as rented
machines do; which of them fail follows from a seed and the name of the machine, so a run can be repeated.
"""

import asyncio
import random
import time
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Annotated, ClassVar, Final, Literal

from msgspec import Meta, Struct, field

from spillover.forms.problems import Findings
from spillover.forms.quantities import duration
from spillover.model.pools import Offer, RefusalCause
from spillover.model.units import DAY, SECOND
from spillover.ports.kinds import Flaw
from spillover.ports.provider import (
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
    ProviderKind,
    ProviderOpening,
    Refused,
    Unknown,
    name_prefix,
)
from spillover.providers.process.machines import Found, Machines, Record
from spillover.providers.process.starting import Started
from spillover.providers.userdata import offer_options
from spillover.wire.jobfile import Quantity

Cause = Literal["capacity", "quota", "invalid", "auth"]
Share = Annotated[float, Meta(ge=0, le=1)]
MOST_BOOT: Final = DAY


class ProcessForm(Struct, frozen=True, forbid_unknown_fields=True):
    """Options of the provider `process`."""

    boot: Annotated[Quantity, Meta(description="Time before the agent of a new machine starts.")] = "0s"
    capacity: Annotated[
        Annotated[int, Meta(ge=0, le=1_000_000)] | None,
        Meta(
            description="Most machines at a time; the provider has no capacity for more; default: unlimited."
        ),
    ] = None
    fail: Annotated[
        Share | list[int],
        Meta(description="Machines that never join: a share of all, or the numbers of some."),
    ] = 0.0
    lose: Annotated[
        Share | list[int],
        Meta(description="Machines that are created without an answer: a share of all, or numbers."),
    ] = 0.0
    refuse: Annotated[
        dict[str, Cause],
        Meta(
            max_length=100,
            description="Offers that are refused, as TYPE/ZONE/MARKET with wildcards, and the cause.",
        ),
    ] = field(default_factory=dict)
    spot_for: Annotated[
        Quantity | None,
        Meta(description="Spot machines are taken back when they are this old; default: never."),
    ] = None
    seed: Annotated[int, Meta(description="Chooses which machines fail, for shares.")] = 0


class ProcessKind(ProviderKind):
    """The provider `process`."""

    name: ClassVar[str] = "process"
    local: ClassVar[bool] = True
    form: ClassVar[type[Struct]] = ProcessForm

    def check(self, form: ProcessForm, offers: Sequence[Offer]) -> Sequence[Flaw]:
        """Return options that are not durations."""
        del offers
        found = Findings()
        _times(form, found)
        return [Flaw(path, message) for path, message in found.found]

    def open(self, form: ProcessForm, opening: ProviderOpening) -> "ProcessProvider":
        """See ProviderKind."""
        return ProcessProvider(form, opening)


class ProcessProvider(Provider):
    """Rents processes of this machine."""

    def __init__(self, form: ProcessForm, opening: ProviderOpening) -> None:
        self.form = form
        """May be replaced, to cause other faults from then on."""
        self._opening = opening
        self._machines = Machines(opening.data.absolute())
        self._lost: set[str] = set()
        """Tokens of orders whose answer was lost once."""

    async def prepare(self) -> None:
        """See Provider: start what forks agents."""
        try:
            await asyncio.to_thread(self._machines.forks.prepare, self._opening.environ)
        except OSError as error:
            raise ProviderError(f"what starts agents cannot be started: {error}") from None

    async def create(self, order: Order) -> Created:
        """See Provider."""
        try:
            answer = await asyncio.to_thread(self._create, order)
        except OSError as error:
            return NotNow(f"the machine cannot be started: {error}")
        if isinstance(answer, Made) and order.token not in self._lost and self._hit("lose", order.machine):
            self._lost.add(order.token)
            return Unknown("the answer was lost, as the option `lose` asks")
        return answer

    async def list(self) -> Listing:
        """See Provider."""
        began = time.time_ns()
        try:
            found = await asyncio.to_thread(self._look)
        except OSError as error:
            raise ProviderError(f"the machines cannot be listed: {error}") from None
        boot = _times(self.form, Findings())[0]
        ours = [_listed(each, boot, began) for each in found if self._is_ours(each)]
        return Listing(began, whole=True, machines=tuple(ours))

    async def destroy(self, ids: Sequence[str]) -> Mapping[str, str]:
        """See Provider."""
        try:
            return await asyncio.to_thread(self._machines.end, ids)
        except OSError as error:
            raise ProviderError(f"the machines cannot be ended: {error}") from None

    async def check(self, offers: Sequence[Offer]) -> Sequence[str]:
        """See Provider. Any type can be rented."""
        del offers
        return ()

    async def prices(self, offers: Sequence[Offer]) -> Sequence[PriceSeen]:
        """See Provider. Processes have no price but the configured one."""
        del offers
        return ()

    async def close(self) -> None:
        """See Provider."""
        await asyncio.to_thread(self._machines.forks.close)

    def _create(self, order: Order) -> Created:
        """Create a machine, or find the one of this order; raise OSError."""
        machines = self._machines
        with machines.alone():
            if machines.was(order.name):
                return Made(order.name)
            if not machines.exists(order.name):
                if (refused := self._refusal(order.offer)) is not None:
                    return refused
                at = time.time_ns()
                record = Record(order.machine, order.owner, order.token, order.name, at, order.offer.spot)
                machines.add(record, order.join)
            known = machines.record(order.name)
            if known is not None and known.token != order.token:
                return Refused(RefusalCause.INVALID, f"another machine has the name {order.name}")
            machines.start(order.name, self._how(order))
            return Made(order.name, None if known is None else known.at)

    def _refusal(self, offer: Offer) -> Refused | None:
        """Return why an offer is refused, as the options ask; None if it is not."""
        for pattern, cause in self.form.refuse.items():
            if fnmatchcase(offer.key, pattern):
                return Refused(RefusalCause(cause), f"the option `refuse` has {pattern}: {cause}")
        most = self.form.capacity
        if most is None:
            return None
        there = [each for each in self._machines.found() if each.presence is not Presence.GONE]
        if len(there) < most:
            return None
        return Refused(RefusalCause.CAPACITY, f"the option `capacity` allows {most} machines")

    def _how(self, order: Order) -> Started:
        """Return how the agent of a machine is started."""
        opening = self._opening
        fails = self._hit("fail", order.machine)
        return Started(
            () if fails else (*opening.agent_options, *offer_options(order.offer)),
            _times(self.form, Findings())[0] / SECOND,
            opening.environ,
            opening.umask,
            opening.files,
            agent=not fails,
        )

    def _hit(self, option: str, machine: str) -> bool:
        """Return whether an option that names a share or numbers concerns a machine."""
        asked: float | list[int] = getattr(self.form, option)
        if isinstance(asked, list):
            number = machine.rpartition("-")[2]
            return number.isdigit() and int(number) in asked
        dice = random.Random(f"{self.form.seed}/{option}/{machine}")  # noqa: S311 - to be repeated
        return dice.random() < asked

    def _look(self) -> Sequence[Found]:
        """Return all machines of this folder, after those whose time is over were taken back."""
        with self._machines.alone():
            found = self._machines.found()
            self._machines.clean(time.time())  # after they were listed once more
        lives = _times(self.form, Findings())[1]
        if not lives:
            return found
        over = [
            each.name
            for each in found
            if each.record is not None
            and each.record.spot
            and each.presence is Presence.RUNNING
            and time.time_ns() - each.record.at >= lives
        ]
        for name in over:
            self._machines.take_back(name)
        return self._machines.found() if over else found

    def _is_ours(self, found: Found) -> bool:
        """Return whether a machine belongs to our owner, by its record, or else by its name."""
        owner = self._opening.owner
        if found.record is None:
            return found.name.startswith(name_prefix(owner))
        return found.record.owner == owner


def _listed(found: Found, boot: int, now: int) -> Listed:
    """Return a machine as a listing has it; one whose agent has not started yet is pending."""
    record, presence = found.record, found.presence
    if record is None:
        return Listed(found.name, presence, name=found.name, reason=found.reason, interrupted=found.taken)
    if presence is Presence.RUNNING and now - record.at < boot:
        presence = Presence.PENDING
    return Listed(
        found.name,
        presence,
        record.machine,
        record.owner,
        found.name,
        record.at,
        found.reason,
        found.taken,
    )


def _times(form: ProcessForm, found: Findings) -> tuple[int, int]:
    """Return boot time and life of spot machines in nanoseconds, 0 for unlimited; add problems to `found`."""
    boot = duration(form.boot, ("boot",), found, most=MOST_BOOT) or 0
    if form.spot_for is None:
        return boot, 0
    return boot, duration(form.spot_for, ("spot_for",), found, least=1, most=MOST_BOOT) or 0
