"""Stories of gangs on pools: machines that were ordered for a gang are kept for it until it starts, and not for ever."""

from spillover.core.events import AgentRegistered, Decided, MachinesDraining, MachinesWanted
from spillover.core.pool_proposals import PausePool, SeeGone, SeeMade
from spillover.core.proposals import Act
from spillover.deciding.explain.explain import reason_of
from spillover.deciding.forward import as_expected, run_forward
from spillover.deciding.whatif import Snapshot
from spillover.model.ids import JobId, NodeKey
from spillover.model.pools import MachineId, MachineState
from spillover.model.reasons import KeptForGang, MachineComing
from spillover.model.units import MINUTE, SECOND
from spillover.testing.world import World
from tests.support.pools.worlds import CLOUD, GIB, boot, in_state, rented, replayed, wanted, why, world


def join(w: World, machine: MachineId, *, queue: int = 0) -> None:
    """Let one machine be made and join at once."""
    w.propose(SeeMade(CLOUD, machine, f"i-{machine}", w.now))
    w.agent(machine, cpus=4, memory=16 * GIB, cluster="cloud", queue=queue)


def a_half_ready_gang(**pool: int) -> tuple[World, MachineId, MachineId]:
    """A gang of two whose first machine is ready and whose second one is not."""
    w = world(**pool)
    w.submit(rented("g").tasks(2))
    first, second = in_state(w, MachineState.WANTED)
    join(w, first)
    return w, first, second


def on(w: World, gang: str) -> set[str]:
    """Return the machines that a gang runs on."""
    return {task.node for task in w.job(gang).tasks}


def test_other_jobs_leave_a_ready_machine_to_the_gang_that_it_was_ordered_for() -> None:
    w, _, second = a_half_ready_gang()
    w.submit(rented("a", 1), rented("b", 1, minutes=0.1))
    assert (w.where("a"), w.where("b")) == (None, None)
    assert len(wanted(w)) == 3, "they share a machine of their own"
    join(w, second)
    assert len(w.job("g").tasks) == 2
    assert len(wanted(w)) == 3, "the gang is not ordered again"
    assert replayed(w).difference is None


def test_what_a_gang_leaves_of_its_machines_is_free_for_others_once_it_has_started() -> None:
    w = world(max=2)
    w.submit(rented("g", 3).tasks(2))
    first, second = in_state(w, MachineState.WANTED)
    join(w, first)
    w.submit(rented("a", 1))
    assert w.where("a") is None
    join(w, second)
    assert w.where("a") in {f"cloud/{first}", f"cloud/{second}"}


def test_two_gangs_do_not_take_machines_of_each_other() -> None:
    w = world()
    w.submit(rented("one").tasks(2))
    w.submit(rented("two").tasks(2))
    ours = in_state(w, MachineState.WANTED)
    join(w, ours[0])
    join(w, ours[2])
    assert w.placed() == []
    join(w, ours[3])
    assert on(w, "two") == {*ours[2:]}
    join(w, ours[1])
    assert on(w, "one") == {*ours[:2]}


def test_a_ready_machine_is_not_given_back_while_the_gang_waits_for_the_others() -> None:
    w, first, second = a_half_ready_gang()
    w.wait(seconds=300)
    assert not list(w.happened(MachinesDraining)), "it is empty for longer than a boot time"
    join(w, second)
    assert on(w, "g") == {first, second}


def test_machines_are_free_for_others_when_the_gang_leaves_the_queue() -> None:
    for act in (Act.CANCEL, Act.HOLD):
        w, first, _ = a_half_ready_gang(max=2)
        w.submit(rented("a"))
        assert w.where("a") is None
        w.act(act, "g")
        assert w.where("a") == f"cloud/{first}"


def test_machines_are_free_for_others_when_a_machine_of_the_group_fails() -> None:
    w, first, second = a_half_ready_gang(max=2)
    w.submit(rented("a"))
    w.propose(SeeGone(CLOUD, second, "vanished"))
    assert w.where("a") == f"cloud/{first}"


def test_a_machine_that_does_not_join_lets_the_others_go() -> None:
    w, first, _ = a_half_ready_gang(max=2, join_within=5 * MINUTE)
    w.submit(rented("a", minutes=600))
    w.wait(seconds=299)
    assert w.where("a") is None
    w.wait(seconds=2)
    assert w.where("a") == f"cloud/{first}"


def test_machines_are_not_kept_for_ever_for_a_gang_that_does_not_start() -> None:
    w, first, second = a_half_ready_gang(max=2)
    w.submit(rented("a"))
    w.propose(SeeMade(CLOUD, second, "i-2", w.now))
    w.agent(second, cpus=1, memory=16 * GIB, cluster="cloud")  # smaller than its offer
    assert w.placed() == []
    w.wait(seconds=59)
    assert w.where("a") is None
    w.wait(seconds=2)
    assert w.where("a") == f"cloud/{first}"
    assert replayed(w).difference is None


def test_a_job_is_not_expected_on_machines_that_come_for_a_gang() -> None:
    w = world()
    w.submit(rented("g").tasks(2))
    w.submit(rented("a"))
    assert len(wanted(w)) == 3
    ahead = Snapshot(w.engine)
    starts = run_forward(ahead, w.now, [JobId("a"), JobId("g")], as_expected(ahead), 1000)
    assert starts.at == {"a": w.now + 90 * SECOND, "g": w.now + 90 * SECOND}


def test_agents_do_not_prefetch_on_machines_that_are_kept() -> None:
    w = world(max=2)
    w.submit(rented("g").tasks(2))
    first, _ = in_state(w, MachineState.WANTED)
    join(w, first, queue=4)
    w.submit(rented("a"))
    assert w.where("a") is None
    assert not w.state.agents[NodeKey(f"cloud/{first}")].held


def test_why_says_what_others_and_the_gang_wait_for() -> None:
    w, _, second = a_half_ready_gang(max=3)
    w.submit(rented("a"), rented("b"))
    third = in_state(w, MachineState.WANTED)[-1]
    gang, other = reason_of(w.engine, w.job("g")), reason_of(w.engine, w.job("a"))
    assert isinstance(gang, MachineComing)
    assert (gang.machine, gang.count) == (second, 1)
    assert isinstance(other, MachineComing)
    assert other.machine == third
    full, _, _ = a_half_ready_gang()
    full.propose(PausePool(CLOUD, "ada"))
    full.submit(rented("a"))
    assert "paused" in why(full, "a")


def test_why_names_the_gang_that_a_free_machine_is_kept_for() -> None:
    w, first, _ = a_half_ready_gang(rate=2)
    w.submit(rented("a"))
    assert reason_of(w.engine, w.job("a")) == KeptForGang(CLOUD, JobId("g"), 1)
    assert why(w, "a") == "1 free machine of cloud is kept for g, until it starts"
    assert w.where("a") != f"cloud/{first}"


def test_plans_of_earlier_releases_replay_as_they_were_made() -> None:
    w, first, _ = a_half_ready_gang()
    w.engine.rules = 3
    w.submit(rented("a", minutes=600))
    assert w.where("a") == f"cloud/{first}", "nothing was kept for gangs"
    assert [each.rules for each in w.happened(Decided)][-1] == 3
    assert replayed(w).difference is None
    assert list(w.happened(AgentRegistered))
    assert list(w.happened(MachinesWanted))


def test_a_gang_on_ready_machines_starts_there_although_machines_come_for_it() -> None:
    w = world()
    w.submit(rented("g").tasks(2), rented("a", minutes=1), rented("b", minutes=1))
    boot(w)
    assert len(w.placed()) == 3


def test_machines_are_ordered_for_one_gang_of_an_array_after_the_other() -> None:
    w = world()
    w.submit(rented("arr").array(1, 3).tasks(2))
    ours = in_state(w, MachineState.WANTED)
    assert len(ours) == 2
    w.submit(rented("a", 1))
    join(w, ours[0])
    assert on_array(w) == {}
    join(w, ours[1])
    assert on_array(w) == {"arr.1": {*ours}}
    assert len(in_state(w, MachineState.WANTED)) == 3, "two for the next gang, and one for the other job"
    boot(w)
    assert set(on_array(w)) == {"arr.1", "arr.2"}
    for index in (1, 2):
        w.finish(f"arr.{index}")
    assert set(on_array(w)) == {"arr.3"}
    w.finish("arr.3")
    assert w.state_of("arr") == "SUCCEEDED"
    assert replayed(w).difference is None


def on_array(w: World) -> dict[str, set[str]]:
    """Return the machines of each gang of the array."""
    return {job: on(w, job) for job in w.placed() if job.startswith("arr.")}
