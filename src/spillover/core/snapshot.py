"""Copy-on-write snapshots: a snapshot shares the records of the live state until either side changes them.

Appliers change records in place. So a snapshot copies each record when it is first read there, and never returns the
original. While a snapshot is detached, the live state may change too. It then reads through `GuardedRecords`, which
saves each record for the snapshot before the live state can change it. The caller of `detach` provides a lock that
makes this safe between two threads.

Code that changes a record gets it by key. `values` and `items` are for reading only. Both classes stand in for
dictionaries and have the methods that readers of the state use.
"""

from collections.abc import Callable, ItemsView, Iterator, MutableMapping, ValuesView
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from typing import Any, Final, Generic, TypeVar, cast

from msgspec.structs import replace

from spillover.core.learned.samples import Sample
from spillover.core.records.jobs import NO_EXTRA, Job
from spillover.core.records.nodes import Node
from spillover.core.state import Dirty, State

K = TypeVar("K")
V = TypeVar("V")


class Branch(MutableMapping[K, V], Generic[K, V]):
    """One mapping of a snapshot: records of the live state, each copied on first read, and records added here."""

    def __init__(self, source: dict[K, V], copy_of: Callable[[V], V]) -> None:
        self.source = source
        self._copy = copy_of
        self._lock: AbstractContextManager[object] = nullcontext()
        self._own: dict[K, V] = {}
        """Copies, and records added here."""
        self._gone: set[K] = set()
        """Keys of the live state that are not in the snapshot: deleted here, or added there later."""
        self._added: dict[K, None] = {}
        """Keys added here, in order."""
        self._keys: tuple[K, ...] | None = None
        """Keys of the live state when the snapshot was detached; None before."""

    # --- calls by the snapshot

    def __getitem__(self, key: K) -> V:
        with self._lock:
            if key in self._own:
                return self._own[key]
            if key in self._gone:
                raise KeyError(key)
            own = self._own[key] = self._copy(self.source[key])
            return own

    def __setitem__(self, key: K, value: V) -> None:
        with self._lock:
            if key not in self:
                self._added[key] = None
            self._own[key] = value

    def __delitem__(self, key: K) -> None:
        with self._lock:
            if key not in self:
                raise KeyError(key)
            self._own.pop(key, None)
            if key in self._added:
                del self._added[key]
            else:
                self._gone.add(key)

    def __contains__(self, key: object) -> bool:
        with self._lock:
            return key in self._own or (key not in self._gone and key in self.source)

    def __iter__(self) -> Iterator[K]:
        with self._lock:
            keys = self.source if self._keys is None else self._keys
            there = [key for key in keys if key not in self._gone or key in self._own]
            return iter([*(key for key in there if key not in self._added), *self._added])

    def __len__(self) -> int:
        with self._lock:
            if self._keys is None:
                return len(self.source) - len(self._gone) + len(self._added)
            return sum(1 for _ in self)

    # --- calls by the live state

    def detach(self, lock: AbstractContextManager[object]) -> None:
        """Keep this content whatever the live state does; the live state must read through `GuardedRecords`."""
        self._lock = lock
        self._keys = tuple(self.source)

    def save(self, key: K, value: V) -> None:
        """Copy a record that the live state is about to read and may change."""
        with self._lock:
            if key not in self._own and key not in self._gone:
                self._own[key] = self._copy(value)

    def hide(self, key: K) -> None:
        """Exclude a record that the live state is about to add."""
        with self._lock:
            if key not in self._own:
                self._gone.add(key)


class GuardedRecords(MutableMapping[K, V], Generic[K, V]):
    """One mapping of the live state while snapshots are detached. It saves shared records before they can change."""

    def __init__(self, records: dict[K, V]) -> None:
        self.records = records
        self.branches: list[Branch[K, V]] = []

    def __getitem__(self, key: K) -> V:
        value = self.records[key]
        for branch in self.branches:
            branch.save(key, value)
        return value

    def __setitem__(self, key: K, value: V) -> None:
        if key in self.records:
            self[key]
        else:
            for branch in self.branches:
                branch.hide(key)
        self.records[key] = value

    def __delitem__(self, key: K) -> None:
        self[key]
        del self.records[key]

    def __contains__(self, key: object) -> bool:
        return key in self.records

    def __iter__(self) -> Iterator[K]:
        return iter(self.records)

    def __len__(self) -> int:
        return len(self.records)

    def values(self) -> ValuesView[V]:
        """For reading only."""
        return self.records.values()

    def items(self) -> ItemsView[K, V]:
        """For reading only."""
        return self.records.items()


class StateSnapshot(State):
    """A state that shares records with a live one and cannot change it. It has no lookup by name."""

    def __init__(self, live: State) -> None:
        super().__init__()
        self._live = live
        self.facts = replace(live.facts, tally=replace(live.facts.tally), sharing=copy(live.facts.sharing))
        self.jobs = self._branch(live.jobs, _copy_of_job)
        self.nodes = self._branch(live.nodes, _copy_of_node)
        self.agents = self._branch(live.agents, lambda node: self.nodes[node.key])
        self.samples = self._branch(live.samples, _copy_of_sample)
        self.history = self._branch(live.history, lambda sample: self.samples[sample.key])
        self.usage = self._branch(live.usage, copy)
        self.budget_periods = self._branch(live.budget_periods, copy)
        self.waiters = self._branch(live.waiters, dict)
        self.member_waiters = self._branch(live.member_waiters, dict)
        self.members = self._branch(live.members, dict)
        self.waiting_members = self._branch(live.waiting_members, dict)
        self.lost = live.lost
        self.registered = dict(live.registered)
        self.clusters = dict(live.clusters)
        self.conditions, self.lives = dict(live.conditions), dict(live.lives)
        self.keys = live.keys.copy()
        self.holders, self.uses = live.holders, live.uses
        self.caps = live.caps
        self.queues = live.queues
        self.policies = replace(live.policies, disabled=dict(live.policies.disabled))
        self.tokens = dict(live.tokens)
        self.reservations = dict(live.reservations)
        self.secrets = dict(live.secrets)
        self.machines, self.pools, self.spends = dict(live.machines), dict(live.pools), dict(live.spends)
        self.groups = {job: dict(machines) for job, machines in live.groups.items()}
        self.earmarked = {job: dict(machines) for job, machines in live.earmarked.items()}
        self.live_rented = {cluster: dict(machines) for cluster, machines in live.live_rented.items()}
        self.unsettled = {cluster: dict(machines) for cluster, machines in live.unsettled.items()}
        self.rented = live.rented
        self.loosened = live.loosened
        self.queued, self.granted_due, self.running = live.queued, live.granted_due, live.running
        self.partly_due = dict(live.partly_due)
        self.live, self.alive = dict(live.live), live.alive
        self.live_in = dict(live.live_in)
        self.dirty = Dirty()
        self.moved = dict(live.moved)

    @staticmethod
    def _branch(records: dict[K, V], copy_of: Callable[[V], V]) -> dict[K, V]:
        source = cast("object", records)
        return cast(
            "dict[K, V]", Branch(source.records if isinstance(source, GuardedRecords) else records, copy_of)
        )

    def enter(self, job: Job) -> None:
        """Do nothing: no one looks up jobs by name in a snapshot."""

    def leave(self, job: Job) -> None:
        """See enter."""

    # --- while the live state changes

    def detach(self, lock: AbstractContextManager[object]) -> None:
        """Keep this content while the live state changes, until `release`; `lock` must be reentrant."""
        for name in _BRANCHED:
            branch = cast("Branch[Any, Any]", getattr(self, name))
            branch.detach(lock)
            records = getattr(self._live, name)
            if not isinstance(records, GuardedRecords):
                records = GuardedRecords(records)
                setattr(self._live, name, records)
            records.branches.append(branch)

    def release(self) -> None:
        """Stop saving records for this snapshot, which cannot be used afterwards. Harmless if it is not detached."""
        for name in _BRANCHED:
            records = getattr(self._live, name)
            if not isinstance(records, GuardedRecords):
                continue
            branch = getattr(self, name)
            records.branches = [each for each in records.branches if each is not branch]
            if not records.branches:
                setattr(self._live, name, records.records)


_BRANCHED: Final = (
    "jobs",
    "nodes",
    "agents",
    "samples",
    "history",
    "usage",
    "budget_periods",
    "waiters",
    "member_waiters",
    "members",
    "waiting_members",
)
"""Mappings of a state whose values are changed in place."""


def _copy_of_job(job: Job) -> Job:
    own = copy(job)
    if own.extra is not NO_EXTRA:
        own.extra = copy(own.extra)
        members = own.extra.members
        if members is not None:
            own.extra.members = replace(members, ended=dict(members.ended))
        gang = own.extra.gang
        if gang is not None:
            own.extra.gang = replace(gang, tasks=list(gang.tasks))
    return own


def _copy_of_sample(sample: Sample) -> Sample:
    return replace(sample, bins=sample.bins.copy(), runs=sample.runs.copy())


def _copy_of_node(node: Node) -> Node:
    return replace(node, holding=dict(node.holding), ahead=dict(node.ahead), granted=dict(node.granted))
