"""Tasks of gangs on an agent: it prepares them, says so, and starts them at the word of the server."""

from pathlib import Path

from msgspec.structs import replace

from spillover.agent.leases.gangs import gang_environment
from spillover.agent.leases.slurm import slurm_id
from spillover.agent.leases.values import (
    Answered,
    Discard,
    Exit,
    ForgetResult,
    GangStart,
    Instruction,
    Phase,
    Prepare,
    Readiness,
    Renewal,
    Restart,
    Signal,
    StartTask,
    Task,
)
from spillover.agent.tasks.gangs import GangFiles
from spillover.core.events import Lease
from spillover.core.proposals import Outcome, Verdict
from spillover.model.ids import JobId
from spillover.model.job import PythonCall, Shell
from spillover.model.resources import Resources
from spillover.model.units import SECOND
from tests.unit.agent.test_state import SHORT, Life, a_lease, a_task

LEADS = Readiness(1234, 4321, b"secret")
GANG = Task(Shell("true"), Resources(1000), tasks=3)


def rank(number: int, job: str = "g", attempt: int = 1, seq: int = 1) -> Lease:
    return Lease(JobId(job), attempt, seq, number)


def word(nodes: tuple[str, ...] = ("n1", "n2", "n1"), *, job: str = "g", seq: int = 1) -> GangStart:
    """The server's word that all tasks are prepared."""
    hosts = tuple(f"10.0.0.{node[1:]}" for node in nodes)
    return GangStart(JobId(job), 1, seq, nodes, hosts, 4321)


class GangLife(Life):
    """An agent that got tasks of a gang."""

    def hears(self, start: GangStart, *, stream: int | None = None, epoch: int = 1) -> list[Instruction]:
        """The instructions that follow the server's word."""
        files = {
            lease: {"SPILL_HOSTS": f"/hosts/{lease.task}"} for lease in self.state.gangs.waiting_for(start)
        }
        return self.state.start_gangs(self.now, stream or self.incarnation, epoch, [(start, files)])

    def prepares(self, *leases: Lease) -> None:
        for lease in leases:
            assert self.state.prepared(self.now, lease, LEADS if lease.task == 0 else Readiness()) == []

    def reported(self) -> dict[Lease, Readiness]:
        """What the next report says is prepared."""
        report, _ = self.state.report(self.now)
        return {} if report is None else dict(report.prepared)

    def answered(self) -> None:
        """The server answers the last report."""
        assert self.state.reported(self.now, Answered(1, False, (), ())) == []


def an_agent(cpu: int = 2000) -> GangLife:
    life = GangLife(cpu)
    life.registers()
    return life


def starts(out: list[Instruction]) -> list[Lease]:
    return [each.lease for each in out if isinstance(each, StartTask)]


# --- preparing and starting


def test_a_task_of_a_gang_is_prepared_and_starts_only_at_the_word_of_the_server() -> None:
    life = an_agent()
    assert life.gets(rank(0), rank(2), task=GANG) == [Prepare(rank(0), GANG), Prepare(rank(2), GANG)]
    assert life.passes(SECOND) == [], "it waits"
    assert not life.state.news()
    life.prepares(rank(0), rank(2))
    assert life.state.must_report_now(), "others wait for this"
    assert life.reported() == {rank(0): LEADS, rank(2): Readiness()}
    out = life.hears(word())
    assert starts(out) == [rank(0), rank(2)]
    assert life.hears(word()) == [], "a word that is said twice starts nothing again"


def test_a_task_that_is_not_prepared_does_not_start() -> None:
    life = an_agent()
    life.gets(rank(0), rank(2), task=GANG)
    life.prepares(rank(2))
    assert starts(life.hears(word())) == [rank(2)]
    assert starts(life.hears(word(("n1",)))) == [], "nor one that the word does not cover"


def test_the_word_counts_for_its_own_lease_and_registration() -> None:
    life = an_agent()
    life.gets(rank(0), task=GANG)
    life.prepares(rank(0))
    assert life.hears(word(seq=2)) == life.hears(word(job="h")) == []
    assert life.hears(word(), stream=7) == [], "of an earlier registration"
    life.registers(epoch=3)
    (stale,) = life.hears(word(), epoch=2)
    assert "epoch 2" in str(stale)
    assert starts(life.hears(word(), epoch=3)) == [rank(0)]


def test_a_prepared_task_holds_its_capacity() -> None:
    life = an_agent(cpu=2000)
    life.gets(rank(0), task=GANG)
    assert starts(life.gets(a_lease("a"), a_lease("b"))) == [a_lease("a")]
    life.prepares(rank(0))
    assert starts(life.hears(word())) == [rank(0)]
    assert starts(life.ends(rank(0))) == [a_lease("b")]


def test_short_tasks_neither_share_the_slot_of_a_gang_nor_the_other_way_round() -> None:
    life = an_agent(cpu=1000)
    life.gets(a_lease("a"))
    life.starts(a_lease("a"))
    life.state.room.chains.learn(a_task(), 1)  # they are very short
    assert life.gets(rank(0), task=GANG) == []
    assert life.ends(a_lease("a")) == [Prepare(rank(0), GANG)]
    assert life.gets(a_lease("b"), task=replace(GANG, tasks=0)) == []
    call = Task(PythonCall("m:f"), Resources(1000), tasks=2)
    other = an_agent(cpu=1000)
    other.gets(rank(0), task=call)
    other.state.room.chains.learn(call, 1)
    assert other.gets(a_lease("c"), task=replace(call, tasks=0)) == []


# --- giving back


def test_a_task_that_cannot_be_prepared_gives_its_capacity_back_with_the_reason() -> None:
    life = an_agent(cpu=1000)
    life.gets(rank(1), a_lease("a"), task=GANG)
    out = life.state.unprepared(life.now, rank(1), "no space left on device")
    result = life.state.results[rank(1)]
    assert (result.outcome, result.message) == (Outcome.NOT_STARTED, "no space left on device")
    assert out == [Prepare(a_lease("a"), GANG)]
    assert life.state.gangs.discarded() == [Discard(rank(1))]
    life.prepares(rank(1))
    assert life.reported() == {}, "it is too late"


def test_a_gang_that_is_stopped_before_it_starts_is_discarded() -> None:
    life = an_agent()
    life.gets(rank(0), rank(2), task=GANG)
    life.prepares(rank(0))
    life.beats(Renewal(1, stops=((rank(0), False), (rank(2), True))))
    assert [life.state.results[each].outcome for each in (rank(0), rank(2))] == [Outcome.STOPPED] * 2
    assert life.state.gangs.discarded() == [Discard(rank(0)), Discard(rank(2))]
    assert life.state.gangs.discarded() == []
    assert life.hears(word()) == []
    assert life.state.room.free == life.state.room.capacity


def test_a_gang_is_given_back_when_its_term_is_over_and_when_the_agent_leaves() -> None:
    life = an_agent()
    life.gets(rank(0), task=GANG)
    life.prepares(rank(0))
    life.passes(SHORT)
    report, _ = life.state.report(life.now)
    assert report is not None
    assert (report.released, report.prepared) == ((rank(0),), ())
    other = an_agent()
    other.gets(rank(0), task=GANG)
    other.state.drain(other.now)
    assert other.state.gangs.discarded() == [Discard(rank(0))]
    assert other.state.room.free == other.state.room.capacity


def test_a_newer_lease_replaces_a_prepared_one() -> None:
    life = an_agent(cpu=1000)
    life.gets(rank(0), task=GANG)
    life.prepares(rank(0))
    assert life.gets(rank(0, seq=2), task=GANG) == [Prepare(rank(0, seq=2), GANG)]
    assert life.state.gangs.discarded() == [Discard(rank(0))]
    assert life.hears(word()) == []


# --- another server


def test_an_agent_names_what_it_has_prepared_whenever_it_registers() -> None:
    life = an_agent()
    life.gets(rank(0), rank(2), task=GANG)
    life.prepares(rank(0), rank(2))
    assert set(life.reported()) == {rank(0), rank(2)}
    life.state.unreported()
    assert set(life.reported()) == {rank(0), rank(2)}, "nobody answered"
    life.answered()
    assert life.reported() == {}
    assert dict(life.state.register(life.now)[0]) == {rank(0): Phase.WAITING, rank(2): Phase.WAITING}
    life.registers(keep=[rank(0)])
    assert life.state.gangs.discarded() == [Discard(rank(2))]
    assert life.reported() == {rank(0): LEADS}
    life.answered()
    life.hears(word())
    life.registers()
    assert life.reported() == {rank(0): LEADS}, "also while it runs, for those that missed the word"
    life.answered()
    life.ends(rank(0))
    life.registers()
    assert life.reported() == {}


# --- the environment


def test_each_task_knows_its_rank_its_node_and_the_others() -> None:
    start = word(("n1", "n1", "n2", "n1"))
    env = gang_environment(start, 3, GANG, {"SPILL_HOSTS": "/hosts/3", "OMPI_MCA_plm": "rsh"})
    assert (
        env.items()
        >= {
            "SPILL_TASK": "3",
            "SPILL_TASKS": "4",
            "SPILL_LOCAL_TASK": "2",
            "SPILL_LOCAL_TASKS": "3",
            "SPILL_NODE": "n1",
            "SPILL_NODE_RANK": "0",
            "SPILL_NODES": "2",
            "SPILL_HOSTS": "/hosts/3",
            "MASTER_ADDR": "10.0.0.1",
            "MASTER_PORT": "4321",
            "RANK": "3",
            "WORLD_SIZE": "4",
            "LOCAL_RANK": "2",
            "LOCAL_WORLD_SIZE": "3",
            "SLURM_PROCID": "3",
            "SLURM_NODEID": "0",
            "SLURM_JOB_NODELIST": "10.0.0.1,10.0.0.2",
            "SLURM_TASKS_PER_NODE": "3,1",
            "PMI_RANK": "3",
            "OMPI_COMM_WORLD_SIZE": "4",
            "OMPI_MCA_plm": "rsh",
        }.items()
    )
    assert gang_environment(start, 2, GANG, {})["LOCAL_RANK"] == "0"


def test_files_name_the_host_of_each_task_and_the_slots_of_each_node(tmp_path: Path) -> None:
    start = replace(word(("n1", "n2", "n1")), shells=(5000, 5001, 5002))
    names = GangFiles(tmp_path).write(rank(1), start)
    assert Path(names["SPILL_HOSTS"]).read_text() == "10.0.0.1\n10.0.0.2\n10.0.0.1\n", "by rank"
    assert Path(names["OMPI_MCA_orte_default_hostfile"]).read_text() == "n1 slots=2\nn2 slots=1\n"
    assert Path(names["HYDRA_HOST_FILE"]).read_text() == "n1:2\nn2:1\n"


def test_variables_of_the_job_win_but_for_ours() -> None:
    task = replace(GANG, env={"MASTER_PORT": "1", "SPILL_TASK": "9", "SPILL_HOSTS": "x", "A": "b"})
    env = gang_environment(word(), 1, task, {"SPILL_HOSTS": "/hosts/1"})
    assert (env["MASTER_PORT"], env["SPILL_TASK"], env["SPILL_HOSTS"], env["A"]) == (
        "1",
        "1",
        "/hosts/1",
        "b",
    )


def test_the_job_id_of_slurm_is_a_number_and_the_same_everywhere() -> None:
    assert slurm_id(JobId("abcdefghijkl")) == slurm_id(JobId("abcdefghijkl"))
    assert 0 < int(slurm_id(JobId("abcdefghijkl"))) < 2**31
    assert slurm_id(JobId("abcdefghijkm")) != slurm_id(JobId("abcdefghijkl"))


# --- tasks that start again in their place

AGAIN = replace(GANG, restarts=True, walltime=60 * SECOND)


def a_failed_task(life: GangLife, task: Task = AGAIN) -> list[Instruction]:
    """A task of a gang starts and fails; the report about it is under way."""
    life.gets(rank(1), task=task)
    life.prepares(rank(1))
    life.reports()
    life.hears(word())
    life.state.started(life.now, rank(1), life.now)
    life.reports()
    life.now += 10 * SECOND
    return life.ends(rank(1), code=3)


def test_a_task_that_may_start_again_keeps_its_room_until_the_answer() -> None:
    life = an_agent(1000)
    assert a_failed_task(life) == []
    assert life.gets(a_lease("other")) == [], "its room is kept"
    report, _ = life.state.report(life.now)
    assert report is not None
    assert report.waiting == {rank(1)}
    life.state.unreported()
    out = life.reports(Verdict.ACCEPTED)
    assert starts(out) == [a_lease("other")], "it does not start again, so there is room"


def test_it_starts_again_with_what_it_had_and_the_rest_of_its_walltime() -> None:
    life = an_agent(1000)
    a_failed_task(life)
    life.gets(a_lease("other"))
    [_, again] = life.reports(Verdict.RESTART)
    assert isinstance(again, Restart)
    assert (again.lease, again.start) == (rank(1), word())
    assert (again.task.env["RANK"], again.task.env["SPILL_RESTART"]) == ("1", "1")
    assert again.task.walltime == 50 * SECOND
    life.state.started(life.now, rank(1), life.now)
    life.reports()
    assert life.ends(rank(1), code=0) == [StartTask(a_lease("other"), a_task())]
    report, _ = life.state.report(life.now)
    assert report is not None
    assert ([result.run for result in report.results], report.waiting) == ([1], frozenset())


def test_a_changed_walltime_counts_from_the_first_start_also_when_it_starts_again() -> None:
    life = an_agent(1000)
    a_failed_task(life)
    life.beats(Renewal(1, walltimes=((rank(1), 30 * SECOND),)))
    [*_, again] = life.reports(Verdict.RESTART)
    assert isinstance(again, Restart)
    assert again.task.walltime == 20 * SECOND
    life.state.started(life.now, rank(1), life.now)
    for _ in range(2):
        life.beats(Renewal(1, walltimes=((rank(1), 25 * SECOND),)))
    assert life.passes(14 * SECOND) == []
    assert life.passes(SECOND) == [Signal(rank(1), kill=False)]


def test_a_task_that_succeeded_or_was_stopped_does_not_wait() -> None:
    life = an_agent(1000)
    a_failed_task(life, replace(AGAIN, restarts=False))
    report, _ = life.state.report(life.now)
    assert report is not None
    assert not report.waiting
    other = an_agent(1000)
    a_failed_task(other)
    other.reports(Verdict.RESTART)
    other.state.started(other.now, rank(1), other.now)
    other.state.leave(other.now)
    other.ends(rank(1), code=3)
    report, _ = other.state.report(other.now)
    assert report is not None
    assert not report.waiting


def test_an_agent_that_no_longer_has_the_task_says_that_it_is_lost() -> None:
    life = an_agent(1000)
    a_failed_task(life)
    [kept] = life.state.results.values()
    reborn = GangLife(1000)
    reborn.state.results[kept.lease] = kept
    reborn.registers()
    assert starts(reborn.reports(Verdict.RESTART)) == []
    [lost] = reborn.state.results.values()
    assert (lost.outcome, lost.run) == (Outcome.LOST, 1)


def test_a_task_whose_lease_ends_before_it_could_start_again_is_lost_and_not_given_back() -> None:
    life = an_agent(1000)
    a_failed_task(life)
    life.now += SHORT  # the server is silent for so long that the answer comes after the end of the lease
    [_, again, kill] = life.reports(Verdict.RESTART)
    assert (type(again), type(kill)) == (Restart, Signal)
    life.state.ended(life.now, rank(1), Exit(life.now, spawned=False))
    report, _ = life.state.report(life.now)
    assert report is not None
    assert report.released == (), "its gang runs, so the server would not take it back"
    assert [(result.outcome, result.run) for result in report.results] == [(Outcome.LOST, 1)]
    assert life.state.room.free == life.state.room.capacity


def test_an_agent_that_leaves_starts_nothing_again() -> None:
    life = an_agent(1000)
    a_failed_task(life)
    life.state.drain(life.now)
    assert [type(each) for each in life.reports(Verdict.RESTART)] == [ForgetResult]
    [stopped] = life.state.results.values()
    assert stopped.outcome is Outcome.STOPPED
    assert life.state.room.free == life.state.room.capacity
