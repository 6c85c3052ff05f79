"""An account at a provider, on a virtual clock: its machines, and what goes wrong with requests."""

from collections.abc import Collection, Sequence
from random import Random

from msgspec import Struct

from spillover.model.pools import RefusalCause
from spillover.model.units import SECOND
from spillover.ports.provider import (
    Created,
    Listed,
    Listing,
    Made,
    NotNow,
    Order,
    Presence,
    Refused,
)


class Machine(Struct):
    """A machine of the account."""

    id: str
    order: Order
    at: int
    """When it was created."""
    ended: int | None = None
    """When it stopped to run; None while it runs."""
    stays: bool = False
    """Whether it is listed as stopping from then on, until somebody destroys it."""
    tagged: bool = True
    named: bool = True
    interrupted: bool = False
    nodes: int | None = None
    """How many nodes a whole cluster has; None for a machine."""

    def presence(self, now: int) -> Presence | None:
        """Return what a listing says that saw the account at a time; None if it did not exist then."""
        if now < self.at:
            return None
        if self.ended is None or now < self.ended:
            return Presence.RUNNING if now > self.at + 3 * SECOND else Presence.PENDING
        if self.stays or now < self.ended + 4 * SECOND:
            return Presence.STOPPING
        return Presence.GONE if now < self.ended + 40 * SECOND else None


class Account:
    """All machines, of all owners."""

    def __init__(self, dice: Random) -> None:
        self._dice = dice
        self.machines: dict[str, Machine] = {}
        self._tokens: dict[str, str] = {}
        self.calls = 0
        self.troubled = True
        """Whether anything may go wrong."""
        self.down = False
        """Whether no request arrives."""
        self.quota = 1000
        """The most machines that run at a time."""
        self.forgets = dice.random() < 0.3
        """Whether it forgets tokens of machines that are gone."""

    def running(self, owner: str | None = None) -> list[Machine]:
        """Return the machines that run or are stopped and cost something, of one owner or of all."""
        return [
            each
            for each in self.machines.values()
            if (each.ended is None or each.stays) and owner in {None, each.order.owner}
        ]

    def create(self, order: Order, now: int) -> Created:
        """Carry out an order that arrived."""
        self.calls += 1
        known = self._tokens.get(order.token)
        if known is not None and not (self.forgets and self.machines[known] not in self.running()):
            return Made(known, self.machines[known].at)
        if self._happens(0.1):
            return NotNow("too many requests", self._dice.choice([0.0, 5.0]))
        if self._happens(0.15):
            return Refused(self._dice.choices([*RefusalCause][:4], [8, 4, 1, 1])[0], "refused")
        if len(self.running()) >= self.quota:
            return Refused(RefusalCause.QUOTA, "the quota is used up")
        id_ = f"i-{len(self.machines) + 1}"
        self.machines[id_] = Machine(id_, order, now)
        self._tokens[order.token] = id_
        return Made(id_, now) if self._dice.random() < 0.8 else Made(id_)

    def list(self, owner: str, now: int) -> Listing | None:
        """Return a listing, which may be partial or show how things were before; None if it fails."""
        self.calls += 1
        if self.down or self._happens(0.1):
            return None
        lag = self._dice.choice([0, 0, 2, 8, 30]) * SECOND if self.troubled else 0
        partial = self._happens(0.15)
        shown: list[Listed] = []
        for each in self.machines.values():
            presence = each.presence(now - lag)
            if presence is None or (partial and self._dice.random() < 0.5):
                continue
            order = each.order
            tag = (order.machine, order.owner) if each.tagged else ("", "")
            reason = "taken back" if each.interrupted else ""
            name = order.name if each.named else ""
            shown.append(Listed(each.id, presence, *tag, name, each.at, reason, each.interrupted, each.nodes))
        self._dice.shuffle(shown)
        return Listing(now, not partial, tuple(shown), "a zone is missing" if partial else "")

    def destroy(self, ids: Sequence[str], now: int) -> dict[str, str] | None:
        """Destroy machines; return those that were not; None if the call fails."""
        self.calls += 1
        if self.down or self._happens(0.1):
            return None
        left: dict[str, str] = {}
        for id_ in ids:
            each = self.machines[id_]
            if self._happens(0.15):
                left[id_] = "it is protected"
                continue
            each.ended = now if each.ended is None else each.ended
            each.stays = False
        return left

    def interfere(self, owner: str, now: int, known: Collection[str] = ()) -> None:
        """Let something happen to a machine of an owner, who knows the ids of some."""
        machines = self.running(owner)
        if not machines:
            return
        each = self._dice.choice(machines)
        match self._dice.randrange(4):
            case 0:
                each.tagged, each.named = False, each.named and each.id not in known
            case 1:
                each.ended, each.interrupted = each.ended or now, True
            case 2:
                each.ended, each.stays = each.ended or now, True
            case _:
                each.ended = each.ended or now  # it vanishes, and nobody says why

    def _happens(self, part: float) -> bool:
        return self.troubled and self._dice.random() < part
