"""What a lane knows of the machines that take leases ahead of room, as those come, change and fill up."""

from msgspec.structs import replace

from spillover.core.nodes import Node
from spillover.deciding.machines import Machine
from spillover.deciding.protocols import Route
from spillover.deciding.rooms import Room
from spillover.deciding.seats import Seat
from spillover.model.ids import JobId, NodeName
from spillover.model.job import Shape
from spillover.model.policy import PolicySet
from spillover.model.resources import Resources
from spillover.model.units import SECOND
from spillover.policies.loading import load
from spillover.testing.world import OWNED

ROUTE: Route = load(PolicySet()).route


def a_node(name: str, *, cpu: int = 1000, offers: tuple[str, ...] = (), queue: int = 2) -> Node:
    return Node(OWNED.name, NodeName(name), 1, Resources(cpu, 0, 0), offers, {}, queue, pace=1)


def a_room(*nodes: Node) -> Room:
    room = Room(OWNED, SECOND)
    for node in nodes:
        room.refresh(node)
    return room


def ahead(seat: Seat) -> str | None:
    """Whose queue is next."""
    found = seat.ahead(ROUTE, 0)
    return None if found is None else found.name


def machine(room: Room, name: str) -> Machine:
    return room.by_name[NodeName(name)]


def test_a_queue_that_is_full_is_passed_over_until_a_trial_is_undone() -> None:
    room = a_room(a_node("one", queue=1), a_node("two", queue=1))
    seat = Seat(room, Shape(Resources(1000, 0, 0)))
    assert ahead(seat) == "one"
    before = machine(room, "one").free
    room.take_ahead(machine(room, "one"))
    assert ahead(seat) == "two"
    room.take_ahead(machine(room, "two"))
    assert ahead(seat) is None
    room.set(machine(room, "one"), before)
    assert ahead(seat) == "one"


def test_a_machine_that_joins_leaves_or_changes_is_seen() -> None:
    first = a_node("one")
    room = a_room(first)
    plain, with_gpu = Seat(room, Shape(Resources(1000, 0, 0))), Seat(room, Shape(Resources(), ("gpu:a100",)))
    assert (ahead(plain), ahead(with_gpu)) == ("one", None)
    second = a_node("two", offers=("gpu:a100",))
    room.refresh(second)
    assert (ahead(plain), ahead(with_gpu)) == ("one", "two")
    room.refresh(replace(first, status="draining"))
    assert ahead(plain) == "two"
    room.refresh(replace(second, capacity=Resources(500, 0, 0), offers=(), incarnation=2))
    assert ahead(plain) is None


def test_a_queue_that_empties_takes_leases_again() -> None:
    node = a_node("one", queue=1)
    room = a_room(node)
    seat = Seat(room, Shape(Resources(1000, 0, 0)))
    full = replace(node, ahead={JobId("job"): Resources(1000, 0, 0)})
    room.refresh(full)
    assert ahead(seat) is None
    room.refresh(node)
    assert ahead(seat) == "one"
