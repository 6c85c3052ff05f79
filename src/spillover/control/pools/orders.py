"""Makes the order of a machine from the state alone, so that each repetition is the same to the byte."""

from spillover.core.records.machines import RentedMachine
from spillover.core.state import State
from spillover.model.tokens import join_token
from spillover.ports.provider import Join, Order, order_token


def order_of(state: State, machine: RentedMachine, owner: str) -> Order:
    """Return the order of a machine; its pool must be open."""
    terms = machine.terms
    join = Join(
        server=terms.server,
        cluster=machine.cluster,
        name=machine.id,
        token=join_token(state.pools[machine.cluster].key, machine.id),
        join_by=machine.join_by,
        pin=terms.pin,
        alone_for=terms.alone_for,
        notices=terms.notices,
    )
    token = order_token(owner, machine.id)
    return Order(machine.id, token, owner, machine.offer, join, machine.group, machine.nodes)
