"""Compares a listing of a provider with the machines of the state.

The caller lists first and reads the state second, so a machine that was ordered meanwhile is never taken for a stranger.
A listing that does not show a machine may lag. Two whole ones that began some time apart, both after the last order for
the machine was answered, are believed. So are two that show a machine which is ours and which nothing wants.
"""

from collections.abc import Callable
from typing import Final

from msgspec import Struct, field

from spillover.control.pools.knowledge import Knowledge
from spillover.core.pool_proposals import SeeGone, SeeMade, SeeRefused, SeeUnwanted
from spillover.core.records.machines import RentedMachine
from spillover.core.state import State
from spillover.model.cluster import ClusterHealth
from spillover.model.ids import ClusterName
from spillover.model.pools import MachineId, MachineState, RefusalCause
from spillover.model.units import SECOND
from spillover.ports.provider import Listed, Listing, Presence, machine_name, name_prefix

APART: Final = 10 * SECOND
"""Nanoseconds between the beginnings of two listings that confirm each other."""
_OVER: Final = (Presence.STOPPING, Presence.GONE)
_NOT_LISTED: Final = "the provider does not list it any more"

Seen = SeeMade | SeeRefused | SeeGone | SeeUnwanted


class Compared(Struct):
    """What a listing means."""

    proposals: list[Seen] = field(default_factory=list)
    strangers: dict[str, Listed] = field(default_factory=dict)
    """Machines that run, are ours, and that nothing wants, by the provider's id."""
    stopped: dict[str, None] = field(default_factory=dict)
    """Ids of machines that are ours and do not run any more, but exist and may cost something."""
    unlisted: list[MachineId] = field(default_factory=list)
    """Machines whose agents answer, although the listing does not show them."""
    partial: str = ""
    """Why the listing is not whole; empty if it is."""


class Comparison:
    """Compares one listing."""

    def __init__(
        self,
        state: State,
        cluster: ClusterName,
        owner: str,
        knowledge: Callable[[MachineId], Knowledge],
        strangers: dict[str, int],
    ) -> None:
        self._state = state
        self._cluster = cluster
        self._owner = owner
        self._knowledge = knowledge
        self._strangers = strangers
        """When listings began that first showed strangers, by the provider's id. It is brought up to date."""
        self._book = [each for each in state.machines.values() if each.cluster == cluster]
        self._by_id = {each.provider_id: each for each in self._book if each.provider_id and each.is_live}
        self._ids = {each.provider_id: each for each in self._book if each.provider_id}
        self._named = {machine_name(owner, each.id): each for each in self._book}
        self._tagged: dict[str, RentedMachine] = {each.id: each for each in self._book}
        self._shown: set[MachineId] = set()
        self._found = Compared()
        self._began = 0
        """When the listing began, on the monotonic clock."""

    def run(self, listing: Listing, began: int) -> Compared:
        """Compare a listing that began at a time on the monotonic clock."""
        self._began = began
        # If two carry the tag of one machine, the one that runs is it.
        for each in sorted(listing.machines, key=lambda each: each.presence in _OVER):
            machine = self._machine(each)
            if machine is not None:
                self._show(machine, each)
            elif self._is_ours(each):
                self._meet(each)
        if listing.whole:
            for machine in self._book:
                if machine.is_live and machine.id not in self._shown:
                    self._miss(machine, began)
            self._confirm(began)
        else:
            self._found.partial = listing.why or "a part of the provider did not answer"
        return self._found

    def _machine(self, each: Listed) -> RentedMachine | None:
        """Return the machine of the state that was listed; None if it is a stranger."""
        if (known := self._by_id.get(each.id)) is not None:
            return known
        if each.owner not in {"", self._owner}:
            return None
        named = self._tagged.get(each.machine) if each.machine else self._named.get(each.name)
        if named is None or not named.is_live or named.provider_id or named.id in self._shown:
            return None
        return named

    def _is_ours(self, each: Listed) -> bool:
        """Return whether a stranger is ours; without a tag, its name or its id tell."""
        if each.owner:
            return each.owner == self._owner
        return each.name.startswith(name_prefix(self._owner)) or each.id in self._ids

    def _show(self, machine: RentedMachine, each: Listed) -> None:
        """Take in that a machine of the state was listed."""
        self._shown.add(machine.id)
        known = self._knowledge(machine.id)
        known.seen, known.missed, known.sure = True, None, False
        if machine.is_cluster:
            known.answers = each.presence is Presence.RUNNING
            known.see_size(each.nodes, self._began)
        if each.presence in _OVER:
            why = "" if machine.state is MachineState.ENDING else each.reason
            self._found.proposals.append(SeeGone(self._cluster, machine.id, why, each.interrupted))
            if each.presence is Presence.STOPPING:
                self._found.stopped[each.id] = None
        elif not machine.provider_id:
            self._found.proposals.append(SeeMade(self._cluster, machine.id, each.id, each.at))

    def _meet(self, each: Listed) -> None:
        """Take in that a machine was listed that is ours, and that the state does not want."""
        if each.presence is Presence.STOPPING:
            self._found.stopped[each.id] = None
        elif each.presence is not Presence.GONE:
            self._found.strangers[each.id] = each

    def _miss(self, machine: RentedMachine, began: int) -> None:
        """Take in that a whole listing does not show a machine."""
        known = self._knowledge(machine.id)
        if not self._counts(machine, known, began):
            known.missed = None
            return
        if known.missed is None:
            known.missed = began
        # The provider surely knew the machine when it was destroyed, and did not take its id for one that is gone.
        existed = known.seen or machine.joined_at is not None
        if (known.destroyed is not None and existed) or began - known.missed >= APART:
            self._found.proposals.append(self._never_seen(machine))

    def _counts(self, machine: RentedMachine, known: Knowledge, began: int) -> bool:
        """Return whether it says something that a whole listing does not show a machine."""
        if known.asking or known.sure or began <= known.answered:
            return False
        match machine.state:
            case MachineState.WANTED:  # otherwise its order is repeated
                return known.is_given_up or self._is_held_back(machine)
            case MachineState.READY | MachineState.DRAINING if machine.is_cluster:
                answers = self._state.health(machine.cluster_made) is ClusterHealth.READY
                if answers:
                    self._found.unlisted.append(machine.id)
                return not answers
            case MachineState.READY | MachineState.DRAINING:
                node = self._state.agents.get(machine.key)
                answers = node is not None and node.status != "lost"
                if answers:
                    self._found.unlisted.append(machine.id)
                return not answers
            case MachineState.ENDING if machine.provider_id:  # only destroying it by its id makes sure
                return known.destroyed is not None and began > known.destroyed
            case _:
                return True

    def _is_held_back(self, machine: RentedMachine) -> bool:
        """Return whether an order is not repeated because its pool is paused, or its time to join is over."""
        pool = self._state.pools.get(self._cluster)
        facts = self._state.facts
        return bool(pool is not None and pool.paused) or machine.joins_until(facts.jumped) <= facts.now

    def _never_seen(self, machine: RentedMachine) -> Seen:
        """Return what it means that a machine is in no listing."""
        if machine.state is MachineState.WANTED:
            why = "the provider did not answer, and does not list it"
            return SeeRefused(self._cluster, machine.id, RefusalCause.LOST, why)
        why = "" if machine.state is MachineState.ENDING else _NOT_LISTED
        return SeeGone(self._cluster, machine.id, why)

    def _confirm(self, began: int) -> None:
        """Propose strangers that a second whole listing shows; forget those that it does not show."""
        for gone in [each for each in self._strangers if each not in self._found.strangers]:
            del self._strangers[gone]
        for id_, each in self._found.strangers.items():
            if began - self._strangers.setdefault(id_, began) >= APART:
                named = self._ids.get(id_) or self._named.get(each.name)
                tag = each.machine or ("" if named is None else named.id)
                self._found.proposals.append(SeeUnwanted(self._cluster, id_, tag, each.at))
