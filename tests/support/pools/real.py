"""Pools of real servers whose machines are processes of a cloud that fails, and what must hold for them."""

from typing import Any, Final

from spillover.model.units import MONEY
from tests.support.clouds.programs import FaultyPrograms
from tests.support.pools.journal import paid_in, wishes
from tests.support.processes import ServerProcess, read_journal

PATIENCE: Final = 90.0
"""Seconds in which things happen that take long on a busy machine."""
BUDGET: Final = 20.0


def a_pool(cloud: FaultyPrograms, **changes: Any) -> dict[str, Any]:
    offer = {"type": "small", "cpu": 1, "memory": "256Mi", "hour": 0.1, "zones": [*"abcdefgh"]}
    pool = {
        "provider": {"command": cloud.options()},
        "offers": [offer],
        "max": 4,
        "boot": "1s",
        "idle": "2s",
        "alone_for": "0s",  # these machines are this machine
        "budget": {"per": "ever", "limit": BUDGET},
    }
    return {
        "clusters": [{"name": "cloud", "role": "rented", "pool": pool | changes}],
        "policy": {"wait": "zero", "unknown_runtime": "1m"},
    }


def check(server: ServerProcess, cloud: FaultyPrograms, budget: float = BUDGET) -> list[str]:
    """Check the journal of a stopped server; return the machines that were wanted."""
    events = read_journal(server.data)
    wanted = wishes(events)
    paid_in(events, round(budget * MONEY))
    assert [ids for ids in cloud.made().values() if len(ids) > 1] == [], "several machines for one wish"
    assert len(cloud.made()) <= len(wanted)
    return [*wanted]


def states(server: ServerProcess) -> dict[str, str]:
    """Return the states of all machines that may exist."""
    with server.client(patience=PATIENCE) as client:
        (pool,) = client.pools()
        return {each.id: each.state for each in pool.machines if each.state not in {"gone", "refused"}}


def running(server: ServerProcess) -> int:
    with server.client(patience=PATIENCE) as client:
        return client.server().running


def live(server: ServerProcess) -> list[str]:
    return [*states(server)]
