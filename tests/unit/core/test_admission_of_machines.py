"""A rented machine joins once, with a token that follows from the key of its pool, and gets a token of its own."""

from typing import Any

import pytest

from spillover.core.events import (
    AnyEvent,
    MachineAdmitted,
    MachinesEnding,
    MachinesWanted,
    TokenCreated,
    TokenRevoked,
    Wish,
)
from spillover.core.pool_proposals import AdmitMachine, OpenPool, SeeGone, SeeMade, SeeRefused
from spillover.core.proposals import Done, Jump, Refusal, Register, Registered, Reply
from spillover.model.cluster import ClusterSpec, Role
from spillover.model.ids import ClusterName, NodeName
from spillover.model.pools import MachineState, Offer, Pool, RefusalCause, machine_id
from spillover.model.resources import Resources
from spillover.model.tokens import TokenRole, digest_of, is_join_token, join_token, machine_of, read_token
from spillover.model.units import HOUR, MINUTE
from spillover.policies.loading import load
from spillover.testing.world import World
from tests.support.sameness import said_by

CLOUD = ClusterName("cloud")
SMALL = Offer("small", Resources(4000, 2**40), 1_000_000)
SPEC = ClusterSpec(CLOUD, "agents", Role.RENTED, pool=Pool("process", (SMALL,), min=1, max=1))
M1 = machine_id("cloud", 1)


def world() -> World:
    w = World(load, clusters=(SPEC,))
    w.propose(OpenPool(CLOUD, b"key"))
    tell(w, MachinesWanted(CLOUD, w.now, (Wish(M1, SMALL, w.now + 10 * MINUTE),)))
    return w


def tell(w: World, event: AnyEvent) -> None:
    w.engine.apply(event)
    w.events.append(event)


def admit(w: World, life: str = "first", token: str = "t1") -> Reply:
    return w.propose(AdmitMachine(CLOUD, M1, life, token, digest_of(f"secret of {token}")))


def register(w: World, token: str, number: int) -> Reply:
    resources = Resources(1000)
    return w.propose(Register(CLOUD, NodeName(M1), number, resources, (), {}, 0, (), token, admin=False))


def seen(w: World, kind: type[Any]) -> list[Any]:
    return [event for event in w.events if type(event) is kind]


def refused(reply: Reply, says: str) -> None:
    assert isinstance(reply, Refusal), reply
    assert says in reply.message
    assert "\n" not in reply.message


def test_a_join_token_follows_from_key_and_machine_alone() -> None:
    token = join_token(b"key", "my_cloud-7")
    assert token == join_token(b"key", "my_cloud-7")
    assert token.startswith("spj_my_cloud-7_")
    assert machine_of(token) == "my_cloud-7"
    assert is_join_token(token, b"key", "my_cloud-7")
    assert not is_join_token(token, b"other", "my_cloud-7")
    assert not is_join_token(token, b"key", "my_cloud-8")
    assert not is_join_token(join_token(b"", "m"), b"", "m"), "a pool that was never opened lets nobody join"
    assert read_token(token) is None
    assert [machine_of(text) for text in ("", "spj", "spj_a", "spj__x", "spt_a_b", "spj_a_")] == [None] * 6


def test_a_machine_gets_a_token_for_its_own_name_and_cluster() -> None:
    w = world()
    assert admit(w) == Done()
    token = w.state.tokens["t1"]
    assert (token.role, token.cluster, token.node) == (TokenRole.AGENT, CLOUD, M1)
    assert token.opens_with("secret of t1")
    assert (w.state.machines[M1].token, w.state.machines[M1].life) == ("t1", "first")
    assert w.state.machines[M1].state is MachineState.WANTED, "only its registration makes it ready"
    assert isinstance(register(w, "t1", 1), Registered)
    assert w.state.machines[M1].state is MachineState.READY


def test_a_second_machine_with_the_same_join_token_is_refused() -> None:
    w = world()
    admit(w)
    before = said_by(w.state)
    refused(admit(w, "second", "t2"), "the join token of machine cloud-1 was used already, and works once")
    assert said_by(w.state) == before


def test_an_answer_that_was_lost_does_not_lock_the_machine_out() -> None:
    w = world()
    admit(w)
    register(w, "t1", 1)
    w.wait(seconds=20 * 60)
    assert admit(w, "first", "t2") == Done(), "although its time to join is over"
    assert list(w.state.tokens) == ["t2"], "nobody has the other one"
    assert isinstance(register(w, "t2", 2), Registered)
    refused(register(w, "t1", 3), "belongs to a rented machine")


def test_a_join_token_expires() -> None:
    w = world()
    w.now += 10 * MINUTE
    refused(admit(w), "the join token of machine cloud-1 has expired at ")
    assert not w.state.tokens


def test_a_machine_whose_order_has_no_answer_yet_joins() -> None:
    w = world()
    assert admit(w) == Done()
    w.propose(SeeMade(CLOUD, M1, "i-1"))
    assert isinstance(register(w, "t1", 1), Registered)


@pytest.mark.parametrize("state", ["ending", "gone", "refused"])
def test_a_machine_that_is_given_up_cannot_join(state: str) -> None:
    w = world()
    if state == "ending":
        tell(w, MachinesEnding(CLOUD, w.now, (M1,), ""))
    elif state == "gone":
        w.propose(SeeGone(CLOUD, M1))
    else:
        w.propose(SeeRefused(CLOUD, M1, RefusalCause.QUOTA, "full"))
    refused(admit(w), f"machine cloud-1 is {state}; it cannot join any more")
    refused(
        w.propose(AdmitMachine(CLOUD, machine_id("cloud", 9), "x", "t", b"")), "there is no machine cloud-9"
    )
    assert not seen(w, MachineAdmitted)


def test_the_token_of_a_machine_ends_with_it_and_leaves_nothing() -> None:
    w = world()
    admit(w)
    register(w, "t1", 1)
    w.propose(SeeGone(CLOUD, M1))
    assert [event.token for event in seen(w, TokenRevoked)] == ["t1"]
    assert not w.state.tokens


def test_the_name_of_a_machine_is_for_its_own_agent_alone() -> None:
    w = world()
    refused(register(w, "of-a-person", 1), "the name 'cloud-1' belongs to a rented machine")
    admit(w)
    refused(register(w, "of-a-person", 2), "the name 'cloud-1' belongs to a rented machine")
    assert w.state.machines[M1].state is MachineState.WANTED


def test_events_show_neither_secret_nor_process() -> None:
    w = world()
    admit(w)
    (created,), (admitted,) = seen(w, TokenCreated), seen(w, MachineAdmitted)
    assert str(created) == "the pool created token t1 with role agent, cluster cloud, machine cloud-1"
    assert str(admitted) == "machine cloud-1 was admitted with token t1"
    assert "life" in admitted.hidden


def test_a_join_token_is_valid_for_longer_if_the_server_was_away_but_not_for_ever() -> None:
    for away, says in ((9 * HOUR, ""), (72 * HOUR, "has expired")):
        w = world()
        w.propose(Jump(away))
        w.now += away + MINUTE
        reply = admit(w)
        assert says in reply.message if isinstance(reply, Refusal) else not says
    late = world()
    late.propose(Jump(9 * HOUR))
    late.now += 9 * HOUR + 10 * MINUTE
    refused(admit(late), "has expired at")
