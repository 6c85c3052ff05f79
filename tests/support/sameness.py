"""Compares two states by content, regardless of how each was produced."""

from typing import Any

import msgspec

from spillover.core.state import Dirty, State
from spillover.deciding.queue.index import SchedulingIndex
from spillover.wire.journal import changed_records, load_state


def said_by(state: State) -> dict[str, Any]:
    """Return the content of a state: records and indexes, in the order in which decisions read them."""
    return {
        "facts": msgspec.to_builtins(state.facts),
        "jobs": {job.id: msgspec.to_builtins(job) for job in state.jobs.values()},
        "nodes": [msgspec.to_builtins(node) for node in state.nodes.values()],
        "conditions": {name: msgspec.to_builtins(each) for name, each in state.conditions.items()},
        "clusters": list(state.clusters),
        "lives": [msgspec.to_builtins(each) for each in state.lives.values()],
        "keys": sorted(state.keys),
        "waiters": {job: sorted(waiters) for job, waiters in state.waiters.items()},
        "members": {job: sorted(members) for job, members in state.members.items()},
        "member waiters": {job: sorted(each) for job, each in state.member_waiters.items()},
        "waiting members": {job: sorted(members) for job, members in state.waiting_members.items()},
        "budget periods": {key: msgspec.to_builtins(period) for key, period in state.budget_periods.items()},
        "policies": msgspec.to_builtins(state.policies),
        "tokens": {token.id: msgspec.to_builtins(token) for token in state.tokens.values()},
        "history": [msgspec.to_builtins(sample) for sample in state.history.values()],
        "usage": {using.project: msgspec.to_builtins(using) for using in state.usage.values()},
        "queued": state.queued,
        "running": state.running,
        "live": dict(state.live),
        "live in queues": dict(state.live_in),
        "found": state.findable,
    }


def indexed_by(index: SchedulingIndex) -> object:
    """Return everything in an index that can affect a plan or its time."""
    return (
        sorted(index.fresh),
        sorted(index.waits.patient),
        sorted(index.alarms.heap),
        index.next_time(),
        index.gained,
        {lane.key: head for lane, head in index.queue.first.items()},
        {lane.key: head for lane, head in index.due.first.items()},
    )


class Checkpoints:
    """Records as a store keeps them, updated by checkpoints."""

    def __init__(self) -> None:
        self._records: dict[tuple[str, str], bytes] = {}

    def write(self, state: State) -> None:
        """Write one checkpoint."""
        for key, body in changed_records(state, state.dirty).items():
            if body is None:
                self._records.pop(key, None)
            else:
                self._records[key] = body
        state.dirty = Dirty()

    def load(self) -> State:
        """Load the state as a server would at its start."""
        return load_state([(kind, key, body) for (kind, key), body in sorted(self._records.items())])
