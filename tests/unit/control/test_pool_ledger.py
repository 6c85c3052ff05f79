"""Which calls to a provider are due, and what its answers and listings mean."""

import pytest
from msgspec.structs import replace

from spillover.control.pools.comparing import APART, Compared
from spillover.control.pools.knowledge import TRIES
from spillover.control.pools.ledger import AT_ONCE, BATCH, CALM, GRACE, PoolCalls, PoolLedger
from spillover.control.pools.orders import order_of
from spillover.core.events import AnyEvent, MachinesEnding, MachinesWanted, Wish
from spillover.core.pool_proposals import OpenPool, PausePool, SeeMade, SeeNotice
from spillover.core.proposals import AgentGone
from spillover.model.cluster import Billing, ClusterSpec, Price, Role
from spillover.model.ids import ClusterName, NodeName
from spillover.model.policy import Choice, PolicySet
from spillover.model.pools import (
    JoinTerms,
    MachineId,
    MachineState,
    Offer,
    Pool,
    RefusalCause,
    machine_id,
)
from spillover.model.resources import Resources
from spillover.model.units import HOUR, MINUTE, SECOND
from spillover.policies.loading import load
from spillover.ports.provider import (
    Created,
    Listed,
    Listing,
    Made,
    NotNow,
    Presence,
    Refused,
    Unknown,
    machine_name,
)
from spillover.testing.builders import a_job
from spillover.testing.world import START, World

CLOUD = ClusterName("cloud")
SMALL = Offer("small", Resources(4000, 2**40), 1_000_000, "a")
SPOT = replace(SMALL, spot=True, hour=250_000)
SPEC = ClusterSpec(
    CLOUD, "agents", Role.RENTED, Price(), Billing(step=HOUR), pool=Pool("process", (SMALL,), max=8)
)
OWNER = "0123456789abcdef"
M1, M2 = machine_id("cloud", 1), machine_id("cloud", 2)
TERMS = JoinTerms("10.0.0.1:7071", "ab" * 32, 5 * MINUTE, "ec2")


class Pooled:
    """A pool on a virtual clock: its book, its ledger, and a test that acts as its provider."""

    def __init__(self, *wanted: MachineId, spec: ClusterSpec = SPEC) -> None:
        self.world = World(load, PolicySet(wait=Choice("zero")), (spec,))
        self.world.propose(OpenPool(CLOUD, b"key", TERMS, "identity"))
        self.ledger = PoolLedger(CLOUD, OWNER)
        self.due()
        if wanted:
            self.order(*wanted)

    @property
    def monotonic(self) -> int:
        return self.world.now - START

    def order(self, *machines: MachineId, offer: Offer = SMALL) -> None:
        wishes = [Wish(each, offer, self.world.now + 10 * MINUTE) for each in machines]
        self.tell(MachinesWanted(CLOUD, self.world.now, tuple(wishes)))
        self.ledger.wanted(machines)
        self.due()

    def tell(self, event: AnyEvent) -> None:
        self.world.engine.apply(event)
        self.world.events.append(event)

    def end(self, *machines: MachineId) -> None:
        self.tell(MachinesEnding(CLOUD, self.world.now, machines, "enough"))

    def wait(self, seconds: float) -> None:
        self.world.now += int(seconds * SECOND)

    def restart(self) -> None:
        self.ledger = PoolLedger(CLOUD, OWNER)
        self.due()

    def due(self) -> PoolCalls:
        """Return what is due, after proposals."""
        for _ in range(10):
            due = self.ledger.due(self.world.state, self.world.now, self.monotonic)
            if not due.proposals:
                return due
            for each in due.proposals:
                self.world.propose(each)
            self.ledger.told(due.proposals)
        raise AssertionError("the ledger proposes the same again and again")

    def creates(self) -> list[str]:
        return [each.id for each in self.due().creates]

    def ask(self, answer: Created, *machines: MachineId) -> None:
        for each in machines or [each.id for each in self.due().creates]:
            self.ledger.asking(each)
            self.ledger.answered(each, answer, self.monotonic)

    def made(self, machine: MachineId = M1) -> None:
        self.ledger.asking(machine)
        self.ledger.answered(machine, Made(f"i-{machine}", self.world.now), self.monotonic)
        self.due()

    def ready(self, machine: MachineId = M1) -> None:
        self.made(machine)
        self.world.agent(machine, cpus=4, cluster="cloud")

    def lists(self, *machines: Listed, whole: bool = True, began: int | None = None) -> Compared:
        began = self.monotonic if began is None else began
        self.ledger.listing_began(self.monotonic)
        self.ledger.listing_ended()
        found = self.ledger.compare(self.world.state, Listing(START + began, whole, machines), began)
        for each in found.proposals:
            self.world.propose(each)
        return found

    def lists_twice(self, *machines: Listed) -> None:
        self.lists(*machines)
        self.wait(APART / SECOND)
        self.lists(*machines)

    def destroy(self, left: dict[str, str] | None = None) -> list[str]:
        ids = self.due().destroys
        if ids:
            self.ledger.destroying_ids(self.world.state, ids)
            self.ledger.destroyed(self.world.state, ids, left or {}, self.monotonic)
        return ids

    def state(self, machine: MachineId = M1) -> MachineState:
        return self.world.state.machines[machine].state


def listed(of: str = M1, presence: Presence = Presence.RUNNING, **other: object) -> Listed:
    """Return a machine of ours in a listing, with its tags."""
    made = Listed(f"i-{of}", presence, of, OWNER, machine_name(OWNER, of))
    return replace(made, **other)


# --- ordering


def test_a_wanted_machine_is_ordered_once() -> None:
    p = Pooled(M1)
    assert p.creates() == [M1]
    p.ledger.asking(M1)
    assert p.creates() == []
    p.ledger.answered(M1, Made("i-1", p.world.now), p.monotonic)
    assert p.creates() == []
    assert p.state() is MachineState.BOOTING


def test_an_answer_waits_until_it_can_be_written() -> None:
    p = Pooled(M1)
    p.ask(Made("i-1"))
    first = p.ledger.due(p.world.state, p.world.now, p.monotonic)
    again = p.ledger.due(p.world.state, p.world.now, p.monotonic)
    assert first.proposals == again.proposals == [SeeMade(CLOUD, M1, "i-1")]
    assert not again.creates
    p.due()
    assert p.state() is MachineState.BOOTING


def test_orders_are_sent_a_few_at_a_time() -> None:
    p = Pooled(*[machine_id("cloud", number) for number in range(1, 31)])
    first = p.due().creates
    assert len(first) == AT_ONCE
    for each in first:
        p.ledger.asking(each.id)
    assert p.creates() == []
    p.ledger.answered(first[0].id, Made("i-1"), p.monotonic)
    assert p.creates() == [machine_id("cloud", AT_ONCE + 1)]


def test_an_order_is_repeated_after_what_the_provider_asks() -> None:
    p = Pooled(M1)
    p.ask(NotNow("too many requests", 17.0))
    assert p.creates() == []
    assert p.due().again == p.monotonic + 17 * SECOND
    p.wait(17)
    assert p.creates() == [M1]


def test_an_order_without_an_answer_is_repeated_some_times_and_then_only_listed() -> None:
    p = Pooled(M1)
    for _ in range(TRIES):
        assert p.creates() == [M1]
        p.ask(Unknown("no answer"))
        p.wait(60)
        p.lists(whole=False)
    assert p.creates() == []
    assert p.state() is MachineState.WANTED
    p.lists_twice()
    assert p.state() is MachineState.REFUSED
    assert p.world.state.machines[M1].cause is RefusalCause.LOST


def test_an_order_without_an_answer_is_repeated_even_if_nothing_was_ever_listed() -> None:
    p = Pooled(M1)
    p.ask(Unknown("no answer"))
    p.wait(60)
    assert p.creates() == [M1]


def test_a_listing_finds_the_machine_of_an_order_without_an_answer() -> None:
    p = Pooled(M1)
    p.ask(Unknown("no answer"))
    p.lists(listed())
    assert p.state() is MachineState.BOOTING
    assert p.world.state.machines[M1].provider_id == "i-cloud-1"


def test_a_machine_without_tags_is_matched_by_its_name() -> None:
    p = Pooled(M1)
    p.ask(Unknown("no answer"))
    p.lists(listed(machine="", owner="", name=machine_name(OWNER, M1)))
    assert p.state() is MachineState.BOOTING


def test_not_now_does_not_make_an_unknown_answer_known() -> None:
    p = Pooled(M1)
    p.ask(Unknown("no answer"))
    p.wait(10)
    p.ask(NotNow("too many requests"))
    p.end(M1)
    p.due()
    assert p.state() is MachineState.ENDING  # it may exist
    p.wait(1)
    p.lists_twice()
    assert p.state() is MachineState.GONE


def test_a_machine_that_was_never_ordered_is_gone_at_once() -> None:
    p = Pooled(M1)
    p.end(M1)
    p.due()
    assert p.state() is MachineState.GONE


def test_a_machine_that_an_earlier_server_wanted_is_listed_before_it_is_ordered_again() -> None:
    p = Pooled(M1)
    p.restart()
    assert (p.creates(), p.due().lists) == ([], True)
    p.lists()
    assert p.creates() == [M1]
    p.restart()
    p.end(M1)
    p.due()
    assert p.state() is MachineState.ENDING


def test_a_machine_that_this_server_wanted_before_its_first_look_is_ordered_although_nothing_can_be_listed() -> (
    None
):
    p = Pooled()
    p.ledger = PoolLedger(CLOUD, OWNER)
    p.order(M1)
    p.ledger.listing_began(p.monotonic)
    p.ledger.listing_failed("no answer", p.monotonic)
    assert p.creates() == [M1]


def test_nothing_is_ordered_while_the_pool_is_paused_or_the_machine_could_not_join() -> None:
    p = Pooled(M1)
    p.world.propose(PausePool(CLOUD, "ada"))
    assert p.creates() == []
    p = Pooled(M1)
    p.wait(600)
    assert p.creates() == []


def test_a_refusal_is_told_and_not_repeated() -> None:
    p = Pooled(M1)
    p.ask(Refused(RefusalCause.CAPACITY, "none left"))
    assert p.creates() == []
    assert p.state() is MachineState.REFUSED


def test_an_order_is_the_same_for_each_repetition_and_another_server() -> None:
    p = Pooled(M1)
    machine = p.world.state.machines[M1]
    first = order_of(p.world.state, machine, OWNER)
    p.world.propose(OpenPool(CLOUD, b"other", replace(TERMS, server="10.0.0.2:1"), "other"))
    p.restart()
    assert order_of(p.world.state, p.world.state.machines[M1], OWNER) == first
    assert (first.join.server, first.join.pin, first.join.notices) == (TERMS.server, TERMS.pin, "ec2")
    assert (first.join.name, first.join.join_by) == (M1, machine.join_by)


# --- an API that fails


@pytest.mark.parametrize("answer", [NotNow("down"), Unknown("down")])
def test_an_api_that_fails_as_a_whole_gets_a_bounded_number_of_calls(answer: Created) -> None:
    many = [machine_id("cloud", number) for number in range(1, 201)]
    p = Pooled(*many)
    for each in many[150:]:
        p.made(each)
    p.end(*many[150:])
    calls = 0
    for _ in range(24 * 60):
        due = p.due()
        for machine in due.creates:
            p.ledger.asking(machine.id)
        for machine in due.creates:
            p.ledger.answered(machine.id, answer, p.monotonic)
        if due.destroys:
            p.ledger.destroying_ids(p.world.state, due.destroys)
            p.ledger.not_destroyed(p.world.state, due.destroys, "down", p.monotonic)
        if due.lists:
            p.ledger.listing_began(p.monotonic)
            p.ledger.listing_failed("down", p.monotonic)
        calls += len(due.creates) + bool(due.destroys) + due.lists
        p.wait(max(1.0, min(60.0, (due.again - p.monotonic) / SECOND)))
    assert p.ledger.problem
    hours = p.monotonic / HOUR
    assert 3 <= calls <= AT_ONCE + 3 * (10 + hours * 12)  # one call of each kind in five minutes


def test_one_answer_lets_all_calls_go_on() -> None:
    p = Pooled(*[machine_id("cloud", number) for number in range(1, 31)])
    p.ask(NotNow("down"))
    p.wait(1)
    (probe,) = p.due().creates
    p.ledger.asking(probe.id)
    p.ledger.answered(probe.id, Made("i-1"), p.monotonic)
    assert len(p.creates()) == AT_ONCE
    assert not p.ledger.problem


# --- destroying


def test_an_ending_machine_is_destroyed_and_a_listing_shows_that_it_is_gone() -> None:
    p = Pooled(M1)
    p.ready()
    p.lists(listed())
    p.end(M1)
    assert p.destroy() == ["i-cloud-1"]
    assert p.state() is MachineState.ENDING
    p.lists(listed(presence=Presence.STOPPING))
    assert p.state() is MachineState.GONE


def test_a_destroyed_machine_that_was_listed_before_is_gone_when_it_is_not_listed() -> None:
    p = Pooled(M1, M2)
    p.made(M1)
    p.made(M2)
    p.wait(1)
    p.lists(listed(M1))
    p.end(M1, M2)
    p.destroy()
    p.wait(1)
    assert p.due().lists
    p.lists()
    assert (p.state(M1), p.state(M2)) == (MachineState.GONE, MachineState.ENDING)
    p.wait(APART / SECOND)
    p.lists()
    assert p.state(M2) is MachineState.GONE


def test_a_machine_is_destroyed_again_while_listings_show_that_it_runs() -> None:
    p = Pooled(M1)
    p.made()
    p.end(M1)
    assert p.destroy() == ["i-cloud-1"]
    calls = 0
    for _ in range(120):
        p.wait(30)
        p.lists(listed())
        calls += bool(p.destroy())
    assert 10 <= calls <= 16
    assert p.state() is MachineState.ENDING


def test_a_machine_that_the_provider_does_not_destroy_is_tried_again() -> None:
    p = Pooled(M1)
    p.made()
    p.end(M1)
    assert p.destroy({"i-cloud-1": "it is protected"}) == ["i-cloud-1"]
    assert p.ledger.refusals == {"i-cloud-1": "it is protected"}
    assert p.destroy() == []
    p.lists_twice()  # only destroying it makes sure
    assert p.state() is MachineState.ENDING
    assert p.destroy() == ["i-cloud-1"]
    assert not p.ledger.refusals


def test_tasks_get_time_to_stop_before_their_machine_is_destroyed() -> None:
    p = Pooled(M1)
    p.ready()
    p.world.submit(a_job("one"))
    p.world.start("one")
    p.world.propose(PausePool(CLOUD, "ada", end=True))
    assert p.destroy() == []
    assert p.due().again <= p.monotonic + GRACE
    p.wait(GRACE / SECOND)
    assert p.destroy() == ["i-cloud-1"]


def test_a_machine_that_is_taken_back_is_destroyed_before_that() -> None:
    p = Pooled(M1)
    p.ready()
    p.world.submit(a_job("one"))
    p.world.start("one")
    p.world.propose(SeeNotice(CLOUD, M1, p.world.now + 10 * SECOND))
    p.end(M1)
    assert p.destroy() == []
    p.wait(10)
    assert p.destroy() == ["i-cloud-1"]


def test_many_machines_are_destroyed_in_batches() -> None:
    many = [machine_id("cloud", number) for number in range(1, BATCH + 11)]
    p = Pooled(*many)
    for each in many:
        p.made(each)
    p.end(*many)
    assert [len(p.destroy()), len(p.destroy()), len(p.destroy())] == [BATCH, 10, 0]


def test_a_machine_that_stopped_on_its_own_is_destroyed_because_it_may_cost_something() -> None:
    p = Pooled(M1)
    p.ready()
    p.lists(listed(presence=Presence.STOPPING))
    assert p.state() is MachineState.GONE
    assert p.destroy() == ["i-cloud-1"]
    p.wait(1)
    assert p.destroy() == []
    p.lists()
    p.wait(600)
    assert p.destroy() == []


# --- listings


def test_listings_are_due_at_once_and_then_regularly() -> None:
    p = Pooled()
    assert p.due().lists
    p.lists()
    assert not p.due().lists
    assert p.due().again == p.monotonic + CALM
    p.order(M1)
    assert p.due().again < p.monotonic + CALM


def test_a_listing_that_failed_is_repeated_after_a_short_pause() -> None:
    p = Pooled(M1)
    p.ledger.listing_began(p.monotonic)
    p.ledger.listing_failed("no answer", p.monotonic)
    assert not p.due().lists
    p.wait(1)
    assert p.due().lists


def test_a_listing_is_due_soon_after_an_agent_was_lost_but_not_again_and_again() -> None:
    p = Pooled(M1)
    p.ready()
    p.lists(listed())
    listings = 0
    for _ in range(60):
        p.wait(1)
        p.ledger.doubt()
        if p.due().lists:
            listings += 1
            p.lists(listed())
            assert listings > 1 or p.monotonic <= APART + SECOND
    assert listings == 6


def test_a_machine_that_two_whole_listings_do_not_show_is_gone() -> None:
    p = Pooled(M1)
    p.made()
    p.wait(1)
    p.lists()
    p.lists()  # too soon after the first: both may lag
    p.lists(whole=False)
    assert p.state() is MachineState.BOOTING
    p.wait(APART / SECOND)
    p.lists(whole=False)
    assert p.state() is MachineState.BOOTING
    p.lists()
    assert p.state() is MachineState.GONE


def test_a_listing_that_began_before_the_answer_proves_nothing() -> None:
    p = Pooled(M1)
    began = p.monotonic
    p.wait(1)
    p.made()
    p.wait(20)
    p.lists(began=began)
    p.lists(began=began + SECOND)
    p.lists()
    assert p.state() is MachineState.BOOTING


def test_a_machine_whose_agent_answers_is_not_gone_whatever_listings_say() -> None:
    p = Pooled(M1)
    p.ready()
    p.wait(1)
    p.lists_twice()
    assert p.state() is MachineState.READY
    assert p.lists().unlisted == [M1]
    p.world.propose(AgentGone(CLOUD, NodeName(M1), 1))
    p.lists_twice()
    assert p.state() is MachineState.GONE


def test_a_machine_that_was_taken_back_is_gone_at_once() -> None:
    p = Pooled(M1)
    p.ready()
    p.lists(listed(presence=Presence.GONE, interrupted=True, reason="taken back"))
    assert (p.state(), p.world.state.machines[M1].why) == (MachineState.GONE, "taken back")


def test_a_machine_of_ours_that_nothing_wants_is_ended_after_two_whole_listings() -> None:
    p = Pooled()
    stray = listed("cloud-7")
    p.lists(stray)
    p.lists(stray)
    p.lists(stray, whole=False)
    assert not p.world.state.machines
    assert p.due().again == p.monotonic + 30 * SECOND
    p.wait(APART / SECOND)
    p.lists(stray)
    assert p.state(MachineId("cloud-7")) is MachineState.ENDING
    assert p.destroy() == ["i-cloud-7"]


@pytest.mark.parametrize(
    "stray",
    [
        listed("cloud-7", owner="someone else"),
        listed("cloud-7", owner="", machine="", name="their-machine"),
        listed("cloud-7", presence=Presence.GONE),
    ],
)
def test_machines_of_others_and_those_that_are_gone_are_left_alone(stray: Listed) -> None:
    p = Pooled()
    p.lists_twice(stray)
    p.wait(60)
    p.lists(stray)
    assert not p.world.state.machines
    assert p.destroy() == []


def test_a_machine_of_ours_without_tags_is_known_by_its_name() -> None:
    p = Pooled(M1)
    p.end(M1)
    p.due()
    p.lists_twice(listed(owner="", machine=""))
    assert p.state() is MachineState.ENDING
    assert p.destroy() == ["i-cloud-1"]


def test_a_machine_without_tags_and_name_is_known_by_its_id() -> None:
    nameless = listed(owner="", machine="", name="")
    p = Pooled(M1)
    p.ready()
    p.lists_twice(nameless)
    assert p.state() is MachineState.READY
    p.end(M1)
    p.destroy()
    p.wait(1)
    p.lists()
    assert p.state() is MachineState.GONE
    p.lists_twice(nameless)
    assert p.destroy() == ["i-cloud-1"], "it was not destroyed after all"


def test_a_second_machine_for_one_wish_is_ended() -> None:
    p = Pooled(M1)
    p.made()
    p.lists_twice(listed(), listed(id="i-2"))
    assert p.state() is MachineState.BOOTING
    assert p.destroy() == ["i-2"]


def test_a_late_order_of_an_old_leader_is_found_and_ended() -> None:
    p = Pooled(M1)
    p.restart()
    p.end(M1)
    p.lists_twice()
    assert p.state() is MachineState.GONE
    p.lists_twice(listed())
    assert p.destroy() == ["i-cloud-1"]
    p.lists(listed(presence=Presence.GONE))
    assert p.state() is MachineState.GONE


# --- prices


def test_spot_prices_are_asked_for_every_few_minutes() -> None:
    pool = replace(SPEC, pool=Pool("process", (SMALL, SPOT)))
    assert not Pooled().due().prices
    p = Pooled(spec=pool)
    assert p.due().prices
    p.ledger.prices_asked(p.monotonic)
    p.ledger.pricing.worked()
    assert not p.due().prices
    p.wait(300)
    assert p.due().prices
